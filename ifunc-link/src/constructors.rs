//! Constructors and destructors: the start files of a program run them, and an image has no start files.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::gc::Collector;
use crate::graph::InputSection;
use crate::help;
use crate::inputs::Role;
use crate::object_file::{Location, Object, Relocation, Section, SectionKind};
use crate::reason::{Referrer, Rule};

/// The constructor of the functions for atomic operations that compilers for AArch64 call (outline atomics): it notes that the CPU has
/// instructions for them. Without it they use those that every CPU has.
const DETECTS_ATOMICS: &str = "init_have_lse_atomics";

/// A function that a constructor section names.
struct Constructor<'a> {
    name: &'a str,
    /// Section and offset, if the object itself has it.
    place: Option<(usize, u64)>,
}

/// References in the graph, indexed by their targets.
#[derive(Default)]
struct References {
    /// Object, section and offset of every target. Where a branch refers to a section's symbol, its addend also counts the
    /// bytes from the field to the end of the instruction, so the offset is there with and without them.
    targets: HashSet<(usize, usize, u64)>,
    /// For each object, the references from other objects: object, section, offset.
    from_outside: BTreeMap<usize, Vec<(usize, usize, u64)>>,
}

impl References {
    fn of(sections: &[InputSection<'_>]) -> Self {
        let mut references = Self::default();
        for section in sections {
            for relocation in &section.relocations {
                let Some(at) = relocation.section() else { continue };
                let Some((to, to_section)) = sections[at.section].object_section() else {
                    continue;
                };
                let after_field = at.offset.wrapping_add_signed(relocation.addend.wrapping_add(4));
                references
                    .targets
                    .extend([at.offset, after_field].map(|offset| (to, to_section, offset)));
                if let Some((from, section)) = section.object_section()
                    && from != to
                {
                    let place = (from, section, relocation.start as u64);
                    references.from_outside.entry(to).or_default().push(place);
                }
            }
        }
        references
    }
}

impl<'w, 'a> Collector<'w, 'a> {
    /// Refuses constructors in the objects of the image, and in every object of the author's: one that the entry does not
    /// reach may set up data that the entry reads. A constructor of the compiler's support library is accepted where the
    /// image calls its function itself.
    pub(crate) fn refuse_constructors(&mut self) {
        let reached = self.sections.iter().filter_map(InputSection::object_section);
        let given = (0..self.inputs.len()).filter(|&object| {
            self.inputs.role(object) == Role::User && !self.inputs.is_archive_member(object)
        });
        let objects: BTreeSet<usize> = reached.map(|(object, _)| object).chain(given).collect();
        let mut references = None;
        for index in objects {
            let Some(object) = self.object(index) else {
                continue;
            };
            let sections = object.sections.iter();
            for section in sections.filter(|s| s.kind == SectionKind::Constructors && s.size > 0) {
                let references = references.get_or_insert_with(|| References::of(&self.sections));
                self.refuse_constructors_of(index, object, section, references);
            }
        }
    }

    fn refuse_constructors_of(
        &mut self,
        index: usize,
        object: &'w Object<'a>,
        section: &Section<'a>,
        references: &References,
    ) {
        let support = self.inputs.role(index) == Role::Support;
        let mut by = vec![Referrer {
            name: format!("section `{}` of {}", section.name, object.name),
            ..Referrer::default()
        }];
        // Says why the object is there: the author did not name it.
        if support || self.inputs.is_archive_member(index) {
            let places = references.from_outside.get(&index).into_iter().flatten();
            by.extend(places.filter_map(|&(from, section, offset)| {
                Some(self.referrer(from, self.object(from)?, section, offset))
            }));
        }
        for relocation in &section.relocations {
            let Constructor { name, place } = constructor(object, relocation);
            let called = |(section, at)| references.targets.contains(&(index, section, at));
            let is_library = support || self.inputs.is_archive_member(index);
            if name == DETECTS_ATOMICS && is_library || support && place.is_some_and(called) {
                continue;
            }
            let help = match name {
                "__cpu_indicator_init" => help::CPU_SUPPORTS,
                _ if support => help::SUPPORT_CONSTRUCTOR,
                _ => help::CONSTRUCTOR,
            };
            let line = place.and_then(|(section, at)| self.inputs.line(index, section, at));
            let detail = line.map_or_else(String::new, |line| format!("at {line}"));
            for by in &by {
                self.reasons
                    .add(Rule::Constructor, name, &detail, Some(by.clone()), help);
            }
        }
        if section.relocations.is_empty() {
            for by in by {
                self.reasons
                    .add(Rule::Constructor, section.name, "", Some(by), help::CONSTRUCTOR);
            }
        }
    }
}

/// The function that an entry of a constructor section runs.
fn constructor<'a>(object: &Object<'a>, relocation: &Relocation) -> Constructor<'a> {
    let symbol = &object.symbols[relocation.symbol];
    let Location::Section { index, value } = symbol.place else {
        return Constructor {
            name: symbol.name,
            place: None,
        };
    };
    let at = match symbol.is_section() {
        true => value.wrapping_add_signed(relocation.addend),
        false => value,
    };
    let name = match symbol.name {
        "" => object.enclosing(index, at),
        name => name,
    };
    Constructor {
        name,
        place: Some((index, at)),
    }
}
