//! The features of AArch64, by the macros of Arm's C language extensions (ACLE).

use super::{Unknown, defined};
use crate::cpu::{Cpu, aarch64_bit};

/// A macro, and the features that it stands for. Older compilers have no macro for some features of a version: those are stated with one
/// that the version has, too.
const FEATURES: [(&str, &[&str]); 22] = [
    ("__ARM_FEATURE_ATOMICS", &["lse"]),
    ("__ARM_FEATURE_CRC32", &["crc"]),
    ("__ARM_FEATURE_QRDMX", &["rdm"]),
    ("__ARM_FEATURE_FP16_SCALAR_ARITHMETIC", &["fp16"]),
    ("__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", &["fp16"]),
    ("__ARM_FEATURE_DOTPROD", &["dotprod"]),
    ("__ARM_FEATURE_AES", &["aes"]),
    ("__ARM_FEATURE_SHA2", &["sha2"]),
    ("__ARM_FEATURE_SHA3", &["sha3"]),
    ("__ARM_FEATURE_SHA512", &["sha3"]),
    ("__ARM_FEATURE_RCPC", &["rcpc"]),
    ("__ARM_FEATURE_JCVT", &["jsconv", "rcpc"]),
    ("__ARM_FEATURE_COMPLEX", &["fcma", "rcpc"]),
    ("__ARM_FEATURE_BF16", &["bf16"]),
    ("__ARM_FEATURE_BF16_SCALAR_ARITHMETIC", &["bf16"]),
    ("__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", &["bf16"]),
    ("__ARM_FEATURE_MATMUL_INT8", &["i8mm"]),
    ("__ARM_FEATURE_SVE_MATMUL_INT8", &["sve", "i8mm"]),
    ("__ARM_FEATURE_SVE", &["sve"]),
    ("__ARM_FEATURE_SVE_BF16", &["sve", "bf16"]),
    ("__ARM_FEATURE_SVE2", &["sve2"]),
    ("__ARM_FEATURE_FRINT", &["frintts", "flagm", "rcpc2"]),
];
/// Macros that stand for no instructions, or for those that other CPUs take for `nop`, or that are details of a feature above.
const NO_FEATURES: [&str; 17] = [
    "__ARM_FEATURE_BTI",
    "__ARM_FEATURE_BTI_DEFAULT",
    "__ARM_FEATURE_CLZ",
    "__ARM_FEATURE_CRYPTO",
    "__ARM_FEATURE_DIRECTED_ROUNDING",
    "__ARM_FEATURE_DIV",
    "__ARM_FEATURE_FMA",
    "__ARM_FEATURE_IDIV",
    "__ARM_FEATURE_LDREX",
    "__ARM_FEATURE_NUMERIC_MAXMIN",
    PAC_DEFAULT,
    PAUTH,
    VECTOR_BITS,
    "__ARM_FEATURE_SVE_VECTOR_OPERATORS",
    "__ARM_FEATURE_SVE_PREDICATE_OPERATORS",
    "__ARM_FEATURE_UNALIGNED",
    "__ARM_FEATURE_QBIT",
];
/// Return addresses are signed: by instructions that other CPUs take for `nop`, or by those of [`PAUTH`].
const PAC_DEFAULT: &str = "__ARM_FEATURE_PAC_DEFAULT";
/// The CPU has instructions that sign addresses. Older compilers of Armv8.3-A do not say so.
const PAUTH: &str = "__ARM_FEATURE_PAUTH";
/// Of another value than 0: the code is for vectors of so many bits alone, which an image cannot state.
const VECTOR_BITS: &str = "__ARM_FEATURE_SVE_BITS";
const FAMILY: &str = "__ARM_FEATURE_";

