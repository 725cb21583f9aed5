//! A ring whose messages are put by UCX, without a runtime: what a program takes for such messages if it has nothing else.
//!
//! It lies in memory as the runtime's does. A message with a body of up to 32 bytes is one put of one line, which has a checksum; with one
//! of up to 96, a put of two lines; a longer body is a put of its own, followed by a fence and a put of half a line. The receiver finds a message by its number, verifies its checksum,
//! and calls a function by the index in it. Credits are returned every quarter lap. Where the program asks whether the other one is there,
//! question and answer are messages too. There is no wake-up, no completion, no check of what the peer claims but the checksum, and no
//! other connection.

use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Fresh, words};
use ucx::{Features, Operations, Started};

use super::am::finished;
use super::memory::{Memory, Remote};
use super::{Nothing, Worker};
use crate::pair::Count;
use crate::program::Starter;
use crate::roles::exchange::{self, Node, Timeout};
use crate::slots::Payload;

const LINE: usize = 64;
/// As many slots, and lines of longer bodies, as a ring of the runtime's.
const SLOTS: u32 = 4096;
const LINES: u32 = (2 << 20) / LINE as u32;
/// Offsets in the memory that the other program puts to: the credits (messages and lines that it has released), the slots, the lines.
const CREDITS: usize = 0;
const SLOTS_AT: usize = 512;
const LINES_AT: usize = (SLOTS_AT + SLOTS as usize * SLOT).next_multiple_of(4096);
const LEN: usize = LINES_AT + LINES as usize * LINE;
/// Length of a slot: two lines.
const SLOT: usize = 2 * LINE;
/// The longest body that lies in its slot. The header is behind it: the number and the length, the handler, and where the lines of a longer body
/// end. Then comes the checksum.
const SHORT: usize = 96;
/// The longest body that lies in the second line of its slot. The first one is not put then.
const ONE_LINE: usize = SHORT - LINE;
const TRAILER: usize = SLOT - SHORT;
/// Polls that find nothing, of which one progresses UCX, as the runtime does it: puts come without.
const IDLE_POLLS: u32 = 4;

/// The index of each handler.
const ADD: u64 = 0;
const ASK: u64 = 1;
const ANSWER: u64 = 2;

pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    let mut worker = Worker::new(Features::RMA, Nothing)?;
    let ring = PutRing {
        memory: Memory::new(&mut worker, LEN)?,
        other: None,
        handlers: black_box([add, ask, answer]),
        state: State::default(),
        size: 0,
        payload: Payload::Fresh,
        of_written: 0,
        sent: Position::default(),
        received: Position::default(),
        returned: Position::default(),
        questions: 0,
        polls: 0,
        body: vec![0; LINES as usize * LINE],
        slot: vec![0; SLOT],
        trailer: vec![0; TRAILER],
        credits: vec![0; 8],
        worker,
    };
    exchange::run(starter, ring)
}

/// Messages, and lines of longer bodies, since the beginning, wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    messages: u32,
    lines: u32,
}

impl Position {
    fn pack(self) -> u64 {
        u64::from(self.lines) << 32 | u64::from(self.messages)
    }

    fn unpack(word: u64) -> Self {
        Self {
            messages: word as u32,
            lines: (word >> 32) as u32,
        }
    }

    /// Where the lines of a body begin that ends in one piece, if those before it end here.
    fn begin_of(self, lines: u32) -> u32 {
        let left = LINES - self.lines % LINES;
        self.lines.wrapping_add(if lines <= left { 0 } else { left })
    }
}

/// What the handlers have.
#[derive(Default)]
struct State {
    count: Count,
    /// Whether the payload is to be read.
    reads: bool,
    /// A question that was not answered yet.
    is_asked: bool,
    answers: u64,
}

type Handler = fn(&[u8], &mut State);

