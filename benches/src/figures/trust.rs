//! `trust`: the cost of copying every payload out of shared memory before use, as a target does for other
//! users.

use anyhow::Result;

use super::Figure;
use super::shm::percentiles;
use crate::Bench;
use crate::pair::{Pair, Pattern};
use crate::row::Row;
use crate::slots::{Payload, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "trust",
    title: "one way over shared memory, with payloads copied out as for another user, beside payloads in place",
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    let address = ("BENCH_ADDRESS", "shm:");
    let mut copied = Pair::start("ifunc", bench.cores, &[address, ("BENCH_COPY_PAYLOADS", "1")])?;
    let mut in_place = Pair::start("ifunc", bench.cores, &[address])?;
    let pattern = Pattern::PingPong;
    for size in [8, 4 << 10, 64 << 10, 1 << 20] {
        let slot = Slot::new(size, Payload::Fresh);
        let [ours, other] = take_turns(
            &bench.plan,
            slot,
            [&mut copied.side(pattern), &mut in_place.side(pattern)],
        )?;
        bench.rows.push(Row {
            peer_name: Some("ours, of the same user: in place".into()),
            carried_by: [&copied, &in_place].map(|pair| Some(pair.carried_by().into())),
            percentiles: percentiles(bench, slot, [&mut copied, &mut in_place])?,
            note: "the code has the target's rights in both cases: the copy protects against a source that changes a payload during its use".into(),
            ..Row::latency(FIGURE.id, slot, &ours, Some(&other))
        });
    }
    Ok(())
}
