//! Pseudo-random numbers: SplitMix64.

/// A generator. The same seed draws the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of a step. It depends on no earlier step, so that a run without some of its steps draws the same in
    /// the others.
    pub(crate) fn of_step(seed: u64, step: u64) -> Self {
        Self(mix(seed) ^ mix(step.wrapping_add(0x517c_c1b7_2722_0a95)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }

    /// True once in `among`.
    pub(crate) fn one_in(&mut self, among: usize) -> bool {
        self.below(among) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A hash of a number.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