fn add(body: &[u8], state: &mut State) {
    state.count.messages += 1;
    if state.reads {
        state.count.sum = state.count.sum.wrapping_add(words(body));
    }
}

fn ask(_: &[u8], state: &mut State) {
    state.is_asked = true;
}

fn answer(_: &[u8], state: &mut State) {
    state.answers += 1;
}

struct PutRing {
    memory: Memory,
    other: Option<Remote>,
    handlers: [Handler; 3],
    state: State,
    size: usize,
    payload: Payload,
    of_written: u64,
    sent: Position,
    received: Position,
    /// What the other one knows of that.
    returned: Position,
    questions: u64,
    polls: u32,
    /// Where is put from: longer bodies, slots, ends of slots, credits.
    body: Vec<u8>,
    slot: Vec<u8>,
    trailer: Vec<u8>,
    credits: Vec<u8>,
    /// The last to go: the memory is given back to it.
    worker: Worker<Nothing>,
}

/// What is said where the other program is not known yet.
const NOT_MET: &str = "the two programs have not met";

/// The checksum of a header, and of a body that lies in the slot: words are folded in pairs, as the runtime does it.
#[inline]
fn checksum(header: [u64; 3], body: &[u64]) -> u64 {
    const KEYS: [[u64; 2]; 6] = [
        [0x1d8e_4e27_c47d_124f, 0xeb44_acca_b455_d165],
        [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93],
        [0x910a_2dec_8902_5cc1, 0x9758_35de_1c97_56ce],
        [0x1d0b_14e4_db01_8fed, 0x6e73_e372_e233_8aca],
        [0x6303_3b0c_a389_c35a, 0xbd64_a5d9_adef_e000],
        [0x63cb_e1e4_5932_0dd7, 0x9e56_51b0_ef95_3636],
    ];
    let fold = |one: u64, other: u64| {
        let product = u128::from(one) * u128::from(other);
        product as u64 ^ (product >> 64) as u64
    };
    let [first, second, third] = header;
    let begin = fold(first ^ 0xa076_1d64_78bd_642f, second ^ 0xe703_7ed1_a0b4_28db);
    let sum = begin.wrapping_add(fold(third ^ 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3));
    let pairs = body.as_chunks::<2>().0.iter().zip(&KEYS);
    let folded = pairs.map(|(words, keys)| fold(words[0] ^ keys[0], words[1] ^ keys[1]));
    folded.fold(sum, u64::wrapping_add)
}

/// The checksum of a header, and of what lies in the slot of a body of this length.
#[inline]
fn checksum_of(header: [u64; 3], len: usize, word: impl Fn(usize) -> u64) -> u64 {
    match len {
        0..=ONE_LINE => checksum(header, &std::array::from_fn::<_, { ONE_LINE / 8 }, _>(word)),
        _ if len <= SHORT => checksum(header, &std::array::from_fn::<_, { SHORT / 8 }, _>(word)),
        _ => checksum(header, &[]),
    }
}

/// The slot of a message.
fn slot_at(message: u32) -> usize {
    SLOTS_AT + (message % SLOTS) as usize * SLOT
}

/// Where a short body begins in its slot.
fn body_at(len: usize) -> usize {
    if len <= ONE_LINE { LINE } else { 0 }
}

/// Lines of a body beside its slot.
fn lines_of(len: usize) -> u32 {
    if len <= SHORT {
        0
    } else {
        len.div_ceil(LINE) as u32
    }
}

/// Puts the first bytes of a buffer, and waits until UCX is done with it. The other program's processor has no part in it.
#[inline]
fn put(
    worker: &mut Worker<Nothing>,
    other: &Remote,
    buffer: &mut Vec<u8>,
    len: usize,
    offset: usize,
) -> Result<()> {
    let from = std::mem::take(buffer);
    *buffer = match other.put(worker, from, len, offset)? {
        Started::Done(bytes) => bytes.into_vec(),
        Started::UnderWay(request) => {
            let mut timeout = Timeout::new();
            while !request.is_done(&worker.0) {
                worker.progress();
                timeout.check()?;
            }
            finished(request, &mut worker.0)?.into_vec()
        }
    };
    Ok(())
}

