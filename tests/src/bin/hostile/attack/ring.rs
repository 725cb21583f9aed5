//! Writing to shared memory while the target reads it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Kind, commit_word};

use super::frames::garbage;
use super::shm::{Raw, SLOT};
use crate::Result;
use crate::random::Random;

/// Sends frames, and rewrites headers, lengths, sequences, credits, code and payloads around the place where the target reads, and
/// anywhere.
pub(super) fn scribble(raw: &mut Raw, random: &mut Random) -> Result {
    let until = Instant::now() + Duration::from_millis(50 + random.below(500) as u64);
    while Instant::now() < until {
        for _ in 0..1 + random.below(8) {
            garbage(raw, random);
        }
        for _ in 0..random.below(200) {
            let near = raw.sent.saturating_sub(random.below(8) as u64);
            let slot = raw.slot(near);
            match random.below(7) {
                0 => {
                    let sequence = near.wrapping_add(random.below(3) as u64) as u32;
                    let word = commit_word(sequence, random.odd_number() as u32);
                    raw.segment.word(slot).store(word, Ordering::Release);
                }
                1 => {
                    let header = Header::new(Kind::Exec, random.below(4) as u32, random.odd_number());
                    let word = header.words()[0] ^ (1 << random.below(64));
                    raw.segment.word(slot + 8).store(word, Ordering::Relaxed);
                }
                2 => raw
                    .segment
                    .word(slot + random.below(SLOT))
                    .store(random.next(), Ordering::Relaxed),
                // The body that was just sent: code, payload, heads of batches.
                3 | 4 => {
                    let back = random.below(4096) as u64;
                    let at = raw.used.saturating_sub(back) as usize % raw.data;
                    raw.segment
                        .word(raw.data_at + at)
                        .store(random.next(), Ordering::Relaxed);
                }
                // The control words of the connection.
                5 if random.one_in(20) => {
                    let word = random.odd_number();
                    raw.segment
                        .word(random.below(6 * 128))
                        .store(word, Ordering::Relaxed);
                }
                _ => {
                    let at = random.below(raw.segment.len);
                    raw.segment
                        .word(at.max(1 << 16))
                        .store(random.next(), Ordering::Relaxed);
                }
            }
        }
        if !raw.ring() {
            break;
        }
    }
    Ok(())
}

/// Clears the bits by which the sources of a target say that they have work, and denies that the target sleeps.
pub(super) fn clear_bitmap(raw: &Raw) -> Result {
    let bitmap = raw.bitmap.as_ref().ok_or("a target of another user")?;
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        for at in (0..1024).step_by(8) {
            bitmap.word(at).store(0, Ordering::Relaxed);
        }
        std::thread::yield_now();
    }
    Ok(())
}
