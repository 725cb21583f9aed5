//! A bare ring: what two cores take to pass messages without a runtime. Two threads of one process share memory as two processes do.
//!
//! A message is 16 bytes of header and a body, in a slot of one cache line if the body fits, else beside it. The consumer calls a handler by
//! the index in the header, and returns credits every quarter lap. There is no wake-up, no answer, no check of what the peer sent, no
//! counter, and no other connection. Messages may carry code, which the consumer has already: it is copied and not read.

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ifunc_bench_ifuncs::{Fresh, Tally, words};

use super::time_slots;
use crate::cores::spawn_on;
use crate::machine::is_amd;
use crate::pair::Pattern;
use crate::program::Starter;
use crate::slots::{Payload, Slot, seed};

/// As many slots, and bytes of longer bodies, as a ring of the runtime's.
const SLOTS: u64 = 4096;
const DATA: usize = 2 << 20;
/// Bytes of a body that lies in its slot.
pub(super) const INLINE: usize = 40;
/// Messages that the consumer of a stream takes at once.
const TOGETHER: u64 = 64;
/// Messages between the last of those and the producer: otherwise the consumer's processor fetches slots that are written at that time.
const BEHIND: u64 = 128;
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

/// Bytes of longer bodies.
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// The ring of one direction.
pub(super) struct Ring {
    cells: Vec<Cell>,
    /// What does not lie in slots.
    data: Vec<UnsafeCell<Line>>,
    released: Released,
    /// Messages that there is room for.
    capacity: u64,
    /// Bytes of each message that do not lie in its slot.
    stride: usize,
    /// Whether the consumer stores into the lines that it has read.
    takes: bool,
}

/// Messages that the consumer is done with.
#[derive(Default)]
#[repr(align(128))]
struct Released(AtomicU64);

// SAFETY: a message is written by the producer while `released` says that the consumer is done with it, and read by the consumer after it has
// found the commit word that the producer stores then.
unsafe impl Sync for Ring {}

impl Ring {
    /// For messages that have up to so many bytes beside their slots.
    pub(super) fn new(beside: usize) -> Self {
        let cell = || Cell {
            commit: AtomicU64::new(0),
            handler: AtomicU64::new(0),
            unused: AtomicU64::new(0),
            body: UnsafeCell::new([0; INLINE]),
        };
        let line = || UnsafeCell::new(Line { _bytes: [0; 64] });
        let stride = beside.next_multiple_of(size_of::<Cell>());
        let fit = DATA.checked_div(stride).map_or(SLOTS, |fit| fit as u64);
        Self {
            cells: std::iter::repeat_with(cell).take(SLOTS as usize).collect(),
            data: std::iter::repeat_with(line)
                .take(DATA.max(stride) / size_of::<Line>())
                .collect(),
            released: Released::default(),
            capacity: fit.clamp(1, SLOTS),
            stride,
            takes: is_amd(),
        }
    }

    fn cell(&self, number: u64) -> &Cell {
        &self.cells[(number % SLOTS) as usize]
    }

    /// [`INLINE`] bytes in the slot of a message.
    pub(super) fn inside(&self, number: u64) -> *mut u8 {
        self.cell(number).body.get().cast()
    }

    /// The bytes of a message beside its slot: as many as the ring was made for, aligned to cache lines.
    pub(super) fn beside(&self, number: u64) -> *mut u8 {
        let at = (number % self.capacity) as usize * self.stride;
        let lines = UnsafeCell::raw_get(self.data.as_ptr()).cast::<u8>();
        // SAFETY: there are as many bytes: `capacity` times `stride`, and at least one stride.
        unsafe { lines.add(at) }
    }

    /// The body of a message of `size` bytes.
    fn body(&self, number: u64, size: usize) -> *mut u8 {
        if size <= INLINE {
            self.inside(number)
        } else {
            self.beside(number)
        }
    }

    /// Waits until the consumer is done with what the message replaces. `released` is what it is known to be done with.
    #[inline]
    pub(super) fn wait_for_room(&self, number: u64, released: &mut u64) {
        while number - *released >= self.capacity {
            spin_loop();
            *released = self.released.0.load(Ordering::Acquire);
        }
    }

    /// Makes a message visible that was written.
    #[inline]
    pub(super) fn commit(&self, number: u64, handler: u64, len: usize) {
        let cell = self.cell(number);
        cell.handler.store(handler, Ordering::Relaxed);
        cell.unused.store(0, Ordering::Relaxed);
        let commit = (number + 1) << 32 | len as u64;
        cell.commit.store(commit, Ordering::Release);
        request(self.cell(number + AHEAD));
    }

    /// Waits until the message is there; all earlier ones are, too.
    #[inline]
    pub(super) fn wait_for(&self, number: u64) {
        while self.cell(number).commit.load(Ordering::Acquire) >> 32 != number + 1 {
            spin_loop();
        }
    }

