//! A small generator (xorshift64*): a seed decides what an attacker does.

/// The generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Whether one of so many chances comes true.
    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// A number as lengths and counts are chosen by those who look for a gap.
    pub(crate) fn odd_number(&mut self) -> u64 {
        match self.below(6) {
            0 => [0, 1, u64::MAX, u32::MAX.into(), 1 << 31, 1 << 63][self.below(6)],
            1 => self.next(),
            2 => 1 << self.below(64),
            _ => self.below(200) as u64,
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![self.next() as u8; len];
        for _ in 0..len.min(64) {
            let at = self.below(len);
            bytes[at] = self.next() as u8;
        }
        bytes
    }
}
