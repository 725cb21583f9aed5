//! A bare ring: what two cores take to pass a stream of messages without a runtime. Two threads of one process share memory as two
//! processes do.
//!
//! A message is 16 bytes of header and a body, in a slot of one cache line if the body fits, else beside it. The consumer calls a handler by
//! the index in the header, and returns credits every quarter lap. There is no wake-up, no answer, no check of what the peer sent, no
//! counter, and no other connection.

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use ifunc_bench_ifuncs::{Fresh, Tally, words};

use super::time_slots;
use crate::cores::spawn_on;
use crate::program::Starter;
use crate::slots::{Payload, Slot, seed};

/// As many slots, and bytes of longer bodies, as a ring of the runtime's.
const SLOTS: u64 = 4096;
const DATA: usize = 2 << 20;
/// Bytes of a body that lies in its slot.
const INLINE: usize = 40;
/// Messages that the consumer takes at once, as far behind the producer: otherwise it reads slots while they are written.
const TOGETHER: u64 = 16;
/// Slots between the one that is written and the one whose line the producer requests.
const AHEAD: u64 = 6;

/// A slot of one cache line.
#[repr(C, align(64))]
struct Cell {
    /// The number of the message, counted from 1, and its length; stored last.
    commit: AtomicU64,
    /// The index of the handler.
    handler: AtomicU64,
    unused: AtomicU64,
    body: UnsafeCell<[u8; INLINE]>,
}

/// The ring of one slot of the benchmark: all bodies have one length.
struct Ring {
    cells: Vec<Cell>,
    /// Bodies that do not lie in their slots.
    data: UnsafeCell<Vec<u8>>,
    released: Released,
    /// Messages that there is room for.
    capacity: u64,
    stride: usize,
}

/// Messages that the consumer is done with.
#[derive(Default)]
#[repr(align(128))]
struct Released(AtomicU64);

// SAFETY: a body is written by the producer while `released` says that the consumer is done with it, and read by the consumer after it has
// found the commit word that the producer stores then.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(size: usize) -> Self {
        let cell = || Cell {
            commit: AtomicU64::new(0),
            handler: AtomicU64::new(0),
            unused: AtomicU64::new(0),
            body: UnsafeCell::new([0; INLINE]),
        };
        let stride = size.next_multiple_of(size_of::<Cell>());
        let fit = if size <= INLINE {
            SLOTS
        } else {
            (DATA / stride) as u64
        };
        Self {
            cells: std::iter::repeat_with(cell).take(SLOTS as usize).collect(),
            data: UnsafeCell::new(vec![0; DATA.max(stride)]),
            released: Released::default(),
            capacity: fit.clamp(1, SLOTS),
            stride,
        }
    }

    fn cell(&self, number: u64) -> &Cell {
        &self.cells[(number % SLOTS) as usize]
    }

    /// The body of a message of `size` bytes.
    fn body(&self, number: u64, size: usize) -> *mut u8 {
        if size <= INLINE {
            return self.cell(number).body.get().cast();
        }
        let at = (number % self.capacity) as usize * self.stride;
        // SAFETY: there are as many bytes: `capacity` times `stride`, and at least one stride.
        unsafe { (*self.data.get()).as_mut_ptr().add(at) }
    }

    /// Sends messages as [`lead`](super::exchange) does, and returns their sum.
    fn produce(&self, slot: Slot) -> u64 {
        let (written, mut sum, mut released) = (vec![1; slot.size], 0u64, 0);
        let of_written = words(&written);
        for number in 0..slot.operations {
            while number - released >= self.capacity {
                spin_loop();
                released = self.released.0.load(Ordering::Acquire);
            }
            let seed = seed(number);
            self.send(slot, number, seed, &written);
            sum = sum.wrapping_add(slot.payload.sum(slot.size, seed, of_written));
        }
        while self.released.0.load(Ordering::Acquire) < slot.operations {
            spin_loop();
        }
        sum
    }

    /// Sends a message. A function of its own, as it is of any library: the call stores its return address, and stores are completed in their
    /// order, which makes a stream between near cores two to four times slower.
    #[inline(never)]
    fn send(&self, slot: Slot, number: u64, seed: u64, written: &[u8]) {
        // SAFETY: the consumer is done with this memory, and reads it again after the commit word is stored.
        let body = unsafe { std::slice::from_raw_parts_mut(self.body(number, slot.size), slot.size) };
        match slot.payload {
            Payload::Fresh => Fresh { len: slot.size, seed }.write(body),
            Payload::Static | Payload::Untouched => body.copy_from_slice(written),
        }
        let cell = self.cell(number);
        cell.handler.store(1, Ordering::Relaxed);
        cell.unused.store(0, Ordering::Relaxed);
        let commit = (number + 1) << 32 | slot.size as u64;
        cell.commit.store(commit, Ordering::Release);
        request(self.cell(number + AHEAD));
    }

    /// Receives messages and returns what their handlers counted.
    fn consume(&self, slot: Slot) -> Tally {
        let handlers = black_box([count, add]);
        let mut tally = Tally::default();
        let (mut next, mut due) = (0, self.capacity / 4);
        while next < slot.operations {
            let last = (next + TOGETHER.min(self.capacity)).min(slot.operations);
            while self.cell(last - 1).commit.load(Ordering::Acquire) >> 32 != last {
                spin_loop();
            }
            for number in next..last {
                let cell = self.cell(number);
                let size = cell.commit.load(Ordering::Acquire) as u32 as usize;
                // SAFETY: the producer has stored the commit word of a later message, and writes here again when this one is released. It
                // has so many bytes.
                let body = unsafe { std::slice::from_raw_parts(self.body(number, size), size) };
                if let Some(handler) = handlers.get(cell.handler.load(Ordering::Relaxed) as usize) {
                    handler(body, &mut tally);
                }
            }
            next = last;
            if next >= due || next == slot.operations {
                self.released.0.store(next, Ordering::Release);
                due = next + self.capacity / 4;
            }
        }
        tally
    }
}

fn count(_: &[u8], tally: &mut Tally) {
    tally.count += 1;
}

fn add(payload: &[u8], tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload));
}

/// Asks for a line, to write there.
fn request(cell: &Cell) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(cell).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = cell;
}

/// `BENCH_PEER_CPU` is the consumer's core.
pub(super) fn run(starter: Starter) -> Result<()> {
    let peer = std::env::var("BENCH_PEER_CPU")?;
    let peer = peer.parse().context("BENCH_PEER_CPU")?;
    time_slots(starter, |slot| {
        let ring = &Ring::new(slot.size);
        std::thread::scope(|scope| {
            let consumer = spawn_on(scope, peer, || ring.consume(slot))?;
            let started = Instant::now();
            let sum = ring.produce(slot);
            let took = started.elapsed();
            let tally = consumer.join().map_err(|_| anyhow!("the consumer panicked"))?;
            ensure!(
                (tally.count, tally.sum) == (slot.operations, sum),
                "not what was sent"
            );
            Ok(took.as_nanos() as f64 / slot.operations as f64)
        })
    })
}
