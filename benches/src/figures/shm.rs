//! `lat-floor`, `lat-am`, `rate-am`: our messages over shared memory, beside UCX's.

use anyhow::Result;

use super::Figure;
use super::floors::{Copies, Lines};
use super::settings::{Candidates, SHARED_MEMORY, ours};
use crate::Bench;
use crate::pair::{Pair, Pattern};
use crate::row::Row;
use crate::slots::{Payload, Series, Side, Slot, take_turns, take_turns_all};

pub(crate) const FLOOR: Figure = Figure {
    id: "lat-floor",
    title: "one way over shared memory, beside a cache line that does nothing else",
    run: floor,
};

pub(crate) const LATENCY: Figure = Figure {
    id: "lat-am",
    title: "one way over shared memory, beside UCX active messages",
    run: latency,
};

pub(crate) const RATE: Figure = Figure {
    id: "rate-am",
    title: "messages per second over shared memory, beside UCX active messages",
    run: rate,
};

/// The largest payload.
const LARGEST: usize = 1 << 20;
/// A cache line's way is the floor of smaller payloads, a copy that of larger ones, the longer of both that of those between.
const BETWEEN: std::ops::Range<usize> = 1 << 10..32 << 10;

fn floor(bench: &mut Bench) -> Result<()> {
    let mut ours = ours(bench.cores)?;
    let mut lines = Lines::new(bench.cores, 2)?;
    for size in [1, 8, 32] {
        let slot = Slot::new(size, Payload::Fresh);
        let [mine, line] = take_turns(&bench.plan, slot, [&mut ours.side(Pattern::PingPong), &mut lines])?;
        let mut row = Row::latency(FLOOR.id, slot, &mine, Some(&line));
        row.peer_name = Some("one cache line per direction".into());
        row.floor = Some(line.median());
        row.carried_by[0] = Some(ours.carried_by().into());
        row.percentiles[0] = percentiles(bench, slot, [&mut ours])?[0];
        bench.rows.push(row);
    }
    Ok(())
}

fn latency(bench: &mut Bench) -> Result<()> {
    beside(bench, LATENCY.id, Pattern::PingPong)
}

fn rate(bench: &mut Bench) -> Result<()> {
    beside(bench, RATE.id, Pattern::Stream)
}

fn beside(bench: &mut Bench, figure: &str, pattern: Pattern) -> Result<()> {
    let mut ours = ours(bench.cores)?;
    let mut candidates = Candidates::start(bench, "ucx-am", SHARED_MEMORY)?;
    let mut lines = Lines::new(bench.cores, 2)?;
    let mut copies = Copies::new(bench.cores)?;
    for (case, payload) in [("fresh", Payload::Fresh), ("static", Payload::Static)] {
        for size in bench.plan.sizes(1, LARGEST) {
            let slot = Slot::new(size, payload);
            let (setting, peer) = candidates.best(&bench.plan, pattern, slot)?;
            let (mut mine, mut theirs) = (ours.side(pattern), peer.side(pattern));
            let mut sides: Vec<&mut dyn Side> = vec![&mut mine, &mut theirs];
            if size < BETWEEN.end && pattern == Pattern::PingPong {
                sides.push(&mut lines);
            }
            if size >= BETWEEN.start {
                sides.push(&mut copies);
            }
            let series = take_turns_all(&bench.plan, slot, &mut sides)?;
            let (mine, theirs, floors) = (&series[0], &series[1], &series[2..]);
            let floor = floors.iter().max_by(|a, b| a.median().total_cmp(&b.median()));
            let mut row = match pattern {
                Pattern::PingPong => Row::latency(figure, slot, mine, Some(theirs)),
                Pattern::Stream => Row::rate(figure, slot, mine, Some(theirs)),
            };
            row.case = case.into();
            row.floor = floor.map(|floor| match pattern {
                Pattern::PingPong => floor.median(),
                Pattern::Stream => floor.per_second(),
            });
            row.peer_name = Some(format!("UCX active messages, {setting}"));
            row.carried_by = [ours.carried_by(), peer.carried_by()].map(|name| Some(name.into()));
            if pattern == Pattern::PingPong {
                row.percentiles = percentiles(bench, slot, [&mut ours, peer])?;
            }
            bench.rows.push(row);
        }
    }
    Ok(())
}

/// Of single operations, in slots of their own: to look at a clock costs something.
pub(crate) fn percentiles<const N: usize>(
    bench: &Bench,
    slot: Slot,
    pairs: [&mut Pair; N],
) -> Result<[Option<[f64; 3]>; 2]> {
    const { assert!(N <= 2) };
    let slot = Slot { timed: true, ..slot };
    let mut sides = pairs.map(|pair| pair.side(Pattern::PingPong));
    let mut each = sides.each_mut().into_iter();
    let sides: [&mut dyn Side; N] = std::array::from_fn(|_| {
        let side: &mut dyn Side = each.next().expect("there are as many");
        side
    });
    let series = take_turns(&bench.plan.trial(), slot, sides)?;
    Ok(std::array::from_fn(|at| {
        series.get(at).and_then(Series::percentiles)
    }))
}
