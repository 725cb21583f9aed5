//! What an installed image imports, as it is needed to bind it again.

use std::collections::HashSet;

use ifunc_abi::Fingerprint;
use ifunc_abi::image::{Image, ImportFlags, ImportKind, Relocation};

use crate::allocations::keeps_no_memory;

/// The imports of an image.
#[derive(Debug)]
pub(crate) struct Imports {
    /// In the order of the GOT.
    pub(crate) symbols: Box<[Imported]>,
    /// The shared libraries that it needs.
    pub(crate) needed: Box<[Box<str>]>,
    /// The image [keeps no memory](keeps_no_memory), unless what it imports does.
    pub(crate) keeps_no_memory: bool,
}

/// An import.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) name: Box<str>,
    /// Of its signature; 0: not stated.
    pub(crate) fingerprint: Fingerprint,
    /// What the image takes it for.
    pub(crate) kind: ImportKind,
    /// It may be missing.
    pub(crate) is_weak: bool,
    /// Static data of the image holds its address.
    pub(crate) is_in_data: bool,
}

impl Imports {
    pub(crate) fn of(image: &Image<'_>) -> Self {
        let imports = image.imports().map(|import| Imported {
            name: import.symbol.into(),
            fingerprint: import.fingerprint,
            kind: import.kind(),
            is_weak: import.flags.contains(ImportFlags::WEAK),
            is_in_data: false,
        });
        let mut symbols: Box<[Imported]> = imports.collect();
        for relocation in image.relocations() {
            if let Relocation::Import { import, .. } = relocation
                && let Some(import) = symbols.get_mut(import as usize)
            {
                import.is_in_data = true;
            }
        }
        Self {
            symbols,
            // Each library once, however often the image names it.
            needed: {
                let mut seen = HashSet::new();
                let needed = image.needed().filter(|soname| seen.insert(*soname));
                needed.map(Into::into).collect()
            },
            keeps_no_memory: keeps_no_memory(image),
        }
    }

    /// Whether a symbol is among them.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.symbols.iter().any(|import| &*import.name == name)
    }

    /// Bytes of memory.
    pub(crate) fn footprint(&self) -> usize {
        let names = self.symbols.iter().map(|import| import.name.len());
        let needed = self
            .needed
            .iter()
            .map(|soname| size_of_val(soname) + soname.len());
        size_of_val(&*self.symbols) + names.sum::<usize>() + needed.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(names: &[&str], needed: &[&str]) -> Imports {
        let import = |name: &&str| Imported {
            name: (*name).into(),
            fingerprint: 0,
            kind: ImportKind::Unknown,
            is_weak: false,
            is_in_data: false,
        };
        Imports {
            symbols: names.iter().map(import).collect(),
            needed: needed.iter().map(|soname| Box::from(*soname)).collect(),
            keeps_no_memory: false,
        }
    }

    #[test]
    fn an_import_is_found_by_its_whole_name() {
        let imports = imports(&["cos", "sin"], &["libm.so.6"]);
        assert!(imports.contains("cos") && imports.contains("sin"));
        assert!(!imports.contains("si") && !imports.contains("libm.so.6"));
    }

    #[test]
    fn each_import_and_each_library_takes_memory() {
        assert_eq!(imports(&[], &[]).footprint(), 0);
        let (import, library) = (size_of::<Imported>(), size_of::<Box<str>>());
        assert_eq!(imports(&["ab", "cde"], &[]).footprint(), 2 * import + 5);
        let both = imports(&["ab", "cde"], &["m.so", "xyz.so"]);
        assert_eq!(both.footprint(), 2 * import + 5 + 2 * library + 10);
    }
}
