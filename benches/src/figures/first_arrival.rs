//! `first-arrival`: code that the target does not have, until it has run, by size.

use anyhow::Result;

use super::Figure;
use super::floors::Floor;
use crate::Bench;
use crate::c::Libraries;
use crate::images::SMALL;
use crate::program::Program;
use crate::row::Row;
use crate::slot_program::SlotProgram;
use crate::slots::{Payload, Series, Side, Slot, take_turns, take_turns_all};

pub(crate) const FIGURE: Figure = Figure {
    id: "first-arrival",
    title: "unknown code, until it has run, beside memfd_create + dlopen of the same function",
    run,
};

/// Sizes of images in bytes. The first is little more than that of the function itself, with its entry for batches.
const SIZES: [usize; 3] = [SMALL, 4 << 10, 64 << 10];

const NOTE: &str = "Medians of single arrivals. Ours: the round trip of a call with new code, minus one of a call with installed code, so everything that \
    new code adds: copies into and out of the ring, hashing, validation, writing to the arena, running; and, when the target's cache is full, \
    the eviction of another image. The peer's bytes are already in its memory; closing is not timed.";

fn run(bench: &mut Bench) -> Result<()> {
    let libraries = Libraries::new()?;
    for size in SIZES {
        let more = format!("-DMORE={}", size - 100);
        let library = libraries.compile(
            &format!("count-{size}"),
            include_str!("../../c/count.c"),
            &[&more],
        )?;
        let library = library.to_string_lossy();
        let mut target = Program::start("code-target", bench.cores.target, &[])?;
        let address: String = target.receive()?;
        let start = |role, cpu, env: &[(&str, &str)]| Program::start(role, cpu, env).map(SlotProgram);
        let at = bench.cores.target;
        let mut ours = start("arrivals", bench.cores.source, &[("BENCH_ADDRESS", &address)])?;
        let mut hashed = start("dlopen-hashed", at, &[("BENCH_LIBRARY", &library)])?;
        let mut plain = start("dlopen", at, &[("BENCH_LIBRARY", &library)])?;
        let slot = Slot::new(size, Payload::Fresh);
        let mut floor = Floor::arrivals(bench.cores)?;
        let mut sides: Vec<&mut dyn Side> = vec![&mut ours, &mut hashed, &mut plain];
        sides.extend(floor.as_mut().map(|floor| floor as &mut dyn Side));
        let series = take_turns_all(&bench.plan, slot, &mut sides)?;
        let (ours, hashed, plain) = (&series[0], &series[1], &series[2]);
        let bare = series.get(3).zip(floor.as_ref());
        let with_floor = |row: Row, peer| match bare {
            Some((bare, floor)) => row.with_floor(floor.name(), bare, Some(peer)),
            None => row,
        };
        let length = std::fs::metadata(&*library)?.len();
        let by_dlopen = |hashed: &str| {
            format!("{hashed}memfd_create + dlopen + dlsym, a library of {length} bytes by cc -O2")
        };
        let of_hashed = row(size, "hashed", ours, hashed, by_dlopen("BLAKE3 + "));
        bench.rows.push(with_floor(of_hashed, hashed));
        let of_plain = row(size, "not hashed", ours, plain, by_dlopen(""));
        bench.rows.push(with_floor(of_plain, plain));
        let env = [("BENCH_SIGNED", "1")];
        let mut knows_key = Program::start("code-target", bench.cores.target, &env)?;
        let signed_address: String = knows_key.receive()?;
        let env = [("BENCH_ADDRESS", &*signed_address), ("BENCH_SIGNED", "1")];
        let mut signed = start("arrivals", bench.cores.source, &env)?;
        let mut unsigned = start("arrivals", bench.cores.source, &[("BENCH_ADDRESS", &address)])?;
        let [signed, unsigned] = take_turns(&bench.plan, slot, [&mut signed, &mut unsigned])?;
        let name = "ours, without a signature".into();
        bench.rows.push(row(size, "signed", &signed, &unsigned, name));
        #[cfg(feature = "wasm")]
        {
            let mut ours = start("arrivals", bench.cores.source, &[("BENCH_ADDRESS", &address)])?;
            let mut wasm = start("wasm", at, &[])?;
            let [ours, wasm] = take_turns(&bench.plan, slot, [&mut ours, &mut wasm])?;
            let name = "wasmtime: compile + instantiate + call".into();
            bench.rows.push(row(size, "WebAssembly", &ours, &wasm, name));
        }
    }
    Ok(())
}

fn row(size: usize, case: &str, ours: &Series, peer: &Series, peer_name: String) -> Row {
    let (ratio, spread) = ours.ratio(peer);
    Row {
        figure: FIGURE.id.into(),
        case: case.into(),
        size: size as u64,
        image: Some(size as u64),
        ours: ours.median(),
        peer: Some(peer.median()),
        peer_name: Some(peer_name),
        ratio: Some(ratio),
        spread: Some(spread),
        unit: "ns".into(),
        percentiles: [ours.percentiles(), peer.percentiles()],
        carried_by: [Some("shm".into()), None],
        note: NOTE.into(),
        ..Row::default()
    }
}
