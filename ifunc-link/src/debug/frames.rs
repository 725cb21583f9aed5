//! Call frames: the `.eh_frame` entries of the image's functions, written as `.debug_frame`.
//!
//! An image carries no unwind tables, because nothing unwinds through it. A debugger needs them. Both formats hold the same
//! instructions; the addresses of `.eh_frame` are relative to its own address, which a debug section does not have.

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

use super::dwarf::{Broken, DebugSection, File, Locate};
use crate::arch::{Arch, DataRelocation};

/// Marks a common information entry in `.debug_frame`.
const COMMON: [u8; 4] = [0xff; 4];
/// Size of an address.
const WORD: usize = 8;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: a distance of 32 bits, as every compiler for position-independent code writes it.
const DISTANCE_32: u8 = 0x1b;

/// Adds the frames that an object describes.
pub(super) fn add(
    arch: &dyn Arch,
    file: &File<'_>,
    locate: Locate<'_>,
    to: &mut DebugSection,
) -> Result<(), Broken> {
    for section in file.sections() {
        if section.name() != Ok(".eh_frame") {
            continue;
        }
        let data = section.uncompressed_data()?;
        // The address of each function, by the offset of the field that refers to it.
        let mut functions = BTreeMap::new();
        for (offset, relocation) in section.relocations() {
            let object::RelocationFlags::Elf { r_type, .. } = relocation.flags() else {
                continue;
            };
            if arch.data_relocation(r_type.0) != Some(DataRelocation::Distance32) {
                continue;
            }
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                continue;
            };
            let symbol = file.symbol_by_index(symbol)?;
            let Some(index) = symbol.section_index() else {
                continue;
            };
            let value = symbol.address().wrapping_add_signed(relocation.addend());
            if let Some(address) = locate(index.0, value) {
                functions.insert(offset as usize, address);
            }
        }
        translate(&data, &functions, to)?;
    }
    Ok(())
}

/// A common information entry.
#[derive(Clone, Debug)]
struct Common {
    /// Its frames begin with augmentation data.
    augmented: bool,
    /// In the form of `.debug_frame`.
    bytes: Vec<u8>,
    /// Its offset in the output, once a frame has needed it.
    written: Option<u32>,
}

fn translate(data: &[u8], functions: &BTreeMap<usize, u64>, to: &mut DebugSection) -> Result<(), Broken> {
    let mut commons: BTreeMap<usize, Common> = BTreeMap::new();
    let mut at = 0;
    while at + 4 <= data.len() {
        let start = at;
        let length = u32_at(data, at)? as usize;
        if length == 0 {
            break;
        }
        let body = at + 4;
        let end = body
            .checked_add(length)
            .filter(|&end| end <= data.len())
            .ok_or(Broken)?;
        at = end;
        let back = u32_at(data, body)? as usize;
        let entry = data.get(body + 4..end).ok_or(Broken)?;
        if back == 0 {
            commons.insert(start, common(entry)?);
            continue;
        }
        let Some(&address) = functions.get(&(body + 4)) else {
            continue;
        };
        let common = body
            .checked_sub(back)
            .and_then(|common| commons.get_mut(&common))
            .ok_or(Broken)?;
        let size = u32_at(entry, 4)?;
        let mut rest = ByteReader(entry.get(8..).ok_or(Broken)?);
        if common.augmented {
            let skip = rest.uleb128()?;
            rest.take(skip)?;
        }
        let common = match common.written {
            Some(offset) => offset,
            None => {
                let offset = write_entry(to, &common.bytes)?;
                *common.written.insert(offset)
            }
        };
        let mut bytes = common.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0; WORD]);
        bytes.extend_from_slice(&u64::from(size).to_le_bytes());
        bytes.extend_from_slice(rest.0);
        let offset = write_entry(to, &bytes)?;
        to.addresses.push((u64::from(offset) + 8, address));
    }
    Ok(())
}

/// Translates a common information entry; `entry` begins after its id.
fn common(entry: &[u8]) -> Result<Common, Broken> {
    let mut rest = ByteReader(entry);
    let [version @ (1 | 3)] = *rest.take(1)? else {
        return Err(Broken);
    };
    let augmentation = rest.string()?;
    let numbers = rest.0;
    rest.uleb128()?;
    rest.leb128()?;
    match version {
        1 => {
            rest.take(1)?;
        }
        _ => {
            rest.uleb128()?;
        }
    }
    let numbers = &numbers[..numbers.len() - rest.0.len()];
    let augmented = augmentation.first() == Some(&b'z');
    if augmented {
        let len = rest.uleb128()?;
        let mut values = ByteReader(rest.take(len)?);
        for letter in &augmentation[1..] {
            match letter {
                b'R' if *values.take(1)? == [DISTANCE_32] => {}
                // A language's personality routine: a debugger does not call it.
                b'P' => {
                    let [encoding] = *values.take(1)? else {
                        return Err(Broken);
                    };
                    values.take(match encoding & 0x0f {
                        0x0b | 0x03 => 4,
                        0x00 | 0x0c | 0x04 => WORD,
                        _ => return Err(Broken),
                    })?;
                }
                b'L' => {
                    values.take(1)?;
                }
                _ => return Err(Broken),
            }
        }
    } else if !augmentation.is_empty() {
        return Err(Broken);
    }
    let mut bytes = COMMON.to_vec();
    bytes.push(version);
    bytes.push(0);
    bytes.extend_from_slice(numbers);
    bytes.extend_from_slice(rest.0);
    Ok(Common {
        augmented,
        bytes,
        written: None,
    })
}

/// Appends an entry, padded with `DW_CFA_nop`, and returns its offset.
fn write_entry(to: &mut DebugSection, bytes: &[u8]) -> Result<u32, Broken> {
    let start = u32::try_from(to.data.len()).map_err(|_| Broken)?;
    let padded = (4 + bytes.len()).next_multiple_of(WORD) - 4;
    let length = u32::try_from(padded).map_err(|_| Broken)?;
    to.data.extend_from_slice(&length.to_le_bytes());
    to.data.extend_from_slice(bytes);
    to.data.resize(to.data.len() + padded - bytes.len(), 0);
    Ok(start)
}

fn u32_at(data: &[u8], at: usize) -> Result<u32, Broken> {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_le_bytes).ok_or(Broken)
}

/// Reads bytes from the front.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn string(&mut self) -> Result<&'a [u8], Broken> {
        let len = self.0.iter().position(|&byte| byte == 0).ok_or(Broken)?;
        let string = self.take(len)?;
        self.take(1)?;
        Ok(string)
    }

    /// The bytes of a LEB128 number.
    fn leb128(&mut self) -> Result<&'a [u8], Broken> {
        let last = self.0.iter().position(|&byte| byte & 0x80 == 0).ok_or(Broken)?;
        self.take(last + 1)
    }

    fn uleb128(&mut self) -> Result<usize, Broken> {
        let bytes = self.leb128()?;
        if bytes.len() > 4 {
            return Err(Broken);
        }
        let digits = bytes.iter().rev();
        Ok(digits.fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that ends within its own first field.
    #[test]
    fn entries_shorter_than_their_id_are_broken() {
        for length in 1_u8..4 {
            let data = [length, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0];
            let result = translate(&data, &BTreeMap::new(), &mut DebugSection::default());
            assert!(result.is_err(), "{length}");
        }
    }
}
