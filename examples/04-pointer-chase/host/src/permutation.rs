//! The table: a permutation that is one cycle, random to look at, and computable at any place.
//!
//! A linear congruential generator whose multiplier is 1 modulo 4 and whose increment is odd visits all numbers of so many bits
//! in one cycle (Hull and Dobell). A bijection and its inverse around it keep that and make neighbours unrelated. So each
//! server fills its own part, and the source follows the same pointers without any table.

/// A permutation of the numbers below 2^bits, which is one cycle.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    mask: u64,
    /// At least half of the bits.
    shift: u32,
    seed: u64,
}

/// Odd: a bijection of the numbers of any number of bits.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];

impl Permutation {
    /// Of the numbers of `bits` bits, 2 to 62.
    #[must_use]
    pub fn new(bits: u32, seed: u64) -> Self {
        Self {
            mask: (1 << bits) - 1,
            shift: bits.div_ceil(2),
            seed,
        }
    }

    /// What follows `at`.
    #[must_use]
    pub fn next(self, at: u64) -> u64 {
        let number = self.unmix(at);
        let increment = self.seed << 1 | 1;
        let number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(increment) & self.mask;
        self.mix(number)
    }

    /// What follows `at` after `steps` steps.
    #[must_use]
    pub fn walk(self, at: u64, steps: u64) -> u64 {
        (0..steps).fold(at, |at, _| self.next(at))
    }

    /// A place that is random for each `number`.
    #[must_use]
    pub fn start(self, number: u64) -> u64 {
        let mut z = (number ^ self.seed).wrapping_mul(FACTORS[0]);
        z = (z ^ (z >> 31)).wrapping_mul(FACTORS[1]);
        (z ^ (z >> 29)) & self.mask
    }

    fn mix(self, mut number: u64) -> u64 {
        for factor in FACTORS {
            number ^= number >> self.shift;
            number = number.wrapping_mul(factor) & self.mask;
        }
        number ^ number >> self.shift
    }

    fn unmix(self, mut number: u64) -> u64 {
        // A shift by half of the bits or more is its own inverse.
        number ^= number >> self.shift;
        for factor in FACTORS.into_iter().rev() {
            number = number.wrapping_mul(inverse(factor)) & self.mask;
            number ^= number >> self.shift;
        }
        number
    }
}

/// The factor that takes back a multiplication by an odd `factor`, by Newton's iteration.
const fn inverse(factor: u64) -> u64 {
    let mut inverse = factor;
    let mut correct_bits = 3;
    while correct_bits < 64 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)));
        correct_bits *= 2;
    }
    inverse
}

/// How the table is cut: each server has consecutive entries, the last one the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    entries: u64,
    /// Entries of each server but the last.
    block: u64,
}

impl Cut {
    /// Of so many entries over so many servers.
    #[must_use]
    pub fn new(entries: u64, servers: u32) -> Self {
        Self {
            entries,
            block: entries.div_ceil(u64::from(servers)),
        }
    }

    /// The server that has an entry, and its place there.
    #[must_use]
    #[inline]
    pub fn place(self, at: u64) -> (u32, usize) {
        ((at / self.block) as u32, (at % self.block) as usize)
    }

    /// The entries of a server.
    #[must_use]
    pub fn range(self, server: u32) -> std::ops::Range<u64> {
        let from = (u64::from(server) * self.block).min(self.entries);
        from..(from + self.block).min(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_cycle() {
        for bits in [2, 3, 4, 5, 10, 13] {
            for seed in [0, 1, 77] {
                let permutation = Permutation::new(bits, seed);
                let mut at = 0;
                let mut steps = 0_u64;
                loop {
                    at = permutation.next(at);
                    steps += 1;
                    if at == 0 {
                        break;
                    }
                }
                assert_eq!(steps, 1 << bits, "{bits} bits, seed {seed}");
                assert_eq!(permutation.walk(3, 1 << bits), 3);
            }
        }
    }

    #[test]
    fn successors_are_spread() {
        let (permutation, cut) = (Permutation::new(20, 7), Cut::new(1 << 20, 4));
        let elsewhere = (0..1 << 20)
            .filter(|&at| cut.place(at).0 != cut.place(permutation.next(at)).0)
            .count();
        let share = elsewhere as f64 / (1 << 20) as f64;
        assert!((0.74..0.76).contains(&share), "{share}");
    }

    #[test]
    fn the_parts_are_all_of_it() {
        for servers in 1..9 {
            let cut = Cut::new(1 << 6, servers);
            let mut all = (0..servers).flat_map(|server| cut.range(server).map(move |at| (server, at)));
            for at in 0..1 << 6 {
                let (server, place) = cut.place(at);
                assert_eq!(all.next(), Some((server, at)));
                assert_eq!(cut.range(server).start + place as u64, at);
            }
            assert_eq!(all.next(), None);
        }
    }
}