/// The features of the predefined macros, as an image states them.
pub(super) fn features(macros: &str) -> Result<u64, Unknown> {
    let mut bits = 0;
    let mut others: Vec<String> = Vec::new();
    for name in defined(macros).filter(|name| name.starts_with(FAMILY)) {
        match FEATURES.iter().find(|(known, _)| *known == name) {
            Some((_, features)) => {
                let known = features.iter().filter_map(|feature| aarch64_bit(feature));
                bits = known.fold(bits, |bits, bit| bits | bit);
            }
            None if NO_FEATURES.contains(&name) => {}
            None => others.push(name.into()),
        }
    }
    let bits_of_vectors = macros
        .lines()
        .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(VECTOR_BITS));
    if bits_of_vectors.is_some_and(|value| value.trim() != "0") {
        others.push(VECTOR_BITS.into());
    }
    let has = |bits: u64, name: &str| aarch64_bit(name).is_some_and(|bit| bits & bit != 0);
    // Dot products are part of Armv8.4-A, and so are these, for which there is no macro.
    if has(bits, "dotprod") && has(bits, "jsconv") {
        let more = ["flagm", "rcpc2"].into_iter().filter_map(aarch64_bit);
        bits = more.fold(bits, |bits, bit| bits | bit);
    }
    let is = |name: &str| defined(macros).any(|defined| defined == name);
    if is(PAC_DEFAULT) && (is(PAUTH) || has(bits, "jsconv")) {
        others.push(PAC_DEFAULT.into());
    }
    if others.is_empty() {
        return Ok(bits);
    }
    others.sort_unstable();
    Err(Unknown {
        macros: others,
        of: "of AArch64 that no image can state",
        nearest: Cpu::ARMV8.having(bits).march(false).unwrap_or_default(),
        check: "`getauxval(AT_HWCAP)`, which the target has to export, says so",
    })
}

#[cfg(test)]
mod tests {
    use super::{Unknown, features};
    use crate::Cpu;

    fn of(names: &[&str]) -> Result<String, Unknown> {
        let lines = names
            .iter()
            .map(|name| format!("#define __ARM_FEATURE_{name} 1\n"));
        let bits = features(&lines.collect::<String>())?;
        Ok(Cpu::ARMV8.having(bits).to_string())
    }

    #[test]
    fn features_follow_the_macros() {
        let is = |names: &[&str], cpu: &str| assert_eq!(of(names), Ok(cpu.into()), "{names:?}");
        is(&["CLZ", "FMA", "IDIV", "UNALIGNED"], "armv8-a");
        is(&["ATOMICS", "CRC32", "QRDMX"], "armv8.1-a");
        is(&["FP16_VECTOR_ARITHMETIC", "DOTPROD"], "armv8-a+fp16+dotprod");
        is(&["BTI_DEFAULT", "PAC_DEFAULT"], "armv8-a");
        is(&["PAUTH"], "armv8-a");
        is(&["JCVT", "COMPLEX"], "armv8-a+rcpc+jsconv+fcma");
        is(&["JCVT", "DOTPROD"], "armv8-a+dotprod+rcpc+jsconv+flagm+rcpc2");
        is(&["SVE_MATMUL_INT8"], "armv8-a+i8mm+sve");
    }

    #[test]
    fn code_for_vectors_of_one_length_is_refused() {
        let of = |bits: u32| {
            features(&format!(
                "#define __ARM_FEATURE_SVE 1\n#define __ARM_FEATURE_SVE_BITS {bits}\n"
            ))
        };
        assert!(of(0).is_ok());
        assert_eq!(of(256).unwrap_err().macros, ["__ARM_FEATURE_SVE_BITS"]);
    }

    #[test]
    fn what_no_image_can_state_is_unknown() {
        let unknown = |names: &[&str], macros: &[&str], nearest: &str| {
            let unknown = of(names).unwrap_err();
            let macros: Vec<String> = macros
                .iter()
                .map(|name| format!("__ARM_FEATURE_{name}"))
                .collect();
            assert_eq!((unknown.macros, unknown.nearest), (macros, nearest.into()));
        };
        unknown(
            &["RNG", "ATOMICS", "FP16_FML"],
            &["FP16_FML", "RNG"],
            "armv8-a+lse",
        );
        unknown(&["OF_TOMORROW"], &["OF_TOMORROW"], "armv8-a");
        // `retaa`, which an older CPU does not have.
        unknown(&["PAC_DEFAULT", "PAUTH"], &["PAC_DEFAULT"], "armv8-a");
        unknown(&["PAC_DEFAULT", "JCVT"], &["PAC_DEFAULT"], "armv8-a+rcpc");
    }
}
