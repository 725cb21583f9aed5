//! `host-call`: a host function called from an ifunc and through an ordinary GOT.

use anyhow::Result;

use super::Figure;
use crate::Bench;
use crate::c::Libraries;
use crate::program::Program;
use crate::row::Row;
use crate::slot_program::SlotProgram;
use crate::slots::{Payload, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "host-call",
    title: "a host call out of an ifunc, typed and checked, beside the same function through an ordinary GOT",
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    let libraries = Libraries::new()?;
    let provider = libraries.compile("step", include_str!("../../c/step.c"), &[])?;
    let library = libraries.compile("steps", include_str!("../../c/steps.c"), &[])?;
    let (provider, library) = (provider.to_string_lossy(), library.to_string_lossy());
    let at = bench.cores.target;
    let env = [("BENCH_PROVIDER", &*provider), ("BENCH_LIBRARY", &*library)];
    let mut ours = SlotProgram(Program::start("host-call", at, &[])?);
    let mut got = SlotProgram(Program::start("got-call", at, &env)?);
    let slot = Slot::new(8, Payload::Fresh);
    let [ours, got] = take_turns(&bench.plan, slot, [&mut ours, &mut got])?;
    let (ratio, spread) = ours.ratio(&got);
    let difference = ours.median() - got.median();
    bench.rows.push(Row {
        figure: FIGURE.id.into(),
        size: 8,
        ours: ours.median(),
        peer: Some(got.median()),
        peer_name: Some("a shared library that calls another's function through its GOT (cc -O2 -fPIC -fno-plt)".into()),
        ratio: Some(ratio),
        spread: Some(spread),
        unit: "ns".into(),
        note: format!(
            "The difference is {difference:.2} ns per call: the export's shim checks that an ifunc called and that there is space on the stack, and \
             notes that the thread is in the host until the function returns. The function multiplies and adds, and each call depends on the previous one."
        ),
        ..Row::default()
    });
    Ok(())
}
