//! Which line of which source a place of an object comes from, by its DWARF: for messages alone. An object without it, or
//! with a broken one, has no lines, and that is all.

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationKind, RelocationTarget, SectionFlags,
};

type Reader = EndianArcSlice<LittleEndian>;

/// Where the first section of code is thought to lie. To a reader of DWARF, addresses around zero are those of what a
/// linker dropped.
const FIRST: u64 = 0x1_0000;

/// The line table of an object.
pub(crate) struct Lines {
    context: addr2line::Context<Reader>,
    /// Where each section is thought to lie; 0 if it holds no code.
    bases: Vec<u64>,
}

impl Lines {
    /// Reads what an object says of its lines.
    ///
    /// Its sections all begin at zero, so they are laid out one behind the other, and the relocations of its debug
    /// sections are applied as if a linker had done it.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let file = ElfFile64::<object::LittleEndian>::parse(data).ok()?;
        let bases = lay_out(&file)?;
        let section = |id: SectionId| -> Result<Reader, gimli::Error> {
            let bytes = relocated(&file, id.name(), &bases).unwrap_or_default();
            Ok(Reader::new(bytes.into(), LittleEndian))
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
        // The innermost that was written here: what was inlined from the standard library says little.
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

/// Places the sections of code one behind the other.
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
