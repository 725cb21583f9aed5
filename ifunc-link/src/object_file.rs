//! One relocatable ELF object, read into plain tables. Indices and offsets are checked here once; the rest of the linker
//! relies on them.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};

use crate::arch::{Arch, arch_of};
use crate::extents::Extents;
use crate::help;
use crate::merge::{Piece, split, unsplittable};

type Header = elf::FileHeader64<LE>;

/// Compact relocations: a count and differences, as LEB128 numbers.
const SHT_CREL: elf::SectionType = elf::SectionType(0x4000_0014);

/// The kind of a section, as the linker treats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionKind {
    /// Machine code.
    Text,
    /// Constants, relocated ones included: they end in the read-execute part.
    ReadOnly,
    /// Initialised data.
    Data,
    /// Zeroed data, no bytes in the file.
    Bss,
    /// A thread-local section.
    Tls,
    /// Constructors or destructors.
    Constructors,
    /// Any other: debug sections, tables of the object itself. An image does not hold it.
    Other,
}

/// A section.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: SectionKind,
    /// The bytes; empty for [`SectionKind::Bss`].
    pub(crate) data: &'a [u8],
    pub(crate) size: u64,
    /// A power of two.
    pub(crate) align: u64,
    /// By ascending offset.
    pub(crate) relocations: Vec<Relocation>,
    /// Never empty; one piece unless the section is mergeable.
    pub(crate) pieces: Vec<Piece>,
    /// Pieces with the same bytes may become one.
    pub(crate) mergeable: bool,
    /// The signature of its COMDAT group: a group with this signature in another object is a copy.
    pub(crate) group: Option<&'a str>,
}

/// A relocation; `symbol` is an index in [`Object::symbols`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) symbol: usize,
    pub(crate) addend: i64,
}

/// The location of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Undefined,
    Absolute { value: u64 },
    Common { size: u64, align: u64 },
    Section { index: usize, value: u64 },
}

/// A symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    pub(crate) place: Location,
    pub(crate) size: u64,
    pub(crate) local: bool,
    pub(crate) weak: bool,
    /// Not visible outside the linked file.
    pub(crate) hidden: bool,
    /// The exact `st_other` visibility.
    pub(crate) visibility: elf::SymbolVisibility,
    pub(crate) kind: elf::SymbolType,
}

impl Symbol<'_> {
    /// Whether the symbol is that of a whole section: a relocation's addend then selects the part.
    pub(crate) fn is_section(&self) -> bool {
        self.kind == elf::STT_SECTION
    }
}

/// Name of the intermediate code that an object holds instead of machine code (`-flto`). `None` for objects that hold
/// machine code, with or without intermediate code.
pub fn intermediate_code(data: &[u8]) -> Option<&'static str> {
    if data.starts_with(b"BC\xc0\xde") || data.starts_with(&[0xde, 0xc0, 0x17, 0x0b]) {
        return Some("LLVM bitcode");
    }
    let header = Header::parse(data).ok().filter(|h| h.is_little_endian())?;
    let sections = header.sections(LE, data).ok()?;
    let symbols = sections.symbols(LE, data, elf::SHT_SYMTAB).ok()?;
    symbols
        .iter()
        .any(|s| symbols.symbol_name(LE, s) == Ok(b"__gnu_lto_slim"))
        .then_some("GCC's intermediate code")
}

/// Name of the format of an object that a compiler for another system made. `None`: it is ELF, or no object.
fn foreign_format(data: &[u8]) -> Option<&'static str> {
    match data {
        [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => Some("Mach-O"),
        [0x64, 0x86, ..] => Some("COFF"),
        [0, b'a', b's', b'm', ..] => Some("WebAssembly"),
        _ => None,
    }
}

/// An object.
pub(crate) struct Object<'a> {
    pub(crate) name: String,
    pub(crate) arch: &'static dyn Arch,
    pub(crate) sections: Vec<Section<'a>>,
    pub(crate) symbols: Vec<Symbol<'a>>,
    /// The global definitions. A default version (`NAME@@VERSION`) is also listed as `NAME`.
    pub(crate) globals: HashMap<&'a str, usize>,
    /// Its code runs on an executable stack only.
    pub(crate) needs_executable_stack: bool,
    /// The innermost symbol around each offset.
    extents: OnceCell<Extents>,
    /// Section, offset and number of every symbol that lies in a section, sorted.
    by_section: OnceCell<Vec<(usize, u64, usize)>>,
}

