//! The platforms of a build: each library is made for one of them, and holds slices for all.

use ifunc_build::{Cpu, Slice, this_machine};

use crate::error::Failure;

/// The platform of a program that opens a library, and what the library's further slices are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibraryPlatforms {
    /// `None`: this machine's.
    pub(crate) triple: Option<String>,
    pub(crate) cpu: Cpu,
    pub(crate) slices: Vec<Slice>,
}

/// The libraries for these triples (`None`: this machine's) and CPUs: one for each triple, with slices for all of them. Of several
/// CPUs of one architecture, the one with the fewest features is that of the first slice, and of equal ones the one named first.
///
/// # Errors
/// A CPU is of none of the triples.
pub(crate) fn libraries(triples: &[Option<String>], cpus: &[Cpu]) -> Result<Vec<LibraryPlatforms>, Failure> {
    let name = |triple: &Option<String>| triple.clone().unwrap_or_else(this_machine);
    if let Some(cpu) = cpus
        .iter()
        .find(|cpu| !triples.iter().any(|triple| cpu.is_of(&name(triple))))
    {
        let names: Vec<String> = triples
            .iter()
            .map(|triple| format!("`{}`", name(triple)))
            .collect();
        return Err(Failure::Usage(format!(
            "`--cpu {cpu}` is a CPU of another architecture than {}\nhelp: {}",
            names.join(" and "),
            Cpu::known()
        )));
    }
    let of_triple = |triple: &Option<String>| {
        let mut own: Vec<Cpu> = cpus
            .iter()
            .copied()
            .filter(|cpu| cpu.is_of(&name(triple)))
            .collect();
        own.sort_by_key(|cpu| cpu.features().count_ones());
        // Of another architecture, it stands for the least CPU.
        if own.is_empty() { vec![Cpu::default()] } else { own }
    };
    let libraries = triples.iter().map(|first| {
        let own = of_triple(first);
        let mut slices: Vec<Slice> = own[1..].iter().map(|&cpu| Slice { triple: None, cpu }).collect();
        for other in triples.iter().filter(|other| *other != first) {
            slices.extend(of_triple(other).into_iter().map(|cpu| Slice {
                triple: Some(name(other)),
                cpu,
            }));
        }
        LibraryPlatforms {
            triple: first.clone(),
            cpu: own[0],
            slices,
        }
    });
    Ok(libraries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_has_slices_for_every_platform() {
        let cpu = |name| Cpu::from_name(name).unwrap();
        let x86 = "x86_64-unknown-linux-gnu".to_owned();
        let arm = "aarch64-unknown-linux-gnu".to_owned();
        let slice = |triple: Option<&String>, cpu| Slice {
            triple: triple.cloned(),
            cpu,
        };
        let of = |triple: Option<&String>, cpu, slices| LibraryPlatforms {
            triple: triple.cloned(),
            cpu,
            slices,
        };
        let both = [Some(x86.clone()), Some(arm.clone())];
        let cpus = [cpu("x86-64-v3"), cpu("x86-64-v1")];
        let v3 = slice(None, Cpu::V3);
        let expected = [
            of(Some(&x86), Cpu::V1, vec![v3, slice(Some(&arm), Cpu::V1)]),
            of(
                Some(&arm),
                Cpu::V1,
                vec![slice(Some(&x86), Cpu::V1), slice(Some(&x86), Cpu::V3)],
            ),
        ];
        assert_eq!(libraries(&both, &cpus).ok(), Some(expected.into()));
        let dot = cpu("armv8-a+dotprod");
        assert_eq!(
            libraries(&both[1..], &[dot]).ok(),
            Some(vec![of(Some(&arm), dot, vec![])])
        );
        let Err(Failure::Usage(why)) = libraries(&both[..1], &[dot]) else {
            panic!("a CPU of no triple");
        };
        assert!(
            why.starts_with("`--cpu armv8-a+dotprod` is a CPU of another architecture than `x86_64-"),
            "{why}"
        );
    }
}
