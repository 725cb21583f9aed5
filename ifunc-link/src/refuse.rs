//! How [`gc`](crate::gc) reports what an image cannot hold: rule, symbol, referrer, help.

use std::collections::BTreeSet;

use crate::arch::{Arch, Refused, Unfit};
use crate::demangle::demangle;
use crate::gc::Collector;
use crate::graph::{Graph, InputSection};
use crate::inputs::Definition;
use crate::layout::{MAX_ADDRESS, MAX_ALIGN, name_of};
use crate::object_file::{Location, Object, Relocation, SectionKind, Symbol, without_version};
use crate::reason::{Reasons, Referrer, Rule};
use crate::relocate::Unpatched;
use crate::{Imports, LinkError, help};

/// Symbols that linkers and start files define in a program or library.
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

/// Maximum length of a printed reference chain.
const MAX_CHAIN: usize = 8;

/// A relocation and its position.
pub(crate) struct Site<'w, 'a> {
    pub(crate) object_index: usize,
    pub(crate) object: &'w Object<'a>,
    pub(crate) section: usize,
    pub(crate) relocation: &'w Relocation,
}

impl Site<'_, '_> {
    /// Name of the target, for a message.
    fn target_name(&self) -> &str {
        let symbol = &self.object.symbols[self.relocation.symbol];
        match symbol.place {
            Location::Section { index, .. } if symbol.is_section() => {
                let part = self.object.arch.addend_is_part_of_target(self.relocation.kind);
                match u64::try_from(self.relocation.addend) {
                    Ok(offset) if part => self.object.enclosing(index, offset),
                    _ => self.object.sections[index].name,
                }
            }
            // GCC reaches several variables from one place among them.
            Location::Section { index, value } if symbol.name.starts_with(".LANCHOR") => {
                let offset = value.saturating_add_signed(self.relocation.addend);
                self.object.enclosing(index, offset)
            }
            _ => symbol.name,
        }
    }
}

/// The reason against a place that cannot be patched.
pub(crate) fn unpatched(graph: &Graph<'_, '_>, unpatched: &Unpatched, root: &str) -> LinkError {
    let (rule, detail, help) = match unpatched.why {
        Unfit::TooFar(reach) => (Rule::TooLarge, reach, help::TOO_FAR),
        Unfit::Misaligned(what) => (Rule::Malformed, what, help::MALFORMED),
        Unfit::Form => (Rule::Malformed, "", help::MALFORMED),
    };
    let section = unpatched.section.map(|section| &graph.sections[section]);
    let name = section.map_or(root, |section| name_of(graph, section));
    let mut reasons = Reasons::default();
    reasons.add(rule, name, detail, None, help);
    reasons.into_error(root)
}

impl<'w, 'a> Collector<'w, 'a> {
    /// Reports a reason against the target of `site`.
    pub(crate) fn report(&mut self, site: &Site<'w, 'a>, rule: Rule, symbol: &str, detail: &str, help: &str) {
        let by = self.referrer(
            site.object_index,
            site.object,
            site.section,
            site.relocation.offset,
        );
        self.reasons.add(rule, symbol, detail, Some(by), help);
    }

    /// The function or object at an offset of a section, its line in the source, and the chain of references that leads to
    /// it.
    pub(crate) fn referrer(
        &self,
        object_index: usize,
        object: &Object<'_>,
        section: usize,
        offset: u64,
    ) -> Referrer {
        let name = object.enclosing(section, offset);
        Referrer {
            name: format!("`{}` in {}", demangle(name), object.name),
            at: self.inputs.line(object_index, section, offset),
            through: self.reference_chain(object_index, section, offset, name),
        }
    }