impl PutRing {
    /// Waits until there is room for a message with so many lines up to `end`.
    #[inline]
    fn wait_for_room(&mut self, end: u32) -> Result<()> {
        let mut timeout = Timeout::new();
        loop {
            let released = Position::unpack(self.memory.word(CREDITS).load(Ordering::Acquire));
            if self.sent.messages.wrapping_sub(released.messages) < SLOTS
                && end.wrapping_sub(released.lines) <= LINES
            {
                return Ok(());
            }
            self.worker.progress();
            timeout.check()?;
        }
    }

    /// Sends a message with a body that `write` writes.
    #[inline]
    fn message(&mut self, handler: u64, len: usize, write: impl FnOnce(&mut [u8])) -> Result<()> {
        let lines = lines_of(len);
        let begin = if lines == 0 {
            self.sent.lines
        } else {
            self.sent.begin_of(lines)
        };
        let end = begin.wrapping_add(lines);
        self.wait_for_room(end)?;
        let Self {
            other,
            worker,
            body,
            slot,
            trailer,
            ..
        } = self;
        let other = other.as_ref().context(NOT_MET)?;
        self.sent.messages = self.sent.messages.wrapping_add(1);
        self.sent.lines = end;
        let header = [
            u64::from(self.sent.messages) << 32 | len as u64,
            handler,
            u64::from(end),
        ];
        let at = slot_at(self.sent.messages);
        if lines == 0 {
            write(&mut slot[..len]);
            let begin = body_at(len);
            let end = SHORT - begin;
            let sum = checksum_of(header, len, |word| word_of(slot, word));
            write_trailer(&mut slot[end..], header, sum);
            return put(worker, other, slot, SLOT - begin, at + begin);
        }
        write(&mut body[..len]);
        put(
            worker,
            other,
            body,
            len,
            LINES_AT + (begin % LINES) as usize * LINE,
        )?;
        worker.0.fence()?;
        write_trailer(trailer, header, checksum(header, &[]));
        put(worker, other, trailer, TRAILER, at + SHORT)
    }

    /// The header of the next message, if it is there.
    #[inline]
    fn landed(&self) -> Option<[u64; 3]> {
        let next = self.received.messages.wrapping_add(1);
        let at = slot_at(next) / 8;
        let words: &[_; SLOT / 8] = self.memory.words()[at..].first_chunk()?;
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        let first = word(SHORT / 8);
        if (first >> 32) as u32 != next {
            return None;
        }
        let header = [first, word(SHORT / 8 + 1), word(SHORT / 8 + 2)];
        let len = first as u32 as usize;
        let begin = body_at(len) / 8;
        if word(SHORT / 8 + 3) != checksum_of(header, len, |at| word(begin + at)) {
            return None;
        }
        fence(Ordering::Acquire);
        Some(header)
    }

    /// Calls the handler of the next message, if it is there.
    #[inline]
    fn handle_next(&mut self) -> Result<bool> {
        let Some([first, handler, end]) = self.landed() else {
            return Ok(false);
        };
        let (len, end) = (first as u32 as usize, end as u32);
        self.received.messages = self.received.messages.wrapping_add(1);
        let lines = lines_of(len);
        let at = if lines == 0 {
            slot_at(self.received.messages) + body_at(len)
        } else {
            LINES_AT + (end.wrapping_sub(lines) % LINES) as usize * LINE
        };
        ensure!(at + len <= LEN, "a message of {len} bytes");
        // SAFETY: in the memory, which is given back with `self`. The other one puts there again when the message is released.
        let body = unsafe { std::slice::from_raw_parts(self.memory.at(at), len) };
        if let Some(handler) = self.handlers.get(handler as usize) {
            handler(body, &mut self.state);
        }
        self.received.lines = end;
        if self.received.messages.wrapping_sub(self.returned.messages) >= SLOTS / 4
            || end.wrapping_sub(self.returned.lines) >= LINES / 4
        {
            self.return_credits()?;
        }
        Ok(true)
    }

