//! The symbol files that gdb is given: made from an image's name alone, or from its debug object.
//!
//! Both are ELF relocatable files whose sections have addresses. Nothing in them is left to relocate: only in a file without
//! relocations gdb does not take address 0 for that of code which is not there.

use std::mem::offset_of;
use std::sync::LazyLock;

use ifunc_abi::image::Entry;
use ifunc_abi::name::MAX_NAME;
use ifunc_abi::symbols::MAIN_SUFFIX;
use object::elf::{self, FileHeader64, SectionHeader64, Sym64};
use object::pod::bytes_of;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};
use object::write::elf::{FileHeader, SectionHeader, Sym, Writer};
use object::{Endianness, LittleEndian as LE, SectionIndex};

use super::Placement;
use super::object::DebugObject;
use crate::arch::{ABSOLUTE_64, ARCH, CALLEE_SAVED, RETURN_ADDRESS, RETURNS_BY_REGISTER, STACK_POINTER};
use crate::stack;

const FILE_HEADER: FileHeader = FileHeader {
    os_abi: elf::ELFOSABI_NONE,
    abi_version: 0,
    e_type: elf::ET_REL,
    e_machine: elf::Machine(ARCH),
    e_entry: 0,
    e_flags: elf::FileFlags(0),
};

const SECTION: usize = size_of::<SectionHeader64<LE>>();

/// The file of an image with one entry of which only the name is known: one function, `NAME_main`, as long as the code. An install
/// copies it and fills in the rest, because that costs a few nanoseconds where writing a file costs microseconds.
struct Template {
    file: Vec<u8>,
    /// Where the header of `.text` is.
    text: usize,
    /// Where the address of the code is in the frame description entry; its length follows.
    frame: usize,
    /// Where the symbol is.
    symbol: usize,
    /// Where the header of `.strtab` is.
    strtab: usize,
    /// Where the symbol's name is: at the end, and no file is longer than its name.
    name: usize,
}

/// The length of a name and of what follows it.
const NAME: usize = MAX_NAME + MAIN_SUFFIX.len();

static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
    let name = [b'n'; NAME];
    let function = Function {
        name: &name,
        at: 0,
        len: 0,
    };
    let Written {
        file,
        text,
        strtab,
        frame,
        symbol,
    } = write(&[function], 0, 0);
    let name = file.windows(NAME).position(|bytes| bytes == name);
    Template {
        text,
        strtab,
        frame,
        symbol,
        name: name.expect("the string table holds it"),
        file,
    }
});

/// A function of an image of which only the entries are known.
struct Function<'n> {
    name: &'n [u8],
    /// Offset in the image.
    at: u64,
    len: u64,
}

/// A file, and where the parts of it are that differ from one image to the next.
struct Written {
    file: Vec<u8>,
    text: usize,
    strtab: usize,
    frame: usize,
    symbol: usize,
}

