//! The slices of a library: the same ifuncs, for several kinds of machines.
//!
//! The section of a library that holds its image holds a table and the contents of its slices, all numbers little-endian:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | `IFNS` |
//! | 4 | 2 | version of this format, 1 |
//! | 6 | 2 | number of slices, 1 to [`MAX_SLICES`] |
//! | 8 | 56 each | [`RawSlice`] |
//! | | | the contents, in the order of the table |
//!
//! The contents follow each other without padding, and nothing follows the last one. A slice of [kind](RawSlice::kind) [`NATIVE`] is an
//! image. Readers skip slices of kinds that they do not know, so that a library can hold others beside native code. The order of the
//! slices decides only between slices that suit a machine equally well: the earlier one travels.
//!
//! The section of the debug objects has the same form: each content is the debug object of the image with that id.

mod agree;

pub use agree::{Difference, agree};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ImageId;
use crate::machine::Machine;

/// First four bytes of every table.
pub const MAGIC: [u8; 4] = *b"IFNS";
/// Version of the format.
pub const VERSION: u16 = 1;
/// Most slices of a library.
pub const MAX_SLICES: usize = 16;
/// Kind of a slice: machine code, an [image](crate::image).
pub const NATIVE: u16 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTable {
    magic: [u8; 4],
    version: U16,
    count: U16,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSlice {
    /// What its content is: [`NATIVE`], or what this version does not know.
    pub kind: U16,
    /// ELF `e_machine` of the machines that it is for.
    pub arch: U16,
    /// Length of the content in bytes.
    pub len: U32,
    /// Offset of the content from the begin of the table.
    pub offset: U64,
    /// CPU features that it needs: bits as in [`RawHeader::cpu_features`](crate::image::RawHeader::cpu_features).
    pub cpu_features: U64,
    /// BLAKE3 of the image.
    pub id: ImageId,
}

/// A slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    /// What its content is.
    pub kind: u16,
    /// The machines that it is for.
    pub machine: Machine,
    /// BLAKE3 of the image, which the reader compares.
    pub id: ImageId,
    /// The content.
    pub bytes: &'a [u8],
}

/// Why bytes are no table of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlicesError {
    /// They do not begin as one.
    #[error("not a table of slices: the first bytes are not `IFNS`")]
    Magic,
    /// The table is of another version.
    #[error(
        "its table of slices is of version {0}, this version reads {VERSION}; help: build the library with the `cargo-ifunc` of this version"
    )]
    Version(u16),
    /// It states no slices, or too many.
    #[error("its table states {0} slices, and a library has 1 to {MAX_SLICES}")]
    Count(u16),
    /// A content does not begin where the one before ends, or the last one does not end with the bytes.
    #[error("the content of slice {0} is not where its table should state it")]
    Place(usize),
}

/// The slices of a library.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a> {
    table: &'a [RawSlice],
    bytes: &'a [u8],
}

impl<'a> Slices<'a> {
    /// Parses a table that takes all the bytes.
    ///
    /// # Errors
    /// The first thing that is wrong with it. The contents are not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SlicesError> {
        let slices = Self::parse_first(bytes)?;
        match slices.bytes.len() == bytes.len() {
            true => Ok(slices),
            false => Err(SlicesError::Place(slices.table.len() - 1)),
        }
    }

    /// Parses the table with which the bytes begin: for finding tables in other files.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_first(bytes: &'a [u8]) -> Result<Self, SlicesError> {
        let (head, rest) = RawTable::read_from_prefix(bytes).map_err(|_| SlicesError::Magic)?;
        if head.magic != MAGIC {
            return Err(SlicesError::Magic);
        }
        if head.version != VERSION {
            return Err(SlicesError::Version(head.version.get()));
        }
        let count = usize::from(head.count.get());
        let table = match count {
            1..=MAX_SLICES => <[RawSlice]>::ref_from_prefix_with_elems(rest, count),
            _ => return Err(SlicesError::Count(head.count.get())),
        };
        let (table, _) = table.map_err(|_| SlicesError::Place(0))?;
        let mut end = (size_of::<RawTable>() + size_of_val(table)) as u64;
        for (index, raw) in table.iter().enumerate() {
            if raw.offset != end {
                return Err(SlicesError::Place(index));
            }
            end += u64::from(raw.len.get());
            if end > bytes.len() as u64 {
                return Err(SlicesError::Place(index));
            }
        }
        Ok(Self {
            table,
            bytes: &bytes[..end as usize],
        })
    }

    /// The bytes of the table and of all contents.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All slices, in the order of the table, whatever their kinds.
    pub fn all(&self) -> impl ExactSizeIterator<Item = Slice<'a>> + use<'a> {
        let bytes = self.bytes;
        self.table.iter().map(move |raw| {
            let at = raw.offset.get() as usize;
            Slice {
                kind: raw.kind.get(),
                machine: Machine {
                    arch: raw.arch.get(),
                    cpu_features: raw.cpu_features.get(),
                },
                id: raw.id,
                bytes: bytes.get(at..at + raw.len.get() as usize).unwrap_or_default(),
            }
        })
    }

    /// The slices that are images.
    pub fn native(&self) -> impl Iterator<Item = Slice<'a>> + use<'a> {
        self.all().filter(|slice| slice.kind == NATIVE)
    }
}

/// The best of these for a machine: of those that it runs, the one that needs the most features; of equals the first.
pub fn best(machine: Machine, needed: impl Iterator<Item = Machine>) -> Option<usize> {
    let suitable = needed.enumerate().filter(|(_, needed)| machine.runs(*needed));
    // Of equal ones `max_by_key` returns the last.
    suitable
        .max_by_key(|(index, needed)| (needed.cpu_features.count_ones(), core::cmp::Reverse(*index)))
        .map(|(index, _)| index)
}

