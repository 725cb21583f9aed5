//! The machines that the slices of a library are built for.

use crate::c::compiles_for_all;
use crate::triple::{Triple, this_machine};
use crate::{BuildOptions, COptions, Cpu};

/// The machines that a further slice of a library is built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The target triple; that of the first slice if `None`.
    pub triple: Option<String>,
    /// The least CPU: for another architecture than that of the triple, the least of that.
    pub cpu: Cpu,
}

impl Slice {
    /// A slice for another CPU of the same target triple.
    #[must_use]
    pub fn of_cpu(cpu: Cpu) -> Self {
        Self { triple: None, cpu }
    }

    /// Whether it is of another architecture than the first slice. Images for several triples of one are the same.
    fn is_of_other(&self, first: Option<&str>) -> bool {
        let this_machine = this_machine();
        let arch = |triple: &str| Triple::of_compiler(triple).arch();
        let of = self.triple.as_deref();
        of.is_some_and(|triple| arch(triple) != arch(first.unwrap_or(&this_machine)))
    }
}

/// The CPUs of further slices that have one triple.
#[derive(Debug)]
pub(crate) struct SlicesOfTriple<'o> {
    /// `None`: that of the first slice.
    pub(crate) triple: Option<&'o str>,
    pub(crate) cpus: Vec<Cpu>,
}

/// Further slices by their triples: those of the first slice's come first, even if there are none.
pub(crate) fn by_triple<'o>(slices: &'o [Slice], first: Option<&str>) -> Vec<SlicesOfTriple<'o>> {
    let mut all = vec![SlicesOfTriple {
        triple: None,
        cpus: Vec::new(),
    }];
    for slice in slices {
        let triple = slice.triple.as_deref().filter(|_| slice.is_of_other(first));
        match all.iter_mut().find(|known| known.triple == triple) {
            Some(known) => known.cpus.push(slice.cpu),
            None => all.push(SlicesOfTriple {
                triple,
                cpus: vec![slice.cpu],
            }),
        }
    }
    all
}

impl Cpu {
    /// This CPU, and those of these that are of its architecture and have something that it lacks: each once, with its own features
    /// alone, by their number, and of equal numbers in the order given.
    pub(crate) fn of_slices(self, more: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut all = vec![self];
        for cpu in more {
            if cpu.arch() == self.arch() && self.with(cpu) != self && !all.contains(&cpu) {
                all.push(cpu);
            }
        }
        all[1..].sort_by_key(|cpu| cpu.features().count_ones());
        all
    }

    /// The CPU for code that names CPUs of which a target has to be one at least, of which `least` comes first: this CPU, if it has all
    /// that one of them has.
    pub(crate) fn for_code_of(self, least: Self, named: &[Self]) -> Self {
        let has = |other: &Self| self.arch() == other.arch() && self.with(*other) == self;
        match named.iter().any(has) {
            true => self,
            false => least.with(self),
        }
    }
}

impl BuildOptions {
    /// The same for one slice.
    pub(crate) fn at(&self, triple: Option<&str>, cpu: Cpu) -> Self {
        Self {
            triple: triple.map(Into::into).or_else(|| self.triple.clone()),
            cpu,
            slices: Vec::new(),
            ..self.clone()
        }
    }
}

impl COptions {
    /// The options of each slice, the first one first.
    pub(crate) fn of_slices(&self) -> Vec<Self> {
        let at = |triple: Option<&str>, cpu: Cpu| Self {
            // One that was asked for compiles the first slice, and those of other triples if it can.
            compiler: self
                .compiler
                .clone()
                .filter(|words| triple.is_none() || compiles_for_all(words)),
            triple: triple.map(Into::into).or_else(|| self.triple.clone()),
            cpu,
            slices: Vec::new(),
            ..self.clone()
        };
        let mut all = Vec::new();
        for SlicesOfTriple { triple, cpus } in by_triple(&self.slices, self.triple.as_deref()) {
            let cpus = match (triple, &cpus[..]) {
                (Some(_), [least, more @ ..]) => least.of_slices(more.iter().copied()),
                _ => self.cpu.of_slices(cpus),
            };
            all.extend(cpus.into_iter().map(|cpu| at(triple, cpu)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_the_first_one_and_those_that_have_more() {
        assert_eq!(
            Cpu::V2.of_slices([Cpu::V4, Cpu::V1, Cpu::V3, Cpu::V4]),
            [Cpu::V2, Cpu::V3, Cpu::V4]
        );
        assert_eq!(Cpu::V1.of_slices([]), [Cpu::V1]);
        // Of another architecture.
        assert_eq!(Cpu::V1.of_slices([Cpu::ARMV8]), [Cpu::V1]);
        // None has all that another one has.
        let [lse, aes, both, dot] = ["lse", "aes", "lse+aes", "dotprod"]
            .map(|name| Cpu::from_name(&format!("armv8-a+{name}")).unwrap());
        assert_eq!(lse.of_slices([both, dot, aes, dot]), [lse, dot, aes, both]);
        // For code that names two of them.
        for (cpu, built) in [
            (lse, lse),
            (aes, aes),
            (both, both),
            (Cpu::ARMV8, lse),
            (Cpu::V1, lse),
        ] {
            assert_eq!(cpu.for_code_of(lse, &[lse, aes]), built);
        }
        assert_eq!(dot.for_code_of(lse, &[lse, aes]), lse.with(dot));
        assert_eq!(dot.for_code_of(Cpu::ARMV8, &[]), dot);
    }

    #[test]
    fn each_triple_has_slices_of_its_own() {
        let arm = |cpu| Slice {
            triple: Some("aarch64-unknown-linux-gnu".into()),
            cpu,
        };
        let options = COptions {
            slices: vec![arm(Cpu::ARMV8), Slice::of_cpu(Cpu::V3), arm(Cpu::ARMV8)],
            ..COptions::default()
        };
        let all = options.of_slices();
        let all: Vec<_> = all
            .iter()
            .map(|options| (options.triple.as_deref(), options.cpu))
            .collect();
        let triple = Some("aarch64-unknown-linux-gnu");
        assert_eq!(all, [(None, Cpu::V1), (None, Cpu::V3), (triple, Cpu::ARMV8)]);
        // The triple of the first slice, written out.
        let own = COptions {
            triple: triple.map(Into::into),
            cpu: Cpu::ARMV8,
            ..options
        };
        assert_eq!(own.of_slices().len(), 1);
        // This machine's, and another one of its architecture.
        for name in ["gnu", "musl"] {
            let triple = Some(format!("{}-unknown-linux-{name}", std::env::consts::ARCH));
            let again = Slice {
                triple,
                cpu: Cpu::default(),
            };
            let options = COptions {
                slices: vec![again],
                ..COptions::default()
            };
            assert_eq!(options.of_slices().len(), 1, "{name}");
        }
    }
}