/// The file of the functions of an image of `len` bytes at `base`.
fn write(functions: &[Function<'_>], base: u64, len: u64) -> Written {
    let mut frame = frame();
    let words = frame.len() - 2 * size_of::<u64>();
    frame[words..][..8].copy_from_slice(&base.to_le_bytes());
    frame[words + 8..].copy_from_slice(&len.to_le_bytes());
    let mut file = Vec::new();
    let mut writer = Writer::new(Endianness::Little, true, &mut file);
    writer.reserve_file_header();
    let frame_at = writer.reserve(frame.len() as u64, 8);
    writer.reserve_null_section_index();
    let text_name = writer.add_section_name(b".text");
    let text = writer.reserve_section_index();
    let frame_name = writer.add_section_name(b".debug_frame");
    writer.reserve_section_index();
    let names: Vec<_> = functions
        .iter()
        .map(|function| writer.add_string(function.name))
        .collect();
    writer.reserve_null_symbol_index();
    for _ in functions {
        writer.reserve_symbol_index(Some(text));
    }
    writer.reserve_symtab_section_index();
    writer.reserve_symtab();
    let strtab = writer.reserve_strtab_section_index();
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab().expect("a short table");
    writer.reserve_section_headers();
    writer.reserve_strtab().expect("a short table");

    writer.write_file_header(&FILE_HEADER).expect("a short file");
    writer.write_align(8);
    writer.write(&frame);
    let symbol = writer.write_null_symbol() as usize + size_of::<Sym64<LE>>();
    for (function, name) in functions.iter().zip(names) {
        writer.write_symbol(&Sym {
            section: Some(text.0),
            st_name: writer.string_offset(Some(name)),
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
            st_other: elf::SymbolOther(0),
            st_shndx: elf::SymbolSection(0),
            st_value: function.at,
            st_size: function.len,
        });
    }
    writer.write_shstrtab();
    let sections_at = writer.write_null_section_header() as usize;
    let code = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
    for (name, kind, flags, address, size) in [
        (text_name, elf::SHT_NOBITS, code, base, len),
        (frame_name, elf::SHT_PROGBITS, 0, 0, frame.len() as u64),
    ] {
        writer.write_section_header(&SectionHeader {
            sh_name: writer.section_name_offset(Some(name)),
            sh_type: kind,
            sh_flags: elf::SectionFlags(flags),
            sh_addr: address,
            sh_offset: frame_at,
            sh_size: size,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 1,
            sh_entsize: 0,
        });
    }
    writer.write_symtab_section_header(1);
    writer.write_strtab_section_header();
    writer.write_shstrtab_section_header();
    writer.write_strtab();
    Written {
        text: sections_at + SECTION,
        strtab: sections_at + strtab.0 as usize * SECTION,
        frame: frame_at as usize + words,
        symbol,
        file,
    }
}

/// A file in which nothing is.
pub(super) fn empty() -> &'static [u8] {
    static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut file = Vec::new();
        let mut writer = Writer::new(Endianness::Little, true, &mut file);
        writer.reserve_file_header();
        writer.reserve_null_section_index();
        writer.reserve_shstrtab_section_index();
        writer.reserve_shstrtab().expect("a short table");
        writer.reserve_section_headers();
        writer.write_file_header(&FILE_HEADER).expect("a short file");
        writer.write_shstrtab();
        writer.write_null_section_header();
        writer.write_shstrtab_section_header();
        file
    });
    &FILE
}

