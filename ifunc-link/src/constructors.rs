//! Constructors and destructors: what a program's start files would run before the entry and nobody runs in an image.

use std::collections::{BTreeSet, HashSet};

use crate::gc::{Origin, Target, Walk};
use crate::help;
use crate::inputs::Role;
use crate::object_file::{Object, Place, Relocation, SectionKind};
use crate::reason::{Referrer, Rule};

/// Places that the image refers to: an object, a section, an offset.
type Called = HashSet<(usize, usize, u64)>;

/// A function that a constructor section names.
struct Constructor<'a> {
    name: &'a str,
    /// Section and offset, if the object itself has it.
    place: Option<(usize, u64)>,
}

impl<'w, 'a> Walk<'w, 'a> {
    /// Refuses constructors in what is reached, and in every object of the author's: one that the entry does not reach may
    /// set up what the entry reads. Those of the compiler's support library are no matter where the image calls their
    /// function itself.
    pub(crate) fn refuse_constructors(&mut self) {
        let reached = self
            .sections
            .iter()
            .filter_map(|input_section| match input_section.origin {
                Origin::Piece { object, .. } => Some(object),
                _ => None,
            });
        let given = (0..self.inputs.len())
            .filter(|&slot| self.inputs.role(slot) == Role::User && !self.inputs.archived(slot));
        let objects: BTreeSet<usize> = reached.chain(given).collect();
        let mut called = None;
        for index in objects {
            let Some(object) = self.object(index) else {
                continue;
            };
            let support = self.inputs.role(index) == Role::Support;
            let asked_for = support || self.inputs.archived(index);
            for section in object
                .sections
                .iter()
                .filter(|s| s.kind == SectionKind::Constructors && s.size > 0)
            {
                let mut by = vec![Referrer {
                    who: format!("section `{}` of {}", section.name, object.name),
                    ..Referrer::default()
                }];
                if asked_for {
                    by.extend(self.referrers(index));
                }
                for relocation in &section.relocations {
                    let Constructor { name, place } = constructor(object, relocation);
                    if support
                        && place.is_some_and(|(section, at)| {
                            let called = called.get_or_insert_with(|| self.called());
                            called.contains(&(index, section, at))
                        })
                    {
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
    }

    /// What the image refers to: the functions, not only their sections. By a section's symbol, a branch's addend also
    /// counts its field.
    fn called(&self) -> Called {
        let mut called = Called::new();
        for link in self
            .sections
            .iter()
            .flat_map(|input_section| &input_section.links)
        {
            if let Target::InputSection {
                input_section,
                offset,
            } = link.target
                && let Origin::Piece { object, section, .. } = self.sections[input_section].origin
            {
                let branched = offset.wrapping_add_signed(link.addend.wrapping_add(4));
                called.extend([(object, section, offset), (object, section, branched)]);
            }
        }
        called
    }

    /// Who refers to something of an object, from outside of it.
    fn referrers(&self, to: usize) -> Vec<Referrer> {
        let object_of = |input_section: usize| match self.sections[input_section].origin {
            Origin::Piece { object, section, .. } => Some((object, section)),
            _ => None,
        };
        let mut found = Vec::new();
        for (index, input_section) in self.sections.iter().enumerate() {
            let Some((from, section)) = object_of(index).filter(|(object, _)| *object != to) else {
                continue;
            };
            let Some(object) = self.object(from) else { continue };
            for link in &input_section.links {
                if let Target::InputSection { input_section, .. } = link.target
                    && object_of(input_section).is_some_and(|(object, _)| object == to)
                {
                    found.push(self.referrer(from, object, section, link.plan.start as u64));
                }
            }
        }
        found
    }
}

/// The function that an entry of a constructor section runs.
fn constructor<'a>(object: &Object<'a>, relocation: &Relocation) -> Constructor<'a> {
    let symbol = &object.symbols[relocation.symbol];
    let Place::Section { index, value } = symbol.place else {
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
