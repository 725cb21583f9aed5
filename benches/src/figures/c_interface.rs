//! `c-interface`: calls through `ifunc_rt.h` by programs in C, beside the same calls through the Rust API.

use anyhow::Result;

use super::Figure;
use super::calls::Pair;
use super::settings::{LOOPBACK, Setting};
use crate::Bench;
use crate::plan::Plan;
use crate::roles::Compiled;
use crate::row::Row;
use crate::slots::{Payload, Series, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "c-interface",
    title: "calls with an answer of 8 bytes through the C interface, beside the Rust API: round trips",
    run,
};

/// UCX over shared memory, in a setting in which endpoints like ours use it. A listener needs TCP.
const MEMORY: Setting = &[("UCX_TLS", "posix,tcp,self"), ("UCX_MM_ERROR_HANDLING", "y")];

/// How often the programs are started. Where the loader and the system put what a program uses makes it faster or slower by up to a
/// tenth for as long as it lives, of the same two programs in Rust as of these.
const STARTS: usize = 11;
/// Slots of each side, each time.
const EACH: usize = 3;

fn run(bench: &mut Bench) -> Result<()> {
    let compiled = Compiled::new()?;
    let (name, program) = compiled.variable()?;
    let memory = |side: &str| format!("shm:bench-{side}-{}", std::process::id());
    let carriers: [(_, _, Setting); 3] = [
        ("shm", [memory("c"), memory("rust")], &[]),
        (
            "ucx over shared memory",
            ["ucx://127.0.0.1:0".into(), "ucx://127.0.0.1:0".into()],
            MEMORY,
        ),
        (
            "ucx over TCP",
            ["ucx://127.0.0.1:0".into(), "ucx://127.0.0.1:0".into()],
            LOOPBACK,
        ),
    ];
    for (case, [ours, peers], setting) in carriers {
        let env = [setting, &[(name, program.as_str())]].concat();
        let slot = Slot::new(8, Payload::Fresh);
        let (starts, plan) = match bench.plan.quick {
            true => (1, bench.plan),
            false => (
                STARTS,
                Plan {
                    repetitions: EACH,
                    ..bench.plan
                },
            ),
        };
        let mut all = [Series::default(), Series::default()];
        let mut carried_by = [None, None];
        for start in 0..starts {
            let ours = || Pair::new("C", bench.cores, "calls-c", &ours, &env);
            let peer = || Pair::new("Rust", bench.cores, "calls", &peers, setting);
            // Neither always finds the memory that the other one has left.
            let (mut ours, mut peer) = if start % 2 == 0 {
                (ours()?, peer()?)
            } else {
                let peer = peer()?;
                (ours()?, peer)
            };
            let some = take_turns(&plan, slot, [&mut ours, &mut peer])?;
            all.iter_mut().zip(some).for_each(|(all, some)| all.append(some));
            carried_by = [&ours, &peer].map(|pair| Some(pair.carried_by().to_owned()));
        }
        let mut row = Row::latency(FIGURE.id, slot, &all[0], Some(&all[1]));
        row.case = case.into();
        row.peer_name = Some("source and target in Rust".into());
        row.carried_by = carried_by;
        row.note = format!(
            "source and target in C, linked with the shared library; all programs were started {starts} times"
        );
        bench.rows.push(row);
    }
    Ok(())
}
