//! `slices`: the slice for x86-64-v3 of a library, beside the one for every x86-64 CPU.

use anyhow::{Context, Result, bail};
use ifunc_abi::machine::Machine;
use ifunc_build::{COptions, Cpu, Quiet, Slice, build_c};

use super::Figure;
use crate::Bench;
use crate::program::Program;
use crate::roles::KERNEL_BYTES;
use crate::row::Row;
use crate::slot_program::SlotProgram;
use crate::slots::{Payload, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "slices",
    title: "a round of a kernel by the slice for x86-64-v3, beside the slice for x86-64-v1 of the same library",
    run,
};

/// The ifuncs of `c/slices.c`, and what they compute.
const KERNELS: [(&str, &str); 2] = [
    ("popcount", "set bits of a vector"),
    ("product", "product of two vectors of f32"),
];

fn run(bench: &mut Bench) -> Result<()> {
    let better = Cpu::V3;
    let this_cpu = Machine {
        arch: ifunc_exec::ARCH,
        cpu_features: ifunc_exec::cpu_features(),
    };
    let needed = Machine {
        arch: better.arch(),
        cpu_features: better.features(),
    };
    if !this_cpu.runs(needed) {
        let why = format!("`slices` is not measured: this CPU is {this_cpu}, and not {better}");
        bench.rows.status().warning(why);
        return Ok(());
    }
    let folder = tempfile::tempdir().context("creating a folder for libraries")?;
    let file = folder.path().join("slices.c");
    std::fs::write(&file, include_str!("../../c/slices.c"))?;
    let options = COptions {
        target_dir: Some(folder.path().join("target")),
        cpu: Cpu::V1,
        slices: vec![Slice::of_cpu(better)],
        cflags: vec!["-O3".into()],
        ..COptions::default()
    };
    let built = build_c(&[file], &options, &mut Quiet)?;
    let at = bench.cores.target;
    for (name, what) in KERNELS {
        let Some(ifunc) = built.iter().find(|ifunc| ifunc.name == name) else {
            bail!("`c/slices.c` has no ifunc `{name}`");
        };
        let library = ifunc.path.to_string_lossy();
        let start = |cpu: Cpu| -> Result<SlotProgram> {
            let features = cpu.features().to_string();
            let env = [
                ("BENCH_LIBRARY", &*library),
                ("BENCH_KERNEL", name),
                ("BENCH_CPU_FEATURES", &*features),
            ];
            Ok(SlotProgram(Program::start("kernel", at, &env)?))
        };
        let (mut ours, mut least) = (start(better)?, start(Cpu::V1)?);
        let slot = Slot::new(KERNEL_BYTES, Payload::Static);
        let [ours, least] = take_turns(&bench.plan, slot, [&mut ours, &mut least])?;
        bench.rows.push(Row {
            case: what.into(),
            peer_name: Some("ours, by a target that states that it is x86-64-v1".into()),
            note: "a source sends each target the slice that suits it best; a call has as many rounds as take some 50 ms, and the compiler is told `-O3`".into(),
            ..Row::latency(FIGURE.id, slot, &ours, Some(&least))
        });
    }
    Ok(())
}
