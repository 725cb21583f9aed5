//! `drop-in`: the UCX ifunc interface of the systems before this one.

use anyhow::{Context, Result};
use ifunc_exec::library;

use super::Figure;
use super::settings::{Candidates, SHARED_MEMORY, Setting};
use crate::Bench;
use crate::pair::Pattern;
use crate::roles::dropin;
use crate::row::Row;
use crate::slots::{Payload, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "drop-in",
    title: "the UCX ifunc interface with code in every frame, beside UCX active messages of the same bytes, over shared memory",
    run,
};

/// Settings in which a put writes the other program's memory: it is mapped by both.
const MAPPED: &[Setting] = &[
    &[("UCX_TLS", "posix,self")],
    &[("UCX_TLS", "sysv,self")],
    &[("UCX_TLS", "sm,self")],
];

fn run(bench: &mut Bench) -> Result<()> {
    // Head, code, and trailer.
    let code = image_len()?.next_multiple_of(8) + 48;
    let mut ours = Candidates::start(bench, "drop-in", MAPPED)?;
    let bytes = code.to_string();
    let mut theirs = Candidates::start_with(bench, "ucx-am", SHARED_MEMORY, &[("BENCH_CODE", &bytes)])?;
    let sizes = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10];
    let tried = if bench.plan.quick { 2 } else { sizes.len() };
    for &size in &sizes[..tried] {
        let slot = Slot::new(size, Payload::Fresh);
        let (mapped, mine) = ours.best(&bench.plan, Pattern::PingPong, slot)?;
        let (setting, peer) = theirs.best(&bench.plan, Pattern::PingPong, slot)?;
        let sides = (
            &mut mine.side(Pattern::PingPong),
            &mut peer.side(Pattern::PingPong),
        );
        let [our_series, their_series] = take_turns(&bench.plan, slot, [sides.0, sides.1])?;
        let mut row = Row::latency(FIGURE.id, slot, &our_series, Some(&their_series));
        row.image = Some(code as u64);
        row.peer_name = Some(format!(
            "UCX active messages of {size} + {code} bytes, of which {size} are written and read, {setting}"
        ));
        row.carried_by = [mine.carried_by(), peer.carried_by()].map(|name| Some(name.into()));
        row.note = format!(
            "{mapped}; each frame is summed on both sides, and its code compared with what is installed"
        );
        bench.rows.push(row);
    }
    Ok(())
}

/// Length of the image that travels.
fn image_len() -> Result<usize> {
    let path = dropin::library()?;
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let images = library::images(&bytes).map_err(anyhow::Error::msg)?;
    let image = images.first().context("the library holds no image")?;
    Ok(image.for_unknown_peer().map_err(anyhow::Error::msg)?.len())
}