impl<'a> Object<'a> {
    /// Reads an object.
    pub(crate) fn parse(name: String, data: &'a [u8]) -> Result<Self, Unreadable> {
        if let Some(what) = intermediate_code(data) {
            let reason = format!("{what}, not machine code");
            return Err(Unreadable::new(reason, help::INTERMEDIATE_CODE));
        }
        let foreign = |reason: String| Unreadable::new(reason, help::FOREIGN);
        if let Some(format) = foreign_format(data) {
            return Err(foreign(format!("an object in the format {format}, not ELF")));
        }
        let kind = object::FileKind::parse(data)
            .map_err(|e| Unreadable::new(format!("no object and no archive ({e})"), help::NO_OBJECT))?;
        match kind {
            object::FileKind::Elf64 => {}
            object::FileKind::Elf32 => return Err(foreign("a 32-bit object".into())),
            _ => {
                return Err(Unreadable::new(
                    "an archive in an archive".into(),
                    help::NO_OBJECT,
                ));
            }
        }
        let malformed = |error: object::Error| Unreadable::new(error.to_string(), help::MALFORMED);
        let header = Header::parse(data).map_err(malformed)?;
        if !header.is_little_endian() {
            return Err(foreign("a big-endian object".into()));
        }
        if header.e_type(LE) != elf::ET_REL {
            let reason = "a program or library that is linked already, not a relocatable object";
            return Err(Unreadable::new(reason.into(), help::NO_OBJECT));
        }
        let machine = header.e_machine(LE).0;
        let arch = arch_of(machine)
            .ok_or_else(|| foreign(format!("an object for another CPU (ELF machine {machine})")))?;
        Self::read(name, arch, header, data).map_err(|e| Unreadable::new(e.0, help::MALFORMED))
    }

    fn read(
        name: String,
        arch: &'static dyn Arch,
        header: &'a Header,
        data: &'a [u8],
    ) -> Result<Self, Malformed> {
        let table = header.sections(LE, data)?;
        let mut sections = Vec::with_capacity(table.len());
        let mut needs_executable_stack = false;
        for section in table.iter() {
            needs_executable_stack |= table.section_name(LE, section)? == b".note.GNU-stack"
                && section.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0;
            sections.push(read_section(
                section,
                text(table.section_name(LE, section)?),
                data,
            )?);
        }
        let symbol_table = table.symbols(LE, data, elf::SHT_SYMTAB)?;
        let mut symbols = Vec::with_capacity(symbol_table.len());
        for (index, symbol) in symbol_table.enumerate() {
            let place = match symbol.st_shndx(LE) {
                elf::SHN_UNDEF => Location::Undefined,
                elf::SHN_ABS => Location::Absolute {
                    value: symbol.st_value(LE),
                },
                elf::SHN_COMMON => Location::Common {
                    size: symbol.st_size(LE),
                    align: symbol.st_value(LE).max(1),
                },
                _ => match symbol_table.symbol_section(LE, symbol, index)? {
                    Some(section) => Location::Section {
                        index: section.0,
                        value: symbol.st_value(LE),
                    },
                    None => Location::Undefined,
                },
            };
            match place {
                Location::Section { index, value }
                    if index >= sections.len() || value > sections[index].size =>
                {
                    let name = symbol_table.symbol_name(LE, symbol).map_or("", text);
                    return Err(Malformed(format!(
                        "the symbol `{name}` lies outside of its section"
                    )));
                }
                Location::Common { align, .. } if !align.is_power_of_two() => {
                    let name = symbol_table.symbol_name(LE, symbol).map_or("", text);
                    return Err(Malformed(format!(
                        "the alignment of the common symbol `{name}`, {align}, is not a power of two"
                    )));
                }
                _ => {}
            }
            let name = symbol_table.symbol_name(LE, symbol)?;
            if symbol.st_bind() != elf::STB_LOCAL && std::str::from_utf8(name).is_err() {
                return Err(Malformed(format!(
                    "the name of the global symbol `{}` is not UTF-8",
                    name.escape_ascii()
                )));
            }
            symbols.push(Symbol {
                name: text(name),
                place,
                size: symbol.st_size(LE),
                local: symbol.st_bind() == elf::STB_LOCAL,
                weak: symbol.st_bind() == elf::STB_WEAK,
                hidden: matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL),
                visibility: symbol.st_visibility(),
                kind: symbol.st_type(),
            });
        }
        for section in table.iter() {
            read_relocations(section, data, &mut sections, symbols.len())?;
            read_group(section, data, &mut sections, &symbols)?;
        }
        let whole = unsplittable(arch, &sections, &symbols);
        for (section, whole) in sections.iter_mut().zip(whole) {
            if section.mergeable && !whole && section.relocations.is_empty() {
                continue;
            }
            section.mergeable = false;
            section.pieces = vec![Piece {
                start: 0,
                end: section.size,
                align: section.align,
            }];
        }
        let mut globals: HashMap<&str, usize> = HashMap::new();
        let defined = |symbol: &Symbol<'_>| {
            !symbol.local && symbol.place != Location::Undefined && !symbol.name.is_empty()
        };
        for (index, symbol) in symbols.iter().enumerate().filter(|(_, s)| defined(s)) {
            globals.entry(symbol.name).or_insert(index);
        }
        for (index, symbol) in symbols.iter().enumerate().filter(|(_, s)| defined(s)) {
            globals.entry(without_version(symbol.name)).or_insert(index);
        }
        Ok(Self {
            name,
            arch,
            sections,
            symbols,
            globals,
            needs_executable_stack,
            extents: OnceCell::new(),
            by_section: OnceCell::new(),
        })
    }

    /// The function or object around an offset of a section, or the section's name.
    pub(crate) fn enclosing(&self, section: usize, offset: u64) -> &'a str {
        self.extents
            .get_or_init(|| Extents::of(&self.symbols))
            .around(section, offset)
            .map_or(self.sections[section].name, |symbol| self.symbols[symbol].name)
    }

    /// The symbols at these offsets of a section, by ascending offset.
    pub(crate) fn symbols_in(
        &self,
        section: usize,
        offsets: Range<u64>,
    ) -> impl Iterator<Item = (u64, &Symbol<'a>)> {
        let index = self.by_section.get_or_init(|| {
            let place = |(number, symbol): (usize, &Symbol<'_>)| match symbol.place {
                Location::Section { index, value } => Some((index, value, number)),
                _ => None,
            };
            let mut index: Vec<_> = self.symbols.iter().enumerate().filter_map(place).collect();
            index.sort_unstable();
            index
        });
        let first = index.partition_point(|&(of, value, _)| (of, value) < (section, offsets.start));
        let symbols = index[first..]
            .iter()
            .take_while(move |&&(of, value, _)| of == section && value < offsets.end);
        symbols.map(|&(_, value, number)| (value, &self.symbols[number]))
    }
}

