//! The symbol files that gdb is given: made from an image's name alone, or from its companion.
//!
//! Both are ELF relocatable files whose sections have addresses. Nothing in them is left to relocate: gdb takes address 0
//! for that of code which is not there only in a file without relocations.

use std::sync::LazyLock;

use object::elf::{self, FileHeader64, Ident, SectionHeader64, Sym64};
use object::pod::bytes_of;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};
use object::{LittleEndian as LE, SectionIndex};

use super::Placement;
use super::object::DebugObject;
use crate::arch::ARCH;
use crate::stack;

/// What is behind the name of an image's entry.
const MAIN: &str = ifunc_abi::symbols::MAIN_SUFFIX;

const STRINGS: &[u8] = b"\0.text\0.debug_frame\0.symtab\0.strtab\0";
const TEXT_NAME: u32 = 1;
const FRAME_NAME: u32 = 7;
const SYMTAB_NAME: u32 = 20;
const STRTAB_NAME: u32 = 28;
const TEXT: u16 = 1;
const STRTAB: u16 = 4;
const SECTIONS: usize = 5;

const HEADER: usize = size_of::<FileHeader64<LE>>();
const SECTION: usize = size_of::<SectionHeader64<LE>>();
const SYMBOL: usize = size_of::<Sym64<LE>>();

/// The header of a file of `sections` sections, whose headers lie at `sections_at`, with their names in section `names`.
fn header(sections_at: usize, sections: u16, names: u16) -> FileHeader64<LE> {
    FileHeader64 {
        e_ident: Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: elf::ET_REL.into(),
        e_machine: elf::Machine(ARCH).into(),
        e_version: u32::from(elf::EV_CURRENT.0).into(),
        e_entry: 0.into(),
        e_phoff: 0.into(),
        e_shoff: (sections_at as u64).into(),
        e_flags: elf::FileFlags(0).into(),
        e_ehsize: (HEADER as u16).into(),
        e_phentsize: 0.into(),
        e_phnum: 0.into(),
        e_shentsize: (SECTION as u16).into(),
        e_shnum: sections.into(),
        e_shstrndx: elf::SymbolSection(names).into(),
    }
}

/// The header of a section of bytes at `offset`, placed at `address`.
fn section(
    name: u32,
    kind: elf::SectionType,
    flags: u64,
    address: usize,
    offset: usize,
    size: u64,
) -> SectionHeader64<LE> {
    SectionHeader64 {
        sh_name: name.into(),
        sh_type: kind.into(),
        sh_flags: elf::SectionFlags(flags).into(),
        sh_addr: (address as u64).into(),
        sh_offset: (offset as u64).into(),
        sh_size: size.into(),
        sh_link: 0.into(),
        sh_info: 0.into(),
        sh_addralign: 1.into(),
        sh_entsize: 0.into(),
    }
}

/// A file in which nothing is.
pub(super) fn empty() -> &'static [u8] {
    static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        const NAMES: &[u8] = b"\0.shstrtab\0";
        let names_at = HEADER + 2 * SECTION;
        let sections = [
            section(0, elf::SHT_NULL, 0, 0, 0, 0),
            section(1, elf::SHT_STRTAB, 0, 0, names_at, NAMES.len() as u64),
        ];
        let mut file = bytes_of(&header(HEADER, 2, 1)).to_vec();
        for section in &sections {
            file.extend_from_slice(bytes_of(section));
        }
        file.extend_from_slice(NAMES);
        file
    });
    &FILE
}

