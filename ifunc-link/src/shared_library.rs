//! The parts of a shared library of some symbols: its objects, a digest of what it is made from, and the undefined symbols
//! that it needs from elsewhere. The compiler links the library; nothing is refused here.

use std::collections::{BTreeSet, HashMap};

use crate::Linker;
use crate::inputs::Inputs;
use crate::object_file::{Location, SectionKind};

impl<'a> Linker<'a> {
    /// Whether some input defines the symbol.
    #[must_use]
    pub fn defines(&self, name: &str) -> bool {
        matches!(self.inputs.definition(name), Ok(Some(_)))
    }

    /// The parts of a shared library that exports `roots`.
    #[must_use]
    pub fn shared_library(&self, roots: &[String]) -> SharedLibrary<'_, 'a> {
        let objects = self.inputs.closure(BTreeSet::new(), roots);
        let mut walk = Walk {
            inputs: &self.inputs,
            numbers: HashMap::new(),
            sections: Vec::new(),
            undefined_roots: BTreeSet::new(),
            root_sections: HashMap::new(),
            hasher: blake3::Hasher::new(),
        };
        for root in roots {
            walk.text(root);
            match walk.symbol(root) {
                Reference::Section(section) => {
                    walk.root_sections.insert(root.clone(), section);
                }
                Reference::Undefined(_) => {
                    walk.undefined_roots.insert(root.clone());
                }
                Reference::Other => {}
            }
        }
        // The loader runs the constructors of the library's objects.
        let mut constructors = Vec::new();
        for &object in &objects {
            let sections = self.inputs.object(object).map_or(&[][..], |o| &o.sections);
            for (index, section) in sections.iter().enumerate() {
                if section.kind == SectionKind::Constructors {
                    constructors.push(walk.section(object, index));
                }
            }
        }
        let mut next = 0;
        while next < walk.sections.len() {
            walk.follow(next);
            next += 1;
        }
        SharedLibrary {
            inputs: &self.inputs,
            objects,
            digest: *walk.hasher.finalize().as_bytes(),
            sections: walk.sections,
            root_sections: walk.root_sections,
            undefined_roots: walk.undefined_roots,
            constructors,
        }
    }
}

/// The parts of a shared library: see [`Linker::shared_library`].
pub struct SharedLibrary<'l, 'a> {
    inputs: &'l Inputs<'a>,
    objects: BTreeSet<usize>,
    digest: [u8; 32],
    sections: Vec<Node<'l>>,
    root_sections: HashMap<String, usize>,
    undefined_roots: BTreeSet<String>,
    constructors: Vec<usize>,
}

impl std::fmt::Debug for SharedLibrary<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedLibrary").finish_non_exhaustive()
    }
}

impl<'l, 'a> SharedLibrary<'l, 'a> {
    /// Names and bytes of the objects that the roots need, in the order of the inputs: the objects that define them, those
    /// that define the undefined symbols of these, and so on. Objects that cannot be read are left out: a link that needs
    /// one of them reports it.
    pub fn objects(&self) -> impl Iterator<Item = (&'l str, &'a [u8])> {
        let inputs = self.inputs;
        let objects = self.objects.iter();
        objects.map(move |&object| (inputs.name(object), inputs.data(object)))
    }

    /// A hash of what the library is made from: the sections that its roots and constructors reach, and every reference
    /// between them. A function that the library does not need may change without changing the hash.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The symbols that no input defines and that the code of `entries`, some of the roots, and the constructors need.
    #[must_use]
    pub fn undefined_symbols(&self, entries: &[String]) -> BTreeSet<&str> {
        let undefined = entries.iter().filter_map(|entry| self.undefined_roots.get(entry));
        let mut undefined: BTreeSet<&str> = undefined.map(String::as_str).collect();
        let mut seen = vec![false; self.sections.len()];
        let mut open = self.constructors.clone();
        open.extend(entries.iter().filter_map(|entry| self.root_sections.get(entry)));
        while let Some(section) = open.pop() {
            if !std::mem::replace(&mut seen[section], true) {
                let node = &self.sections[section];
                open.extend(&node.references);
                undefined.extend(&node.undefined);
            }
        }
        undefined
    }
}

/// A section in the graph of a shared library.
struct Node<'l> {
    object: usize,
    section: usize,
    /// The sections that it refers to, by their numbers.
    references: Vec<usize>,
    /// The symbols that it refers to and no input defines.
    undefined: Vec<&'l str>,
}

/// The definition that a symbol resolves to.
enum Reference<'n> {
    /// A section of the graph, by its number.
    Section(usize),
    Undefined(&'n str),
    /// A common or an absolute symbol, or one of an object that cannot be read.
    Other,
}

/// The one walk over the sections, in the order in which it meets them. It hashes what it sees.
struct Walk<'l, 'a> {
    inputs: &'l Inputs<'a>,
    sections: Vec<Node<'l>>,
    /// Numbers in `sections`, by object and section.
    numbers: HashMap<(usize, usize), usize>,
    root_sections: HashMap<String, usize>,
    undefined_roots: BTreeSet<String>,
    hasher: blake3::Hasher,
}

