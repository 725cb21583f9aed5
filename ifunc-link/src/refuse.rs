//! How a walk over the relocations notes what it must refuse: rule, symbol, referrer, help.

use std::collections::BTreeSet;

use crate::arch::{Arch, Refused};
use crate::demangle::demangle;
use crate::gc::{Origin, Walk};
use crate::inputs::Definition;
use crate::layout::{MAX_ADDRESS, MAX_ALIGN};
use crate::object_file::{Object, Place, Relocation, SectionKind, Symbol, without_version};
use crate::reason::{Referrer, Rule};
use crate::{Imports, help};

/// What linkers and start files define for a program's or library's own file.
const LINKER_SYMBOLS: [&str; 16] = [
    "_end",
    "_edata",
    "_etext",
    "__bss_start",
    "__data_start",
    "__executable_start",
    "__ehdr_start",
    "__dso_handle",
    "_DYNAMIC",
    "__GNU_EH_FRAME_HDR",
    "__init_array_start",
    "__init_array_end",
    "__fini_array_start",
    "__fini_array_end",
    "__preinit_array_start",
    "__preinit_array_end",
];

/// So many steps of a way are told: whoever needs more of them looks at the source.
const MAX_CHAIN: usize = 8;

/// A relocation, and where it stands.
pub(crate) struct Site<'w, 'a> {
    pub(crate) object_index: usize,
    pub(crate) object: &'w Object<'a>,
    pub(crate) section: usize,
    pub(crate) relocation: &'w Relocation,
}

impl Site<'_, '_> {
    /// What is referred to, for a message.
    fn target_name(&self) -> &str {
        let symbol = &self.object.symbols[self.relocation.symbol];
        match symbol.place {
            Place::Section { index, .. } if symbol.is_section() => {
                let part = self.object.arch.addend_is_part_of_target(self.relocation.kind);
                match u64::try_from(self.relocation.addend) {
                    Ok(offset) if part => self.object.enclosing(index, offset),
                    _ => self.object.sections[index].name,
                }
            }
            _ => symbol.name,
        }
    }
}

impl<'w, 'a> Walk<'w, 'a> {
    /// Notes a reason against what `site` refers to.
    pub(crate) fn note(&mut self, site: &Site<'w, 'a>, rule: Rule, symbol: &str, detail: &str, help: &str) {
        let by = self.referrer(
            site.object_index,
            site.object,
            site.section,
            site.relocation.offset,
        );
        self.reasons.add(rule, symbol, detail, Some(by), help);
    }

    /// Who stands at an offset of a section, where in the source, and how the entry comes to it.
    pub(crate) fn referrer(
        &self,
        object_index: usize,
        object: &Object<'_>,
        section: usize,
        offset: u64,
    ) -> Referrer {
        let name = object.enclosing(section, offset);
        Referrer {
            who: format!("`{}` in {}", demangle(name), object.name),
            at: self.inputs.line(object_index, section, offset),
            through: self.reference_chain(object_index, section, offset, name),
        }
    }

    /// What lies between the entry and a place, the nearest first: the shortest way there is, or the beginning of a long
    /// one.
    fn reference_chain(&self, object: usize, section: usize, offset: u64, name: &str) -> Vec<String> {
        let mut way = Vec::new();
        let mut last = name;
        let mut input_section = self.input_section_at(object, section, offset);
        while let Some((by, offset)) =
            input_section.and_then(|input_section| self.sections[input_section].parent)
        {
            if let Origin::Piece { object, section, .. } = self.sections[by].origin
                && let Some(object) = self.object(object)
            {
                let name = object.enclosing(section, offset);
                let from = &object.sections[section];
                // What has no name of its own says nothing, and the entry is who it is all about.
                let nameless = from.kind != SectionKind::Text && name == from.name;
                if name != last && !nameless && self.sections[by].parent.is_some() {
                    if way.len() == MAX_CHAIN {
                        way.push("…".to_owned());
                        break;
                    }
                    way.push(demangle(name));
                    last = name;
                }
            }
            input_section = Some(by);
        }
        way
    }

    /// Notes that what was just found is not for an image, as large or as aligned as it is.
    pub(crate) fn refuse_extent(&mut self, name: &str, size: u64, align: u64) {
        let (rule, detail, help) = match align > MAX_ALIGN {
            true => (Rule::Alignment, format!("{align} bytes"), help::ALIGNMENT),
            false if size >= MAX_ADDRESS => (Rule::TooLarge, format!("{size} bytes"), help::TOO_LARGE),
            false => return,
        };
        let by = self.here.and_then(
            |(input_section, offset)| match self.sections[input_section].origin {
                Origin::Piece { object, section, .. } => {
                    Some(self.referrer(object, self.object(object)?, section, offset))
                }
                _ => None,
            },
        );
        self.reasons.add(rule, name, &detail, by, help);
    }

