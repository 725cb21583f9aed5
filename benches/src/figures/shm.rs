//! `lat-floor`, `lat-am`, `rate-am`, `increment`: our messages over shared memory, beside UCX's.

use anyhow::Result;

use super::Figure;
use super::floors::Floor;
use super::settings::{Candidates, SHARED_MEMORY, ours};
use crate::Bench;
use crate::pair::{Pair, Pattern};
use crate::row::Row;
use crate::slots::{Payload, Series, Side, Slot, take_turns, take_turns_all};

pub(crate) const FLOOR: Figure = Figure {
    id: "lat-floor",
    title: "one way over shared memory, beside a cache line without any protocol",
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

pub(crate) const INCREMENT: Figure = Figure {
    id: "increment",
    title: "increments of the target's counter by a byte, beside UCX active messages",
    run: increment,
};

/// Largest payload in bytes.
const LARGEST: usize = 1 << 20;
/// The floor is a cache line's travel for smaller payloads, in a stream that of a bare ring's; a copy for larger ones; and the slower of
/// both for sizes in this range.
const BETWEEN: std::ops::Range<usize> = 1 << 10..32 << 10;

fn floor(bench: &mut Bench) -> Result<()> {
    let mut ours = ours(bench.cores)?;
    let mut lines = Floor::lines(bench.cores, 2)?;
    let mut ring = Floor::ring(bench.cores, Pattern::PingPong, 0)?;
    for size in [1, 8, 32] {
        let slot = Slot::new(size, Payload::Fresh);
        let sides: [&mut dyn Side; 3] = [&mut ours.side(Pattern::PingPong), &mut lines, &mut ring];
        let [mine, line, bare] = take_turns(&bench.plan, slot, sides)?;
        let mut row = Row::latency(FLOOR.id, slot, &mine, Some(&line));
        row.peer_name = Some(lines.name().into());
        row.carried_by[0] = Some(ours.carried_by().into());
        row.percentiles[0] = percentiles(bench, slot, [&mut ours])?[0];
        bench.rows.push(row.with_floor(ring.name(), &bare, Some(&line)));
    }
    Ok(())
}

fn latency(bench: &mut Bench) -> Result<()> {
    let mut sides = Sides::start(bench, ours(bench.cores)?)?;
    sides.of_all_sizes(bench, LATENCY.id, Pattern::PingPong)
}

fn rate(bench: &mut Bench) -> Result<()> {
    let mut sides = Sides::start(bench, ours(bench.cores)?)?;
    sides.of_all_sizes(bench, RATE.id, Pattern::Stream)
}

fn increment(bench: &mut Bench) -> Result<()> {
    let env = [("BENCH_ADDRESS", "shm:"), ("BENCH_INCREMENT", "1")];
    let mut sides = Sides::start(bench, Pair::start("ifunc", bench.cores, &env)?)?;
    let slot = Slot::new(1, Payload::Fresh);
    for (case, pattern) in [("latency", Pattern::PingPong), ("rate", Pattern::Stream)] {
        let row = sides.row(bench, INCREMENT.id, pattern, slot)?;
        bench.rows.push(Row {
            case: case.into(),
            ..row
        });
    }
    Ok(())
}

/// The sides that take turns.
struct Sides {
    ours: Pair,
    candidates: Candidates,
    lines: Floor,
    ring: Floor,
    copies: Floor,
}

impl Sides {
    fn start(bench: &Bench, ours: Pair) -> Result<Self> {
        Ok(Self {
            ours,
            candidates: Candidates::start(bench, "ucx-am", SHARED_MEMORY)?,
            lines: Floor::lines(bench.cores, 2)?,
            ring: Floor::ring(bench.cores, Pattern::Stream, 0)?,
            copies: Floor::copies(bench.cores)?,
        })
    }

    fn of_all_sizes(&mut self, bench: &mut Bench, figure: &str, pattern: Pattern) -> Result<()> {
        for (case, payload) in [("fresh", Payload::Fresh), ("static", Payload::Static)] {
            for size in bench.plan.sizes(1, LARGEST) {
                let row = self.row(bench, figure, pattern, Slot::new(size, payload))?;
                bench.rows.push(Row {
                    case: case.into(),
                    ..row
                });
            }
        }
        Ok(())
    }

    fn row(&mut self, bench: &Bench, figure: &str, pattern: Pattern, slot: Slot) -> Result<Row> {
        let Self {
            ours,
            candidates,
            lines,
            ring,
            copies,
        } = self;
        let (setting, peer) = candidates.best(&bench.plan, pattern, slot)?;
        let (mut mine, mut theirs) = (ours.side(pattern), peer.side(pattern));
        let mut floors = Vec::new();
        if slot.size < BETWEEN.end {
            floors.push(match pattern {
                Pattern::PingPong => lines,
                Pattern::Stream => ring,
            });
        }
        if slot.size >= BETWEEN.start {
            floors.push(copies);
        }
        let names: Vec<_> = floors.iter().map(|floor| floor.name()).collect();
        let mut sides: Vec<&mut dyn Side> = vec![&mut mine, &mut theirs];
        for floor in floors {
            sides.push(floor);
        }
        let series = take_turns_all(&bench.plan, slot, &mut sides)?;
        let (mine, theirs, floors) = (&series[0], &series[1], series[2..].iter().zip(names));
        let floor = floors.max_by(|(a, _), (b, _)| a.median().total_cmp(&b.median()));
        let mut row = match pattern {
            Pattern::PingPong => Row::latency(figure, slot, mine, Some(theirs)),
            Pattern::Stream => Row::rate(figure, slot, mine, Some(theirs)),
        };
        if let Some((floor, name)) = floor {
            row = row.with_floor(name, floor, Some(theirs));
        }
        row.peer_name = Some(format!("UCX active messages, {setting}"));
        row.carried_by = [ours.carried_by(), peer.carried_by()].map(|name| Some(name.into()));
        if pattern == Pattern::PingPong {
            row.percentiles = percentiles(bench, slot, [ours, peer])?;
        }
        Ok(row)
    }
}

/// Percentiles of single operations, measured in slots of their own: reading a clock takes time.
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
        let side: &mut dyn Side = each.next().expect("one series per side");
        side
    });
    let series = take_turns(&bench.plan.trial(), slot, sides)?;
    Ok(std::array::from_fn(|at| {
        series.get(at).and_then(Series::percentiles)
    }))
}