impl<'l> Walk<'l, '_> {
    fn number(&mut self, number: u64) {
        self.hasher.update(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.hasher.update(text.as_bytes());
    }

    fn section(&mut self, object: usize, section: usize) -> usize {
        let next = self.sections.len();
        let number = *self.numbers.entry((object, section)).or_insert(next);
        if number == next {
            self.sections.push(Node {
                object,
                section,
                references: Vec::new(),
                undefined: Vec::new(),
            });
        }
        self.number(number as u64);
        number
    }

    fn symbol<'n>(&mut self, name: &'n str) -> Reference<'n> {
        let inputs = self.inputs;
        // Of two definitions, the link decides which one counts.
        let definition = match inputs.definition(name) {
            Ok(Some(definition)) => definition,
            Ok(None) => {
                self.text(name);
                return Reference::Undefined(name);
            }
            Err(_) => {
                self.text(name);
                return Reference::Other;
            }
        };
        let Ok(object) = inputs.object(definition.object) else {
            return Reference::Other;
        };
        let symbol = &object.symbols[definition.symbol];
        self.number(u64::from(symbol.kind.0));
        self.number(u64::from(symbol.visibility.0));
        match symbol.place {
            Location::Section { index, value } => {
                let section = self.section(definition.object, index);
                self.number(value);
                return Reference::Section(section);
            }
            Location::Common { size, align } => {
                self.text(name);
                self.number(size);
                self.number(align);
            }
            Location::Absolute { value } => {
                self.text(name);
                self.number(value);
            }
            Location::Undefined => self.text(name),
        }
        Reference::Other
    }

    fn follow(&mut self, number: usize) {
        let Node {
            object: index,
            section,
            ..
        } = self.sections[number];
        let inputs = self.inputs;
        let Ok(object) = inputs.object(index) else {
            return;
        };
        let section = &object.sections[section];
        // The name is left out: rustc numbers the constants of a whole object.
        self.text(&format!("{:?}", section.kind));
        self.number(section.size);
        self.number(section.align);
        self.number(section.data.len() as u64);
        self.hasher.update(section.data);
        for relocation in &section.relocations {
            self.number(relocation.offset);
            self.number(u64::from(relocation.kind));
            self.number(relocation.addend as u64);
            let symbol = &object.symbols[relocation.symbol];
            self.number(u64::from(symbol.weak));
            self.number(u64::from(symbol.kind.0));
            self.number(u64::from(symbol.visibility.0));
            let reference = match symbol.place {
                Location::Section {
                    index: section,
                    value,
                } if symbol.local => {
                    let section = self.section(index, section);
                    self.number(value);
                    Reference::Section(section)
                }
                Location::Absolute { value } if symbol.local => {
                    self.number(value);
                    Reference::Other
                }
                _ if symbol.local || symbol.name.is_empty() => {
                    self.text(symbol.name);
                    Reference::Other
                }
                _ => self.symbol(symbol.name),
            };
            let node = &mut self.sections[number];
            match reference {
                Reference::Section(section) => node.references.push(section),
                Reference::Undefined(name) => node.undefined.push(name),
                Reference::Other => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use object::write::{Object, Relocation, StandardSection, Symbol, SymbolSection};
    use object::{
        Architecture, BinaryFormat, Endianness, RelocationFlags, SymbolFlags, SymbolKind, SymbolScope, elf,
    };

    use crate::{Input, Linker, Role};

    /// The digest of a function that refers to an absolute symbol.
    fn digest(value: u64, scope: SymbolScope, kind: SymbolKind) -> [u8; 32] {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.section_id(StandardSection::Text);
        object.append_section_data(text, &[0; 8], 1);
        let symbol = |name: &str, value, section| Symbol {
            name: name.into(),
            value,
            size: 0,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section,
            flags: SymbolFlags::None,
        };
        object.add_symbol(symbol("root", 0, SymbolSection::Section(text)));
        let constant = object.add_symbol(Symbol {
            scope,
            kind,
            ..symbol("constant", value, SymbolSection::Absolute)
        });
        let relocation = Relocation {
            offset: 0,
            symbol: constant,
            addend: 0,
            flags: RelocationFlags::Elf {
                r_type: elf::R_X86_64_64,
            },
        };
        object.add_relocation(text, relocation).unwrap();
        let data = object.write().unwrap();
        let input = Input {
            name: "constant.o",
            data: &data,
            role: Role::User,
        };
        let linker = Linker::open(&[input]).unwrap();
        linker.shared_library(&["root".to_owned()]).digest()
    }

    #[test]
    fn absolute_symbols_count_by_value_visibility_and_type() {
        use SymbolKind::{Data, Text};
        use SymbolScope::{Dynamic, Linkage};
        let first = digest(1, Dynamic, Data);
        assert_eq!(first, digest(1, Dynamic, Data));
        assert_ne!(first, digest(2, Dynamic, Data), "value");
        assert_ne!(first, digest(1, Linkage, Data), "visibility");
        assert_ne!(first, digest(1, Dynamic, Text), "type");
    }
}
