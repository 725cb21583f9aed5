//! Frames that were changed, cut or mixed, in a buffer that ends where memory ends: refused by a status, never run, never read beyond the
//! buffer.

use std::ptr;
use std::time::{Duration, Instant};

use crate::common::{CANCELED, Context, NO_MESSAGE, OK, Tally, frame};
use ifunc_build::COptions;

const ROUNDS: usize = 10_000;
const PAGE: usize = 4096;
const PAGES: usize = 4;

/// Memory whose last byte is followed by a page that cannot be read.
struct Guarded(*mut u8);

impl Guarded {
    const LEN: usize = PAGES * PAGE;

    fn new() -> Self {
        // SAFETY: a new mapping, of which the last page is closed again.
        unsafe {
            let at = libc::mmap(
                ptr::null_mut(),
                Self::LEN + PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.add(Self::LEN), PAGE, libc::PROT_NONE), 0);
            Self(at.cast())
        }
    }

    /// The last `len` bytes.
    fn last(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= Self::LEN);
        // SAFETY: within the mapping, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(Self::LEN - len), len) }
    }
}

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Changes a frame in one of the ways in which memory is changed. `other` is another frame.
fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let len = bytes.len();
    match rng.below(7) {
        // Some bits.
        0 => {
            for _ in 0..=rng.below(4) {
                let at = rng.below(len);
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        // A field of the head, or a word of the trailer.
        1 => {
            let at = match rng.below(2) {
                0 => rng.below(28),
                _ => len - 4 - rng.below(12),
            };
            let value = match rng.below(4) {
                0 => 0,
                1 => u32::MAX,
                2 => len as u32 + rng.below(9) as u32 - 4,
                _ => rng.next() as u32,
            };
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        // A run of bytes that one value fills.
        2 => {
            let (at, value) = (rng.below(len), rng.next() as u8);
            let n = 1 + rng.below(len - at);
            bytes[at..at + n].fill(value);
        }
        // Its beginning, and its end.
        3 => {
            let n = rng.below(len);
            bytes[n..].fill(42);
        }
        4 => {
            let n = 1 + rng.below(len - 1);
            bytes[..n].fill(17);
        }
        // The beginning of one and the end of another.
        5 => {
            let n = 1 + rng.below(len.min(other.len()) - 1);
            bytes[n..].fill(0);
            bytes.truncate(n);
            bytes.extend_from_slice(&other[n..]);
        }
        // A buffer that is too small for it.
        _ => bytes.truncate(rng.below(len)),
    }
}

#[test]
fn ten_thousand_corrupted_frames_are_refused() {
    let context = Context::with(&["tally.c"], COptions::default());
    let handle = context.register("tally");
    let frames: Vec<Vec<u8>> = [0, 1, 8, 100, 512, 3000, 9000]
        .iter()
        .map(|len| frame(handle, &vec![0x5a; *len]))
        .collect();
    let mut memory = Guarded::new();
    let mut rng = Rng(777);
    let mut tally = Tally::default();
    let (mut canceled, mut incomplete, mut whole) = (0, 0, 0);
    for round in 0..ROUNDS {
        let original = &frames[rng.below(frames.len())];
        let other = &frames[rng.below(frames.len())];
        let mut bytes = original.clone();
        change(&mut bytes, other, &mut rng);
        let buffer = memory.last(bytes.len());
        buffer.copy_from_slice(&bytes);
        let status = context.poll(buffer, &mut tally);
        if bytes == *original || bytes == *other {
            // The change has changed nothing.
            assert_eq!(status, OK, "round {round}");
            whole += 1;
            continue;
        }
        assert!(
            [CANCELED, NO_MESSAGE].contains(&status),
            "round {round}: {status}"
        );
        match status == CANCELED {
            true => canceled += 1,
            false => incomplete += 1,
        }
        if status == CANCELED {
            assert_eq!(context.poll(memory.last(bytes.len()), &mut tally), NO_MESSAGE);
        }
    }
    assert_eq!(tally.messages, whole);
    assert_eq!(canceled + incomplete + whole, ROUNDS as u64);
    assert!(canceled > ROUNDS as u64 / 20 && incomplete > ROUNDS as u64 / 2);
    // And all of them run as they were sent.
    for frame in &frames {
        let buffer = memory.last(frame.len());
        buffer.copy_from_slice(frame);
        assert_eq!(context.poll(buffer, &mut tally), OK);
    }
}

#[test]
fn a_frame_runs_when_its_last_byte_has_come_in_any_order() {
    let context = Context::with(&["tally.c"], COptions::default());
    let whole = context.frame("tally", &[1; 100]);
    let mut tally = Tally::default();
    let mut rng = Rng(42);
    let mut memory = Guarded::new();
    for _ in 0..20 {
        memory.last(whole.len()).fill(rng.next() as u8);
        let mut order: Vec<usize> = (0..whole.len()).collect();
        match rng.below(3) {
            0 => order.reverse(),
            1 => order.rotate_left(1 + rng.below(whole.len() - 1)),
            _ => (1..whole.len()).for_each(|n| order.swap(n, rng.below(n + 1))),
        }
        for at in order {
            // What the buffer held may be what comes.
            if memory.last(whole.len()) != whole {
                assert_eq!(context.poll(memory.last(whole.len()), &mut tally), NO_MESSAGE);
            }
            memory.last(whole.len())[at] = whole[at];
        }
        assert_eq!(context.poll(memory.last(whole.len()), &mut tally), OK);
    }
    assert_eq!((tally.messages, tally.sum), (20, 2000));
}

#[test]
fn a_frame_that_stays_changed_is_taken_out_in_the_end() {
    let context = Context::with(&["tally.c"], COptions::default());
    let whole = context.frame("tally", &[1; 100]);
    let mut tally = Tally::default();
    // In the payload, and in the code.
    for at in [40, whole.len() - 100] {
        let mut buffer = whole.clone();
        buffer[at] ^= 1;
        let start = Instant::now();
        let status = loop {
            let status = context.poll(&mut buffer, &mut tally);
            if status != NO_MESSAGE || start.elapsed() > Duration::from_secs(60) {
                break status;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status, CANCELED);
        assert_eq!(context.poll(&mut buffer, &mut tally), NO_MESSAGE);
    }
    assert_eq!(tally.messages, 0);
}