    #[cold]
    fn return_credits(&mut self) -> Result<()> {
        self.returned = self.received;
        self.credits.copy_from_slice(&self.received.pack().to_ne_bytes());
        let other = self.other.as_ref().context(NOT_MET)?;
        put(&mut self.worker, other, &mut self.credits, 8, CREDITS)
    }

    #[cold]
    fn answer(&mut self) -> Result<()> {
        self.state.is_asked = false;
        self.message(ANSWER, 0, |_| {})
    }
}

#[inline]
fn word_of(bytes: &[u8], word: usize) -> u64 {
    bytes[word * 8..]
        .first_chunk()
        .map_or(0, |word| u64::from_ne_bytes(*word))
}

#[inline]
fn write_trailer(to: &mut [u8], header: [u64; 3], checksum: u64) {
    let [first, second, third] = header;
    let words = [first, second, third, checksum];
    for (to, word) in to.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_ne_bytes();
    }
}

impl Node for PutRing {
    fn address(&self) -> Result<String> {
        self.memory.address(&self.worker)
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.other = Some(Remote::connect(&mut self.worker, address)?);
        self.flush()
    }

    fn carried_by(&self) -> String {
        let other = self.other.as_ref();
        other.map_or_else(String::new, |other| other.carried_by(&self.worker))
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        ensure!(size <= self.body.len() / 4, "a payload of {size} bytes");
        (self.size, self.payload) = (size, payload);
        self.state.count = Count::default();
        self.state.reads = payload != Payload::Untouched;
        Fresh { len: size, seed: 1 }.write(&mut self.body[..size]);
        self.of_written = words(&self.body[..size]);
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        let (len, payload) = (self.size, self.payload);
        self.message(ADD, len, |body| match payload {
            Payload::Static | Payload::Untouched if len > SHORT => {}
            Payload::Static | Payload::Untouched => Fresh { len, seed: 1 }.write(body),
            Payload::Fresh => Fresh { len, seed }.write(body),
        })
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.of_written)
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        if !self.handle_next()? {
            self.polls = self.polls.wrapping_add(1);
            if self.polls.is_multiple_of(IDLE_POLLS) {
                self.worker.progress();
            }
        }
        if self.state.is_asked && self.other.is_some() {
            self.answer()?;
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self) -> Count {
        self.state.count
    }

    fn flush(&mut self) -> Result<()> {
        self.questions += 1;
        self.message(ASK, 0, |_| {})?;
        let mut timeout = Timeout::new();
        while self.state.answers != self.questions {
            self.poll()?;
            timeout.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_lie_in_one_piece() {
        let at = |lines| Position { messages: 0, lines };
        assert_eq!(at(0).begin_of(LINES), 0);
        assert_eq!(at(LINES - 2).begin_of(2), LINES - 2);
        assert_eq!(at(LINES - 2).begin_of(3), LINES);
        assert_eq!(at(2 * LINES).begin_of(1), 2 * LINES);
        // The number of lines wraps where a lap begins.
        assert_eq!(at(u32::MAX).begin_of(2), 0);
        assert_eq!((lines_of(96), lines_of(97), lines_of(129)), (0, 2, 3));
    }

    #[test]
    fn each_word_is_in_the_checksum() {
        let of = |words: [u64; 15]| {
            let [a, b, c, rest @ ..] = words;
            checksum([a, b, c], &rest)
        };
        let before = of([1; 15]);
        for at in 0..15 {
            let mut words = [1; 15];
            words[at] = 2;
            assert_ne!(of(words), before, "{at}");
        }
    }
}
