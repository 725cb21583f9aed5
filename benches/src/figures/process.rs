//! `process`: an invocation in a runner process, beside the same one in the target.

use anyhow::Result;

use super::Figure;
use crate::Bench;
use crate::pair::Pattern;
use crate::program::Program;
use crate::row::Row;
use crate::slots::{Payload, Sample, Side, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "process",
    title: "a message to a runner process (`Level::Process`), beside the same message to the target itself",
    run,
};

/// A source and a target of a level in one program.
struct Level(Program);

impl Level {
    fn start(bench: &Bench, level: &str) -> Result<Self> {
        let other = bench.cores.source.to_string();
        let env = [("BENCH_LEVEL", level), ("BENCH_OTHER_CPU", &*other)];
        Ok(Self(Program::start("level", bench.cores.target, &env)?))
    }
}

/// A level and what it does in a slot.
struct LevelSide<'a>(&'a mut Level, Pattern);

impl Side for LevelSide<'_> {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.0.0.request(&(self.1, slot))
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let mut process = Level::start(bench, "process")?;
    let mut contained = Level::start(bench, "contained")?;
    let mut panics = Level::start(bench, "panics")?;
    for (name, pattern) in [("call", Pattern::PingPong), ("stream", Pattern::Stream)] {
        for size in [8, 4 << 10, 64 << 10] {
            let slot = Slot::new(size, Payload::Fresh);
            let [ours, contained, panics] = take_turns(
                &bench.plan,
                slot,
                [
                    &mut LevelSide(&mut process, pattern),
                    &mut LevelSide(&mut contained, pattern),
                    &mut LevelSide(&mut panics, pattern),
                ],
            )?;
            for (level, peer) in [("contained", &contained), ("default", &panics)] {
                let row = match pattern {
                    Pattern::PingPong => Row::latency(FIGURE.id, slot, &ours, Some(peer)),
                    Pattern::Stream => Row::rate(FIGURE.id, slot, &ours, Some(peer)),
                };
                bench.rows.push(Row {
                    case: format!("{name}, {level}"),
                    peer_name: Some("ours in the target, at the level that the case names".into()),
                    note: "source and target are one thread on one core, and the runner process has the other one; a call waits for its answer".into(),
                    ..row
                });
            }
        }
    }
    Ok(())
}
