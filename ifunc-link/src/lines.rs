//! Source lines of offsets in an object, from its DWARF, for messages. An object without DWARF, or with malformed DWARF, has
//! no lines.

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationKind, RelocationTarget, SectionFlags,
};

type DwarfReader = EndianArcSlice<LittleEndian>;

/// Assumed address of the first section of code. Readers of DWARF take addresses around zero for dropped code.
const FIRST: u64 = 0x1_0000;

/// The line table of an object.
pub(crate) struct Lines {
    context: addr2line::Context<DwarfReader>,
    /// Assumed address of each section; 0 if it holds no code.
    bases: Vec<u64>,
}

impl Lines {
    /// Reads the line table of an object.
    ///
    /// All sections of an object begin at address zero. They are laid out one after the other, and the relocations of the
    /// debug sections are applied for these addresses.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let file = ElfFile64::<object::LittleEndian>::parse(data).ok()?;
        let bases = lay_out(&file)?;
        let section = |id: SectionId| -> Result<DwarfReader, gimli::Error> {
            let bytes = relocated(&file, id.name(), &bases).unwrap_or_default();
            Ok(DwarfReader::new(bytes.into(), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).ok()?;
        let context = addr2line::Context::from_dwarf(dwarf).ok()?;
        Some(Self { context, bases })
    }

    /// `src/counter.c:12`: relative to the folder that the compiler ran in, if it lies in there.
    pub(crate) fn at(&self, section: usize, offset: u64) -> Option<String> {
        let base = self.bases.get(section).filter(|&&base| base != 0)?;
        let address = base.checked_add(offset)?;
        let mut frames = self.context.find_frames(address).skip_all_loads().ok()?;
        let mut found = None;
        // The innermost frame outside the standard library.
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let (Some(file), Some(line)) = (location.file, location.line.filter(|&line| line != 0)) else {
                continue;
            };
            if !file.starts_with("/rustc/") {
                found = Some((file, line));
                break;
            }
            found.get_or_insert((file, line));
        }
        let (file, line) = found?;
        let folder = self.folder(address).unwrap_or_default();
        let relative = file
            .strip_prefix(folder.trim_end_matches('/'))
            .and_then(|rest| rest.strip_prefix('/'));
        let shown = match relative {
            Some(relative) if !folder.is_empty() => relative,
            _ => file,
        };
        Some(format!("{shown}:{line}"))
    }

    /// The folder that the compiler ran in.
    fn folder(&self, address: u64) -> Option<String> {
        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads()?;
        let folder = unit.comp_dir.as_ref()?.bytes();
        std::str::from_utf8(folder).ok().map(str::to_owned)
    }
}

/// Assigns addresses to the sections of code, one after the other.
fn lay_out(file: &ElfFile64<'_, object::LittleEndian>) -> Option<Vec<u64>> {
    let mut bases = Vec::new();
    let mut next = FIRST;
    for section in file.sections() {
        let index = section.index().0;
        if bases.len() <= index {
            bases.resize(index + 1, 0);
        }
        if section.kind() == object::SectionKind::Text {
            bases[index] = next;
            next = next.checked_add(section.size())?.checked_next_multiple_of(16)?;
        }
    }
    Some(bases)
}

/// A debug section with its relocations applied. Compressed ones are left out.
fn relocated(file: &ElfFile64<'_, object::LittleEndian>, name: &str, bases: &[u64]) -> Option<Vec<u8>> {
    let section = file.section_by_name(name)?;
    if let SectionFlags::Elf { sh_flags, .. } = section.flags()
        && sh_flags.0 & object::elf::SHF_COMPRESSED.0 != 0
    {
        return None;
    }
    let mut bytes = section.data().ok()?.to_vec();
    for (offset, relocation) in section.relocations() {
        let (RelocationKind::Absolute, RelocationTarget::Symbol(symbol)) =
            (relocation.kind(), relocation.target())
        else {
            continue;
        };
        let Ok(symbol) = file.symbol_by_index(symbol) else {
            continue;
        };
        let base = symbol
            .section_index()
            .and_then(|index| bases.get(index.0).copied())
            .unwrap_or(0);
        let value = base
            .wrapping_add(symbol.address())
            .wrapping_add_signed(relocation.addend());
        let width = usize::from(relocation.size() / 8).min(8);
        let place = usize::try_from(offset)
            .ok()
            .and_then(|at| bytes.get_mut(at..at.checked_add(width)?));
        if let Some(place) = place {
            place.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
    Some(bytes)
}
