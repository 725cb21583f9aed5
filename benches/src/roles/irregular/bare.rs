//! The updates over a bare ring: what remains of them without a runtime. Two threads of one process, as in [`ring`](crate::roles::ring).
//!
//! The worker writes places where the other side reads them, as many to a message as are [sent together](TOGETHER) by ours.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use ifunc_bench_ifuncs::table::WORDS;

use super::ifuncs::TOGETHER;
use super::{Random, sums_of};
use crate::cores::spawn_on;
use crate::irregular::PartSums;
use crate::program::Starter;
use crate::roles::ring::{Ring, request};
use crate::roles::time_slots;

/// Words of a cache line.
const LINE: usize = 8;
/// Messages between the one that is read and the producer: otherwise the reader's processor fetches lines that are written at that time.
const BEHIND: u64 = 8;

/// `BENCH_PEER_CPU` is the core of the table.
pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    let peer = std::env::var("BENCH_PEER_CPU")?;
    let peer = peer.parse().context("BENCH_PEER_CPU")?;
    let mut table = vec![0u64; WORDS];
    let (mut random, mut expected) = (Random(1), PartSums::default());
    time_slots(starter, |slot| {
        let ring = &Ring::new(TOGETHER * size_of::<u64>());
        let messages = slot.operations.div_ceil(TOGETHER as u64);
        let took = std::thread::scope(|scope| {
            let consumer = spawn_on(scope, peer, || {
                update(ring, messages, &mut table);
                // On this core, whose cache has the table.
                sums_of(table.iter().copied())
            })?;
            let mut again = random.clone();
            let started = Instant::now();
            send(ring, slot.operations, &mut random);
            ring.wait_for_release(messages);
            let took = started.elapsed();
            for _ in 0..slot.operations {
                expected = expected.with(again.place(1).1, 1);
            }
            let sums = consumer.join().map_err(|_| anyhow!("the consumer panicked"))?;
            ensure!(sums == expected, "not what was sent");
            Ok::<_, anyhow::Error>(took)
        })?;
        Ok(took.as_nanos() as f64 / slot.operations as f64)
    })
}

/// Does the worker's part.
fn send(ring: &Ring, operations: u64, random: &mut Random) {
    let (mut left, mut number, mut released) = (operations, 0, 0);
    while left > 0 {
        let count = left.min(TOGETHER as u64);
        // Also for the next one, whose lines are requested meanwhile.
        ring.wait_for_room(number + 1, &mut released);
        // SAFETY: the consumer is done with this memory, and reads it after the message is committed. Bodies are aligned to cache lines, and the
        // ring was made for so many words.
        let body =
            unsafe { std::slice::from_raw_parts_mut(ring.beside(number).cast::<u64>(), count as usize) };
        for (line, words) in body.chunks_mut(LINE).enumerate() {
            request(ring.beside(number + 1).cast::<[u64; LINE]>().wrapping_add(line));
            words.fill_with(|| random.place(1).1);
        }
        ring.commit(number, 1, count as usize * size_of::<u64>());
        number += 1;
        left -= count;
    }
}

/// Does the other side's part.
fn update(ring: &Ring, messages: u64, table: &mut [u64]) {
    for number in 0..messages {
        ring.wait_for((number + BEHIND).min(messages - 1));
        let (_, len) = ring.header(number);
        // SAFETY: the message was committed and is not released; it has so many bytes, aligned to cache lines.
        let places =
            unsafe { std::slice::from_raw_parts(ring.beside(number).cast::<u64>(), len / size_of::<u64>()) };
        for &at in places {
            let word = &mut table[at as usize % WORDS];
            *word = word.wrapping_add(1);
        }
        ring.take(number, len);
        ring.release(number + 1);
    }
}
