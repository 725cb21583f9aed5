//! What a shared library of some symbols is made of, and what it needs from elsewhere: as any linker would find it out,
//! with nothing refused. The library is linked by the compiler; this linker only has to know which objects to hand over
//! and which of their undefined symbols the source's part of them needs.

use std::collections::{BTreeSet, HashSet};

use crate::Linker;
use crate::object_file::{Object, Place, SectionKind};

impl<'a> Linker<'a> {
    /// Whether some input defines the symbol.
    pub fn defines(&self, name: &str) -> bool {
        matches!(self.inputs.definition(name), Ok(Some(_)))
    }

    /// Names and bytes of the objects that `roots` need, in the order of the inputs: those that define them, those that
    /// define what these leave undefined, and so on. Objects that cannot be read are left out: a link that needs them
    /// says so.
    pub fn objects_of(&self, roots: &[String]) -> Vec<(&str, &'a [u8])> {
        self.closure(roots)
            .into_iter()
            .map(|slot| (self.inputs.name(slot), self.inputs.data(slot)))
            .collect()
    }

    pub(crate) fn closure(&self, roots: &[String]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut wanted: Vec<(&str, bool)> = roots.iter().map(|root| (&**root, false)).collect();
        while let Some((name, weak)) = wanted.pop() {
            let Ok(Some(definition)) = self.inputs.definition(name) else {
                continue;
            };
            // A weak reference asks for no member of an archive.
            if (weak && self.inputs.archived(definition.object)) || !found.insert(definition.object) {
                continue;
            }
            let Ok(object) = self.inputs.object(definition.object) else {
                continue;
            };
            let undefined = object
                .symbols
                .iter()
                .filter(|s| !s.local && s.place == Place::Undefined);
            wanted.extend(undefined.map(|s| (s.name, s.weak)));
        }
        found
    }

    /// The symbols that the code of `entries` reaches and that no input defines. `roots` are all symbols of the library:
    /// the constructors of its objects run when it is opened, and count as entries.
    pub fn undefined_behind<'w>(&'w self, entries: &'w [String], roots: &[String]) -> BTreeSet<&'w str> {
        let mut walk = Walk {
            linker: self,
            seen: HashSet::new(),
            open: Vec::new(),
            undefined: BTreeSet::new(),
        };
        for entry in entries {
            walk.symbol(entry);
        }
        for slot in self.closure(roots) {
            let sections = self.inputs.object(slot).map_or(&[][..], |o| &o.sections);
            for (index, section) in sections.iter().enumerate() {
                if section.kind == SectionKind::Constructors {
                    walk.section(slot, index);
                }
            }
        }
        while let Some((slot, section)) = walk.open.pop() {
            if let Ok(object) = self.inputs.object(slot) {
                walk.follow(slot, object, section);
            }
        }
        walk.undefined
    }
}

/// A walk over sections: an object, and the index of a section in it.
struct Walk<'w, 'a> {
    linker: &'w Linker<'a>,
    seen: HashSet<(usize, usize)>,
    open: Vec<(usize, usize)>,
    undefined: BTreeSet<&'w str>,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn section(&mut self, slot: usize, section: usize) {
        if self.seen.insert((slot, section)) {
            self.open.push((slot, section));
        }
    }

    fn symbol(&mut self, name: &'w str) {
        match self.linker.inputs.definition(name) {
            Ok(Some(definition)) => {
                if let Ok(object) = self.linker.inputs.object(definition.object)
                    && let Place::Section { index, .. } = object.symbols[definition.symbol].place
                {
                    self.section(definition.object, index);
                }
            }
            Ok(None) => {
                self.undefined.insert(name);
            }
            Err(_) => {}
        }
    }

    fn follow(&mut self, slot: usize, object: &'w Object<'a>, section: usize) {
        for relocation in &object.sections[section].relocations {
            let symbol = &object.symbols[relocation.symbol];
            match symbol.place {
                Place::Section { index, .. } if symbol.local => self.section(slot, index),
                _ if symbol.local || symbol.name.is_empty() => {}
                _ => self.symbol(symbol.name),
            }
        }
    }
}
