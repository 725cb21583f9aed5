//! A fast sum that detects errors: of a whole message at each send and at each arrival, so it must cost less than to copy it.
//!
//! A string is summed in three parts: its first bytes, as many whole stripes as it has after them, and the rest. So the stripes of a frame
//! begin at a line of the cache, and can be added while the frame is being stored. Eight lanes of 64 bits add up each word of a stripe and
//! the product of its halves under a key that differs by lane and by place, as XXH3 does. A sum of what a peer chose proves nothing.

use std::ptr;

use crate::prefetch;

/// Bytes that are added in one step.
pub(crate) const STRIPE: usize = 64;
/// Stripes between two hints to the processor. It has the lines of one block under way while it adds another.
const BLOCK: usize = 8;
const LANES: usize = STRIPE / 8;
/// Bytes before the stripes.
const FIRST: usize = 32;
/// By which keys differ from stripe to stripe. Odd numbers of no structure, as the others.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;
const KEYS: [u64; LANES] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6d,
    0xc0ac_29b7_c97c_50dd,
    0x3f84_d5b5_b547_0917,
];

/// The sum of a string.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    let (at, len) = (bytes.as_ptr(), bytes.len());
    let mut stripes = Stripes::new();
    // SAFETY: the slice's own bytes; the stripes are all within them.
    unsafe {
        stripes.add(at.wrapping_add(FIRST), stripes_of(len));
        stripes.finish(mixed([len as u64, 0, 0]), at, len, None)
    }
}

/// A word that every bit of three words has an effect on.
#[inline]
pub(crate) fn mixed(words: [u64; 3]) -> u64 {
    let [a, b, c] = words;
    // The products do not wait for one another.
    mix(a.wrapping_mul(KEYS[4])
        ^ b.wrapping_mul(KEYS[5]).rotate_left(21)
        ^ c.wrapping_mul(KEYS[6]).rotate_left(42))
}

/// How many whole stripes a string of this length has.
#[inline]
pub(crate) fn stripes_of(len: usize) -> usize {
    len.saturating_sub(FIRST) / STRIPE
}

/// The sum of the stripes of a string, as many as were added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripes {
    lanes: [u64; LANES],
    count: usize,
}

impl Stripes {
    pub(crate) const fn new() -> Self {
        Self {
            lanes: KEYS,
            count: 0,
        }
    }

    /// How many were added.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds the next `count` stripes, memory that may change meanwhile: each byte is read once.
    ///
    /// Another processor may have written them. The lines of two blocks are asked for before they are needed: an addition that waits for
    /// its line occupies the processor until no more lines than three or four are under way.
    ///
    /// # Safety
    /// The memory is readable for as many stripes.
    #[inline]
    pub(crate) unsafe fn add(&mut self, at: *const u8, count: usize) {
        const AHEAD: usize = 2 * BLOCK;
        prefetch::lines(at, count.min(AHEAD), prefetch::for_reading);
        for done in (0..count).step_by(BLOCK) {
            let block = at.wrapping_add(done * STRIPE);
            let left = count - done;
            let next = block.wrapping_add(AHEAD * STRIPE);
            prefetch::lines(next, left.saturating_sub(AHEAD).min(BLOCK), prefetch::for_reading);
            // SAFETY: the caller's promise.
            unsafe { self.add_block::<false>(block, left.min(BLOCK), ptr::null_mut()) };
        }
    }

    /// As [`add`](Self::add), and copies the stripes to `to`, where `more` stripes come after them.
    ///
    /// The lines may be in the cache of another processor. They are asked for a block ahead: otherwise only as many are under way as their
    /// stores fit into the store buffer.
    ///
    /// # Safety
    /// As for [`add`](Self::add), and `to` is writable for as many, which do not overlap.
    #[inline]
    pub(crate) unsafe fn copy(&mut self, at: *const u8, count: usize, to: *mut u8, more: usize) {
        for done in (0..count).step_by(BLOCK) {
            let offset = done * STRIPE;
            let left = count - done;
            let next = to.wrapping_add(offset + BLOCK * STRIPE);
            prefetch::lines(
                next,
                (left + more).saturating_sub(BLOCK).min(BLOCK),
                prefetch::for_writing,
            );
            // SAFETY: the caller's promise.
            unsafe {
                self.add_block::<true>(at.wrapping_add(offset), left.min(BLOCK), to.wrapping_add(offset));
            }
        }
    }

