//! CPU features.

use ifunc_abi::image::AARCH64_FEATURES;

/// The feature bits of this CPU, as in [`RawHeader::cpu_features`](ifunc_abi::image::RawHeader::cpu_features): what the kernel states
/// in HWCAP and HWCAP2.
#[must_use]
pub fn cpu_features() -> u64 {
    macro_rules! has {
        ($($feature:tt)*) => { [$(($feature, std::arch::is_aarch64_feature_detected!($feature)),)*] };
    }
    let here: [(&str, bool); AARCH64_FEATURES.len()] = has!(
        "lse" "crc" "rdm" "fp16" "dotprod" "aes" "sha2" "sha3" "rcpc" "jsconv" "fcma" "flagm" "bf16" "i8mm" "sve" "sve2" "frintts" "rcpc2"
    );
    bits_of(&here)
}

/// The bits of features by their names.
fn bits_of(features: &[(&str, bool)]) -> u64 {
    let is_here = |name: &str| features.iter().any(|(known, here)| *known == name && *here);
    let bits = AARCH64_FEATURES.iter().enumerate();
    bits.fold(0, |bits, (bit, name)| bits | u64::from(is_here(name)) << bit)
}

/// Why an image that needs these bits cannot run where there are those, and what to do; `None` if it can.
pub(crate) fn explain_lacking_cpu(needed: u64, here: u64) -> Option<String> {
    let lacking = needed & !here;
    if lacking == 0 {
        return None;
    }
    if lacking >> AARCH64_FEATURES.len() != 0 {
        return Some(format!(
            "the image needs features that this version does not know (bits {lacking:#x}); help: build both sides from one version of ifunc"
        ));
    }
    let names = AARCH64_FEATURES.iter().enumerate();
    let names: Vec<&str> = names
        .filter(|(bit, _)| lacking >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    Some(format!(
        "the image needs features that this CPU lacks ({}); help: build it without them, in `--cpu`, in `[package.metadata.ifunc] cpu`, in `-march` and in `$CC`",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lacking_cpu_is_explained_with_what_to_build() {
        assert_eq!(explain_lacking_cpu(cpu_features(), cpu_features()), None);
        assert_eq!(explain_lacking_cpu(0b01, 0b11), None);
        let why = explain_lacking_cpu(0b1_0001, 0b10).unwrap();
        assert!(
            why.starts_with("the image needs features that this CPU lacks (lse, dotprod); help: "),
            "{why}"
        );
        let why = explain_lacking_cpu(1 << 40, 0b111).unwrap();
        assert!(
            why.contains("bits 0x10000000000") && why.contains("help: "),
            "{why}"
        );
    }

    /// The kernel states the features of each CPU in `/proc/cpuinfo`, too.
    #[test]
    fn features_have_the_bits_of_their_names() {
        assert_eq!(
            bits_of(&[("dotprod", true), ("lse", false), ("sve2", true)]),
            1 << 4 | 1 << 15
        );
        assert_eq!(bits_of(&[("unknown", true)]), 0);
        let has = |name| {
            cpu_features() >> AARCH64_FEATURES.iter().position(|known| *known == name).unwrap() & 1 == 1
        };
        assert_eq!(has("lse"), std::arch::is_aarch64_feature_detected!("lse"));
        assert_eq!(has("i8mm"), std::arch::is_aarch64_feature_detected!("i8mm"));
    }
}