    /// The object contradicts itself at `site`.
    pub(crate) fn malformed(&mut self, site: &Site<'w, 'a>, detail: &str) {
        self.note(site, Rule::Malformed, &site.object.name, detail, help::MALFORMED);
    }

    /// Notes what the architecture refused.
    pub(crate) fn refuse(&mut self, site: &Site<'w, 'a>, refused: Refused, arch: &dyn Arch, detail: &str) {
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
        self.note(site, rule, site.target_name(), &detail, help);
    }

    /// Refuses what is reached and defined twice: which definition is meant, nobody can tell. By what is reached and not
    /// by who refers to it: inside of an object, compilers refer to functions without their names.
    pub(crate) fn refuse_duplicates(&mut self) {
        let sections: BTreeSet<(usize, usize)> = self
            .sections
            .iter()
            .filter_map(|input_section| match input_section.origin {
                Origin::Piece { object, section, .. } => Some((object, section)),
                _ => None,
            })
            .filter(|(object, _)| !self.inputs.archived(*object))
            .collect();
        for (index, section) in sections {
            let Some(object) = self.object(index) else {
                continue;
            };
            for symbol in object.symbols_of(section) {
                let name = without_version(symbol.name);
                if symbol.local || symbol.weak || name.is_empty() {
                    continue;
                }
                let Ok(Some(found)) = self.inputs.definition(name) else {
                    continue;
                };
                let rival = match found.object == index {
                    true => found.rival,
                    false => Some(index).filter(|_| !self.is_copy(found, index, name)),
                };
                if let Some(rival) = rival {
                    self.duplicate(name, found.object, rival, None);
                }
            }
        }
    }

    /// Refuses a reference of an object to what it defines itself, where another definition was found.
    pub(crate) fn refuse_interposed(&mut self, site: &Site<'w, 'a>, symbol: &Symbol<'a>, found: Definition) {
        if found.object != site.object_index
            && matches!(symbol.place, Place::Section { .. })
            && !symbol.weak
            && !self.is_copy(found, site.object_index, symbol.name)
            && !self.inputs.archived(site.object_index)
        {
            let by = self.referrer(
                site.object_index,
                site.object,
                site.section,
                site.relocation.offset,
            );
            self.duplicate(symbol.name, found.object, site.object_index, Some(by));
        }
    }

    /// Whether what `object` defines is a copy of what was found.
    fn is_copy(&self, found: Definition, object: usize, name: &str) -> bool {
        let symbol = self.object(object).and_then(|o| o.globals.get(name));
        symbol.is_some_and(|&symbol| {
            let rival = None;
            self.inputs.are_copies(
                &found,
                &Definition {
                    object,
                    symbol,
                    rival,
                },
            )
        })
    }

    fn duplicate(&mut self, name: &str, first: usize, second: usize, by: Option<Referrer>) {
        let place = |index: usize| {
            let file = self.inputs.name(index);
            let line = self.object(index).and_then(|object| {
                let symbol = &object.symbols[*object.globals.get(name)?];
                match symbol.place {
                    Place::Section {
                        index: section,
                        value,
                    } => self.inputs.line(index, section, value),
                    _ => None,
                }
            });
            match line {
                Some(line) => format!("{file} at {line}"),
                None => file.to_owned(),
            }
        };
        let detail = format!("in {} and in {}", place(first), place(second));
        self.reasons
            .add(Rule::Duplicate, name, &detail, by, help::DUPLICATE);
    }

    /// Refuses what no target could provide, unless an import of this name was declared.
    pub(crate) fn refuse_linker_symbol(&mut self, site: &Site<'w, 'a>, name: &str) -> bool {
        let of_a_section = ["__start_", "__stop_"]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()));
        let declared = matches!(&self.request.imports, Imports::Declared(all) if all.contains_key(name));
        let help = match of_a_section {
            _ if declared => return false,
            true => help::SECTION_BOUNDS,
            false if LINKER_SYMBOLS.contains(&name) => help::LINKER_SYMBOL,
            false => return false,
        };
        self.note(site, Rule::LinkerSymbol, name, "", help);
        true
    }
}
