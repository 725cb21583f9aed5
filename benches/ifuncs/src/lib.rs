//! The ifuncs that the benchmarks send.
#![no_std]

pub mod kv;
pub mod table;

use ifunc::prelude::*;

/// The data of the benchmarks' targets.
#[derive(Clone, Copy, Debug, Default, Layout)]
#[repr(C)]
pub struct Tally {
    /// Invocations.
    pub count: u64,
    /// The sum of all payload words, as computed by [`words()`].
    pub sum: u64,
}

/// Sums the payload as little-endian words; zeros pad the last one.
#[ifunc]
pub fn sum(payload: &[u8], tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload));
}

/// The smallest payload: adds one byte.
#[ifunc]
pub fn increment(delta: u8, tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(u64::from(delta));
}

/// As [`sum()`], for a payload that the source writes directly into the frame.
#[ifunc(codec = custom)]
pub fn sum_fresh(payload: Bytes<'_>, tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload.0));
}

/// The payload of [`sum_fresh()`]: bytes.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

/// The source's description of [`Bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Number of bytes.
    pub len: usize,
    /// Seed of their values.
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

/// Difference between consecutive words of a payload.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Fresh {
    /// Writes every byte of `out`, whose length is `len`. The peers' sources call it too.
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

    /// The result of [`words`] for these bytes.
    #[inline]
    #[must_use]
    pub fn sum(&self) -> u64 {
        let (words, rest) = ((self.len / 8) as u64, (self.len % 8) as u32);
        // (0 + 1 + 2 + …) times the step; one of the two factors is even.
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

/// As [`sum()`], for one word.
#[ifunc]
pub fn sum_word(word: u64, tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(word);
}

/// Adds to the number of invocations and answers it.
#[ifunc]
pub fn count(more: u64, tally: &mut Tally) -> u64 {
    tally.count += more;
    tally.count
}

#[ifunc::import]
unsafe extern "C" {
    /// The next number of a sequence that the host computes.
    safe fn next_step(x: u64) -> u64;
}

/// Calls the host `n` times, each time with its previous result.
#[ifunc]
pub fn steps(n: u64, _: &mut Tally) -> u64 {
    (0..n).fold(1, |x, _| next_step(x))
}

/// The sum of little-endian words; zeros pad the last one. The peers' handlers call it too.
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

/// Answers a number that depends on the question.
#[ifunc]
pub fn question(number: u64, tally: &mut Tally) -> u64 {
    tally.count += 1;
    answer(number)
}

/// Answers a counter: the invocations for 0, the sum for any other number.
#[ifunc]
pub fn counters(which: u64, tally: &mut Tally) -> u64 {
    if which == 0 { tally.count } else { tally.sum }
}

/// The answer to a question. The peers' handlers call it too.
#[inline]
#[must_use]
pub fn answer(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predicted_sum_is_right() {
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
