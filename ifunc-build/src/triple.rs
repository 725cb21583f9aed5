//! The target triples that images are built for.

use std::fmt;

use ifunc_abi::image::{ARCH_AARCH64, ARCH_X86_64};

use crate::BuildError;

/// The architectures, as triples begin with them, and the tools of GNU for each.
const KNOWN: [(&str, u16, &str); 2] = [
    ("x86_64", ARCH_X86_64, "x86_64-linux-gnu"),
    ("aarch64", ARCH_AARCH64, "aarch64-linux-gnu"),
];

/// A target triple of this machine's architecture: that of its programs, as far as the architecture of an image depends on it.
#[must_use]
pub fn this_machine() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// A target triple, such as `aarch64-unknown-linux-gnu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Triple {
    name: String,
    /// ELF `e_machine`; 0 if no image can be for it.
    arch: u16,
    tools: &'static str,
}

impl Triple {
    /// A triple that images can be built for.
    pub(crate) fn new(name: &str) -> Result<Self, BuildError> {
        let triple = Self::of_compiler(name);
        match triple.arch {
            0 => Err(BuildError::UnknownTriple { triple: name.into() }),
            _ => Ok(triple),
        }
    }

    /// The triple that a compiler states.
    pub(crate) fn of_compiler(name: &str) -> Self {
        let mut parts = name.split('-');
        let first = parts.next().unwrap_or_default();
        let is_linux = parts.any(|part| part == "linux");
        let known = KNOWN.iter().find(|(known, ..)| *known == first && is_linux);
        let (arch, tools) = known.map_or((0, ""), |&(_, arch, tools)| (arch, tools));
        Self {
            name: name.into(),
            arch,
            tools,
        }
    }

    /// As rustc and cargo write it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// ELF `e_machine` of its architecture.
    pub(crate) fn arch(&self) -> u16 {
        self.arch
    }

    /// How the names of GNU's compilers for it begin: `aarch64-linux-gnu`.
    pub(crate) fn tools(&self) -> &'static str {
        self.tools
    }

    /// The environment variables that name a C compiler for it, the first that is set counts: as the crate `cc` reads them.
    pub(crate) fn variables(&self) -> [String; 4] {
        [
            format!("CC_{}", self.name),
            format!("CC_{}", self.name.replace('-', "_")),
            "TARGET_CC".into(),
            "CC".into(),
        ]
    }
}

impl fmt::Display for Triple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// ELF `e_machine` of the machine that a C compiler compiles for, as it states it; 0 if no image can be for it.
pub(crate) fn arch_of_machine(machine: &str) -> u16 {
    Triple::of_compiler(machine.trim()).arch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_of_linux_are_known() {
        for (name, arch) in [
            ("x86_64-unknown-linux-gnu", Some(ARCH_X86_64)),
            ("x86_64-unknown-linux-musl", Some(ARCH_X86_64)),
            ("aarch64-unknown-linux-gnu", Some(ARCH_AARCH64)),
            ("aarch64-apple-darwin", None),
            ("aarch64_be-unknown-linux-gnu", None),
            ("riscv64gc-unknown-linux-gnu", None),
            ("", None),
        ] {
            assert_eq!(Triple::new(name).ok().map(|triple| triple.arch()), arch, "{name}");
        }
        // GNU's own have no vendor.
        assert_eq!(arch_of_machine("aarch64-linux-gnu\n"), ARCH_AARCH64);
        assert_eq!(arch_of_machine("x86_64-pc-linux-gnu"), ARCH_X86_64);
        assert_eq!(arch_of_machine("x86_64-w64-mingw32"), 0);
    }
}
