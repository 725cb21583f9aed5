//! DWARF sections of several objects, concatenated.
//!
//! References from one section to another count from the section's start in the object that they come from: they are
//! resolved here. Addresses of code and data stay relocations.

use std::collections::BTreeMap;

use object::read::elf::ElfFile64;
use object::write::Relocation;
use object::{
    LittleEndian as LE, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags,
    RelocationTarget, SectionIndex, SectionKind as Kind,
};

use super::{DebugObject, frames};
use crate::arch::{Arch, DataRelocation};

/// An object.
pub(super) type File<'a> = ElfFile64<'a, LE>;

/// The sections that hold lines, inlined functions and call frames.
const WANTED: [&str; 14] = [
    ".debug_abbrev",
    ".debug_addr",
    ".debug_aranges",
    ".debug_frame",
    ".debug_info",
    ".debug_line",
    ".debug_line_str",
    ".debug_loc",
    ".debug_loclists",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_str",
    ".debug_str_offsets",
    ".debug_types",
];
/// The section of the call frames.
pub(super) const FRAMES: &str = ".debug_frame";

/// Why an object's debug information is left out.
#[derive(Debug)]
pub(super) struct Broken;

impl From<object::Error> for Broken {
    fn from(_: object::Error) -> Self {
        Self
    }
}

/// A section under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct DebugSection {
    pub(super) data: Vec<u8>,
    /// Offsets of fields of eight bytes, and the addresses in the image that they hold.
    pub(super) addresses: Vec<(u64, u64)>,
    align: u64,
}

/// The sections, by name.
pub(super) struct DebugSections {
    arch: &'static dyn Arch,
    by_name: BTreeMap<&'static str, DebugSection>,
}

/// Finds the address of an offset in one of the object's sections; `None`: it is not in the image.
pub(super) type Locate<'l> = &'l dyn Fn(usize, u64) -> Option<u64>;

impl DebugSections {
    pub(super) fn new(arch: &'static dyn Arch) -> Self {
        Self {
            arch,
            by_name: BTreeMap::new(),
        }
    }

    /// Adds the sections of an object. An error undoes all of it.
    pub(super) fn add(&mut self, file: &File<'_>, locate: Locate<'_>) -> Result<(), Broken> {
        let before: Vec<_> = self
            .by_name
            .iter()
            .map(|(&name, section)| (name, section.data.len(), section.addresses.len()))
            .collect();
        let added = self.try_add(file, locate);
        if added.is_err() {
            self.by_name.retain(|name, section| {
                let Some(&(_, data, addresses)) = before.iter().find(|(known, ..)| known == name) else {
                    return false;
                };
                section.data.truncate(data);
                section.addresses.truncate(addresses);
                true
            });
        }
        added
    }

    fn try_add(&mut self, file: &File<'_>, locate: Locate<'_>) -> Result<(), Broken> {
        // Start of each of the object's sections in the result. Several may have one name (groups).
        let mut bases: BTreeMap<usize, (&'static str, u64)> = BTreeMap::new();
        for section in file.sections() {
            let Some(name) = section
                .name()
                .ok()
                .and_then(|name| WANTED.into_iter().find(|wanted| *wanted == name))
            else {
                continue;
            };
            let data = section.uncompressed_data()?;
            let align = section.align().clamp(1, 16);
            let to = self.by_name.entry(name).or_default();
            to.align = to.align.max(align);
            to.data.resize(to.data.len().next_multiple_of(align as usize), 0);
            bases.insert(section.index().0, (name, to.data.len() as u64));
            to.data.extend_from_slice(&data);
        }
        for (&index, &(name, base)) in &bases {
            let section = file.section_by_index(SectionIndex(index))?;
            for (offset, relocation) in section.relocations() {
                let value = self.value(file, &bases, &relocation, locate)?;
                let to = self.by_name.get_mut(name).ok_or(Broken)?;
                let at = base.checked_add(offset).ok_or(Broken)?;
                to.put(name, at, value)?;
            }
        }
        frames::add(self.arch, file, locate, self.by_name.entry(FRAMES).or_default())
    }

    /// The value that a relocation writes.
    fn value(
        &self,
        file: &File<'_>,
        bases: &BTreeMap<usize, (&'static str, u64)>,
        relocation: &object::Relocation,
        locate: Locate<'_>,
    ) -> Result<Value, Broken> {
        let RelocationFlags::Elf { r_type, .. } = relocation.flags() else {
            return Err(Broken);
        };
        let wide = match self.arch.data_relocation(r_type.0) {
            Some(DataRelocation::Address64) => true,
            Some(DataRelocation::Address32) => false,
            Some(DataRelocation::Nothing) => return Ok(Value::Nothing),
            Some(DataRelocation::Distance32) | None => return Err(Broken),
        };
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err(Broken);
        };
        let symbol = file.symbol_by_index(symbol)?;
        let Some(section) = symbol.section_index() else {
            return Ok(Value::Gone { wide });
        };
        let offset = symbol.address().wrapping_add_signed(relocation.addend());
        Ok(match (bases.get(&section.0), wide) {
            (Some((_, base)), wide) => Value::Offset {
                wide,
                value: base.checked_add(offset).ok_or(Broken)?,
            },
            (None, true) => locate(section.0, offset).map_or(Value::Gone { wide }, Value::Address),
            (None, false) => Value::Gone { wide },
        })
    }

    /// Writes the sections into the debug object.
    pub(super) fn write(self, output: &mut DebugObject) -> Option<()> {
        for (name, section) in self.by_name {
            if section.data.is_empty() {
                continue;
            }
            let id = output.object.add_section(Vec::new(), name.into(), Kind::Debug);
            output
                .object
                .append_section_data(id, &section.data, section.align.max(1));
            for (offset, address) in section.addresses {
                let (symbol, addend) = output.place(address);
                let relocation = Relocation {
                    offset,
                    symbol,
                    addend: i64::try_from(addend).ok()?,
                    flags: RelocationFlags::Generic {
                        kind: object::RelocationKind::Absolute,
                        encoding: object::RelocationEncoding::Generic,
                        size: 64,
                    },
                };
                output.object.add_relocation(id, relocation).ok()?;
            }
        }
        Some(())
    }
}

/// The value of a relocated field.
enum Value {
    /// An address in the image.
    Address(u64),
    /// An offset in another section.
    Offset { wide: bool, value: u64 },
    /// The address of code or data outside the image.
    Gone { wide: bool },
    /// The field stays as it is.
    Nothing,
}

impl DebugSection {
    fn put(&mut self, name: &str, at: u64, value: Value) -> Result<(), Broken> {
        // In a list of ranges, two zeros are the end of the list and two equal addresses are an empty range.
        let gone = u64::from(matches!(name, ".debug_ranges" | ".debug_loc"));
        let (wide, number) = match value {
            Value::Nothing => return Ok(()),
            Value::Address(address) => {
                self.addresses.push((at, address));
                (true, 0)
            }
            Value::Offset { wide, value } => (wide, value),
            Value::Gone { wide } => (wide, gone),
        };
        let bytes = number.to_le_bytes();
        let len = if wide { 8 } else { 4 };
        if bytes[len..].iter().any(|&byte| byte != 0) {
            return Err(Broken);
        }
        let at = usize::try_from(at).map_err(|_| Broken)?;
        let place = at.checked_add(len).and_then(|end| self.data.get_mut(at..end));
        place.ok_or(Broken)?.copy_from_slice(&bytes[..len]);
        Ok(())
    }
}
