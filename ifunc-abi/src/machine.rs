//! What a machine runs: its architecture, and the CPU features that it has.

use core::fmt;

use crate::image::{AARCH64_FEATURES, ARCH_AARCH64, ARCH_X86_64};

/// What a machine has, or what code needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    /// ELF `e_machine`.
    pub arch: u16,
    /// CPU features: bits as in [`RawHeader::cpu_features`](crate::image::RawHeader::cpu_features).
    pub cpu_features: u64,
}

/// The levels of the x86-64 psABI. Level `i` needs the first `i` bits.
const X86_64_LEVELS: [&str; 4] = ["x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

impl Machine {
    /// Whether this machine runs code that needs what the other one is.
    #[must_use]
    pub const fn runs(self, code: Self) -> bool {
        self.arch == code.arch && code.cpu_features & !self.cpu_features == 0
    }

    /// The level that has exactly these features, if the architecture has one.
    #[must_use]
    pub fn level(self) -> Option<&'static str> {
        let is_level = |level: &usize| self.cpu_features == (1 << *level) - 1;
        let level = (0..X86_64_LEVELS.len()).find(is_level)?;
        (self.arch == ARCH_X86_64).then_some(X86_64_LEVELS[level])
    }
}

/// The level, or the architecture and what it has beyond the baseline: `x86-64-v3`, `AArch64`, `AArch64 with lse, crc`.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(level) = self.level() {
            return f.pad(level);
        }
        match self.arch {
            ARCH_X86_64 => f.write_str("x86-64")?,
            ARCH_AARCH64 => f.write_str("AArch64")?,
            other => write!(f, "ELF machine {other}")?,
        }
        let mut unnamed = self.cpu_features;
        let mut separator = " with ";
        if self.arch == ARCH_AARCH64 {
            for (bit, name) in AARCH64_FEATURES.iter().enumerate() {
                if unnamed >> bit & 1 == 1 {
                    write!(f, "{separator}{name}")?;
                    unnamed &= !(1 << bit);
                    separator = ", ";
                }
            }
        }
        match unnamed {
            0 => Ok(()),
            bits => write!(f, "{separator}CPU features {bits:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    const fn machine(arch: u16, cpu_features: u64) -> Machine {
        Machine { arch, cpu_features }
    }

    #[test]
    fn code_runs_where_all_that_it_needs_is() {
        let v3 = machine(ARCH_X86_64, 0b11);
        for needed in [0, 0b1, 0b11] {
            assert!(v3.runs(machine(ARCH_X86_64, needed)), "{needed:b}");
        }
        for needed in [0b111, 0b100, 1 << 40] {
            assert!(!v3.runs(machine(ARCH_X86_64, needed)), "{needed:b}");
        }
        assert!(!v3.runs(machine(ARCH_AARCH64, 0)));
    }

    #[test]
    fn machines_have_the_names_of_their_levels() {
        for (arch, features, name) in [
            (ARCH_X86_64, 0, "x86-64-v1"),
            (ARCH_X86_64, 0b111, "x86-64-v4"),
            (ARCH_X86_64, 0b101, "x86-64 with CPU features 0x5"),
            (ARCH_AARCH64, 0, "AArch64"),
            (ARCH_AARCH64, 0b11, "AArch64 with lse, crc"),
            (
                ARCH_AARCH64,
                1 << 40 | 1,
                "AArch64 with lse, CPU features 0x10000000000",
            ),
            (243, 0, "ELF machine 243"),
        ] {
            assert_eq!(machine(arch, features).to_string(), name);
        }
    }
}
