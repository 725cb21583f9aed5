//! `scale`: what a message costs a target that has a thousand sources.

use anyhow::{Context, Result};

use super::Figure;
use super::settings::{LOOPBACK, Setting};
use crate::Bench;
use crate::program::Program;
use crate::row::Row;
use crate::scale::{Sent, Work};
use crate::slots::{Payload, Sample, Side, Slot, median, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "scale",
    title: "a message of one byte to a target with many sources, beside one to a target with a single source",
    run,
};

const SOURCES: &[usize] = &[10, 100, 1000];

/// A target and its sources, which are one program.
struct Crowd {
    sources: Program,
    _target: Program,
    /// Of each slot: messages of the slowest source ÷ those of the fastest.
    fairness: Vec<f64>,
    carried_by: String,
}

impl Crowd {
    fn start(bench: &Bench, address: &str, sources: usize, env: Setting) -> Result<Self> {
        let number = sources.to_string();
        let start = |role, cpu, address: &str| {
            let own = [("BENCH_ADDRESS", address), ("BENCH_SOURCES", &number)];
            Program::start(role, cpu, &[env, &own].concat())
        };
        let mut target = start("scale-target", bench.cores.target, address)?;
        let address: String = target.receive()?;
        let mut sources = start("scale-sources", bench.cores.source, &address)?;
        Ok(Self {
            carried_by: sources.receive_with_peer(&mut target)?,
            sources,
            _target: target,
            fairness: Vec::new(),
        })
    }
}

impl Side for Crowd {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        let sent: Sent = self.sources.request(&Work {
            messages: slot.operations,
        })?;
        self.fairness
            .push(sent.slowest as f64 / sent.fastest.max(1) as f64);
        Ok(Sample {
            ns: sent.ns,
            percentiles: None,
        })
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let numbers = if bench.plan.quick { &SOURCES[..1] } else { SOURCES };
    let own = std::process::id();
    let carriers: [(_, _, Setting); 2] = [
        (
            "shm",
            [
                format!("shm:bench-scale-{own}"),
                format!("shm:bench-single-{own}"),
            ],
            &[],
        ),
        (
            "ucx over TCP",
            ["ucx://127.0.0.1:0".into(), "ucx://127.0.0.1:0".into()],
            LOOPBACK,
        ),
    ];
    for (name, [many, single], env) in carriers {
        for &sources in numbers {
            let mut ours = Crowd::start(bench, &many, sources, env)
                .with_context(|| format!("{name}: {sources} sources"))?;
            let mut alone = Crowd::start(bench, &single, 1, env)?;
            // Each source has its turns, however many there are.
            let plan = crate::plan::Plan {
                slot: bench.plan.slot * (sources as u32).div_ceil(100),
                ..bench.plan
            };
            let slot = Slot::new(1, Payload::Fresh);
            let [all, one] = take_turns(&plan, slot, [&mut ours, &mut alone])?;
            let measured = ours.fairness.len().saturating_sub(plan.repetitions);
            let mut row = Row::latency(FIGURE.id, slot, &all, Some(&one));
            row.case = format!("{name}: {sources} sources");
            row.peer_name = Some("a single source".into());
            row.carried_by = [&ours, &alone].map(|side| Some(side.carried_by.clone()));
            row.note = format!(
                "messages of the slowest source ÷ those of the fastest: {:.2}",
                median(ours.fairness.split_off(measured))
            );
            bench.rows.push(row);
        }
    }
    Ok(())
}
