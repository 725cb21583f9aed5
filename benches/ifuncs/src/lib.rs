//! The ifuncs that the benchmarks send.
#![no_std]

pub mod table;

use ifunc::prelude::*;

/// What the targets of the benchmarks own.
#[derive(Clone, Copy, Debug, Default, Layout)]
#[repr(C)]
pub struct Tally {
    /// Invocations.
    pub count: u64,
    /// Of every payload byte, as [`sum()`] adds them up.
    pub sum: u64,
}

/// Reads every byte of the payload: sums it up as little-endian words, the last one filled with zeros.
#[ifunc]
pub fn sum(payload: &[u8], tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload));
}

/// The smallest of all: a byte that is added.
#[ifunc]
pub fn increment(delta: u8, tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(u64::from(delta));
}

/// As [`sum()`], of a payload that is written where it travels.
#[ifunc(codec = custom)]
pub fn sum_fresh(payload: Bytes<'_>, tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload.0));
}

/// The payload of [`sum_fresh()`]: bytes.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

/// What a source makes [`Bytes`] of.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// How many bytes.
    pub len: usize,
    /// Which ones.
    pub seed: u64,
}

impl<'a> Payload<'a> for Bytes<'a> {
    type Source = Fresh;
    const TEXT: Text = Text::new().str("bytes/1");

    fn bound(source: &Fresh) -> usize {
        source.len
    }

    #[inline]
    fn encode(source: &Fresh, out: &mut [u8]) -> Result<usize, EncodeError> {
        let out = out.get_mut(..source.len).ok_or(EncodeError::TooLarge)?;
        source.write(out);
        Ok(source.len)
    }

    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Bytes(payload))
    }
}

/// From one word of a payload to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Fresh {
    /// Writes every byte of `out`, which has the length. Peers' sources call the same.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        let mut value = self.seed;
        for word in words {
            *word = value.to_le_bytes();
            value = value.wrapping_add(STEP);
        }
        for byte in rest {
            *byte = value as u8;
            value >>= 8;
        }
    }

    /// What [`words`] says of it.
    #[inline]
    #[must_use]
    pub fn sum(&self) -> u64 {
        let (words, rest) = ((self.len / 8) as u64, (self.len % 8) as u32);
        // 0 + 1 + 2 + … times the step; one of the two factors is even.
        let steps = if words.is_multiple_of(2) {
            (words / 2).wrapping_mul(words.wrapping_sub(1))
        } else {
            words.wrapping_mul(words / 2)
        };
        let last = self.seed.wrapping_add(words.wrapping_mul(STEP)) & ((1 << (8 * rest)) - 1);
        words
            .wrapping_mul(self.seed)
            .wrapping_add(steps.wrapping_mul(STEP))
            .wrapping_add(last)
    }
}

/// As [`sum()`], of one word.
#[ifunc]
pub fn sum_word(word: u64, tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(word);
}

/// Adds to the number of invocations, and answers it.
#[ifunc]
pub fn count(more: u64, tally: &mut Tally) -> u64 {
    tally.count += more;
    tally.count
}

#[ifunc::import]
unsafe extern "C" {
    /// The next number of a sequence that the host knows.
    safe fn next_step(x: u64) -> u64;
}

/// Calls the host so many times, each time with what it answered before.
#[ifunc]
pub fn steps(n: u64, _: &mut Tally) -> u64 {
    (0..n).fold(1, |x, _| next_step(x))
}

/// The sum of little-endian words, the last one filled with zeros. Peers' handlers call the same.
#[inline]
#[must_use]
pub fn words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let last = rest
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte));
    words
        .iter()
        .fold(last, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// Answers a number that only this question has.
#[ifunc]
pub fn question(number: u64, tally: &mut Tally) -> u64 {
    tally.count += 1;
    answer(number)
}

/// What was counted: 0 asks for the invocations, anything else for the sum.
#[ifunc]
pub fn counters(which: u64, tally: &mut Tally) -> u64 {
    if which == 0 { tally.count } else { tally.sum }
}

/// The answer to a question. Peers' handlers call the same.
#[inline]
#[must_use]
pub fn answer(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_knows_the_sum_of_what_it_writes() {
        for len in (0..70).chain([4096, 4099]) {
            let fresh = Fresh {
                len,
                seed: 0xdead_beef_0bad_cafe,
            };
            let mut bytes = [0; 4099];
            fresh.write(&mut bytes[..len]);
            assert_eq!(fresh.sum(), words(&bytes[..len]), "{len} bytes");
        }
    }
}
