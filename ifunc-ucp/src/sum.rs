//! A fast sum that detects errors: of a whole message at each send and at each arrival, so it must cost less than to copy it.
//!
//! Eight lanes of 64 bits add up each word and the product of its halves under a key that differs by lane and by place, as XXH3 does,
//! so that compilers use vectors. A sum of what a peer chose proves nothing.

use std::ptr;

/// Bytes that are added in one step.
const STRIPE: usize = 64;
const LANES: usize = STRIPE / 8;
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

/// A sum of byte strings, one after the other: `ab` and `c` have another sum than `a` and `bc`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum(u64);

/// The sum of one string.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum.finish()
}

impl Sum {
    pub(crate) fn new() -> Self {
        Self(STEP)
    }

    /// A sum of what [`mixed`] has this value, and what is added.
    #[inline]
    pub(crate) fn of_mixed(mixed: u64) -> Self {
        Self(mixed)
    }

    #[inline]
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        // SAFETY: the slice's own bytes.
        unsafe { self.add_at(bytes.as_ptr(), bytes.len()) };
    }

    /// Adds memory that may change meanwhile.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn add_at(&mut self, at: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.add_and_copy(at, len, None) };
    }

    /// Adds memory that may change meanwhile. What is added is copied to `to`, if there is one: each byte is read once.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes, and `to` is writable for as many, which do not overlap.
    #[inline]
    pub(crate) unsafe fn add_and_copy(&mut self, at: *const u8, len: usize, to: Option<*mut u8>) {
        let mut sum = self.0 ^ (len as u64).wrapping_mul(STEP);
        let stripes = len / STRIPE;
        if stripes > 0 {
            let mut lanes = KEYS;
            // SAFETY: the stripes are within the `len` bytes.
            unsafe { add_stripes(&mut lanes, at, stripes, to) };
            for n in 0..LANES {
                // An odd factor for each, and no bit that has an effect on the highest bit alone.
                sum = sum.wrapping_add((lanes[n] ^ lanes[n] >> 32).wrapping_mul(KEYS[n] | 1));
            }
        }
        let (done, rest) = (stripes * STRIPE, len % STRIPE);
        // SAFETY: the last bytes, fewer than a stripe.
        unsafe {
            match to {
                None => self.0 = add_rest(sum, at.add(done), rest, done > 0),
                Some(to) => {
                    let mut last = [0_u8; STRIPE];
                    libc::memcpy((&raw mut last).cast(), at.add(done).cast(), rest);
                    self.0 = add_rest(sum, last.as_ptr(), rest, false);
                    libc::memcpy(to.add(done).cast(), (&raw const last).cast(), rest);
                }
            }
        }
    }

    pub(crate) fn finish(self) -> u64 {
        mix(self.0)
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

/// Adds fewer bytes than a stripe has. Each step is a permutation of the sum, so that a change of one word changes it.
///
/// # Safety
/// The memory is readable for `len` bytes, and for eight bytes before them if `has_before`.
#[inline(always)]
unsafe fn add_rest(mut sum: u64, at: *const u8, len: usize, has_before: bool) -> u64 {
    let step = |sum: u64, word: u64| {
        let sum = (sum ^ word).wrapping_mul(MULTIPLIER);
        sum ^ sum >> 32
    };
    for n in 0..len / 8 {
        // SAFETY: within the `len` bytes.
        let word = unsafe { at.add(8 * n).cast::<u64>().read_unaligned() };
        sum = step(sum, u64::from_le(word));
    }
    let left = len % 8;
    if left == 0 {
        return sum;
    }
    let last = if len >= 8 || has_before {
        // SAFETY: the last eight bytes, of which the first were added before.
        u64::from_le(unsafe { at.add(len).sub(8).cast::<u64>().read_unaligned() }) >> (64 - 8 * left)
    } else {
        (0..left).fold(0, |word, n| {
            // SAFETY: within the `len` bytes.
            let byte = unsafe { at.add(n).read() };
            word | u64::from(byte) << (8 * n)
        })
    };
    step(sum, last)
}

/// Adds stripes to the lanes, with the widest vectors of this processor, and copies them to `to`.
///
/// # Safety
/// The memory is readable for as many stripes, and `to` is writable.
unsafe fn add_stripes(lanes: &mut [u64; LANES], at: *const u8, stripes: usize, to: Option<*mut u8>) {
    let (is_copied, to) = (to.is_some(), to.unwrap_or(ptr::null_mut()));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has them; the rest is the caller's promise.
        unsafe {
            match is_copied {
                false => add_stripes_avx2::<false>(lanes, at, stripes, to),
                true => add_stripes_avx2::<true>(lanes, at, stripes, to),
            }
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match is_copied {
            false => add_stripes_inline::<false>(lanes, at, stripes, to),
            true => add_stripes_inline::<true>(lanes, at, stripes, to),
        }
    }
}

/// # Safety
/// As [`add_stripes`]; `to` is used if `COPY`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn add_stripes_avx2<const COPY: bool>(
    lanes: &mut [u64; LANES],
    at: *const u8,
    stripes: usize,
    to: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe { add_stripes_inline::<COPY>(lanes, at, stripes, to) };
}

/// # Safety
/// As [`add_stripes`]; `to` is used if `COPY`.
#[inline(always)]
unsafe fn add_stripes_inline<const COPY: bool>(
    lanes: &mut [u64; LANES],
    at: *const u8,
    stripes: usize,
    to: *mut u8,
) {
    let mut keys = KEYS;
    for stripe in 0..stripes {
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
        let mut parts = [Sum::new(); 2];
        for (sum, cut) in parts.iter_mut().zip([1, 2]) {
            sum.add(&b"abc"[..cut]);
            sum.add(&b"abc"[cut..]);
        }
        assert_ne!(parts[0].finish(), parts[1].finish());
    }

    #[test]
    fn what_is_copied_has_the_same_sum() {
        let bytes: Vec<u8> = (0..300).map(|n| n as u8).collect();
        for len in [0, 1, 7, 8, 63, 64, 65, 130, 300] {
            let (mut copy, mut sum) = (vec![0; len], Sum::new());
            // SAFETY: both have `len` bytes.
            unsafe { sum.add_and_copy(bytes.as_ptr(), len, Some(copy.as_mut_ptr())) };
            assert_eq!(
                (sum.finish(), &copy[..]),
                (of(&bytes[..len]), &bytes[..len]),
                "{len}"
            );
        }
    }

    #[test]
    fn the_address_does_not_count() {
        let bytes: Vec<u8> = (0..400).map(|n| n as u8).collect();
        let copy = [&[9; 3], &bytes[..]].concat();
        assert_eq!(of(&copy[3..]), of(&bytes));
    }
}
