//! Copies of objects with undefined symbols made weak, definitions renamed and made visible. The edit is in place, so that every
//! section keeps its offset: a symbol's binding is half a byte, and new names go into a new string table at the end of
//! the file.

use std::collections::{BTreeMap, BTreeSet};

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

/// The changes to make.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edits {
    /// Undefined symbols that become weak.
    pub(crate) weaken: BTreeSet<String>,
    /// Definitions and their new names.
    pub(crate) rename: BTreeMap<String, String>,
    /// Definitions that become visible outside of the library, whatever `-fvisibility` the object was compiled with.
    pub(crate) export: BTreeSet<String>,
}

const SECTION_HEADER: usize = size_of::<elf::SectionHeader64<LE>>();
const SYMBOL: usize = size_of::<elf::Sym64<LE>>();
/// Offset of `st_info` in a symbol.
const ST_INFO: usize = 4;
/// Offset of `st_other` in a symbol, whose low two bits are the visibility.
const ST_OTHER: usize = 5;
/// Offsets of `sh_offset` and `sh_size` in a section header.
const SH_OFFSET: usize = 24;
const SH_SIZE: usize = 32;

/// A copy of an ELF object with the edits applied.
pub(crate) fn edit(data: &[u8], edits: &Edits) -> Result<Vec<u8>, object::Error> {
    let header = elf::FileHeader64::<LE>::parse(data)?;
    let sections = header.sections(LE, data)?;
    let symbols = sections.symbols(LE, data, elf::SHT_SYMTAB)?;
    let mut out = data.to_vec();
    if symbols.is_empty() {
        return Ok(out);
    }
    let table = sections.section(symbols.section())?.sh_offset(LE) as usize;
    let strings = sections.section(symbols.string_section())?;
    let mut names = strings.data(LE, data)?.to_vec();
    let old_names = names.len();
    for (index, symbol) in symbols.enumerate() {
        let at = table + index.0 * SYMBOL;
        let Ok(name) = std::str::from_utf8(symbols.symbol_name(LE, symbol)?) else {
            continue;
        };
        if symbol.is_undefined(LE) {
            if symbol.st_bind() == elf::STB_GLOBAL && edits.weaken.contains(name) {
                out[at + ST_INFO] = out[at + ST_INFO] & 0x0f | elf::STB_WEAK.0 << 4;
            }
            continue;
        }
        if symbol.is_local() {
            continue;
        }
        if edits.export.contains(name) {
            out[at + ST_OTHER] &= !3;
        }
        if let Some(new) = edits.rename.get(name) {
            out[at..at + ST_INFO].copy_from_slice(&(names.len() as u32).to_le_bytes());
            names.extend(new.as_bytes());
            names.push(0);
        }
    }
    if names.len() > old_names {
        let header = header.e_shoff(LE) as usize + symbols.string_section().0 * SECTION_HEADER;
        let (offset, size) = (out.len() as u64, names.len() as u64);
        out[header + SH_OFFSET..][..8].copy_from_slice(&offset.to_le_bytes());
        out[header + SH_SIZE..][..8].copy_from_slice(&size.to_le_bytes());
        out.extend(names);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, Endianness, Object as _, ObjectSymbol as _, SectionKind};
    use object::{SymbolFlags, SymbolKind, SymbolScope};

    fn sample() -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
        object.append_section_data(text, &[0xc3; 8], 16);
        for (name, section) in [
            ("x_main", SymbolSection::Section(text)),
            ("x_payload_init", SymbolSection::Section(text)),
            ("host", SymbolSection::Undefined),
            ("libc", SymbolSection::Undefined),
        ] {
            object.add_symbol(Symbol {
                name: name.into(),
                value: 0,
                size: 1,
                kind: SymbolKind::Text,
                scope: SymbolScope::Dynamic,
                weak: false,
                section,
                flags: SymbolFlags::None,
            });
        }
        object.write().unwrap()
    }

    fn edits() -> Edits {
        Edits {
            weaken: ["host", "x_main"].map(String::from).into(),
            rename: [
                ("x_payload_init".into(), "inner_x_payload_init".into()),
                ("host".into(), "no".into()),
            ]
            .into(),
            export: ["x_main".into(), "host".into()].into(),
        }
    }

    #[test]
    fn exports_become_visible() {
        let hidden = {
            let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
            let text = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
            object.append_section_data(text, &[0xc3; 8], 16);
            for name in ["x_main", "helper"] {
                object.add_symbol(Symbol {
                    name: name.into(),
                    value: 0,
                    size: 1,
                    kind: SymbolKind::Text,
                    scope: SymbolScope::Linkage,
                    weak: false,
                    section: SymbolSection::Section(text),
                    flags: SymbolFlags::None,
                });
            }
            object.write().unwrap()
        };
        let data = edit(&hidden, &edits()).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let scope = |name: &str| file.symbols().find(|s| s.name() == Ok(name)).unwrap().scope();
        assert_eq!(scope("x_main"), SymbolScope::Dynamic);
        assert_eq!(scope("helper"), SymbolScope::Linkage);
    }

    #[test]
    fn only_undefined_symbols_become_weak_and_only_definitions_are_renamed() {
        let data = edit(&sample(), &edits()).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let symbols: BTreeMap<_, _> = file
            .symbols()
            .map(|s| (s.name().unwrap().to_owned(), (s.is_weak(), s.is_definition())))
            .collect();
        assert_eq!(symbols["x_main"], (false, true));
        assert_eq!(symbols["inner_x_payload_init"], (false, true));
        assert_eq!(symbols["host"], (true, false));
        assert_eq!(symbols["libc"], (false, false));
        assert!(!symbols.contains_key("x_payload_init"));
    }

    #[test]
    fn damaged_objects_are_edited_or_refused() {
        let sample = sample();
        for at in 0..sample.len() {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = sample.clone();
                damaged[at] = value;
                let _ = edit(&damaged, &edits());
                damaged.truncate(at);
                let _ = edit(&damaged, &edits());
            }
        }
    }
}
