//! What code is compiled for.

use std::collections::BTreeSet;

use crate::Cpu;
use crate::triple::Triple;

/// What the code of a slice is compiled for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform {
    /// The target triple; that of the first slice if `None`.
    pub triple: Option<String>,
    /// The least CPU. One of another architecture than the triple's stands for the triple's least.
    pub cpu: Cpu,
}

impl From<Cpu> for Platform {
    fn from(cpu: Cpu) -> Self {
        Self { triple: None, cpu }
    }
}

impl Platform {
    /// The same as a slice beside this first one: with a triple, if the first has one, and a CPU of its architecture.
    pub(crate) fn beside(&self, first: &Self) -> Self {
        let triple = self.triple.clone().or_else(|| first.triple.clone());
        let arch = triple.as_deref().map(|triple| Triple::of_compiler(triple).arch());
        Self {
            cpu: arch.map_or(self.cpu, |arch| Cpu::baseline(arch).with(self.cpu)),
            triple,
        }
    }

    /// The first slice, and what is compiled beside it: each once, without what adds nothing to the CPU of the first.
    pub(crate) fn of_slices(first: Self, more: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let adds = |other: &Self| other.triple != first.triple || first.cpu.with(other.cpu) != first.cpu;
        let more: BTreeSet<Self> = more.into_iter().filter(adds).collect();
        std::iter::once(first).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(triple: Option<&str>, cpu: &str) -> Platform {
        Platform {
            triple: triple.map(Into::into),
            cpu: Cpu::from_name(cpu).unwrap(),
        }
    }

    #[test]
    fn a_slice_is_compiled_once_and_for_more_than_the_first() {
        let arm = Some("aarch64-unknown-linux-gnu");
        let first = platform(None, "x86-64-v2");
        let more = [
            platform(None, "x86-64-v3"),
            platform(None, "x86-64-v1"),
            platform(arm, "x86-64-v1"),
            platform(None, "x86-64-v2"),
            platform(None, "x86-64-v3"),
            platform(arm, "armv8-a+lse"),
        ];
        let more = more.map(|slice| slice.beside(&first));
        let expected = [
            first.clone(),
            platform(None, "x86-64-v3"),
            platform(arm, "armv8-a"),
            platform(arm, "armv8-a+lse"),
        ];
        assert_eq!(Platform::of_slices(first, more), expected);
        let first = platform(arm, "armv8-a");
        assert_eq!(
            platform(None, "armv8-a+lse").beside(&first),
            platform(arm, "armv8-a+lse")
        );
    }
}
