//! From the symbol of a relocation to its target: an offset in an input section, or an import.

use object::elf;

use crate::Imports;
use crate::arch::Arch;
use crate::gc::Collector;
use crate::graph::{Origin, SectionOffset, Target};
use crate::help;
use crate::inputs::{Definition, Role};
use crate::merge::{leaves_piece, piece_at};
use crate::object_file::{Location, Object, SectionKind, Symbol};
use crate::reason::Rule;
use crate::refuse::Site;

impl<'w, 'a> Collector<'w, 'a> {
    /// The target of a relocation, and what is left of its addend.
    pub(crate) fn resolve(
        &mut self,
        site: &Site<'w, 'a>,
        symbol: &'w Symbol<'a>,
        addend: i64,
        part_of_target: bool,
    ) -> Option<(Target, i64)> {
        let own = (site.object_index, site.object, symbol);
        if symbol.local {
            if symbol.place == Location::Undefined {
                self.malformed(site, "a local symbol without a place");
                return None;
            }
            return self.locate(site, own, addend, part_of_target);
        }
        match self.inputs.definition(symbol.name) {
            Ok(Some(found)) if self.is_unextracted(symbol, found) => {
                self.import(site, symbol).map(|target| (target, addend))
            }
            // The author declares that the target has it; a helper may define one of the same name.
            Ok(Some(found))
                if self.inputs.role(found.object) == Role::Helper && self.is_declared(symbol.name) =>
            {
                self.import(site, symbol).map(|target| (target, addend))
            }
            Ok(Some(found)) => {
                self.refuse_interposed(site, symbol, found);
                self.reach(symbol.name);
                let object = self.object(found.object)?;
                let definition = (found.object, object, &object.symbols[found.symbol]);
                self.locate(site, definition, addend, false)
            }
            Ok(None) if symbol.place == Location::Undefined => self.import(site, symbol).map(|t| (t, addend)),
            // A member whose archive does not list it.
            Ok(None) => self.locate(site, own, addend, part_of_target),
            Err((object, unreadable)) => {
                self.report(site, Rule::Malformed, object, &unreadable.reason, unreadable.help);
                None
            }
        }
    }

    /// Whether it is an import that Rust declares.
    fn is_declared(&self, symbol: &str) -> bool {
        matches!(&self.request.imports, Imports::Declared(all) if all.contains_key(symbol))
    }

    /// Whether a reference is weak and its definition is in a member of an archive that nothing else extracts: the
    /// reference does not extract it either.
    fn is_unextracted(&self, symbol: &Symbol<'a>, found: Definition) -> bool {
        symbol.weak
            && symbol.place == Location::Undefined
            && self.inputs.is_archive_member(found.object)
            && !self
                .extracted
                .get_or_init(|| self.inputs.extracted_members(&self.roots))
                .contains(&found.object)
    }

    /// The target that a symbol of an object stands for.
    fn locate(
        &mut self,
        site: &Site<'w, 'a>,
        (object_index, object, symbol): (usize, &'w Object<'a>, &Symbol<'a>),
        addend: i64,
        part_of_target: bool,
    ) -> Option<(Target, i64)> {
        if symbol.kind == elf::STT_GNU_IFUNC {
            self.report(site, Rule::GnuIfunc, symbol.name, "", help::GNU_IFUNC);
            return None;
        }
        let (index, value) = match symbol.place {
            Location::Section { index, value } => (index, value),
            Location::Common { .. } => {
                let section = self.common(symbol.name);
                return Some((Target::Section(SectionOffset { section, offset: 0 }), addend));
            }
            Location::Absolute { .. } => {
                self.report(site, Rule::AbsoluteSymbol, symbol.name, "", help::ABSOLUTE);
                return None;
            }
            Location::Undefined => {
                self.malformed(site, "a definition without a place");
                return None;
            }
        };
        let section = &object.sections[index];
        let shown = if symbol.name.is_empty() {
            section.name
        } else {
            symbol.name
        };
        match section.kind {
            SectionKind::Text | SectionKind::ReadOnly | SectionKind::Data | SectionKind::Bss => {}
            SectionKind::Tls => {
                self.report(site, Rule::ThreadLocal, shown, "", help::THREAD_LOCAL);
                return None;
            }
            SectionKind::Constructors | SectionKind::Other => {
                let detail = format!("section `{}`", section.name);
                self.report(site, Rule::Section, shown, &detail, help::SECTION);
                return None;
            }
        }
        let (value, addend) = match u64::try_from(addend) {
            Ok(offset) if part_of_target && offset <= section.size - value => (value + offset, 0),
            _ if part_of_target && section.pieces.len() > 1 => {
                self.malformed(site, "a reference beyond a mergeable section");
                return None;
            }
            _ => (value, addend),
        };
        // References within an object were checked when it was read.
        if section.pieces.len() > 1 && object_index != site.object_index {
            let from = &site.object.sections[site.section];
            if leaves_piece(site.object.arch, from, site.relocation, section, value) {
                let detail = format!(
                    "`{shown}` is a constant of the mergeable section `{}` of {}, and this refers to what lies beside it",
                    section.name, object.name
                );
                self.malformed(site, &detail);
                return None;
            }
        }
        let piece = piece_at(&section.pieces, value);
        let offset = value - section.pieces[piece].start;
        let section = self.keep(object_index, object, index, piece);
        Some((Target::Section(SectionOffset { section, offset }), addend))
    }

    /// The input section of a common symbol.
    fn common(&mut self, name: &str) -> usize {
        let origin = Origin::Common(name.into());
        if let Some(&known) = self.by_origin.get(&origin) {
            return known;
        }
        let (size, align) = self.inputs.common_extent(name);
        self.refuse_extent(name, size, align);
        self.push(origin, SectionKind::Bss, &[], size, align)
    }

    /// Code that ends the invocation.
    pub(crate) fn trap(&mut self, arch: &'static dyn Arch) -> SectionOffset {
        let section = match self.by_origin.get(&Origin::Trap) {
            Some(&known) => known,
            None => {
                let data = arch.trap();
                let (size, align) = (data.len() as u64, arch.code_align());
                self.push(Origin::Trap, SectionKind::Text, data, size, align)
            }
        };
        SectionOffset { section, offset: 0 }
    }
}
