//! The debug_object of an image: what a debugger, a profiler or a person wants to know of it and what does not travel.
//!
//! It is an ELF relocatable file, as a just-in-time compiler hands it to a debugger: a section `.text` without bytes that
//! stands for the read-execute part (an offset in it is one in the image's address space), a section `.data` that stands
//! for the read-write part (offset 0 is the displacement that the image's header states), symbols for everything that
//! the image is made of, and the DWARF sections of the objects that it came from. Where they name an address, a
//! relocation of 64 bits against `.text` or `.data` is left; what did not become part of the image has the address 0.
//! Whoever loads the image writes the addresses of both sections into their headers.
//!
//! It depends on the image and never the other way round. Debug information that does not make sense is left out.

mod dwarf;
mod frames;

use std::collections::{BTreeMap, BTreeSet};

use object::write::{self, StandardSegment, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind as Kind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use crate::gc::{Graph, Origin, Target};
use crate::inputs::Inputs;
use crate::layout::{Layout, WORD, got_offset};
use crate::object_file::{Place, SectionKind, Symbol};

/// The debug_object of what was laid out; `None` for an architecture that it cannot be written for.
pub(crate) fn debug_object(inputs: &Inputs<'_>, reached: &Graph<'_, '_>, layout: &Layout) -> Option<Vec<u8>> {
    let architecture = match elf::Machine(reached.arch.machine()) {
        elf::EM_X86_64 => Architecture::X86_64,
        elf::EM_AARCH64 => Architecture::Aarch64,
        _ => return None,
    };
    let mut parts = Parts::new(architecture, reached, layout);
    for (symbol, at) in symbols(inputs, reached, layout) {
        parts.symbol(&symbol, at);
    }
    let places = Places::new(reached, layout);
    let mut sections = dwarf::Sections::default();
    for object in places.objects() {
        if let Ok(file) = dwarf::File::parse(inputs.data(object)) {
            // An object whose debug information is broken has none.
            let _ = sections.add(&file, &|section, offset| places.address(object, section, offset));
        }
    }
    sections.write(&mut parts)?;
    parts.object.write().ok()
}

/// The file that is written, and the sections that stand for the image's parts.
struct Parts {
    object: write::Object<'static>,
    rx: SymbolId,
    /// Where the read-write part begins, and its section's symbol.
    rw: Option<(u64, SymbolId)>,
}

impl Parts {
    fn new(architecture: Architecture, reached: &Graph<'_, '_>, layout: &Layout) -> Self {
        let mut object = write::Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
        let mut section = |name: &str, size: u64, align: u64, flags: elf::SectionFlags| {
            let segment = object.segment_name(StandardSegment::Text).into();
            let id = object.add_section(segment, name.into(), Kind::UninitializedData);
            object.append_section_bss(id, size, align);
            *object.section_flags_mut(id) = SectionFlags::Elf {
                sh_type: elf::SHT_NOBITS,
                sh_flags: flags,
            };
            object.section_symbol(id)
        };
        let flags = elf::SectionFlags(elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0);
        let rx = section(".text", layout.rx_len, layout.align, flags);
        let rw = (layout.rw_at != 0).then(|| {
            let flags = elf::SectionFlags(elf::SHF_ALLOC.0 | elf::SHF_WRITE.0);
            let align = reached.arch.page();
            (layout.rw_at, section(".data", layout.rw_mem, align, flags))
        });
        Self { object, rx, rw }
    }

    /// The section that stands for an address of the image, by its symbol, and the offset in it.
    fn place(&self, at: u64) -> (SymbolId, u64) {
        match self.rw {
            Some((start, symbol)) if at >= start => (symbol, at - start),
            _ => (self.rx, at),
        }
    }

    fn symbol(&mut self, symbol: &Named, at: u64) {
        let (section, value) = self.place(at);
        let section = self.object.symbol(section).section;
        let SymbolSection::Section(section) = section else {
            return;
        };
        self.object.add_symbol(write::Symbol {
            name: symbol.name.clone().into_bytes(),
            value,
            size: symbol.size,
            kind: match symbol.code {
                true => SymbolKind::Text,
                false => SymbolKind::Data,
            },
            scope: match symbol.local {
                true => SymbolScope::Compilation,
                false => SymbolScope::Dynamic,
            },
            weak: symbol.weak,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
}

/// A name of the image's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    name: String,
    size: u64,
    code: bool,
    local: bool,
    weak: bool,
}

impl Named {
    /// Something that has no name outside of the image.
    fn local(name: impl Into<String>, size: u64, code: bool) -> Self {
        Self {
            name: name.into(),
            size,
            code,
            local: true,
            weak: false,
        }
    }

    fn of(symbol: &Symbol<'_>, kind: SectionKind) -> Self {
        Self {
            name: symbol.name.into(),
            size: symbol.size,
            code: kind == SectionKind::Text,
            local: symbol.local,
            weak: symbol.weak,
        }
    }
}

/// Symbols and their offsets, by the section that they are in.
type BySection<'w, 'a> = BTreeMap<usize, Vec<(u64, &'w Symbol<'a>)>>;

/// Names and addresses of everything in the image, by address: the objects' symbols, what the linker made, and, for
/// what has no symbol (strings, constants), the name of the section that it comes from.
fn symbols(inputs: &Inputs<'_>, reached: &Graph<'_, '_>, layout: &Layout) -> Vec<(Named, u64)> {
    let mut found: BTreeSet<(u64, Named)> = BTreeSet::new();
    // An object without LTO has tens of thousands of symbols: they are looked through once, not for each piece.
    // Of a section, they are sorted by their offsets: one of strings has as many pieces as symbols.
    let mut by_section: BTreeMap<usize, BySection<'_, '_>> = BTreeMap::new();
    for (input_section, &at) in reached.sections.iter().zip(&layout.sections) {
        let code = input_section.kind == SectionKind::Text;
        let (number, section, piece) = match &input_section.origin {
            Origin::Piece {
                object,
                section,
                piece,
            } => (*object, *section, *piece),
            Origin::Common(name) => {
                let named = Named {
                    local: false,
                    ..Named::local(name.clone(), input_section.size, code)
                };
                found.insert((at, named));
                continue;
            }
            Origin::Trap => {
                found.insert((at, Named::local("__ifunc_trap", input_section.size, code)));
                continue;
            }
        };
        let Ok(object) = inputs.object(number) else {
            continue;
        };
        let from = &object.sections[section];
        let range = from.pieces[piece];
        let symbols = by_section.entry(number).or_insert_with(|| {
            let mut symbols = BySection::new();
            for symbol in object.symbols.iter().filter(|symbol| is_worth_a_name(symbol)) {
                if let Place::Section { index, value } = symbol.place {
                    symbols.entry(index).or_default().push((value, symbol));
                }
            }
            for symbols in symbols.values_mut() {
                symbols.sort_by_key(|&(value, _)| value);
            }
            symbols
        });
        let symbols = symbols.get(&section).map_or(&[][..], |symbols| symbols);
        let first = symbols.partition_point(|&(value, _)| value < range.start);
        let end = range.end.max(range.start + 1);
        let mut named = false;
        for &(value, symbol) in symbols[first..].iter().take_while(|&&(value, _)| value < end) {
            found.insert((at + value - range.start, Named::of(symbol, input_section.kind)));
            named = true;
        }
        if !named && input_section.size != 0 {
            found.insert((at, Named::local(from.name, input_section.size, code)));
        }
    }
    let of_import = |import: usize, suffix: &str| format!("{}{suffix}", reached.imports[import].symbol);
    let names_at: BTreeMap<u64, String> = found
        .iter()
        .map(|(at, named)| (*at, named.name.clone()))
        .collect();
    for (&import, &at) in &layout.thunks {
        let size = reached
            .arch
            .thunk(0, 0, got_offset(import))
            .map_or(0, |code| code.len());
        found.insert((at, Named::local(of_import(import, "@plt"), size as u64, true)));
    }
    for (&(input_section, link), stub) in &layout.stubs {
        let input_section = &reached.sections[input_section];
        let plan = input_section.links[link].plan;
        let original = &input_section.data[plan.start..plan.end];
        let code = reached
            .arch
            .stub(plan.form, original, 0, 0, 0, got_offset(stub.import));
        let size = code.map_or(0, |code| code.len()) as u64;
        found.insert((stub.at, Named::local(of_import(stub.import, "@load"), size, true)));
    }
    for (&target, &at) in &layout.got_entries {
        let name = match target {
            Target::Import(import) => of_import(import, "@got"),
            Target::InputSection {
                input_section,
                offset,
            } => {
                let name = names_at.get(&(layout.sections[input_section] + offset));
                format!("{}@got", name.map_or("", |name| name))
            }
        };
        found.insert((at, Named::local(name, WORD, false)));
    }
    if let Some(at) = layout.slot {
        found.insert((at, Named::local("__ifunc_slot", WORD, false)));
    }
    found.into_iter().map(|(at, named)| (named, at)).collect()
}

/// Not the sections' own symbols, and not the labels of an assembler.
fn is_worth_a_name(symbol: &Symbol<'_>) -> bool {
    matches!(symbol.kind, elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC)
        && !symbol.name.is_empty()
        && !symbol.name.starts_with(".L")
}

/// Where the objects' sections went.
struct Places {
    /// Size and address, by object and section. Of mergeable sections that were cut into pieces, the first: debug
    /// information does not say where such constants are.
    sections: BTreeMap<(usize, usize), (u64, u64)>,
}

impl Places {
    fn new(reached: &Graph<'_, '_>, layout: &Layout) -> Self {
        let sections = reached.sections.iter().zip(&layout.sections);
        let sections = sections.filter_map(|(input_section, &at)| match input_section.origin {
            Origin::Piece {
                object,
                section,
                piece: 0,
            } => Some(((object, section), (input_section.size, at))),
            _ => None,
        });
        Self {
            sections: sections.collect(),
        }
    }

    /// The objects that parts of the image come from.
    fn objects(&self) -> BTreeSet<usize> {
        self.sections.keys().map(|&(object, _)| object).collect()
    }

    /// Address of an offset in a section; its end is the end of what became of it.
    fn address(&self, object: usize, section: usize, offset: u64) -> Option<u64> {
        let (size, at) = self.sections.get(&(object, section))?;
        (offset <= *size).then(|| at + offset)
    }
}
