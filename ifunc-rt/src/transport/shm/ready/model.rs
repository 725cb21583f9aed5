//! The hand-over between parked and being polled, checked by loom in every order that the memory model allows.
//!
//! `cargo xtask loom` runs it.
//!
//! A target and two sources. Each source publishes twice, as a ring does: a store, a barrier, a look at its flag. The target
//! looks, rests, and sleeps. A hand-over that is lost would be a deadlock, which loom reports. (The barrier of publishing is
//! a fence here, as where the kernel refuses `membarrier`.)

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};
use loom::thread;

use super::bitmap::{announce, set, take, withdraw};

const SOURCES: usize = 2;

struct Memory {
    /// What was published, by source.
    published: [AtomicU32; SOURCES],
    /// Not 0: the target does not look at the source.
    parked: [AtomicU32; SOURCES],
    words: [AtomicU64; 1],
    asleep: AtomicU32,
    wakeup: Notify,
}

fn publish(memory: &Memory, source: usize, value: u32) {
    memory.published[source].store(value, Ordering::Release);
    fence(Ordering::SeqCst);
    let parked = &memory.parked[source];
    if parked.load(Ordering::Relaxed) != 0
        && parked.swap(0, Ordering::AcqRel) != 0
        && set(&memory.words, &memory.asleep, source)
    {
        memory.wakeup.notify();
    }
}

fn serve(memory: &Memory, until: u32) {
    let mut seen = [0; SOURCES];
    let mut hot = [true; SOURCES];
    let look = |source: usize, seen: &mut [u32; SOURCES]| {
        let value = memory.published[source].load(Ordering::Acquire);
        std::mem::replace(&mut seen[source], value) != value
    };
    let ready = |hot: &mut [bool; SOURCES]| {
        let mut some = false;
        take(&memory.words, |source| {
            memory.parked[source].swap(0, Ordering::AcqRel);
            (hot[source], some) = (true, true);
        });
        some
    };
    while seen.iter().any(|&seen| seen < until) {
        for source in 0..SOURCES {
            if hot[source] {
                look(source, &mut seen);
            }
        }
        if seen.iter().all(|&seen| seen == until) {
            break;
        }
        announce(&memory.asleep);
        for source in (0..SOURCES).filter(|&source| hot[source]) {
            memory.parked[source].swap(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        let mut quiet = true;
        for source in 0..SOURCES {
            if hot[source] && look(source, &mut seen) {
                memory.parked[source].swap(0, Ordering::AcqRel);
                quiet = false;
            } else {
                hot[source] = false;
            }
        }
        quiet &= !ready(&mut hot);
        if quiet {
            memory.wakeup.wait();
        }
        withdraw(&memory.asleep);
        ready(&mut hot);
    }
}

fn check(values: u32) {
    loom::model(move || {
        let memory = Arc::new(Memory {
            published: [AtomicU32::new(0), AtomicU32::new(0)],
            parked: [AtomicU32::new(0), AtomicU32::new(0)],
            words: [AtomicU64::new(0)],
            asleep: AtomicU32::new(0),
            wakeup: Notify::new(),
        });
        let sources: Vec<_> = (0..SOURCES)
            .map(|source| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || (1..=values).for_each(|value| publish(&memory, source, value)))
            })
            .collect();
        serve(&memory, values);
        for source in sources {
            source.join().unwrap();
        }
    });
}

#[test]
fn nothing_is_lost_between_resting_and_sleeping() {
    check(1);
}
