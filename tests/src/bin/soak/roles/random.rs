//! Numbers that look random and are the same for the same seed.

/// A generator (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Zero would stay zero; and neighbours must not begin alike.
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Once in so many times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Log-uniform between `2^from` and `2^to`.
    fn size(&mut self, from: u64, to: u64) -> usize {
        let exponent = from as f64 + (to - from) as f64 * (self.below(1 << 32) as f64 / (1u64 << 32) as f64);
        exponent.exp2() as usize
    }

    /// A message's length: log-uniform up to 64 KiB, once in a thousand up to 1 MiB.
    pub(super) fn message(&mut self) -> usize {
        if self.once_in(1000) {
            self.size(16, 20)
        } else {
            self.size(0, 16)
        }
    }
}