/// Encodes a table of slices.
///
/// # Errors
/// There are none, or too many.
#[cfg(feature = "alloc")]
pub fn encode(slices: &[Slice<'_>]) -> Result<alloc::vec::Vec<u8>, SlicesError> {
    use alloc::vec::Vec;

    let count = u16::try_from(slices.len()).unwrap_or(u16::MAX);
    if !(1..=MAX_SLICES).contains(&slices.len()) {
        return Err(SlicesError::Count(count));
    }
    let head = RawTable {
        magic: MAGIC,
        version: U16::new(VERSION),
        count: U16::new(count),
    };
    let mut bytes = Vec::from(head.as_bytes());
    let mut offset = bytes.len() + slices.len() * size_of::<RawSlice>();
    for (index, slice) in slices.iter().enumerate() {
        let raw = RawSlice {
            kind: U16::new(slice.kind),
            arch: U16::new(slice.machine.arch),
            len: U32::new(u32::try_from(slice.bytes.len()).map_err(|_| SlicesError::Place(index))?),
            offset: U64::new(offset as u64),
            cpu_features: U64::new(slice.machine.cpu_features),
            id: slice.id,
        };
        bytes.extend_from_slice(raw.as_bytes());
        offset += slice.bytes.len();
    }
    slices
        .iter()
        .for_each(|slice| bytes.extend_from_slice(slice.bytes));
    Ok(bytes)
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;

    use super::*;
    use crate::image::{ARCH_AARCH64, ARCH_X86_64};
    use proptest::prelude::*;
    use std::vec::Vec;

    const fn x86_64(cpu_features: u64) -> Machine {
        Machine {
            arch: ARCH_X86_64,
            cpu_features,
        }
    }
    const ARM: Machine = Machine {
        arch: ARCH_AARCH64,
        cpu_features: 0,
    };

    fn slice(kind: u16, machine: Machine, bytes: &[u8]) -> Slice<'_> {
        Slice {
            kind,
            machine,
            id: [bytes.len() as u8; 32],
            bytes,
        }
    }

    #[test]
    fn kinds_of_the_future_are_skipped() {
        let slices = [
            slice(7, ARM, b"bitcode"),
            slice(NATIVE, x86_64(0), b"one"),
            slice(NATIVE, x86_64(3), b""),
        ];
        let bytes = encode(&slices).unwrap();
        let parsed = Slices::parse(&bytes).unwrap();
        assert_eq!(parsed.all().collect::<Vec<_>>(), slices);
        assert_eq!(parsed.native().collect::<Vec<_>>(), slices[1..]);
        let more = [&bytes[..], b"more"].concat();
        assert_eq!(Slices::parse_first(&more).unwrap().bytes(), bytes);
        assert_eq!(Slices::parse(&more).err(), Some(SlicesError::Place(2)));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let bytes = encode(&[slice(NATIVE, ARM, b"code")]).unwrap();
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Slices::parse(&bytes).err()
        };
        assert_eq!(changed(3, b'C'), Some(SlicesError::Magic));
        assert_eq!(changed(4, 2), Some(SlicesError::Version(2)));
        assert_eq!(changed(6, 0), Some(SlicesError::Count(0)));
        assert_eq!(changed(6, 17), Some(SlicesError::Count(17)));
        // A longer table than there are bytes, another length, another offset.
        for at in [6, 12, 16] {
            assert_eq!(changed(at, 9), Some(SlicesError::Place(0)), "{at}");
        }
        assert_eq!(encode(&[]).err(), Some(SlicesError::Count(0)));
        assert_eq!(
            encode(&[slice(1, ARM, b""); 17]).err(),
            Some(SlicesError::Count(17))
        );
        assert!(encode(&[slice(1, ARM, b""); 16]).is_ok());
    }

    #[test]
    fn the_best_slice_is_the_most_specific_one_that_runs() {
        let needed = [x86_64(0), ARM, x86_64(3), x86_64(1), x86_64(3)];
        for (machine, index) in [
            (x86_64(0), Some(0)),
            (x86_64(1), Some(3)),
            (x86_64(7), Some(2)),
            (ARM, Some(1)),
            (Machine { arch: 243, ..ARM }, None),
        ] {
            assert_eq!(best(machine, needed.into_iter()), index, "{machine}");
        }
        assert_eq!(best(x86_64(1), [x86_64(3)].into_iter()), None);
    }

    proptest! {
        #[test]
        fn tables_survive(slices in prop::collection::vec((any::<u16>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 1..=MAX_SLICES)) {
            let slices: Vec<Slice<'_>> = slices.iter().map(|(kind, bits, bytes)| slice(*kind, x86_64(*bits), bytes)).collect();
            let bytes = encode(&slices).unwrap();
            prop_assert_eq!(Slices::parse(&bytes).unwrap().all().collect::<Vec<_>>(), slices);
        }

        #[test]
        fn any_bytes_are_parsed(change in any::<(usize, u8)>(), cut in 0..200_usize) {
            let mut bytes = encode(&[slice(NATIVE, ARM, b"code"), slice(3, ARM, b"more")]).unwrap();
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(byte) = bytes.get_mut(change.0 % 160) {
                *byte = change.1;
            }
            if let Ok(slices) = Slices::parse(&bytes) {
                let again: Vec<Slice<'_>> = slices.all().collect();
                prop_assert_eq!(encode(&again).unwrap(), bytes);
            }
        }
    }
}