    /// Adds the next `count` stripes, with the widest vectors of this processor.
    ///
    /// # Safety
    /// As for [`add`](Self::add), and if `COPY` as for [`copy`](Self::copy).
    #[inline]
    unsafe fn add_block<const COPY: bool>(&mut self, at: *const u8, count: usize, to: *mut u8) {
        let first = (self.count as u64).wrapping_mul(STEP);
        let keys = KEYS.map(|key| key.wrapping_add(first));
        self.count += count;
        let lanes = &mut self.lanes;
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has them; the rest is the caller's promise.
            unsafe { add_avx2::<COPY>(lanes, &keys, at, count, to) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { add_words::<COPY>(lanes, keys, at, count, to) };
    }

    /// The sum of a string of `len` bytes, of which these are the stripes, and of `seed`. The other bytes are added, and copied to
    /// `to`, if there is one.
    ///
    /// # Safety
    /// The string is readable, and `to` is writable for its length, which do not overlap. All of its stripes were added.
    #[inline]
    pub(crate) unsafe fn finish(&self, seed: u64, at: *const u8, len: usize, to: Option<*mut u8>) -> u64 {
        let first = len.min(FIRST);
        let rest_at = first + self.count * STRIPE;
        // SAFETY: both are within the string, and the rest is what it has after the stripes.
        let (first, rest) = unsafe {
            match to {
                None => (
                    add_end::<false>(seed, at, first, ptr::null_mut()),
                    add_end::<false>(STEP, at.wrapping_add(rest_at), len - rest_at, ptr::null_mut()),
                ),
                Some(to) => (
                    add_end::<true>(seed, at, first, to),
                    add_end::<true>(
                        STEP,
                        at.wrapping_add(rest_at),
                        len - rest_at,
                        to.wrapping_add(rest_at),
                    ),
                ),
            }
        };
        let mut sum = 0_u64;
        if self.count > 0 {
            for (lane, key) in self.lanes.into_iter().zip(KEYS) {
                // An odd factor for each, and no bit that has an effect on the highest bit alone.
                sum = sum.wrapping_add((lane ^ lane >> 32).wrapping_mul(key | 1));
            }
        }
        mixed([first, rest, sum])
    }
}

/// Adds fewer bytes than a stripe has. Each step is a permutation of the sum, so that a change of one word changes it.
///
/// # Safety
/// The memory is readable for `len` bytes, and `to` is writable if `COPY`.
#[inline(always)]
unsafe fn add_end<const COPY: bool>(mut sum: u64, at: *const u8, len: usize, to: *mut u8) -> u64 {
    let step = |sum: u64, word: u64| {
        let sum = (sum ^ word).wrapping_mul(MULTIPLIER);
        sum ^ sum >> 32
    };
    let words = len / 8;
    for n in 0..words {
        // SAFETY: within the `len` bytes.
        unsafe {
            let word = at.add(8 * n).cast::<u64>().read_unaligned();
            if COPY {
                to.add(8 * n).cast::<u64>().write_unaligned(word);
            }
            sum = step(sum, u64::from_le(word));
        }
    }
    if len.is_multiple_of(8) {
        return sum;
    }
    let last = (8 * words..len).rev().fold(0, |word, n| {
        // SAFETY: within the `len` bytes.
        unsafe {
            let byte = at.add(n).read();
            if COPY {
                to.add(n).write(byte);
            }
            word << 8 | u64::from(byte)
        }
    });
    step(sum, last)
}

/// As [`add_words`], in half as many steps as compilers make of it.
///
/// # Safety
/// As [`Stripes::add`], on a processor that has them; `to` is used if `COPY`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn add_avx2<const COPY: bool>(
    lanes: &mut [u64; LANES],
    keys: &[u64; LANES],
    at: *const u8,
    count: usize,
    to: *mut u8,
) {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set1_epi64x,
        _mm256_shuffle_epi32, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
    };
    const HALF: usize = STRIPE / 2;
    /// Exchanges the words of each pair.
    const EXCHANGE: i32 = 0b01_00_11_10;
    let halves = |words: &[u64; LANES]| -> [__m256i; 2] {
        let (first, second) = words.split_at(LANES / 2);
        // SAFETY: four words each.
        unsafe { [first, second].map(|half| _mm256_loadu_si256(half.as_ptr().cast())) }
    };
    let step = _mm256_set1_epi64x(STEP.cast_signed());
    let (mut sums, mut keys) = (halves(lanes), halves(keys));
    for stripe in 0..count {
        for half in 0..2 {
            let offset = stripe * STRIPE + half * HALF;
            // SAFETY: the caller's promise.
            let words = unsafe { _mm256_loadu_si256(at.add(offset).cast()) };
            if COPY {
                // SAFETY: as above.
                unsafe { _mm256_storeu_si256(to.add(offset).cast(), words) };
            }
            let keyed = _mm256_xor_si256(words, keys[half]);
            let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
            let exchanged = _mm256_shuffle_epi32::<EXCHANGE>(words);
            sums[half] = _mm256_add_epi64(sums[half], _mm256_add_epi64(product, exchanged));
            keys[half] = _mm256_add_epi64(keys[half], step);
        }
    }
    for (lanes, sums) in lanes.chunks_exact_mut(LANES / 2).zip(sums) {
        // SAFETY: four words.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sums) };
    }
}

