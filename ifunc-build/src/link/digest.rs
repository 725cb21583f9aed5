//! What a shared library of some symbols comes from, as a hash: the sections that they reach and nothing else, so that one
//! function of an object may change without the libraries of its neighbours.

use std::collections::HashMap;

use super::Linker;
use super::object_file::{Place, SectionKind};

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
    pub(crate) fn digest_of(&self, roots: &[String]) -> Option<[u8; 32]> {
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
        match object.symbols[definition.symbol].place {
            Place::Section { index, value } => {
                self.section(definition.object, index);
                self.number(value);
            }
            Place::Common { size, align } => {
                self.text(name);
                self.number(size);
                self.number(align);
            }
            Place::Undefined | Place::Absolute => self.text(name),
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
            match symbol.place {
                Place::Section { index, value } if symbol.local => {
                    self.section(slot, index);
                    self.number(value);
                }
                _ if symbol.local || symbol.name.is_empty() => self.text(symbol.name),
                _ => self.symbol(symbol.name)?,
            }
        }
        Some(())
    }
}
