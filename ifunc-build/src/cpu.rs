//! The CPUs that code is built for.

use std::fmt;

use ifunc_abi::image::{AARCH64_FEATURES, ARCH_AARCH64, ARCH_X86_64};

use crate::triple::Triple;

/// The CPUs that code is built for, recorded in the image and checked when a target installs it: an architecture and what its
/// CPUs have beyond the baseline.
///
/// x86-64 has the levels of its psABI: `x86-64-v1` to `x86-64-v4`. AArch64 has versions and features: `armv8-a`,
/// `armv8.1-a+dotprod`. C compilers have `jsconv`, `fcma`, `frintts` and `rcpc2` only with a version: `armv8.3-a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    arch: u16,
    features: u64,
}

const NAMES: [&str; 4] = ["x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

/// Versions of AArch64, each with the features of those before it, and the features that they add to `armv8-a`. Compilers write no
/// instruction of a version that is not one of a feature, unless flags ask for it.
const VERSIONS: [(&str, &[&str]); 6] = [
    ("armv8-a", &[]),
    ("armv8.1-a", &["lse", "crc", "rdm"]),
    ("armv8.2-a", &["lse", "crc", "rdm"]),
    ("armv8.3-a", &["lse", "crc", "rdm", "rcpc", "jsconv", "fcma"]),
    (
        "armv8.4-a",
        &[
            "lse", "crc", "rdm", "rcpc", "jsconv", "fcma", "dotprod", "flagm", "rcpc2",
        ],
    ),
    (
        "armv8.5-a",
        &[
            "lse", "crc", "rdm", "rcpc", "jsconv", "fcma", "dotprod", "flagm", "rcpc2", "frintts",
        ],
    ),
];

/// Features that C compilers have only with a version: no name in `-march` stands for them in all compilers.
const OF_VERSIONS_IN_C: [&str; 4] = ["jsconv", "fcma", "frintts", "rcpc2"];

/// The name of `rdm` in `-march` of GCC. Clang has the usual one.
const RDM_OF_GCC: &str = "rdma";

/// With half precision, C compilers add instructions from this version on that no image can state.
const FP16_FML_SINCE: &str = "armv8.4-a";

impl Cpu {
    /// x86-64-v1: every x86-64 CPU.
    pub const V1: Self = Self::x86_64(0);
    /// x86-64-v2: SSE4.2, POPCNT.
    pub const V2: Self = Self::x86_64(1);
    /// x86-64-v3: AVX2, BMI, FMA.
    pub const V3: Self = Self::x86_64(2);
    /// x86-64-v4: AVX-512.
    pub const V4: Self = Self::x86_64(3);
    /// The levels of x86-64, the lowest first.
    pub const LEVELS: [Self; 4] = [Self::V1, Self::V2, Self::V3, Self::V4];
    /// Armv8-A: every AArch64 CPU.
    pub const ARMV8: Self = Self::baseline(ARCH_AARCH64);

    /// A level of x86-64: bit 0 is v2, bit 1 v3, bit 2 v4, each with those below it.
    const fn x86_64(level: u32) -> Self {
        Self {
            arch: ARCH_X86_64,
            features: (1 << level) - 1,
        }
    }

    /// The least CPU of an architecture, by its ELF `e_machine`.
    #[must_use]
    pub const fn baseline(arch: u16) -> Self {
        Self { arch, features: 0 }
    }

    /// ELF `e_machine` of its architecture.
    #[must_use]
    pub const fn arch(self) -> u16 {
        self.arch
    }

    /// Whether it is of the architecture of a target triple.
    #[must_use]
    pub fn is_of(self, triple: &str) -> bool {
        Triple::of_compiler(triple).arch() == self.arch
    }

    /// The feature bits of an image:
    /// [`RawHeader::cpu_features`](ifunc_abi::image::RawHeader::cpu_features).
    #[must_use]
    pub const fn features(self) -> u64 {
        self.features
    }

    /// The CPU of a name: a level of x86-64 (`x86-64` is v1, as in compilers), or a version of AArch64 and features.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "x86-64" {
            return Some(Self::V1);
        }
        if let Some(level) = NAMES.iter().position(|known| *known == name) {
            return Some(Self::LEVELS[level]);
        }
        let mut parts = name.split('+');
        let version = parts.next()?;
        let (_, of_version) = VERSIONS.iter().find(|(known, _)| *known == version)?;
        let features = of_version.iter().copied().chain(parts);
        features.map(aarch64_bit).try_fold(Self::ARMV8, |cpu, bit| {
            Some(Self {
                features: cpu.features | bit?,
                ..cpu
            })
        })
    }

    /// What [`from_name`](Self::from_name) knows, for messages.
    #[must_use]
    pub fn known() -> String {
        let versions = VERSIONS.map(|(version, _)| version).join(", ");
        let features = AARCH64_FEATURES.join(", ");
        format!(
            "`--cpu` and `[package.metadata.ifunc] cpu` know, of x86-64, {}; of AArch64, {versions}, and with features, as in `armv8.1-a+dotprod`: {features}",
            NAMES.join(", ")
        )
    }

    /// A CPU that also has the features of these bits.
    pub(crate) const fn having(self, bits: u64) -> Self {
        Self {
            features: self.features | bits,
            ..self
        }
    }

    /// A CPU that also has the features of another one, if that is of its architecture.
    pub(crate) const fn with(self, other: Self) -> Self {
        self.having(if self.arch == other.arch {
            other.features
        } else {
            0
        })
    }

    /// The flags of rustc.
    pub(crate) fn flags_of_rustc(self) -> Vec<String> {
        match self.arch {
            ARCH_X86_64 => vec![format!("-Ctarget-cpu={}", self.of_compilers())],
            ARCH_AARCH64 => {
                let names = self.aarch64_features().map(|name| format!(",+{name}"));
                let names: String = names.collect();
                // Functions that choose between two kinds of atomic instructions are set up by a constructor.
                vec![
                    "-Ctarget-cpu=generic".into(),
                    format!("-Ctarget-feature=-outline-atomics{names}"),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// The value of `-march` of C compilers; `None` for an architecture that is not known. Without those of
    /// [`not_in_c`](Self::not_in_c).
    pub(crate) fn march(self, is_clang: bool) -> Option<String> {
        match self.arch {
            ARCH_X86_64 => Some(self.of_compilers()),
            ARCH_AARCH64 => {
                let (version, rest) = self.version();
                let of_c = rest.filter(|name| !OF_VERSIONS_IN_C.contains(name));
                let names = of_c.map(|name| match name {
                    "rdm" if !is_clang => format!("+{RDM_OF_GCC}"),
                    "fp16" if version >= FP16_FML_SINCE => "+fp16+nofp16fml".into(),
                    name => format!("+{name}"),
                });
                Some(format!("{version}{}", names.collect::<String>()))
            }
            _ => None,
        }
    }

    /// What C compilers take a value of `-march` for, as far as they may not say so by their macros.
    pub(crate) fn of_march(march: &str) -> u64 {
        let mut parts = march.split('+');
        let version = parts.next().unwrap_or_default();
        let known = VERSIONS.iter().rev();
        // Later ones have what the last known one has: `armv8.6-a`, `armv9-a`.
        let is_later =
            |known: &str| version.starts_with("armv") && version.ends_with("-a") && version > known;
        let mut known = known.filter(|(name, _)| *name == version || is_later(name));
        let of_version = known.next().map_or(&[][..], |(_, features)| features);
        let names = of_version.iter().copied().chain(parts);
        let names = names.map(|name| if name == RDM_OF_GCC { "rdm" } else { name });
        names.filter_map(aarch64_bit).fold(0, |bits, bit| bits | bit)
    }

    /// The features that no option of C compilers asks for, without a version that has more.
    pub(crate) fn not_in_c(self) -> Vec<&'static str> {
        match self.arch {
            ARCH_AARCH64 => {
                let (_, rest) = self.version();
                rest.filter(|name| OF_VERSIONS_IN_C.contains(name)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The nearest CPUs whose features C compilers can be asked for: without those of [`not_in_c`](Self::not_in_c), and the least
    /// version that has them.
    pub(crate) fn nearest_in_c(self) -> (Self, Self) {
        let bits = |names: &[&str]| {
            let bits = names.iter().copied().filter_map(aarch64_bit);
            bits.fold(0, |bits, bit| bits | bit)
        };
        let lacks = bits(&self.not_in_c());
        let mut versions = VERSIONS.iter().map(|(_, features)| bits(features));
        let more = versions.find(|version| version & lacks == lacks).unwrap_or(lacks);
        let without = Self {
            features: self.features & !lacks,
            ..self
        };
        (without, self.having(more))
    }

    /// The name of a level of x86-64 in compilers: v1 has no number there.
    fn of_compilers(self) -> String {
        match self.level() {
            0 => "x86-64".into(),
            level => NAMES[level].into(),
        }
    }

    /// The index of a level of x86-64.
    fn level(self) -> usize {
        (self.features.trailing_ones() as usize).min(NAMES.len() - 1)
    }

    /// The highest version of AArch64 whose features it has, and its other features.
    fn version(self) -> (&'static str, impl Iterator<Item = &'static str>) {
        let has_all = |names: &[&str]| {
            names
                .iter()
                .all(|name| self.aarch64_features().any(|has| has == *name))
        };
        // Of two with the same features the first.
        let mut found = VERSIONS[0];
        for version in VERSIONS {
            if version.1.len() > found.1.len() && has_all(version.1) {
                found = version;
            }
        }
        let (version, of_version) = found;
        let rest = self.aarch64_features().filter(|name| !of_version.contains(name));
        (version, rest)
    }

    /// The names of its features.
    fn aarch64_features(self) -> impl Iterator<Item = &'static str> {
        let names = AARCH64_FEATURES.iter().enumerate();
        names.filter_map(move |(bit, name)| (self.features >> bit & 1 == 1).then_some(*name))
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::V1
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.arch {
            ARCH_X86_64 => f.write_str(NAMES[self.level()]),
            ARCH_AARCH64 => {
                let (version, rest) = self.version();
                f.write_str(version)?;
                rest.into_iter().try_for_each(|name| write!(f, "+{name}"))
            }
            other => write!(f, "the baseline of ELF machine {other}"),
        }
    }
}

/// The bit of a feature of AArch64.
pub(crate) fn aarch64_bit(name: &str) -> Option<u64> {
    let bit = AARCH64_FEATURES.iter().position(|known| *known == name)?;
    Some(1 << bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_features() {
        for (level, name) in Cpu::LEVELS.into_iter().zip(NAMES) {
            assert_eq!(Cpu::from_name(name), Some(level));
            assert_eq!(level.to_string(), name);
        }
        assert_eq!(Cpu::from_name("x86-64"), Some(Cpu::V1));
        assert_eq!(Cpu::V3.features(), 0b011);
        assert_eq!(Cpu::from_name("armv8-a"), Some(Cpu::ARMV8));
        let dot = Cpu::from_name("armv8-a+dotprod+lse").unwrap();
        assert_eq!(dot.features(), 0b1_0001);
        assert_eq!(dot.to_string(), "armv8-a+lse+dotprod");
        let second = Cpu::from_name("armv8.2-a+fp16").unwrap();
        assert_eq!(second.to_string(), "armv8.1-a+fp16");
        assert_eq!(Cpu::from_name(&second.to_string()), Some(second));
        for (version, _) in VERSIONS
            .into_iter()
            .filter(|(version, _)| *version != "armv8.2-a")
        {
            assert_eq!(Cpu::from_name(version).unwrap().to_string(), version);
        }
        for name in [
            "",
            "native",
            "x86-64-v5",
            "armv8-a+",
            "armv8-a+avx",
            "lse",
            "armv8.9-a",
        ] {
            assert_eq!(Cpu::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn compilers_know_them_by_their_own_names() {
        assert_eq!(Cpu::V1.march(false).as_deref(), Some("x86-64"));
        assert_eq!(Cpu::V4.flags_of_rustc(), ["-Ctarget-cpu=x86-64-v4"]);
        assert_eq!(Cpu::ARMV8.march(false).as_deref(), Some("armv8-a"));
        let cpu = Cpu::from_name("armv8.1-a+jsconv+sve").unwrap();
        assert_eq!(cpu.not_in_c(), ["jsconv"]);
        let (without, version) = cpu.nearest_in_c();
        assert_eq!(
            (without.to_string(), version.to_string()),
            ("armv8.1-a+sve".into(), "armv8.3-a+sve".into())
        );
        for (name, march) in [
            ("armv8.3-a", "armv8.3-a"),
            ("armv8.3-a+dotprod+fp16", "armv8.3-a+fp16+dotprod"),
            ("armv8.5-a+fp16+sve", "armv8.5-a+fp16+nofp16fml+sve"),
        ] {
            let cpu = Cpu::from_name(name).unwrap();
            assert!(cpu.not_in_c().is_empty());
            assert_eq!(cpu.march(false).as_deref(), Some(march));
            assert_eq!(Cpu::of_march(march), cpu.features(), "{march}");
        }
        assert_eq!(
            Cpu::from_name("armv8-a+rdm").unwrap().march(false).as_deref(),
            Some("armv8-a+rdma")
        );
        assert_eq!(
            Cpu::from_name("armv8-a+rdm").unwrap().march(true).as_deref(),
            Some("armv8-a+rdm")
        );
        let [_, features] = &cpu.flags_of_rustc()[..] else {
            panic!("{cpu}");
        };
        assert_eq!(
            features,
            "-Ctarget-feature=-outline-atomics,+lse,+crc,+rdm,+jsconv,+sve"
        );
        assert_eq!(Cpu::baseline(243).march(false), None);
        let later = ["armv8.7-a", "armv9-a", "armv9.2-a"].map(Cpu::of_march);
        assert_eq!(later, [Cpu::of_march("armv8.5-a"); 3]);
        assert_eq!(Cpu::of_march("armv8-a+rdma+rng"), aarch64_bit("rdm").unwrap());
        assert_eq!(Cpu::of_march("native"), 0);
    }
}