/// The file of an image of which nothing is known but its name: one function, `NAME_main`, as long as the code.
pub(super) fn named(place: &Placement<'_>) -> Box<[u8]> {
    let name = place.image.name();
    let len = place.image.rx().len() as u64;
    let entry = u64::from(place.image.entry());
    let frame = frame(place.base as u64, len);
    let strings = STRINGS.len() + name.len() + MAIN.len() + 1;

    let frame_at = HEADER;
    let symtab_at = frame_at + frame.len();
    let strtab_at = symtab_at + 2 * SYMBOL;
    let sections_at = (strtab_at + strings).next_multiple_of(8);
    let mut file = Vec::with_capacity(sections_at + SECTIONS * SECTION);

    file.extend_from_slice(bytes_of(&header(sections_at, SECTIONS as u16, STRTAB)));
    file.extend_from_slice(&frame);
    file.resize(symtab_at + SYMBOL, 0);
    let symbol: Sym64<LE> = Sym64 {
        st_name: (STRINGS.len() as u32).into(),
        st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
        st_other: elf::SymbolOther(0),
        st_shndx: elf::SymbolSection(TEXT).into(),
        st_value: entry.into(),
        st_size: (len - entry.min(len)).into(),
    };
    file.extend_from_slice(bytes_of(&symbol));
    file.extend_from_slice(STRINGS);
    file.extend_from_slice(name.as_bytes());
    file.extend_from_slice(MAIN.as_bytes());
    file.resize(sections_at, 0);

    let code = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
    let sections = [
        section(0, elf::SHT_NULL, 0, 0, 0, 0),
        section(TEXT_NAME, elf::SHT_NOBITS, code, place.base, frame_at, len),
        section(FRAME_NAME, elf::SHT_PROGBITS, 0, 0, frame_at, frame.len() as u64),
        SectionHeader64 {
            sh_link: u32::from(STRTAB).into(),
            // The first global one.
            sh_info: 1.into(),
            sh_addralign: 8.into(),
            sh_entsize: (SYMBOL as u64).into(),
            ..section(SYMTAB_NAME, elf::SHT_SYMTAB, 0, 0, symtab_at, 2 * SYMBOL as u64)
        },
        section(STRTAB_NAME, elf::SHT_STRTAB, 0, 0, strtab_at, strings as u64),
    ];
    sections
        .iter()
        .for_each(|section| file.extend_from_slice(bytes_of(section)));
    file.into_boxed_slice()
}

/// Call frame information that takes all that an image has on the stack for one frame, the first that there is: nothing
/// is known of those in it. Which stack it is on, the debugger finds in the [list](crate::stack) of them. Where the stack pointer is on
/// none of those (a callback that outlived its invocation) the caller is looked for directly behind the stack pointer, which is
/// right at a function's start.
///
/// On return to the shim, no register but the stack pointer has a known value, and its call frame information needs no
/// other.
fn frame(base: u64, len: u64) -> Vec<u8> {
    const RETURN_ADDRESS: u8 = 16;
    let expression = frame_address();

    let mut out = Vec::with_capacity(128);
    // A common information entry: version 1, no augmentation, alignment factors 1 and -8; the return address lies below
    // the canonical frame address.
    let mut common = vec![0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, RETURN_ADDRESS];
    common.extend_from_slice(&[0x0f, expression.len() as u8]); // DW_CFA_def_cfa_expression
    common.extend_from_slice(&expression);
    common.extend_from_slice(&[0x80 + RETURN_ADDRESS, 1]); // DW_CFA_offset
    for register in [3, 6, 12, 13, 14, 15] {
        common.extend_from_slice(&[0x07, register]); // DW_CFA_undefined
    }
    let mut function = vec![0; 4];
    function.extend_from_slice(&base.to_le_bytes());
    function.extend_from_slice(&len.to_le_bytes());
    for mut entry in [common, function] {
        // Padded with DW_CFA_nop.
        entry.resize((4 + entry.len()).next_multiple_of(8) - 4, 0);
        out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        out.extend_from_slice(&entry);
    }
    out
}

/// The expression that finds the canonical frame address: `for (s = *first; s; s = *s) if (s->low <= sp && sp < s->frame) return
/// s->frame; return sp + 8`.
fn frame_address() -> Vec<u8> {
    const ADDRESS: u8 = 0x0e; // DW_OP_const8u
    const DEREF: u8 = 0x06;
    const DUP: u8 = 0x12;
    const DROP: u8 = 0x13;
    const PICK: u8 = 0x15;
    const AND: u8 = 0x1a;
    const PLUS: u8 = 0x23; // DW_OP_plus_uconst
    const IF: u8 = 0x28; // DW_OP_bra
    const AT_LEAST: u8 = 0x2a; // DW_OP_ge
    const BELOW: u8 = 0x2d; // DW_OP_lt
    const GO: u8 = 0x2f; // DW_OP_skip
    const STACK_POINTER: u8 = 0x70 + 7; // DW_OP_breg7
    let mut code = vec![ADDRESS];
    code.extend_from_slice(&(stack::first() as u64).to_le_bytes());
    code.push(DEREF);
    let next = code.len();
    // Behind each jump its way from the byte that follows it.
    code.extend_from_slice(&[DUP, IF, 6, 0, DROP, STACK_POINTER, 8, GO, 27, 0]);
    code.extend_from_slice(&[STACK_POINTER, 0, PICK, 1, PLUS, stack::LOW, DEREF, AT_LEAST]);
    code.extend_from_slice(&[STACK_POINTER, 0, PICK, 2, PLUS, stack::FRAME, DEREF, BELOW]);
    code.extend_from_slice(&[AND, IF, 4, 0, DEREF, GO]);
    let back = next as i16 - (code.len() as i16 + 2);
    code.extend_from_slice(&back.to_le_bytes());
    code.extend_from_slice(&[PLUS, stack::FRAME, DEREF]);
    code
}