    /// The index of the handler, and the length, of a message that is there.
    #[inline]
    pub(super) fn header(&self, number: u64) -> (u64, usize) {
        let cell = self.cell(number);
        let len = cell.commit.load(Ordering::Acquire) as u32 as usize;
        (cell.handler.load(Ordering::Relaxed), len)
    }

    /// Says that the consumer is done with so many messages.
    #[inline]
    pub(super) fn release(&self, messages: u64) {
        self.released.0.store(messages, Ordering::Release);
    }

    /// Waits until the consumer is done with so many messages.
    pub(super) fn wait_for_release(&self, messages: u64) {
        while self.released.0.load(Ordering::Acquire) < messages {
            spin_loop();
        }
    }

    /// Messages after which credits are returned.
    fn lap(&self) -> u64 {
        (self.capacity / 4).max(1)
    }

    /// Sends a message. A function of its own, as it is of any library: the call stores its return address, and stores are completed in their
    /// order, which makes a stream between near cores two to four times slower.
    #[inline(never)]
    fn send(&self, messages: &Messages, number: u64, seed: u64) {
        let Messages {
            slot, written, code, ..
        } = messages;
        // SAFETY: the consumer is done with this memory, and reads it again after the commit word is stored.
        let body = unsafe { std::slice::from_raw_parts_mut(self.body(number, slot.size), slot.size) };
        match slot.payload {
            Payload::Fresh => Fresh { len: slot.size, seed }.write(body),
            Payload::Static | Payload::Untouched => body.copy_from_slice(written),
        }
        if !code.is_empty() {
            // SAFETY: as above; the ring was made for payloads with this code.
            unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.code(number, slot.size), code.len()) };
        }
        self.commit(number, 1, slot.size);
    }

    /// The code that goes with a payload of `size` bytes.
    fn code(&self, number: u64, size: usize) -> *mut u8 {
        self.beside(number).wrapping_add(beside(size))
    }

    /// Calls the handler of a message that is there.
    #[inline]
    fn handle(&self, number: u64, handlers: &[Handler], tally: &mut Tally) {
        let (handler, len) = self.header(number);
        // SAFETY: the producer has stored the commit word of this message or a later one, and writes here again when this one is released. It
        // has so many bytes.
        let body = unsafe { std::slice::from_raw_parts(self.body(number, len), len) };
        if let Some(handler) = handlers.get(handler as usize) {
            handler(body, tally);
        }
    }

    /// Sends a stream as [`lead`](super::exchange) does, and returns its sum.
    fn produce(&self, messages: &Messages) -> u64 {
        let (mut sum, mut released) = (0u64, 0);
        for number in 0..messages.slot.operations {
            self.wait_for_room(number, &mut released);
            let seed = seed(number);
            self.send(messages, number, seed);
            sum = sum.wrapping_add(messages.sum(seed));
        }
        self.wait_for_release(messages.slot.operations);
        sum
    }

    /// Stores into the lines of a message that was handled, where the producer would wait for lines that the consumer has only read.
    #[inline]
    pub(super) fn take(&self, number: u64, size: usize) {
        if !self.takes {
            return;
        }
        self.cell(number).unused.store(0, Ordering::Relaxed);
        for at in (0..beside(size)).step_by(size_of::<Cell>()) {
            // SAFETY: the consumer is done with these bytes, and has not released them.
            unsafe { self.beside(number).add(at).write_volatile(0) };
        }
    }

    /// Receives a stream of messages of `size` bytes, and returns what its handlers counted.
    fn consume(&self, operations: u64, size: usize) -> Tally {
        let handlers = black_box(HANDLERS);
        let mut tally = Tally::default();
        let (mut next, mut due) = (0, self.lap());
        let together = TOGETHER.min(self.capacity);
        let behind = BEHIND.min((self.capacity / 2).saturating_sub(together));
        while next < operations {
            let last = (next + together).min(operations);
            self.wait_for((last + behind).min(operations) - 1);
            for number in next..last {
                self.handle(number, &handlers, &mut tally);
                self.take(number, size);
            }
            next = last;
            if next >= due || next == operations {
                self.release(next);
                due = next + self.lap();
            }
        }
        tally
    }
}

/// Bytes of a payload beside its slot.
fn beside(size: usize) -> usize {
    if size <= INLINE {
        0
    } else {
        size.next_multiple_of(size_of::<Cell>())
    }
}

type Handler = fn(&[u8], &mut Tally);

const HANDLERS: [Handler; 2] = [count, add];

fn count(_: &[u8], tally: &mut Tally) {
    tally.count += 1;
}

fn add(payload: &[u8], tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload));
}

