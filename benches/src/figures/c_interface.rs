//! `c-interface`: calls through `ifunc_rt.h` by programs in C, beside the same calls through the Rust API.

use anyhow::Result;

use super::Figure;
use super::calls::Pair;
use super::settings::{LOOPBACK, Setting};
use crate::Bench;
use crate::roles::Compiled;
use crate::row::Row;
use crate::slots::{Payload, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "c-interface",
    title: "calls with an answer of 8 bytes through the C interface, beside the Rust API: round trips",
    run,
};

/// UCX over shared memory, in a setting in which endpoints like ours use it. A listener needs TCP.
const MEMORY: Setting = &[("UCX_TLS", "posix,tcp,self"), ("UCX_MM_ERROR_HANDLING", "y")];

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
        let mut ours = Pair::new("C", bench.cores, "calls-c", &ours, &env)?;
        let mut peer = Pair::new("Rust", bench.cores, "calls", &peers, setting)?;
        let slot = Slot::new(8, Payload::Fresh);
        let [our_series, their_series] = take_turns(&bench.plan, slot, [&mut ours, &mut peer])?;
        let mut row = Row::latency(FIGURE.id, slot, &our_series, Some(&their_series));
        row.case = case.into();
        row.peer_name = Some("source and target in Rust".into());
        row.carried_by = [&ours, &peer].map(|pair| Some(pair.carried_by().to_owned()));
        row.note = "source and target in C, linked with the shared library".into();
        bench.rows.push(row);
    }
    Ok(())
}
