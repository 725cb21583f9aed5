//! What a shared library of some symbols comes from, as a hash: the sections that they reach and nothing else, so that one
//! function of an object may change without the libraries of its neighbours.

use std::collections::HashMap;

use crate::Linker;
use crate::object_file::{Place, SectionKind};

/// A walk over sections in the order in which they are met.
struct Walk<'w, 'a> {
    linker: &'w Linker<'a>,
    /// An object, and the index of a section in it.
    order: Vec<(usize, usize)>,
    numbers: HashMap<(usize, usize), usize>,
    hasher: blake3::Hasher,
}

impl Linker<'_> {
    /// A hash over all that `roots`, and the constructors of the objects that a library of them is made of, reach: bytes,
    /// and what is written into them from where. `None` if an object cannot be read.
    pub fn digest_of(&self, roots: &[String]) -> Option<[u8; 32]> {
        let mut walk = Walk {
            linker: self,
            order: Vec::new(),
            numbers: HashMap::new(),
            hasher: blake3::Hasher::new(),
        };
        for root in roots {
            walk.text(root);
            walk.symbol(root)?;
        }
        for slot in self.closure(roots) {
            let object = self.inputs.object(slot).ok()?;
            let constructors = object.sections.iter().enumerate();
            for (index, _) in constructors.filter(|(_, s)| s.kind == SectionKind::Constructors) {
                walk.section(slot, index);
            }
        }
        let mut at = 0;
        while let Some(&(slot, section)) = walk.order.get(at) {
            walk.follow(slot, section)?;
            at += 1;
        }
        Some(*walk.hasher.finalize().as_bytes())
    }
}

impl Walk<'_, '_> {
    fn number(&mut self, number: u64) {
        self.hasher.update(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.hasher.update(text.as_bytes());
    }

    fn section(&mut self, slot: usize, section: usize) {
        let next = self.order.len();
        let number = *self.numbers.entry((slot, section)).or_insert(next);
        if number == next {
            self.order.push((slot, section));
        }
        self.number(number as u64);
    }

    fn symbol(&mut self, name: &str) -> Option<()> {
        // Which of two is meant, the link says; that there are two is a part of what it is made of.
        let Ok(Some(definition)) = self.linker.inputs.definition(name) else {
            self.text(name);
            return Some(());
        };
        let object = self.linker.inputs.object(definition.object).ok()?;
        let symbol = &object.symbols[definition.symbol];
        self.number(u64::from(symbol.kind.0));
        self.number(u64::from(symbol.visibility.0));
        match symbol.place {
            Place::Section { index, value } => {
                self.section(definition.object, index);
                self.number(value);
            }
            Place::Common { size, align } => {
                self.text(name);
                self.number(size);
                self.number(align);
            }
            Place::Absolute { value } => {
                self.text(name);
                self.number(value);
            }
            Place::Undefined => self.text(name),
        }
        Some(())
    }

    fn follow(&mut self, slot: usize, index: usize) -> Option<()> {
        let linker = self.linker;
        let object = linker.inputs.object(slot).ok()?;
        let section = &object.sections[index];
        // Not its name: rustc counts constants over the whole object.
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
            match symbol.place {
                Place::Section { index, value } if symbol.local => {
                    self.section(slot, index);
                    self.number(value);
                }
                Place::Absolute { value } if symbol.local => self.number(value),
                _ if symbol.local || symbol.name.is_empty() => self.text(symbol.name),
                _ => self.symbol(symbol.name)?,
            }
        }
        Some(())
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
        linker.digest_of(&["root".to_owned()]).unwrap()
    }

    #[test]
    fn what_an_absolute_symbol_is_counts() {
        use SymbolKind::{Data, Text};
        use SymbolScope::{Dynamic, Linkage};
        let first = digest(1, Dynamic, Data);
        assert_eq!(first, digest(1, Dynamic, Data));
        assert_ne!(first, digest(2, Dynamic, Data), "value");
        assert_ne!(first, digest(1, Linkage, Data), "visibility");
        assert_ne!(first, digest(1, Dynamic, Text), "type");
    }
}
