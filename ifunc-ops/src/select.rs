//! Selecting words by a predicate that travels with the code.

use ifunc::prelude::*;

use crate::Words;

/// Where a scan goes on, and where it ends.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Index of the first word.
    pub from: u64,
    /// Index after the last word. The scan ends with the words if there are fewer.
    pub to: u64,
}

impl Scan {
    /// All words.
    pub const ALL: Self = Self {
        from: 0,
        to: u64::MAX,
    };
}

/// Answers the words of a range for which `select` is true, given index and word: the body of an ifunc whose predicate is the
/// caller's.
///
/// ```
/// use ifunc::prelude::*;
/// use ifunc_ops::{Scan, Words};
///
/// /// Selects words that are squares.
/// #[ifunc(idempotent)]
/// pub fn squares(range: Scan, words: &mut dyn Words, ctx: &mut Context) {
///     ifunc_ops::scan(range, words.words(), ctx, |_, word| word.isqrt().pow(2) == word);
/// }
/// ```
///
/// The answer holds as many words as fit, and where the scan goes on; see [`Found`].
pub fn scan(range: Scan, words: &[u64], ctx: &mut Context<'_>, mut select: impl FnMut(u64, u64) -> bool) {
    ctx.answer_with(|space| {
        let Some((next, pairs)) = space.split_first_chunk_mut::<8>() else {
            // Beyond the capacity: the invocation fails.
            return 8;
        };
        let mut pairs = pairs.as_chunks_mut::<16>().0.iter_mut();
        let (mut len, mut end) = (8, u64::MAX);
        let to = usize::try_from(range.to).unwrap_or(usize::MAX).min(words.len());
        let from = usize::try_from(range.from).unwrap_or(usize::MAX).min(to);
        for (index, &word) in (range.from..).zip(&words[from..to]) {
            if !select(index, word) {
                continue;
            }
            let Some(pair) = pairs.next() else {
                end = index;
                break;
            };
            let (at, value) = pair.split_at_mut(8);
            at.copy_from_slice(&index.to_le_bytes());
            value.copy_from_slice(&word.to_le_bytes());
            len += 16;
        }
        *next = end.to_le_bytes();
        len
    });
}

/// The answer of a scan, on the source: `Found::parse(&call.wait_bytes()?)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Where the scan goes on, because the answer was full; `None`: it has ended.
    pub next: Option<u64>,
    pairs: &'a [[u8; 16]],
}

impl<'a> Found<'a> {
    /// Reads an answer; `None` if it is none.
    #[must_use]
    pub fn parse(answer: &'a [u8]) -> Option<Self> {
        let (next, pairs) = answer.split_first_chunk()?;
        let next = u64::from_le_bytes(*next);
        let (pairs, []) = pairs.as_chunks() else {
            return None;
        };
        Some(Self {
            next: (next != u64::MAX).then_some(next),
            pairs,
        })
    }

    /// Index and value of each selected word.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (u64, u64)> + 'a {
        self.pairs.iter().map(|pair| {
            let words = pair.as_chunks::<8>().0;
            (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
        })
    }
}

/// The payload of [`scan_between`](fn@scan_between).
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBetween {
    /// Which words.
    pub range: Scan,
    /// Least selected value.
    pub least: u64,
    /// Greatest selected value.
    pub most: u64,
}

/// Selects words between two values, inclusive. Its answer is a [`Found`].
#[ifunc(idempotent)]
pub fn scan_between(between: ScanBetween, words: &mut dyn Words, ctx: &mut Context) {
    scan(between.range, words.words(), ctx, |_, word| {
        (between.least..=between.most).contains(&word)
    });
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn answers_are_read_back() {
        let pair = |index: u64, word: u64| [index.to_le_bytes(), word.to_le_bytes()].concat();
        let bytes = [9_u64.to_le_bytes().to_vec(), pair(1, 10), pair(4, 40)].concat();
        let found = Found::parse(&bytes).unwrap();
        assert_eq!(found.next, Some(9));
        assert_eq!(found.iter().collect::<Vec<_>>(), [(1, 10), (4, 40)]);
        assert_eq!(Found::parse(&u64::MAX.to_le_bytes()).unwrap().next, None);
        for len in [0, 7, 9, 23, 39] {
            assert_eq!(Found::parse(&bytes[..len]), None, "{len}");
        }
    }
}
