//! `code-every-frame`: code that travels with every message.

use anyhow::Result;

use super::Figure;
use super::floors::Floor;
use super::settings::{Candidates, SHARED_MEMORY};
use super::shm::percentiles;
use crate::Bench;
use crate::images::SMALL;
use crate::pair::{Pair, Pattern};
use crate::program::Program;
use crate::row::Row;
use crate::slot_program::SlotProgram;
use crate::slots::{Payload, Side, Slot, take_turns, take_turns_all};

pub(crate) const FIGURE: Figure = Figure {
    id: "code-every-frame",
    title: "code that travels with every message over shared memory, beside UCX active messages of the same bytes",
    run,
};

/// Sizes of images, with the payload sizes for each. The ifunc that sums payloads of any length is larger
/// than the small image.
const IMAGES: [(usize, &[usize]); 2] = [(SMALL, &[8]), (8 << 10, &[8, 256, 4 << 10])];

/// The largest payload that a bare ring is a floor for: it asks for no line of a longer one before it needs it.
const LARGEST_OF_RING: usize = 256;

fn run(bench: &mut Bench) -> Result<()> {
    for (image, sizes) in IMAGES {
        known_code(bench, image, sizes)?;
        new_code(bench, image)?;
    }
    Ok(())
}

/// The same image in every frame, already installed on the target.
fn known_code(bench: &mut Bench, image: usize, sizes: &[usize]) -> Result<()> {
    let bytes = image.to_string();
    let code = ("BENCH_CODE", &*bytes);
    let mut ours = Pair::start("ifunc", bench.cores, &[("BENCH_ADDRESS", "shm:"), code])?;
    let mut candidates = Candidates::start_with(bench, "ucx-am", SHARED_MEMORY, &[code])?;
    let floor = |pattern| Floor::ring(bench.cores, pattern, image);
    let mut floors = [floor(Pattern::PingPong)?, floor(Pattern::Stream)?];
    for &size in sizes {
        let slot = Slot::new(size, Payload::Fresh);
        let cases = [("latency", Pattern::PingPong), ("rate", Pattern::Stream)];
        for ((case, pattern), floor) in cases.into_iter().zip(&mut floors) {
            let (setting, peer) = candidates.best(&bench.plan, pattern, slot)?;
            let (mut mine, mut theirs) = (ours.side(pattern), peer.side(pattern));
            let mut sides: Vec<&mut dyn Side> = vec![&mut mine, &mut theirs];
            let name = format!(
                "{}, with the same bytes, of which the payload is read",
                floor.name()
            );
            if size <= LARGEST_OF_RING {
                sides.push(floor);
            }
            let series = take_turns_all(&bench.plan, slot, &mut sides)?;
            let (mine, theirs) = (&series[0], &series[1]);
            let mut row = match pattern {
                Pattern::PingPong => Row::latency(FIGURE.id, slot, mine, Some(theirs)),
                Pattern::Stream => Row::rate(FIGURE.id, slot, mine, Some(theirs)),
            };
            if let Some(bare) = series.get(2) {
                row = row.with_floor(&name, bare, Some(theirs));
            }
            row.case = format!("known code, {case}");
            row.image = Some(image as u64);
            row.peer_name = Some(format!(
                "UCX active messages of {size} + {image} bytes, of which {size} are written and read, {setting}"
            ));
            row.carried_by = [ours.carried_by(), peer.carried_by()].map(|name| Some(name.into()));
            if pattern == Pattern::PingPong {
                row.percentiles = percentiles(bench, slot, [&mut ours, peer])?;
            }
            bench.rows.push(row);
        }
    }
    Ok(())
}

/// A new image in every message, which the target hashes, installs, runs once and evicts.
fn new_code(bench: &mut Bench, image: usize) -> Result<()> {
    let mut target = Program::start("code-target", bench.cores.target, &[])?;
    let address: String = target.receive()?;
    let env = [("BENCH_ADDRESS", &*address)];
    let mut ours = SlotProgram(Program::start("arrivals-stream", bench.cores.source, &env)?);
    let slot = Slot::new(image, Payload::Fresh);
    let [ours] = take_turns(&bench.plan, slot, [&mut ours])?;
    bench.rows.push(Row {
        figure: FIGURE.id.into(),
        case: "new code".into(),
        size: 8,
        image: Some(image as u64),
        ours: ours.median(),
        spread: Some(ours.spread()),
        unit: "ns".into(),
        carried_by: [Some("shm".into()), None],
        note: "Nanoseconds per message, each with a new image, which the target hashes, installs, runs once, and evicts when it holds \
            4096; 64 are sent without waiting. The images are built beforehand."
            .into(),
        ..Row::default()
    });
    Ok(())
}
