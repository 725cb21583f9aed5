//! The CPU features that C code is compiled for, from the macros that the compiler predefines.
//!
//! An image states features that a target has or lacks. One that cannot be stated would be an illegal instruction on a target
//! without it: it is refused here.

mod aarch64;
mod x86_64;

use crate::BuildError;

/// CPU features that an image cannot state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    macros: Vec<String>,
    /// What of the architecture an image can state.
    of: &'static str,
    /// The nearest value of `-march`: all other features.
    nearest: String,
    /// How code finds out what a CPU has.
    check: &'static str,
}

impl Unknown {
    /// The error of a compiler run with `flags`.
    pub(super) fn into_error(self, compiler: &str, flags: &[String]) -> BuildError {
        let of_machine: Vec<String> = flags
            .iter()
            .filter(|flag| flag.starts_with("-m"))
            .map(|flag| format!("`{flag}`"))
            .collect();
        let flags = match of_machine.is_empty() {
            true => format!("`{compiler}`"),
            false => of_machine.join(" "),
        };
        BuildError::CpuFeatures {
            flags,
            macros: self.macros.join(", "),
            of: self.of,
            nearest: self.nearest,
            check: self.check,
        }
    }
}

/// The features of the predefined macros, as an image states them. Of an architecture that is not known there are none.
pub(super) fn features(macros: &str) -> Result<u64, Unknown> {
    let is = |name| defined(macros).any(|defined| defined == name);
    if is("__x86_64__") {
        x86_64::levels(macros)
    } else if is("__aarch64__") {
        aarch64::features(macros)
    } else {
        Ok(0)
    }
}

/// The names of the macros.
fn defined(macros: &str) -> impl Iterator<Item = &str> {
    let lines = macros.lines();
    lines.filter_map(|line| line.strip_prefix("#define ")?.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::features;

    #[test]
    fn the_architecture_decides_which_macros_count() {
        let of = |names: &[&str]| {
            let lines = names.iter().map(|name| format!("#define {name} 1\n"));
            features(&lines.collect::<String>())
        };
        assert_eq!(of(&["__aarch64__", "__AVX2__"]), Ok(0));
        assert_eq!(of(&["__x86_64__", "__ARM_FEATURE_ATOMICS"]), Ok(0));
        assert_eq!(of(&["__x86_64__", "__AVX2__"]), Ok(3));
        assert_eq!(of(&["__aarch64__", "__ARM_FEATURE_ATOMICS"]), Ok(1));
        assert_eq!(of(&["__riscv", "__ARM_FEATURE_ATOMICS", "__AVX2__"]), Ok(0));
    }
}