/// # Safety
/// As [`Stripes::add`]; `to` is used if `COPY`.
unsafe fn add_words<const COPY: bool>(
    lanes: &mut [u64; LANES],
    mut keys: [u64; LANES],
    at: *const u8,
    count: usize,
    to: *mut u8,
) {
    for stripe in 0..count {
        // SAFETY: the caller's promise.
        let words = unsafe { at.add(stripe * STRIPE).cast::<[u64; LANES]>().read_unaligned() };
        if COPY {
            // SAFETY: as above.
            unsafe {
                to.add(stripe * STRIPE)
                    .cast::<[u64; LANES]>()
                    .write_unaligned(words)
            };
        }
        for n in 0..LANES {
            let word = u64::from_le(words[n]);
            let keyed = word ^ keys[n];
            // The product alone would lose a word whose other half is zero under the key.
            lanes[n ^ 1] = lanes[n ^ 1].wrapping_add(word);
            lanes[n] = lanes[n].wrapping_add((keyed & 0xffff_ffff).wrapping_mul(keyed >> 32));
            keys[n] = keys[n].wrapping_add(STEP);
        }
    }
}

/// A permutation of the words, in which each bit has an effect on all.
#[inline(always)]
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(MULTIPLIER);
    (word ^ word >> 29).wrapping_mul(STEP)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_bit_and_each_length_counts() {
        let mut zeros = HashSet::new();
        for len in 0..200 {
            assert!(zeros.insert(of(&vec![0; len])), "{len} zeros");
            let mut bytes: Vec<u8> = (0..len).map(|n: usize| (n * 7) as u8).collect();
            let mut seen = HashSet::from([of(&bytes)]);
            for bit in 0..8 * len {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(of(&bytes)), "bit {bit} of {len}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn places_count() {
        let mut bytes = vec![0; 1024];
        let mut seen = HashSet::new();
        for at in 0..bytes.len() / 8 {
            bytes[8 * at] = 1;
            assert!(seen.insert(of(&bytes)), "{at}");
            bytes[8 * at] = 0;
        }
    }

    #[test]
    fn what_is_copied_has_the_same_sum_in_any_number_of_steps() {
        let bytes: Vec<u8> = (0..999).map(|n| (n * 7) as u8).collect();
        for len in [0, 1, 7, 8, 31, 32, 63, 64, 95, 96, 97, 130, 300, 999] {
            let (mut copy, mut stripes) = (vec![0; len], Stripes::new());
            let (from, to, all) = (bytes.as_ptr(), copy.as_mut_ptr(), stripes_of(len));
            // SAFETY: both have `len` bytes.
            let sum = unsafe {
                for count in [all / 3, 0, all - all / 3] {
                    let at = FIRST + stripes.count() * STRIPE;
                    let more = all - stripes.count() - count;
                    stripes.copy(from.wrapping_add(at), count, to.wrapping_add(at), more);
                }
                stripes.finish(mixed([len as u64, 0, 0]), from, len, Some(to))
            };
            assert_eq!((sum, &copy[..]), (of(&bytes[..len]), &bytes[..len]), "{len}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vectors_do_not_change_the_sum() {
        let bytes: Vec<u8> = (0..640_u32).map(|n| ((n * n) >> 3) as u8).collect();
        let (mut words, mut vectors) = (KEYS, KEYS);
        // SAFETY: ten stripes; nothing is copied.
        unsafe {
            add_words::<false>(&mut words, KEYS, bytes.as_ptr(), 10, ptr::null_mut());
            if std::arch::is_x86_feature_detected!("avx2") {
                add_avx2::<false>(&mut vectors, &KEYS, bytes.as_ptr(), 10, ptr::null_mut());
                assert_eq!(words, vectors);
            }
        }
        assert_ne!(words, KEYS);
    }

    #[test]
    fn the_address_does_not_count() {
        let bytes: Vec<u8> = (0..400).map(|n| n as u8).collect();
        let copy = [&[9; 3], &bytes[..]].concat();
        assert_eq!(of(&copy[3..]), of(&bytes));
    }
}
