//! The debug object of an image: names, lines and call frames for debuggers and profilers. It does not travel.
//!
//! It is an ELF relocatable file, as a just-in-time compiler hands it to a debugger: a section `.text` without bytes that
//! stands for the read-execute part (an offset in it is one in the image's address space), a section `.data` that stands
//! for the read-write part (offset 0 is the displacement that the image's header states), symbols for everything that
//! the image is made of, and the DWARF sections of the objects that it came from. Where they name an address, a
//! relocation of 64 bits against `.text` or `.data` is left; code and data outside the image have the address 0.
//! A loader of the image writes the addresses of both sections into their headers.
//!
//! It depends on the image, never the reverse. Malformed debug information is left out.

mod dwarf;
mod frames;

use std::collections::{BTreeMap, BTreeSet};

use object::write::{self, StandardSegment, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind as Kind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use crate::graph::{Graph, Origin, Target};
use crate::inputs::Inputs;
use crate::layout::{Layout, WORD};
use crate::merge::Piece;
use crate::object_file::{SectionKind, Symbol};

/// The debug object of an image; `None` for an architecture that it cannot be written for.
pub(crate) fn debug_object(inputs: &Inputs<'_>, graph: &Graph<'_, '_>, layout: &Layout) -> Option<Vec<u8>> {
    let architecture = match elf::Machine(graph.arch.machine()) {
        elf::EM_X86_64 => Architecture::X86_64,
        elf::EM_AARCH64 => Architecture::Aarch64,
        _ => return None,
    };
    let mut output = DebugObject::new(architecture, graph, layout);
    for (symbol, at) in symbols(inputs, graph, layout) {
        output.symbol(&symbol, at);
    }
    let addresses = SectionAddresses::new(graph, layout);
    let mut sections = dwarf::DebugSections::new(graph.arch);
    for object in addresses.objects() {
        if let Ok(file) = dwarf::File::parse(inputs.data(object)) {
            // An object whose debug information is broken has none.
            let _ = sections.add(&file, &|section, offset| {
                addresses.address(object, section, offset)
            });
        }
    }
    sections.write(&mut output)?;
    output.object.write().ok()
}

/// The file that is written, and the sections that stand for the image's parts.
struct DebugObject {
    object: write::Object<'static>,
    rx: SymbolId,
    /// Where the read-write part begins, and its section's symbol.
    rw: Option<(u64, SymbolId)>,
}

impl DebugObject {
    fn new(architecture: Architecture, graph: &Graph<'_, '_>, layout: &Layout) -> Self {
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
            let align = graph.arch.page();
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

    fn symbol(&mut self, symbol: &NamedRange, at: u64) {
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

/// A named range of the image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedRange {
    name: String,
    size: u64,
    code: bool,
    local: bool,
    weak: bool,
}

impl NamedRange {
    /// A range that only the image itself names.
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

/// Names and addresses of everything in the image, by address: the objects' symbols, the names of what the linker adds,
/// and for bytes without a symbol (strings, constants) the name of their section.
fn symbols(inputs: &Inputs<'_>, graph: &Graph<'_, '_>, layout: &Layout) -> Vec<(NamedRange, u64)> {
    let mut found: BTreeSet<(u64, NamedRange)> = BTreeSet::new();
    for (input, &at) in graph.sections.iter().zip(&layout.sections) {
        let code = input.kind == SectionKind::Text;
        let (number, section, piece) = match &input.origin {
            Origin::Piece {
                object,
                section,
                piece,
            } => (*object, *section, *piece),
            Origin::Common(name) => {
                let named = NamedRange {
                    local: false,
                    ..NamedRange::local(name.clone(), input.size, code)
                };
                found.insert((at, named));
                continue;
            }
            Origin::Trap => {
                found.insert((at, NamedRange::local("__ifunc_trap", input.size, code)));
                continue;
            }
        };
        let Ok(object) = inputs.object(number) else {
            continue;
        };
        let from = &object.sections[section];
        let Piece { start, end, .. } = from.pieces[piece];
        let mut named = false;
        for (value, symbol) in object.symbols_in(section, start..end.max(start + 1)) {
            if has_useful_name(symbol) {
                found.insert((at + value - start, NamedRange::of(symbol, input.kind)));
                named = true;
            }
        }
        if !named && input.size != 0 {
            found.insert((at, NamedRange::local(from.name, input.size, code)));
        }
    }
    let of_import = |import: usize, suffix: &str| format!("{}{suffix}", graph.imports[import].symbol);
    let names_at: BTreeMap<u64, String> = found
        .iter()
        .map(|(at, named)| (*at, named.name.clone()))
        .collect();
    for (&import, thunk) in &layout.thunks {
        let named = NamedRange::local(of_import(import, "@plt"), thunk.len, true);
        found.insert((thunk.at, named));
    }
    for (stub, code) in graph.stubs.iter().zip(&layout.stubs) {
        let named = NamedRange::local(of_import(stub.import, "@load"), code.len, true);
        found.insert((code.at, named));
    }
    for (&target, &at) in &layout.got_entries {
        let name = match target {
            Target::Import(import) => of_import(import, "@got"),
            Target::Section(of) => {
                let name = names_at.get(&layout.address(of));
                format!("{}@got", name.map_or("", |name| name))
            }
        };
        found.insert((at, NamedRange::local(name, WORD, false)));
    }
    if let Some(at) = layout.slot {
        found.insert((at, NamedRange::local("__ifunc_slot", WORD, false)));
    }
    found.into_iter().map(|(at, named)| (named, at)).collect()
}

/// Whether a symbol names code or data: not a section's symbol, not a label of an assembler.
fn has_useful_name(symbol: &Symbol<'_>) -> bool {
    matches!(symbol.kind, elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC)
        && !symbol.name.is_empty()
        && !symbol.name.starts_with(".L")
}

/// The addresses of the objects' sections.
struct SectionAddresses {
    /// Size and address, by object and section. Of mergeable sections that were cut into pieces, the first: debug
    /// information does not say where such constants are.
    sections: BTreeMap<(usize, usize), (u64, u64)>,
}

impl SectionAddresses {
    fn new(graph: &Graph<'_, '_>, layout: &Layout) -> Self {
        let sections = graph.sections.iter().zip(&layout.sections);
        let sections = sections.filter_map(|(input, &at)| match input.origin {
            Origin::Piece {
                object,
                section,
                piece: 0,
            } => Some(((object, section), (input.size, at))),
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

    /// Address of an offset in a section, its end included.
    fn address(&self, object: usize, section: usize, offset: u64) -> Option<u64> {
        let (size, at) = self.sections.get(&(object, section))?;
        (offset <= *size).then(|| at + offset)
    }
}
