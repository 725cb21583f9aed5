//! The levels of the x86-64 psABI.

use super::{Unknown, defined};

/// Macros of the features of each level, from v2.
const LEVELS: [&[&str]; 3] = [
    &[
        "__SSE3__",
        "__SSSE3__",
        "__SSE4_1__",
        "__SSE4_2__",
        "__POPCNT__",
        "__CRC32__",
        "__LAHF_SAHF__",
        "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16",
    ],
    &[
        "__ABM__",
        "__AVX__",
        "__AVX2__",
        "__BMI__",
        "__BMI2__",
        "__F16C__",
        "__FMA__",
        "__LZCNT__",
        "__MOVBE__",
        "__XSAVE__",
    ],
    &[
        "__AVX512F__",
        "__AVX512BW__",
        "__AVX512CD__",
        "__AVX512DQ__",
        "__AVX512VL__",
    ],
];
const NAMES: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

/// Macros of features of no level. Families that still grow are in [`OTHER_FAMILIES`].
const OTHERS: [&str; 51] = [
    "__3dNOW__",
    "__3dNOW_A__",
    "__ADX__",
    "__AES__",
    "__CLDEMOTE__",
    "__CLFLUSHOPT__",
    "__CLWB__",
    "__CLZERO__",
    "__CMPCCXADD__",
    "__ENQCMD__",
    "__FMA4__",
    "__FSGSBASE__",
    "__GFNI__",
    "__HLE__",
    "__HRESET__",
    "__INVPCID__",
    "__KL__",
    "__LWP__",
    "__MOVDIR64B__",
    "__MOVDIRI__",
    "__MOVRS__",
    "__MWAITX__",
    "__PCLMUL__",
    "__PCONFIG__",
    "__PKU__",
    "__PREFETCHI__",
    "__PREFETCHWT1__",
    "__PRFCHW__",
    "__PTWRITE__",
    "__RAOINT__",
    "__RDPID__",
    "__RDPRU__",
    "__RDRND__",
    "__RDSEED__",
    "__RTM__",
    "__SERIALIZE__",
    "__SGX__",
    "__SSE4A__",
    "__TBM__",
    "__TSXLDTRK__",
    "__UINTR__",
    "__USERMSR__",
    "__VAES__",
    "__VPCLMULQDQ__",
    "__WAITPKG__",
    "__WBNOINVD__",
    "__WIDEKL__",
    "__XOP__",
    "__XSAVEC__",
    "__XSAVEOPT__",
    "__XSAVES__",
];
const OTHER_FAMILIES: [&str; 6] = ["__AVX", "__AMX_", "__APX_", "__SHA", "__SM3", "__SM4"];
/// Macros that look like members of a family. Shadow-stack instructions do nothing on CPUs without shadow stacks.
const NO_FEATURES: [&str; 1] = ["__SHSTK__"];

/// The x86-64 levels of the predefined macros, as an image states them: bit 0 is v2, bit 1 v3, bit 2 v4.
pub(super) fn levels(macros: &str) -> Result<u64, Unknown> {
    let defined: Vec<&str> = defined(macros).collect();
    let level = LEVELS
        .iter()
        .rposition(|names| names.iter().any(|name| defined.contains(name)))
        .map_or(0, |index| index + 1);
    let is_other = |name: &&&str| {
        let of_a_family =
            OTHER_FAMILIES.iter().any(|family| name.starts_with(family)) && name.ends_with("__");
        (of_a_family || OTHERS.contains(name))
            && !LEVELS.iter().any(|names| names.contains(name))
            && !NO_FEATURES.contains(name)
    };
    let mut others: Vec<String> = defined.iter().filter(is_other).map(|&name| name.into()).collect();
    if others.is_empty() {
        return Ok((1 << level) - 1);
    }
    others.sort_unstable();
    Err(Unknown {
        macros: others,
        of: "of no x86-64 level",
        nearest: NAMES[level].into(),
        check: "`__builtin_cpu_init()` and then `__builtin_cpu_supports(..)` say so",
    })
}

#[cfg(test)]
mod tests {
    use super::super::Unknown;
    use super::levels;

    fn of(macros: &[&str]) -> Result<u64, Unknown> {
        let lines = macros.iter().map(|name| format!("#define {name} 1\n"));
        levels(&lines.collect::<String>())
    }

    #[test]
    fn levels_follow_the_macros() {
        assert_eq!(
            of(&["__x86_64__", "__SSE2__", "__SSE2_MATH__", "__SHSTK__"]),
            Ok(0)
        );
        assert_eq!(of(&["__x86_64__", "__SSE4_2__"]), Ok(1));
        assert_eq!(of(&["__AVX2__", "__x86_64__"]), Ok(3));
        assert_eq!(of(&["__x86_64__", "__AVX512F__", "__AVX__"]), Ok(7));
    }

    #[test]
    fn what_no_level_has_is_unknown() {
        let of = |macros: &[&str]| of(macros).map_err(|Unknown { macros, nearest, .. }| (macros, nearest));
        let unknown = |macros: &[&str], nearest: &str| {
            let macros: Vec<String> = macros.iter().map(|&name| name.into()).collect();
            Err((macros, nearest.to_owned()))
        };
        assert_eq!(of(&["__x86_64__", "__AES__"]), unknown(&["__AES__"], "x86-64"));
        assert_eq!(
            of(&["__x86_64__", "__RDRND__", "__FMA__", "__PCLMUL__"]),
            unknown(&["__PCLMUL__", "__RDRND__"], "x86-64-v3")
        );
        let new = "__AVX512_OF_TOMORROW__";
        assert_eq!(
            of(&["__x86_64__", new, "__AVX512F__"]),
            unknown(&[new], "x86-64-v4")
        );
    }
}