/// Asks for a line, to write there.
pub(super) fn request<T>(line: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The messages of a slot of the benchmark: all have one length.
struct Messages {
    slot: Slot,
    /// A payload that is not written anew, and its sum.
    written: Vec<u8>,
    of_written: u64,
    /// The code that each message carries.
    code: Vec<u8>,
}

impl Messages {
    fn new(slot: Slot, code: usize) -> Self {
        let written = vec![1; slot.size];
        Self {
            slot,
            of_written: words(&written),
            written,
            code: vec![0x5a; code],
        }
    }

    fn ring(&self) -> Ring {
        Ring::new(beside(self.slot.size) + self.code.len())
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.slot.payload.sum(self.slot.size, seed, self.of_written)
    }

    /// Whether a ring has the code of its last message.
    fn have_arrived(&self, ring: &Ring) -> bool {
        let last = self.slot.operations - 1;
        // SAFETY: both sides are done with the ring, which was made for messages with this code.
        let there = unsafe { std::slice::from_raw_parts(ring.code(last, self.slot.size), self.code.len()) };
        there == self.code
    }

    /// Sends messages that the other side answers by one of its own, or answers such messages. Returns the sum of what was sent, and what the
    /// handlers counted.
    fn exchange(&self, to: &Ring, from: &Ring, leads: bool) -> (u64, Tally) {
        let handlers = black_box(HANDLERS);
        let (mut sum, mut released, mut due) = (0u64, 0, from.lap());
        let mut tally = Tally::default();
        let mut send = |number| {
            to.wait_for_room(number, &mut released);
            let seed = seed(number);
            to.send(self, number, seed);
            sum = sum.wrapping_add(self.sum(seed));
        };
        for number in 0..self.slot.operations {
            if leads {
                send(number);
            }
            from.wait_for(number);
            from.handle(number, &handlers, &mut tally);
            if number + 1 >= due {
                from.release(number + 1);
                due = number + 1 + from.lap();
            }
            if !leads {
                send(number);
            }
        }
        (sum, tally)
    }

    /// Checks that everything arrived that was sent.
    fn check(&self, ring: &Ring, sum: u64, tally: Tally) -> Result<()> {
        ensure!(
            (tally.count, tally.sum) == (self.slot.operations, sum) && self.have_arrived(ring),
            "not what was sent"
        );
        Ok(())
    }
}

/// `BENCH_PEER_CPU` is the consumer's core. `BENCH_PATTERN` is `stream`, or `ping-pong` for one message at a time, which the other side answers by
/// one. `BENCH_CODE` is the length of the code that each message carries, if any does.
pub(super) fn run(starter: Starter) -> Result<()> {
    let peer = std::env::var("BENCH_PEER_CPU")?;
    let peer = peer.parse().context("BENCH_PEER_CPU")?;
    let pattern = match &*std::env::var("BENCH_PATTERN").context("BENCH_PATTERN")? {
        "stream" => Pattern::Stream,
        "ping-pong" => Pattern::PingPong,
        other => anyhow::bail!("BENCH_PATTERN is `{other}`"),
    };
    let code = std::env::var("BENCH_CODE").ok().map(|code| code.parse());
    let code = code.transpose().context("BENCH_CODE")?.unwrap_or(0);
    time_slots(starter, |slot| {
        let messages = &Messages::new(slot, code);
        let took = match pattern {
            Pattern::Stream => stream(messages, peer)?,
            Pattern::PingPong => ping_pong(messages, peer)? / 2,
        };
        Ok(took.as_nanos() as f64 / slot.operations as f64)
    })
}

fn stream(messages: &Messages, peer: usize) -> Result<Duration> {
    let ring = &messages.ring();
    std::thread::scope(|scope| {
        let consumer = spawn_on(scope, peer, || {
            ring.consume(messages.slot.operations, messages.slot.size)
        })?;
        let started = Instant::now();
        let sum = ring.produce(messages);
        let took = started.elapsed();
        let tally = consumer.join().map_err(|_| anyhow!("the consumer panicked"))?;
        messages.check(ring, sum, tally)?;
        Ok(took)
    })
}

fn ping_pong(messages: &Messages, peer: usize) -> Result<Duration> {
    let (there, back) = (&messages.ring(), &messages.ring());
    std::thread::scope(|scope| {
        let other = spawn_on(scope, peer, || messages.exchange(back, there, false))?;
        let started = Instant::now();
        let (sum, answered) = messages.exchange(there, back, true);
        let took = started.elapsed();
        let (of_answers, tally) = other.join().map_err(|_| anyhow!("the other side panicked"))?;
        messages.check(there, sum, tally)?;
        messages.check(back, of_answers, answered)?;
        Ok(took)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_arrives_with_its_code() {
        for (size, code) in [(1, 0), (8, 512), (INLINE, 64), (100, 0), (256, 8 << 10)] {
            let slot = Slot {
                operations: 10_000,
                ..Slot::new(size, Payload::Fresh)
            };
            let messages = Messages::new(slot, code);
            stream(&messages, 0).unwrap();
            ping_pong(
                &Messages {
                    slot: Slot {
                        operations: 50,
                        ..slot
                    },
                    ..messages
                },
                0,
            )
            .unwrap();
        }
    }

    #[test]
    fn a_ring_has_room_for_what_does_not_lie_in_its_slots() {
        for (beside, capacity) in [(0, SLOTS), (64, SLOTS), (512, SLOTS), (1024, 2048), (3 << 20, 1)] {
            assert_eq!(Ring::new(beside).capacity, capacity, "{beside}");
        }
    }
}
