//! Frames that were changed, cut or mixed, in a buffer that ends where memory ends: refused by a status, never run, never read beyond the
//! buffer.

use std::ptr;
use std::time::{Duration, Instant};

use crate::common::{CANCELED, Context, NO_MESSAGE, OK, Tally, frame};
use ifunc_build::COptions;

/// Of frames that are put, and of frames that are stored.
const ROUNDS: usize = 2 * 10_000;
/// Length of a trailer.
const TRAILER: usize = 16;
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

/// The same frame as a source stores it in memory that it has mapped: its sum is in the head, and its trailer is not read.
fn stored(frame: &[u8]) -> Vec<u8> {
    let (mut stored, trailer) = (frame.to_vec(), frame.len() - TRAILER);
    stored[3] = 0x9d;
    stored[4..8].copy_from_slice(&frame[trailer + 4..][..4]);
    stored[8..12].copy_from_slice(&frame[trailer..][..4]);
    stored[trailer..].fill(0);
    stored
}

/// The first word of a frame of which so many stripes are stored.
fn storing(stripes: u32) -> [u8; 8] {
    let [a, b, c, d] = stripes.to_le_bytes();
    [0xd3, 0x69, 0x66, 0x9b, a, b, c, d]
}

/// Whether the buffer holds this frame.
fn holds(buffer: &[u8], frame: &[u8]) -> bool {
    let read = match frame[3] {
        0x9d => frame.len() - TRAILER,
        _ => frame.len(),
    };
    buffer.len() >= frame.len() && buffer.starts_with(&frame[..read])
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
        .flat_map(|frame| [stored(&frame), frame])
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
        if holds(&bytes, original) || holds(&bytes, other) {
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
    let places = [40, whole.len() - 100];
    let mut buffers = [whole.clone(), stored(&whole)].map(|frame| {
        places.map(|at| {
            let mut buffer = frame.clone();
            buffer[at] ^= 1;
            (buffer, None)
        })
    });
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        for (buffer, ended) in buffers.as_flattened_mut() {
            let status = context.poll(buffer, &mut tally);
            if status != NO_MESSAGE {
                assert_eq!(ended.replace(status), None, "it is taken out once");
            }
        }
        if buffers.as_flattened().iter().all(|(_, ended)| ended.is_some()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for (buffer, ended) in buffers.as_flattened_mut() {
        assert_eq!(*ended, Some(CANCELED));
        assert_eq!(context.poll(buffer, &mut tally), NO_MESSAGE);
    }
    assert_eq!(tally.messages, 0);
}

#[test]
fn a_frame_that_is_being_stored_runs_when_it_is_whole() {
    let context = Context::with(&["tally.c"], COptions::default());
    let whole = stored(&context.frame("tally", &[1; 9000]));
    let mut tally = Tally::default();
    let mut memory = Guarded::new();
    let mut rng = Rng(4);
    for round in 1..=50 {
        let buffer = memory.last(whole.len());
        for _ in 0..4 {
            // Of this frame or of another one, which was not stored to its end; and numbers that no source writes.
            let stripes = match rng.below(3) {
                0 => u32::MAX,
                1 => rng.next() as u32,
                _ => rng.below(150) as u32,
            };
            let n = 64 + rng.below(whole.len() - 64);
            buffer[8..n].copy_from_slice(&whole[8..n]);
            buffer[n..].fill(rng.next() as u8);
            buffer[..8].copy_from_slice(&storing(stripes));
            assert_eq!(context.poll(buffer, &mut tally), NO_MESSAGE);
        }
        buffer.copy_from_slice(&whole);
        assert_eq!(context.poll(buffer, &mut tally), OK);
        assert_eq!((tally.messages, tally.sum), (round, 9000 * round));
    }
}
