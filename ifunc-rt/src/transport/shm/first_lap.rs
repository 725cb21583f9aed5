//! How far ahead of its bodies a data ring takes memory.

use std::cell::Cell;
use std::ops::Range;

/// Fewest and most bytes that memory is taken for at a time.
const FEWEST: usize = 4 << 10;
const MOST: usize = 64 << 10;

/// Which part of a data ring is populated whose producer is in its first lap.
///
/// Each page is a fault on each side: with 64 connections in turn, calls whose requests or answers have 64 bytes take 1.2 to 3 times as long in
/// the first lap as in the second. With memory that is taken in parts they take 10 to 18 % less; what is left is the kernel's. A connection that sends little takes little: each part is as large as all before it together, up to [`MOST`].
pub(super) struct FirstLap {
    /// So many bytes from the beginning are populated, as far as bodies did not skip them; `usize::MAX`: all.
    populated: Cell<usize>,
}

impl FirstLap {
    pub(super) fn new() -> Self {
        Self {
            populated: Cell::new(0),
        }
    }

    /// Whether [`next_part`](Self::next_part) is due after a body of `len` bytes, if the next one begins at byte `next`.
    #[inline]
    pub(super) fn needs_memory(&self, next: usize, len: usize) -> bool {
        next + len.min(MOST) > self.populated.get()
    }

    /// The bytes of a data ring of `data` bytes to take memory for.
    pub(super) fn next_part(&self, next: usize, len: usize, data: usize) -> Range<usize> {
        let populated = self.populated.get();
        // What the bodies took has memory.
        let start = populated.max(next).min(data);
        let step = populated.clamp(FEWEST, MOST);
        let end = (start + step).max(next + len.min(MOST)).min(data);
        self.populated.set(if end == data { usize::MAX } else { end });
        start..end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Publishes bodies of `len` bytes in a lap and a half. Returns the parts.
    fn parts(len: usize, data: usize) -> Vec<Range<usize>> {
        let lap = FirstLap::new();
        let mut parts = Vec::new();
        for body in 1..=data / len * 3 / 2 {
            let next = body * len % data;
            if lap.needs_memory(next, len) {
                let part = lap.next_part(next, len, data);
                let written = (body * len).min(data);
                assert!(part.len() <= written.clamp(FEWEST, MOST), "{len} {part:?}");
                parts.push(part);
            }
        }
        parts
    }

    #[test]
    fn memory_is_taken_once_and_in_growing_parts() {
        let parts = parts(64, 1 << 20);
        assert_eq!(parts[0], 64..64 + FEWEST);
        assert!(parts.len() < 32);
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(parts.last().map(|part| part.end), Some(1 << 20));
    }

    #[test]
    fn a_long_body_takes_its_own_memory() {
        for len in [FEWEST, MOST - 64, MOST, MOST + 64, 1 << 19] {
            let parts = parts(len, 1 << 20);
            assert!(
                parts.is_sorted_by(|one, other| one.end <= other.start),
                "{parts:?}"
            );
        }
        let parts = parts(1 << 19, 1 << 20);
        assert_eq!((parts.len(), &parts[0]), (1, &(1 << 19..(1 << 19) + MOST)));
    }

    #[test]
    fn nothing_is_taken_after_the_first_lap() {
        let lap = FirstLap::new();
        assert_eq!(
            lap.next_part((1 << 16) - 64, 64, 1 << 16),
            (1 << 16) - 64..1 << 16
        );
        assert!(!lap.needs_memory(0, 1 << 15) && !lap.needs_memory((1 << 16) - 64, 1 << 15));
    }
}
