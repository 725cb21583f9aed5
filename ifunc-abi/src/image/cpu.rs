//! CPU features of architectures whose features do not come in levels.

/// The CPU features of AArch64 beyond Armv8.0-A, by their bit in [`cpu_features`](super::RawHeader::cpu_features), under the names of
/// `-Ctarget-feature` of rustc:
///
/// | bit | name | what |
/// |---|---|---|
/// | 0 | `lse` | atomic instructions |
/// | 1 | `crc` | CRC-32 |
/// | 2 | `rdm` | rounding doubling multiply and add |
/// | 3 | `fp16` | arithmetic in half precision |
/// | 4 | `dotprod` | dot products of bytes |
/// | 5 | `aes` | AES, and the polynomial multiplication of 64 bits |
/// | 6 | `sha2` | SHA-1 and SHA-256 |
/// | 7 | `sha3` | SHA-512 and SHA-3 |
/// | 8 | `rcpc` | load-acquire that is ordered weaker (`ldapr`) |
/// | 9 | `jsconv` | conversion of floats as in JavaScript |
/// | 10 | `fcma` | arithmetic of complex numbers |
/// | 11 | `flagm` | manipulation of flags |
/// | 12 | `bf16` | brain floats |
/// | 13 | `i8mm` | matrix multiplication of bytes |
/// | 14, 15 | `sve`, `sve2` | scalable vectors |
/// | 16 | `frintts` | rounding to 32 and 64 bits |
/// | 17 | `rcpc2` | `ldapr` with an offset |
///
/// A bit never gets another meaning; further features take the next bits.
pub const AARCH64_FEATURES: [&str; 18] = [
    "lse", "crc", "rdm", "fp16", "dotprod", "aes", "sha2", "sha3", "rcpc", "jsconv", "fcma", "flagm", "bf16",
    "i8mm", "sve", "sve2", "frintts", "rcpc2",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Images and peers of other versions state these bits.
    #[test]
    fn each_feature_keeps_its_bit() {
        let bit = |name| AARCH64_FEATURES.iter().position(|known| *known == name);
        assert_eq!(bit("lse"), Some(0));
        assert_eq!(bit("dotprod"), Some(4));
        assert_eq!(bit("sve"), Some(14));
        assert_eq!(bit("rcpc2"), Some(17));
        let mut names = AARCH64_FEATURES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), AARCH64_FEATURES.len());
    }
}