    /// The names between a place and the entry, the nearest first: of a shortest chain of references, at most
    /// [`MAX_CHAIN`].
    fn reference_chain(&self, object: usize, section: usize, offset: u64, name: &str) -> Vec<String> {
        let mut chain = Vec::new();
        let mut last = name;
        let mut at = self.input_section_at(object, section, offset);
        while let Some((by, offset)) = at.and_then(|at| self.sections[at].parent) {
            if let Some((object, section)) = self.sections[by].object_section()
                && let Some(object) = self.object(object)
            {
                let name = object.enclosing(section, offset);
                let from = &object.sections[section];
                // Data without a symbol has no name to print, and every chain ends at the entry.
                let nameless = from.kind != SectionKind::Text && name == from.name;
                if name != last && !nameless && self.sections[by].parent.is_some() {
                    if chain.len() == MAX_CHAIN {
                        chain.push("…".to_owned());
                        break;
                    }
                    chain.push(demangle(name));
                    last = name;
                }
            }
            at = Some(by);
        }
        chain
    }

    /// Reports an input section that is too large, or whose alignment the format does not have.
    pub(crate) fn refuse_extent(&mut self, name: &str, size: u64, align: u64) {
        let (rule, detail, help) = match align > MAX_ALIGN {
            true => (Rule::Alignment, format!("{align} bytes"), help::ALIGNMENT),
            false if size >= MAX_ADDRESS => (Rule::TooLarge, format!("{size} bytes"), help::TOO_LARGE),
            false => return,
        };
        let by = self.current.and_then(|(index, offset)| {
            let (object, section) = self.sections[index].object_section()?;
            Some(self.referrer(object, self.object(object)?, section, offset))
        });
        self.reasons.add(rule, name, &detail, by, help);
    }

    /// Reports that the object contradicts itself at `site`.
    pub(crate) fn malformed(&mut self, site: &Site<'w, 'a>, detail: &str) {
        self.report(site, Rule::Malformed, &site.object.name, detail, help::MALFORMED);
    }

    /// Reports a relocation that the architecture refused.
    pub(crate) fn refuse(&mut self, site: &Site<'w, 'a>, refused: Refused, arch: &dyn Arch, detail: &str) {
        let name = arch.relocation_name(site.relocation.kind);
        let (rule, what) = match refused {
            Refused::ThreadLocal => (Rule::ThreadLocal, ""),
            Refused::TextRelocation(what) => (Rule::TextRelocation, what),
            Refused::DirectExternal(what) => (Rule::DirectExternal, what),
            Refused::GotRelative(what) => (Rule::GotRelative, what),
            Refused::Unsupported(what) => (Rule::UnsupportedRelocation, what),
            Refused::UnknownKind(_) => (Rule::UnsupportedRelocation, ""),
            Refused::Malformed => (Rule::Malformed, detail),
        };
        let help = arch.help(refused);
        if arch.is_second_half(site.relocation.kind) && self.reasons.names(rule, site.target_name()) {
            return;
        }
        let detail = match (rule, what) {
            (Rule::ThreadLocal, _) => String::new(),
            (_, "") => name,
            (_, what) => format!("{name}, {what}"),
        };
        self.report(site, rule, site.target_name(), &detail, help);
    }

    /// Refuses symbols of the image that two objects define: which definition is meant is undecidable. Looks at what the
    /// image holds and not at references by name: within an object, compilers refer to functions by their sections.
    pub(crate) fn refuse_duplicates(&mut self) {
        let sections: BTreeSet<(usize, usize)> = self
            .sections
            .iter()
            .filter_map(InputSection::object_section)
            .filter(|(object, _)| !self.inputs.is_archive_member(*object))
            .collect();
        for (index, section) in sections {
            let Some(object) = self.object(index) else {
                continue;
            };
            for (_, symbol) in object.symbols_in(section, 0..u64::MAX) {
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

    /// Refuses a reference of an object to a symbol of its own for which another definition was found.
    pub(crate) fn refuse_interposed(&mut self, site: &Site<'w, 'a>, symbol: &Symbol<'a>, found: Definition) {
        if found.object != site.object_index
            && matches!(symbol.place, Location::Section { .. })
            && !symbol.weak
            && !self.is_copy(found, site.object_index, symbol.name)
            && !self.inputs.is_archive_member(site.object_index)
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

    /// Whether the definition in `object` is a copy of the one that was found.
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
                    Location::Section {
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

    /// Refuses a symbol that no target can provide, unless an import of this name was declared.
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
        self.report(site, Rule::LinkerSymbol, name, "", help);
        true
    }
}