/// Why an object cannot be linked, and the help.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) reason: String,
    pub(crate) help: &'static str,
}

impl Unreadable {
    fn new(reason: String, help: &'static str) -> Self {
        Self { reason, help }
    }
}

/// Why an object cannot be read.
#[derive(Debug)]
struct Malformed(String);

impl From<object::Error> for Malformed {
    fn from(error: object::Error) -> Self {
        Self(error.to_string())
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("<not UTF-8>")
}

fn read_section<'a>(
    section: &elf::SectionHeader64<LE>,
    name: &'a str,
    data: &'a [u8],
) -> Result<Section<'a>, Malformed> {
    let (kind, flags) = (section.sh_type(LE), section.sh_flags(LE));
    let size: u64 = section.sh_size(LE);
    let align = section.sh_addralign(LE).max(1);
    if !align.is_power_of_two() {
        return Err(Malformed(format!(
            "the alignment of section `{name}`, {align}, is not a power of two"
        )));
    }
    let has = |flag: elf::SectionFlags| flags.0 & flag.0 != 0;
    let constructor_name = [".ctors", ".dtors", ".init_array", ".fini_array", ".preinit_array"]
        .iter()
        .any(|prefix| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
    let constructors = matches!(
        kind,
        elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY | elf::SHT_PREINIT_ARRAY
    );
    let kind = if !has(elf::SHF_ALLOC) || has(elf::SHF_COMPRESSED) {
        SectionKind::Other
    } else if has(elf::SHF_TLS) {
        SectionKind::Tls
    } else if constructors || constructor_name {
        SectionKind::Constructors
    } else if kind == elf::SHT_NOBITS {
        SectionKind::Bss
    } else if !matches!(kind, elf::SHT_PROGBITS | elf::SHT_NOTE) && kind.0 < elf::SHT_LOOS {
        SectionKind::Other
    } else if has(elf::SHF_EXECINSTR) {
        if has(elf::SHF_WRITE) {
            SectionKind::Other
        } else {
            SectionKind::Text
        }
    } else if !has(elf::SHF_WRITE) || name == ".data.rel.ro" || name.starts_with(".data.rel.ro.") {
        SectionKind::ReadOnly
    } else {
        SectionKind::Data
    };
    let data = match kind {
        SectionKind::Bss | SectionKind::Tls | SectionKind::Other => &[][..],
        _ => section.data(LE, data)?,
    };
    let mut mergeable = has(elf::SHF_MERGE) && kind == SectionKind::ReadOnly;
    let mut pieces = Vec::new();
    if mergeable {
        match split(data, section.sh_entsize(LE), has(elf::SHF_STRINGS), align) {
            Some(split) => pieces = split,
            None => mergeable = false,
        }
    }
    Ok(Section {
        name,
        kind,
        data,
        size,
        align,
        relocations: Vec::new(),
        pieces,
        mergeable,
        group: None,
    })
}

