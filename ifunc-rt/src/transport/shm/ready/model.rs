//! The hand-over between parked and being polled, checked by loom in every order that the memory model allows.
//!
//! `cargo xtask loom` runs it.
//!
//! A target and two sources. Each source publishes twice, as a ring does: a store, a barrier, a look at its flag. The target
//! looks, rests, and sleeps. A hand-over that is lost would be a deadlock, which loom reports. (The barrier of publishing is
//! a fence here, as where the kernel refuses `membarrier`.)
//!
//! In the second model another process clears the bitmap, and denies that the target sleeps, at any moment: the source rings
//! before it sleeps.

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;

use super::super::barrier::Barriers;
use super::super::ring::words;
use super::bitmap::{announce, mark, set, take, withdraw};

const SOURCES: usize = 2;

struct Memory {
    /// What was published, by source.
    published: [AtomicU32; SOURCES],
    /// Not 0: the target does not look at the source.
    parked: [AtomicU32; SOURCES],
    words: [AtomicU64; 1],
    /// The target's own bits.
    marked: [AtomicU64; 1],
    asleep: AtomicU32,
    wakeup: Notify,
}

/// Returns whether the bit was set, and the target was not woken.
fn publish(memory: &Memory, source: usize, value: u32) -> bool {
    memory.published[source].store(value, Ordering::Release);
    let parked = &memory.parked[source];
    if !words::is_peer_asleep(Barriers::Fences, parked) || words::take_announcement(parked) == 0 {
        return false;
    }
    let wakes = set(&memory.words, &memory.asleep, source);
    if wakes {
        wake_over_socket(memory, source);
    }
    !wakes
}

/// A source that is about to sleep, and whose bit may have been cleared, wakes the target over its socket.
fn sleep(memory: &Memory, source: usize, is_unsure: bool) {
    if is_unsure {
        wake_over_socket(memory, source);
    }
}

/// The target marks a source whose wake-up it receives.
fn wake_over_socket(memory: &Memory, source: usize) {
    mark(&memory.marked, source);
    memory.wakeup.notify();
}

fn serve(memory: &Memory, until: [u32; SOURCES]) {
    let mut seen = [0; SOURCES];
    let mut hot = [true; SOURCES];
    let look = |source: usize, seen: &mut [u32; SOURCES]| {
        let value = memory.published[source].load(Ordering::Acquire);
        std::mem::replace(&mut seen[source], value) != value
    };
    let ready = |hot: &mut [bool; SOURCES]| {
        let mut some = false;
        for words in [&memory.words, &memory.marked] {
            take(words, |source| {
                words::announce(Barriers::Fences, &memory.parked[source], 0, false);
                (hot[source], some) = (true, true);
            });
        }
        some
    };
    while seen != until {
        for source in 0..SOURCES {
            if hot[source] {
                look(source, &mut seen);
            }
        }
        if seen == until {
            break;
        }
        announce(&memory.asleep);
        for source in (0..SOURCES).filter(|&source| hot[source]) {
            words::announce(Barriers::Fences, &memory.parked[source], 1, false);
        }
        Barriers::Fences.after_announcing();
        let mut quiet = true;
        for source in 0..SOURCES {
            if hot[source] && look(source, &mut seen) {
                words::announce(Barriers::Fences, &memory.parked[source], 0, false);
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

fn memory() -> Arc<Memory> {
    Arc::new(Memory {
        published: [AtomicU32::new(0), AtomicU32::new(0)],
        parked: [AtomicU32::new(0), AtomicU32::new(0)],
        words: [AtomicU64::new(0)],
        marked: [AtomicU64::new(0)],
        asleep: AtomicU32::new(0),
        wakeup: Notify::new(),
    })
}

fn spawn(memory: &Arc<Memory>, run: impl FnOnce(&Memory) + 'static) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || run(&memory))
}

#[test]
fn nothing_is_lost_between_resting_and_sleeping() {
    loom::model(|| {
        let memory = memory();
        let source = |source| {
            spawn(&memory, move |memory| {
                publish(memory, source, 1);
            })
        };
        let sources = [source(0), source(1)];
        serve(&memory, [1; SOURCES]);
        sources.into_iter().for_each(|source| source.join().unwrap());
    });
}

#[test]
fn a_process_that_clears_the_bitmap_keeps_no_source_waiting() {
    loom::model(|| {
        let memory = memory();
        let source = spawn(&memory, |memory| {
            let is_unsure = publish(memory, 0, 1);
            sleep(memory, 0, is_unsure);
        });
        let hostile = spawn(&memory, |memory| {
            memory.words[0].store(0, Ordering::Relaxed);
            memory.asleep.store(0, Ordering::Relaxed);
        });
        serve(&memory, [1, 0]);
        source.join().unwrap();
        hostile.join().unwrap();
    });
}

/// What a source stored before it set its bit, or the target before it marked one, is visible after the bit was taken.
#[test]
fn a_bit_that_was_taken_shows_what_was_stored_before() {
    for marks in [false, true] {
        loom::model(move || {
            let memory = memory();
            let stored = Arc::new(loom::cell::UnsafeCell::new(0));
            let source = {
                let (memory, stored) = (Arc::clone(&memory), Arc::clone(&stored));
                thread::spawn(move || {
                    // SAFETY: what loom checks: the target does not read it now.
                    stored.with_mut(|stored| unsafe { *stored = 1 });
                    match marks {
                        true => mark(&memory.words, 0),
                        false => drop(set(&memory.words, &memory.asleep, 0)),
                    }
                })
            };
            let mut taken = false;
            while !taken {
                take(&memory.words, |_| taken = true);
                thread::yield_now();
            }
            // SAFETY: what loom checks: the source does not write it now.
            assert_eq!(stored.with(|stored| unsafe { *stored }), 1);
            source.join().unwrap();
        });
    }
}