/// The file of an image whose companion is there: its sections at their addresses, and every address in it written.
/// `None`: it is not what it should be.
pub(super) fn placed(object: &DebugObject, place: &Placement<'_>) -> Option<Box<[u8]>> {
    let data = object.bytes();
    let header = FileHeader64::<LE>::parse(data).ok()?;
    let table = header.sections(LE, data).ok()?;
    let symbols = table.symbols(LE, data, elf::SHT_SYMTAB).ok()?;
    let headers_at = usize::try_from(header.e_shoff(LE)).ok()?;
    // `sections` has looked at all of them there.
    let header_at = |index: usize| headers_at + index * SECTION;

    let mut addresses = vec![0u64; table.len()];
    let mut patches: Vec<(usize, Vec<u8>)> = Vec::new();
    for (index, section) in table.enumerate() {
        let address = match table.section_name(LE, section).ok()? {
            b".text" => place.base,
            b".data" => place.base + place.image.rw_range()?.0 as usize,
            _ => continue,
        };
        addresses[index.0] = address as u64;
        let placed = SectionHeader64 {
            sh_addr: (address as u64).into(),
            ..*section
        };
        patches.push((header_at(index.0), bytes_of(&placed).to_vec()));
    }
    for (index, section) in table.enumerate() {
        let Some((relocations, _)) = section.rela(LE, data).ok()? else {
            continue;
        };
        let to = table.section(section.info_link(LE)).ok()?;
        let (start, size) = to.file_range(LE)?;
        for relocation in relocations {
            if relocation.r_type(LE, false) != elf::R_X86_64_64 {
                return None;
            }
            let symbol = symbols
                .symbol(object::SymbolIndex(relocation.r_sym(LE, false) as usize))
                .ok()?;
            let section = SectionIndex(usize::from(symbol.st_shndx(LE).0));
            let address = addresses.get(section.0).filter(|&&address| address != 0)?;
            let value = address
                .wrapping_add(symbol.st_value(LE))
                .wrapping_add_signed(relocation.r_addend(LE));
            let at = place_in(start, size, relocation.r_offset(LE))?;
            patches.push((at, value.to_le_bytes().to_vec()));
        }
        let gone = SectionHeader64 {
            sh_type: elf::SHT_NULL.into(),
            ..*section
        };
        patches.push((header_at(index.0), bytes_of(&gone).to_vec()));
    }
    let mut file = data.to_vec();
    for (at, bytes) in patches {
        file.get_mut(at..at.checked_add(bytes.len())?)?
            .copy_from_slice(&bytes);
    }
    Some(file.into_boxed_slice())
}

/// Where in the file the eight bytes at `offset` lie of a section of `size` bytes that begins at `start`. All three are
/// what the file says.
fn place_in(start: u64, size: u64, offset: u64) -> Option<usize> {
    if offset.checked_add(8)? > size {
        return None;
    }
    start.checked_add(offset)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _};

    use super::*;

    #[test]
    fn what_a_file_says_of_itself_is_no_address_yet() {
        assert_eq!(place_in(64, 16, 8), Some(72));
        assert_eq!(place_in(64, 16, 9), None);
        assert_eq!(place_in(64, u64::MAX, u64::MAX - 3), None);
        assert_eq!(place_in(u64::MAX - 8, u64::MAX, 16), None);
    }

    #[test]
    fn the_empty_file_is_a_file() {
        let file = object::File::parse(empty()).unwrap();
        let sections: Vec<_> = file.sections().map(|section| section.name().unwrap()).collect();
        assert_eq!(sections, [".shstrtab"]);
        assert!(file.symbols().next().is_none());
    }
}
