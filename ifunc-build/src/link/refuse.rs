//! How a walk over the relocations notes what it must refuse: rule, symbol, referrer, help.

use std::collections::BTreeSet;

use super::arch::{Arch, Refused};
use super::help;
use super::inputs::Role;
use super::object_file::{Object, Place, Relocation, SectionKind};
use super::reach::{Origin, Walk};
use super::reason::{Rule, demangle};

/// A relocation, and where it stands.
pub(super) struct Site<'w, 'a> {
    pub(super) object_index: usize,
    pub(super) object: &'w Object<'a>,
    pub(super) section: usize,
    pub(super) relocation: &'w Relocation,
}

impl Site<'_, '_> {
    /// Who refers, for a message.
    pub(super) fn describe(&self) -> String {
        let enclosing = self.object.enclosing(self.section, self.relocation.offset);
        format!("`{}` in {}", demangle(enclosing), self.object.name)
    }

    /// What is referred to, for a message.
    fn target_name(&self) -> &str {
        let symbol = &self.object.symbols[self.relocation.symbol];
        match symbol.place {
            Place::Section { index, .. } if symbol.name.is_empty() => self.object.sections[index].name,
            _ => symbol.name,
        }
    }
}

impl<'w, 'a> Walk<'w, 'a> {
    /// The object contradicts itself at `site`.
    pub(super) fn malformed(&mut self, site: &Site<'w, 'a>, detail: &str) {
        self.reasons.add(
            Rule::Malformed,
            &site.object.name,
            detail,
            Some(site.describe()),
            help::MALFORMED,
        );
    }

    /// Notes what the architecture refused.
    pub(super) fn refuse(&mut self, site: &Site<'w, 'a>, refused: Refused, arch: &dyn Arch, detail: &str) {
        let name = arch.relocation_name(site.relocation.kind);
        let (rule, what, help) = match refused {
            Refused::ThreadLocal => (Rule::ThreadLocal, "", help::THREAD_LOCAL),
            Refused::TextRelocation(what) => (Rule::TextRelocation, what, help::PIC),
            Refused::DirectExternal(what) => (Rule::DirectExternal, what, help::DIRECT_EXTERNAL),
            Refused::GotRelative(what) => (Rule::GotRelative, what, help::GOT_RELATIVE),
            Refused::Unsupported(what) => (Rule::UnsupportedRelocation, what, help::UNSUPPORTED),
            Refused::UnknownKind(_) => (Rule::UnsupportedRelocation, "", help::UNSUPPORTED),
            Refused::Malformed => (Rule::Malformed, detail, help::MALFORMED),
        };
        let detail = match (rule, what) {
            (Rule::ThreadLocal, _) => String::new(),
            (_, "") => name,
            (_, what) => format!("{name}, {what}"),
        };
        self.reasons
            .add(rule, site.target_name(), &detail, Some(site.describe()), help);
    }

    /// Refuses constructors in the author's objects: nobody would run them.
    pub(super) fn refuse_constructors(&mut self) {
        let objects: BTreeSet<usize> = self
            .chunks
            .iter()
            .filter_map(|chunk| match chunk.origin {
                Origin::Piece { object, .. } => Some(object),
                _ => None,
            })
            .filter(|&object| self.inputs.role(object) == Role::User)
            .collect();
        for index in objects {
            let Some(object) = self.object(index) else {
                continue;
            };
            for section in object
                .sections
                .iter()
                .filter(|s| s.kind == SectionKind::Constructors && s.size > 0)
            {
                let by = Some(format!("section `{}` of {}", section.name, object.name));
                for relocation in &section.relocations {
                    let symbol = &object.symbols[relocation.symbol];
                    let function = match symbol.place {
                        Place::Section { index, value } if symbol.is_section() => {
                            object.enclosing(index, value.wrapping_add_signed(relocation.addend))
                        }
                        _ => symbol.name,
                    };
                    self.reasons
                        .add(Rule::Constructor, function, "", by.clone(), help::CONSTRUCTOR);
                }
                if section.relocations.is_empty() {
                    self.reasons
                        .add(Rule::Constructor, section.name, "", by, help::CONSTRUCTOR);
                }
            }
        }
    }
}