/// Adds the relocations of `table` to the section that they apply to.
fn read_relocations(
    table: &elf::SectionHeader64<LE>,
    data: &[u8],
    sections: &mut [Section<'_>],
    symbols: usize,
) -> Result<(), Malformed> {
    let target = table.sh_info(LE) as usize;
    let place_for_them = |sections: &[Section<'_>]| {
        sections
            .get(target)
            .is_some_and(|s| !matches!(s.kind, SectionKind::Other | SectionKind::Tls))
    };
    if table.rel(LE, data)?.is_some_and(|(list, _)| !list.is_empty()) && place_for_them(sections) {
        return Err(Malformed(format!(
            "relocations without addends (SHT_REL) for `{}`: this architecture has none",
            sections[target].name
        )));
    }
    if table.sh_type(LE) == SHT_CREL && table.sh_size(LE) > 1 && place_for_them(sections) {
        return Err(Malformed(format!(
            "compact relocations (SHT_CREL) for `{}` are not supported: assemble without `--crel`",
            sections[target].name
        )));
    }
    let Some((list, _)) = table.rela(LE, data)? else {
        return Ok(());
    };
    if !place_for_them(sections) {
        return Ok(());
    }
    let section = &mut sections[target];
    for rela in list {
        let relocation = Relocation {
            offset: rela.r_offset(LE),
            kind: rela.r_type(LE, false).0,
            symbol: rela.r_sym(LE, false) as usize,
            addend: rela.r_addend(LE),
        };
        if relocation.symbol >= symbols {
            return Err(Malformed(format!(
                "a relocation of section `{}` refers to symbol {} of {symbols}",
                section.name, relocation.symbol
            )));
        }
        if relocation.offset >= section.data.len() as u64 {
            return Err(Malformed(format!(
                "a relocation at {:#x} lies outside of its section `{}`",
                relocation.offset, section.name
            )));
        }
        section.relocations.push(relocation);
    }
    section.relocations.sort_by_key(|r| r.offset);
    Ok(())
}

/// Notes the signature of a COMDAT group in its members.
fn read_group<'a>(
    table: &elf::SectionHeader64<LE>,
    data: &'a [u8],
    sections: &mut [Section<'a>],
    symbols: &[Symbol<'a>],
) -> Result<(), Malformed> {
    let Some((flags, members)) = table.group(LE, data)? else {
        return Ok(());
    };
    if flags.0 & elf::GRP_COMDAT.0 == 0 {
        return Ok(());
    }
    let signature = match symbols.get(table.sh_info(LE) as usize) {
        // Some assemblers name a group after a section.
        Some(symbol) if symbol.is_section() => match symbol.place {
            Location::Section { index, .. } => sections[index].name,
            _ => return Ok(()),
        },
        Some(symbol) => symbol.name,
        None => {
            return Err(Malformed(
                "a group of sections (SHT_GROUP) without a signature".into(),
            ));
        }
    };
    for member in members {
        if let Some(section) = sections.get_mut(member.get(LE) as usize) {
            section.group = Some(signature);
        }
    }
    Ok(())
}

/// `NAME` of a default version `NAME@@VERSION`, to which references without a version resolve; any other name unchanged.
pub(crate) fn without_version(name: &str) -> &str {
    match name.split_once("@@") {
        Some((plain, _)) if !plain.is_empty() => plain,
        _ => name,
    }
}