/// The file of an image of which only the entries are known.
pub(super) fn named(placement: &Placement<'_>) -> Box<[u8]> {
    let (base, len) = (placement.base as u64, placement.image.rx().len() as u64);
    let parts = placement.parts();
    let [(.., entry)] = &*parts else {
        let named = |(at, len, entry): &(usize, usize, Entry<'_>)| {
            let main = entry.main as usize;
            let name = [entry.name, MAIN_SUFFIX].concat().into_bytes();
            (name, main as u64, (at + len - main) as u64)
        };
        let named: Vec<_> = parts.iter().map(named).collect();
        let functions: Vec<_> = named
            .iter()
            .map(|(name, at, len)| Function {
                name,
                at: *at,
                len: *len,
            })
            .collect();
        return write(&functions, base, len).file.into_boxed_slice();
    };
    let template = &*TEMPLATE;
    let (entry, name) = (u64::from(entry.main), entry.name.as_bytes());
    let mut file = Vec::with_capacity(template.name + name.len() + MAIN_SUFFIX.len() + 1);
    file.extend_from_slice(&template.file[..template.name]);
    file.extend_from_slice(name);
    file.extend_from_slice(MAIN_SUFFIX.as_bytes());
    file.push(0);
    // The string table begins with the empty string.
    let strings = file.len() as u64 - template.name as u64 + 1;
    let mut put = |at: usize, word: u64| file[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(template.text + offset_of!(SectionHeader64<LE>, sh_addr), base);
    put(template.text + offset_of!(SectionHeader64<LE>, sh_size), len);
    put(
        template.strtab + offset_of!(SectionHeader64<LE>, sh_size),
        strings,
    );
    put(template.frame, base);
    put(template.frame + size_of::<u64>(), len);
    put(template.symbol + offset_of!(Sym64<LE>, st_value), entry);
    put(
        template.symbol + offset_of!(Sym64<LE>, st_size),
        len - entry.min(len),
    );
    file.into_boxed_slice()
}

/// Call frame information that makes one frame, the first, of all that an image has on the stack: nothing is known of the
/// frames in it. The debugger finds the stack in the [list](crate::stack) of them. If the stack pointer is on none of those (a
/// callback that outlived its invocation), the caller is expected where it is at a function's start.
///
/// On return to the shim, no register but the stack pointer has a known value, and its call frame information needs no
/// other.
///
/// Address and length of the code are the last two words, 0 here.
fn frame() -> Vec<u8> {
    let expression = frame_address();
    let mut out = Vec::with_capacity(192);
    // A common information entry: version 1, no augmentation, alignment factors 1 and -8.
    let mut common = vec![0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, RETURN_ADDRESS];
    common.extend_from_slice(&[0x0f, expression.len() as u8]); // DW_CFA_def_cfa_expression
    common.extend_from_slice(&expression);
    if RETURNS_BY_REGISTER {
        let expression = saved_return_address();
        common.extend_from_slice(&[0x16, RETURN_ADDRESS, expression.len() as u8]); // DW_CFA_val_expression
        common.extend_from_slice(&expression);
    } else {
        // It lies below the canonical frame address.
        common.extend_from_slice(&[0x80 + RETURN_ADDRESS, 1]); // DW_CFA_offset
    }
    for register in CALLEE_SAVED {
        common.extend_from_slice(&[0x07, register]); // DW_CFA_undefined
    }
    // The offset of the common entry, 0, and the two words.
    let function = vec![0; 20];
    for mut entry in [common, function] {
        // Padded with DW_CFA_nop.
        entry.resize((4 + entry.len()).next_multiple_of(8) - 4, 0);
        out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        out.extend_from_slice(&entry);
    }
    out
}

const DEREF: u8 = 0x06; // DW_OP_deref
const PLUS: u8 = 0x23; // DW_OP_plus_uconst
const REGISTER: u8 = 0x70; // DW_OP_breg0

/// The expression that finds the canonical frame address: `for (s = *first; s; s = *s) if (s->low <= sp && sp < s->frame) return
/// s->frame; return sp + 8`. Where a register holds the return address, no word is pushed on the stack for it: `return sp`.
pub(super) fn frame_address() -> Vec<u8> {
    let pushed = if RETURNS_BY_REGISTER { 0 } else { 8 };
    of_stack(&[PLUS, stack::FRAME, DEREF], [REGISTER + STACK_POINTER, pushed])
}

/// The expression that finds the return address where a register holds it: the shim keeps a copy for the stack that the stack pointer
/// is on, above the canonical frame address and the word there. On no such stack it is in the register.
pub(super) fn saved_return_address() -> Vec<u8> {
    of_stack(
        &[PLUS, stack::FRAME, DEREF, PLUS, 8, DEREF],
        [REGISTER + RETURN_ADDRESS, 0],
    )
}

/// An expression that looks for the stack that the stack pointer is on. `found` begins with the entry of the list, `otherwise` with
/// nothing.
fn of_stack(found: &[u8], otherwise: [u8; 2]) -> Vec<u8> {
    const ADDRESS: u8 = 0x0e; // DW_OP_const8u
    const DUP: u8 = 0x12;
    const DROP: u8 = 0x13;
    const PICK: u8 = 0x15;
    const AND: u8 = 0x1a;
    const IF: u8 = 0x28; // DW_OP_bra
    const AT_LEAST: u8 = 0x2a; // DW_OP_ge
    const BELOW: u8 = 0x2d; // DW_OP_lt
    const GO: u8 = 0x2f; // DW_OP_skip
    const STACK: u8 = REGISTER + STACK_POINTER;
    let mut code = vec![ADDRESS];
    code.extend_from_slice(&(stack::first() as u64).to_le_bytes());
    code.push(DEREF);
    let next = code.len();
    // After each jump its distance from the byte that follows it.
    code.extend_from_slice(&[DUP, IF, 6, 0, DROP]);
    code.extend_from_slice(&otherwise);
    code.extend_from_slice(&[GO, 24 + found.len() as u8, 0]);
    code.extend_from_slice(&[STACK, 0, PICK, 1, PLUS, stack::LOW, DEREF, AT_LEAST]);
    code.extend_from_slice(&[STACK, 0, PICK, 2, PLUS, stack::FRAME, DEREF, BELOW]);
    code.extend_from_slice(&[AND, IF, 4, 0, DEREF, GO]);
    let back = next as i16 - (code.len() as i16 + 2);
    code.extend_from_slice(&back.to_le_bytes());
    code.extend_from_slice(found);
    code
}

/// The file of an image whose debug object is known: its sections at their addresses, and every address in it written.
/// `None`: the object is malformed.
pub(super) fn placed(object: &DebugObject, placement: &Placement<'_>) -> Option<Box<[u8]>> {
    let data = object.bytes();
    let header = FileHeader64::<LE>::parse(data).ok()?;
    let table = header.sections(LE, data).ok()?;
    let symbols = table.symbols(LE, data, elf::SHT_SYMTAB).ok()?;
    let headers_at = usize::try_from(header.e_shoff(LE)).ok()?;
    // `sections` has read all of them there.
    let header_at = |index: usize| headers_at + index * SECTION;

    let mut addresses = vec![0u64; table.len()];
    let mut patches: Vec<(usize, Vec<u8>)> = Vec::new();
    for (index, section) in table.enumerate() {
        let address = match table.section_name(LE, section).ok()? {
            b".text" => placement.base,
            b".data" => placement.base + placement.image.rw_range()?.0 as usize,
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
            if relocation.r_type(LE, false) != ABSOLUTE_64 {
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

/// Where in the file the eight bytes at `offset` lie of a section of `size` bytes that begins at `start`. The file chooses all
/// three.
fn place_in(start: u64, size: u64, offset: u64) -> Option<usize> {
    if offset.checked_add(8)? > size {
        return None;
    }
    start.checked_add(offset)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    use super::*;

    #[test]
    fn offsets_of_a_file_are_checked() {
        assert_eq!(place_in(64, 16, 8), Some(72));
        assert_eq!(place_in(64, 16, 9), None);
        assert_eq!(place_in(64, u64::MAX, u64::MAX - 3), None);
        assert_eq!(place_in(u64::MAX - 8, u64::MAX, 16), None);
    }

    #[test]
    fn the_file_of_names_is_filled_in() {
        let entry = |name: &str, main| ifunc_abi::image::EntryPart {
            main,
            ..ifunc_abi::image::EntryPart::new(name)
        };
        check(vec![entry("add", 8)], &[("add_main", 8, 32)]);
        let several = vec![entry("add", 24), entry("less", 8), entry("none", 32)];
        check(
            several,
            &[("less_main", 8, 16), ("add_main", 24, 8), ("none_main", 32, 8)],
        );
    }

    fn check(entries: Vec<ifunc_abi::image::EntryPart>, expected: &[(&str, u64, u64)]) {
        let parts = ifunc_abi::image::ImageParts {
            entries,
            arch: ARCH,
            rx: vec![0xc3; 40],
            ..Default::default()
        };
        let bytes = parts.encode().unwrap();
        let image = ifunc_abi::image::Image::parse(&bytes).unwrap();
        let placement = Placement {
            id: &[0; 32],
            image: &image,
            base: 0x7000,
            code: image.rx(),
        };
        let file = named(&placement);
        let file = object::File::parse(&*file).unwrap();
        let text = file.section_by_name(".text").unwrap();
        assert_eq!((text.address(), text.size()), (0x7000, 40));
        let object::SectionFlags::Elf { sh_flags, .. } = text.flags() else {
            panic!("{:?}", text.flags())
        };
        assert!(sh_flags.contains(elf::SHF_ALLOC) && sh_flags.contains(elf::SHF_EXECINSTR));
        let symbols: Vec<_> = file
            .symbols()
            .map(|symbol| (symbol.name().unwrap(), symbol.address(), symbol.size()))
            .collect();
        assert_eq!(symbols, expected);
        let frame = file.section_by_name(".debug_frame").unwrap().data().unwrap();
        let (entries, words) = frame.split_at(frame.len() - 16);
        // The common entry and that of the function: lengths, which are multiples of eight with themselves, and offsets.
        let word = |at: usize| u32::from_le_bytes(entries[at..at + 4].try_into().unwrap());
        let common = 4 + word(0) as usize;
        assert!(common.is_multiple_of(8));
        assert_eq!((word(4), word(common), word(common + 4)), (u32::MAX, 20, 0));
        assert_eq!(common + 8, entries.len());
        // DW_CFA_def_cfa_expression; then DW_CFA_offset of the return address, by 1, or DW_CFA_val_expression.
        let expression = frame_address();
        assert_eq!(entries[13..15], [0x0f, expression.len() as u8]);
        let (found, rest) = entries[15..common].split_at(expression.len());
        let rule = match RETURNS_BY_REGISTER {
            true => {
                let expression = saved_return_address();
                [&[0x16, RETURN_ADDRESS, expression.len() as u8][..], &expression].concat()
            }
            false => vec![0x80 + RETURN_ADDRESS, 1],
        };
        assert_eq!((found, &rest[..rule.len()]), (&*expression, &*rule));
        assert_eq!(words, [0x7000u64.to_le_bytes(), 40u64.to_le_bytes()].concat());
    }

    #[test]
    fn the_empty_file_is_a_file() {
        let file = object::File::parse(empty()).unwrap();
        let sections: Vec<_> = file.sections().map(|section| section.name().unwrap()).collect();
        assert_eq!(sections, [".shstrtab"]);
        assert!(file.symbols().next().is_none());
    }
}
