//! Parsing and validating an [`Image`].

use zerocopy::FromBytes;

use super::{
    Entry, EntryFlags, ImageFlags, Import, ImportFlags, MAGIC, MAX_ENTRIES, MAX_RX_ALIGN_LOG2, NO_BATCH,
    NO_SLOT, RW_GRANULE, RawEntry, RawHeader, RawImport, RawImportReloc, RawRelative, RawStr, Relocation,
};
use crate::machine::Machine;
use crate::{ABI_VERSION, frame, name};

/// The checks of a parse, in order. Tests use it to see how far their mutations reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Magic, version, flags.
    Header,
    /// Lengths and offsets of the parts.
    Layout,
    /// Names of entries, imports, needed libraries.
    Tables,
    /// Relocations.
    Relocations,
    /// The image is valid.
    Done,
}

/// Why bytes are not a valid image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Fewer bytes than a header.
    #[error("{len} bytes are too few for an image header of {need}", need = size_of::<RawHeader>())]
    Truncated {
        /// Number of bytes given.
        len: usize,
    },
    /// The first four bytes are not [`MAGIC`].
    #[error("not an image: the first bytes are not `IFNC`")]
    Magic,
    /// The image uses another ABI version.
    #[error(
        "image uses ABI {found}, this version supports {ABI_VERSION}; help: rebuild it with the `cargo-ifunc` of this version"
    )]
    AbiVersion {
        /// The version in the header.
        found: u16,
    },
    /// A field has bits set that this version does not define.
    #[error("unknown bits {bits:#x} in field `{field}`")]
    UnknownBits {
        /// The field.
        field: &'static str,
        /// The value.
        bits: u64,
    },
    /// The length in the header, the sum of the parts and the number of bytes given differ.
    #[error("the header states {stated} bytes, its parts add up to {parts}, but the image has {found}")]
    Length {
        /// `total_len`.
        stated: u64,
        /// Sum of the parts.
        parts: u64,
        /// Number of bytes given.
        found: u64,
    },
    /// A field exceeds its range or contradicts the others.
    #[error("field `{field}` is out of range: {value:#x}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
    },
    /// A name, symbol or soname is not valid.
    #[error("a name in `{table}` is not valid")]
    Name {
        /// The table.
        table: &'static str,
    },
    /// Entries do not ascend by name, so two may have the same one.
    #[error("entry {index} is out of order: entries ascend by name, and no two have the same")]
    EntryOrder {
        /// Index of the second of two entries.
        index: usize,
    },
    /// Two entries begin at the same offset.
    #[error("entries {first} and {second} begin at the same offset {offset:#x}")]
    SameMain {
        /// Index of one entry.
        first: usize,
        /// Index of the other.
        second: usize,
        /// Their `main`.
        offset: u32,
    },
    /// A relocation writes outside the image's data, overlaps another one, or breaks the ascending order.
    #[error(
        "relocation {index} of `{table}` at {offset:#x} is outside the image's data, overlaps another or is out of order"
    )]
    Relocation {
        /// The table.
        table: &'static str,
        /// Index in the table.
        index: u32,
        /// Its offset.
        offset: u32,
    },
}

impl ImageError {
    /// The stage whose check failed.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        match self {
            Self::Truncated { .. } | Self::Magic | Self::AbiVersion { .. } | Self::UnknownBits { .. } => {
                Stage::Header
            }
            Self::Length { .. } | Self::OutOfRange { .. } | Self::SameMain { .. } => Stage::Layout,
            Self::Name { .. } | Self::EntryOrder { .. } => Stage::Tables,
            Self::Relocation { .. } => Stage::Relocations,
        }
    }
}

/// A valid image: every offset, length, name and relocation in it was checked.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    header: &'a RawHeader,
    flags: ImageFlags,
    entries: &'a [RawEntry],
    imports: &'a [RawImport],
    relatives: &'a [RawRelative],
    import_relocs: &'a [RawImportReloc],
    needed: &'a [RawStr],
    strings: &'a [u8],
    rx: &'a [u8],
    rw: &'a [u8],
}

fn table<T: FromBytes + zerocopy::Immutable + zerocopy::Unaligned + zerocopy::KnownLayout>(
    bytes: &[u8],
    count: usize,
) -> Option<(&[T], &[u8])> {
    <[T]>::ref_from_prefix_with_elems(bytes, count).ok()
}

fn string(strings: &[u8], raw: RawStr) -> Option<&str> {
    let at = raw.at.get() as usize;
    core::str::from_utf8(strings.get(at..at.checked_add(raw.len.get().into())?)?).ok()
}

fn name_of<'a>(strings: &'a [u8], raw: &RawEntry) -> Option<&'a str> {
    let (at, len) = (raw.name_at, u16::from(raw.name_len).into());
    let flags = 0.into();
    string(strings, RawStr { at, len, flags })
}

impl<'a> Image<'a> {
    /// Parses the image with which the bytes begin, and returns its bytes: for finding images in other files.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ImageError> {
        let (header, _) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| ImageError::Truncated { len: bytes.len() })?;
        let stated = header.total_len.get() as usize;
        let bytes = bytes.get(..stated).unwrap_or(bytes);
        Self::parse(bytes).map(|image| (image, bytes))
    }

    /// Parses an image and checks everything that can be checked without a target.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let (header, rest) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| ImageError::Truncated { len: bytes.len() })?;
        if header.magic != MAGIC {
            return Err(ImageError::Magic);
        }
        if header.abi != ABI_VERSION {
            return Err(ImageError::AbiVersion {
                found: header.abi.get(),
            });
        }
        let unknown = |field, bits| ImageError::UnknownBits { field, bits };
        let flags =
            ImageFlags::from_bits(header.flags.get()).ok_or(unknown("flags", header.flags.get().into()))?;
        if header.reserved != 0 {
            return Err(unknown("reserved", header.reserved.into()));
        }

        let parts = size_of::<RawHeader>() as u64
            + u64::from(header.entry_count.get()) * size_of::<RawEntry>() as u64
            + u64::from(header.import_count.get()) * size_of::<RawImport>() as u64
            + u64::from(header.relative_count.get()) * size_of::<RawRelative>() as u64
            + u64::from(header.import_reloc_count.get()) * size_of::<RawImportReloc>() as u64
            + u64::from(header.needed_count.get()) * size_of::<RawStr>() as u64
            + u64::from(header.strings_len.get())
            + u64::from(header.rx_len.get())
            + u64::from(header.rw_len.get());
        let (stated, found) = (u64::from(header.total_len.get()), bytes.len() as u64);
        let length = ImageError::Length { stated, parts, found };
        if stated != parts || stated != found {
            return Err(length);
        }
        let (entries, rest) = table::<RawEntry>(rest, header.entry_count.get().into()).ok_or(length)?;
        let (imports, rest) = table::<RawImport>(rest, header.import_count.get().into()).ok_or(length)?;
        let (relatives, rest) = table(rest, header.relative_count.get() as usize).ok_or(length)?;
        let (import_relocs, rest) = table(rest, header.import_reloc_count.get() as usize).ok_or(length)?;
        let (needed, rest) = table::<RawStr>(rest, header.needed_count.get().into()).ok_or(length)?;
        let (strings, rest) = rest
            .split_at_checked(header.strings_len.get() as usize)
            .ok_or(length)?;
        let (rx, rw) = rest
            .split_at_checked(header.rx_len.get() as usize)
            .ok_or(length)?;

        check_layout(header)?;
        check_entries(header, entries)?;

        let mut previous = "";
        for (index, entry) in entries.iter().enumerate() {
            let name = name_of(strings, entry)
                .filter(|name| name::is_valid(name))
                .ok_or(ImageError::Name { table: "entries" })?;
            // A valid name is not empty.
            if name <= previous {
                return Err(ImageError::EntryOrder { index });
            }
            previous = name;
        }
        for import in imports {
            string(strings, import.symbol)
                .filter(|s| {
                    name::is_valid_symbol(s) && ImportFlags::from_bits(import.symbol.flags.get()).is_some()
                })
                .ok_or(ImageError::Name { table: "imports" })?;
        }
        for soname in needed {
            string(strings, *soname)
                .filter(|s| name::is_valid_soname(s) && soname.flags == 0)
                .ok_or(ImageError::Name { table: "needed" })?;
        }

        let image = Self {
            header,
            flags,
            entries,
            imports,
            relatives,
            import_relocs,
            needed,
            strings,
            rx,
            rw,
        };
        image.check_relocations()?;
        Ok(image)
    }

    /// Checks that both tables ascend, that no two relocations overlap, and that each writes into bytes that
    /// the image carries, outside the slot.
    fn check_relocations(&self) -> Result<(), ImageError> {
        let rw_at = u64::from(self.header.rw_at.get());
        let slot = self.slot().map(u64::from);
        let inside = |offset: u64| {
            let end = offset + 8;
            let apart_from_slot = slot.is_none_or(|slot| end <= slot || slot + 8 <= offset);
            apart_from_slot
                && (end <= self.rx.len() as u64
                    || (!self.rw.is_empty() && rw_at <= offset && end <= rw_at + self.rw.len() as u64))
        };
        let bad = |table, index: usize, offset| ImageError::Relocation {
            table,
            index: index as u32,
            offset,
        };
        let mut free = 0;
        for (index, raw) in self.relatives.iter().enumerate() {
            let offset = u64::from(raw.offset.get());
            if offset < free || !inside(offset) {
                return Err(bad("relative", index, raw.offset.get()));
            }
            free = offset + 8;
        }
        let mut relatives = self
            .relatives
            .iter()
            .map(|r| u64::from(r.offset.get()))
            .peekable();
        let mut free = 0;
        for (index, raw) in self.import_relocs.iter().enumerate() {
            let offset = u64::from(raw.offset.get());
            while relatives.next_if(|&relative| relative + 8 <= offset).is_some() {}
            let overlaps = relatives.peek().is_some_and(|&relative| relative < offset + 8);
            if offset < free || overlaps || !inside(offset) || raw.import.get() as usize >= self.imports.len()
            {
                return Err(bad("import", index, raw.offset.get()));
            }
            free = offset + 8;
        }
        Ok(())
    }

    /// The raw header.
    #[must_use]
    pub fn header(&self) -> &'a RawHeader {
        self.header
    }

    /// The entries, by ascending name.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'a>> + use<'a> {
        let strings = self.strings;
        self.entries.iter().map(move |raw| Entry {
            name: name_of(strings, raw).unwrap_or_default(),
            flags: EntryFlags::from_bits(raw.flags.get()).unwrap_or_default(),
            main: raw.main.get(),
            batch: Some(raw.batch.get()).filter(|&batch| batch != NO_BATCH),
            payload: raw.payload.get(),
            target: raw.target.get(),
            answer: raw.answer.get(),
            payload_align: 1 << raw.payload_align_log2,
        })
    }

    /// The entry of this name and its index in [`entries`](Self::entries).
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<(usize, Entry<'a>)> {
        self.entries().enumerate().find(|(_, entry)| entry.name == name)
    }

    /// Flags.
    #[must_use]
    pub fn flags(&self) -> ImageFlags {
        self.flags
    }

    /// ELF `e_machine`.
    #[must_use]
    pub fn arch(&self) -> u16 {
        self.header.arch.get()
    }

    /// CPU features needed.
    #[must_use]
    pub fn cpu_features(&self) -> u64 {
        self.header.cpu_features.get()
    }

    /// Offset of the slot in the read-execute part.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        Some(self.header.slot.get()).filter(|&slot| slot != NO_SLOT)
    }

    /// Alignment of the read-execute part in bytes: 1 to 4096.
    #[must_use]
    pub fn rx_align(&self) -> usize {
        1 << self.header.rx_align_log2
    }

    /// The read-execute part before relocation.
    #[must_use]
    pub fn rx(&self) -> &'a [u8] {
        self.rx
    }

    /// The initialised bytes of the read-write part before relocation.
    #[must_use]
    pub fn rw(&self) -> &'a [u8] {
        self.rw
    }

    /// Offset of the read-write part in the image's address space and its length in memory, both in bytes;
    /// `None` if there is none.
    #[must_use]
    pub fn rw_range(&self) -> Option<(u32, u32)> {
        (self.header.rw_mem != 0).then_some((self.header.rw_at.get(), self.header.rw_mem.get()))
    }

    /// The machines that its code is for.
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine {
            arch: self.arch(),
            cpu_features: self.cpu_features(),
        }
    }

    /// Whether its code may send other invocations or forward itself: it imports one of the
    /// [`TRAVEL_IMPORTS`](crate::symbols::TRAVEL_IMPORTS).
    #[must_use]
    pub fn travels(&self) -> bool {
        self.imports()
            .any(|import| crate::symbols::TRAVEL_IMPORTS.contains(&import.symbol))
    }

    /// The imports in the order of their GOT entries.
    pub fn imports(&self) -> impl ExactSizeIterator<Item = Import<'a>> + use<'a> {
        let strings = self.strings;
        self.imports.iter().map(move |raw| Import {
            symbol: string(strings, raw.symbol).unwrap_or_default(),
            flags: ImportFlags::from_bits(raw.symbol.flags.get()).unwrap_or_default(),
            fingerprint: raw.fingerprint.get(),
        })
    }

    /// The sonames of needed shared libraries.
    pub fn needed(&self) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        let strings = self.strings;
        self.needed
            .iter()
            .map(move |raw| string(strings, *raw).unwrap_or_default())
    }

    /// The install relocations: RELATIVE first, then IMPORT, each by ascending offset.
    pub fn relocations(&self) -> impl Iterator<Item = Relocation> + use<'a> {
        let relatives = self.relatives.iter().map(|raw| Relocation::Relative {
            offset: raw.offset.get(),
            addend: raw.addend.get(),
        });
        let imports = self.import_relocs.iter().map(|raw| Relocation::Import {
            offset: raw.offset.get(),
            import: raw.import.get(),
            addend: raw.addend.get(),
        });
        relatives.chain(imports)
    }

    /// Number of install relocations.
    #[must_use]
    pub fn relocation_count(&self) -> usize {
        self.relatives.len() + self.import_relocs.len()
    }
}

fn check_layout(header: &RawHeader) -> Result<(), ImageError> {
    let out = |field, value| Err(ImageError::OutOfRange { field, value });
    let rx_len = header.rx_len.get();
    let slot = header.slot.get();
    if slot != NO_SLOT && (!slot.is_multiple_of(8) || slot.checked_add(8).is_none_or(|end| end > rx_len)) {
        return out("slot", slot.into());
    }
    if header.rx_align_log2 > MAX_RX_ALIGN_LOG2 || (slot != NO_SLOT && header.rx_align_log2 < 3) {
        return out("rx_align_log2", header.rx_align_log2.into());
    }
    let (rw_at, rw_len, rw_mem) = (header.rw_at.get(), header.rw_len.get(), header.rw_mem.get());
    if rw_len > rw_mem {
        return out("rw_len", rw_len.into());
    }
    if rw_mem == 0 {
        return if rw_at == 0 {
            Ok(())
        } else {
            out("rw_at", rw_at.into())
        };
    }
    // The read-write part follows the read-execute part by at most one AArch64 page, and relocations can
    // address all of it.
    let furthest = u64::from(rx_len).next_multiple_of(64 * 1024);
    if !rw_at.is_multiple_of(RW_GRANULE) || rw_at < rx_len || u64::from(rw_at) > furthest {
        return out("rw_at", rw_at.into());
    }
    if u64::from(rw_at) + u64::from(rw_mem) > i32::MAX as u64 {
        return out("rw_mem", rw_mem.into());
    }
    Ok(())
}

/// Checks what entries state beside their names.
fn check_entries(header: &RawHeader, entries: &[RawEntry]) -> Result<(), ImageError> {
    let out = |field, value| Err(ImageError::OutOfRange { field, value });
    if !(1..=MAX_ENTRIES).contains(&entries.len()) {
        return out("entry_count", entries.len() as u64);
    }
    let rx_len = header.rx_len.get();
    for (second, entry) in entries.iter().enumerate() {
        let (main, batch) = (entry.main.get(), entry.batch.get());
        if main >= rx_len {
            return out("main", main.into());
        }
        if batch != NO_BATCH && batch >= rx_len {
            return out("batch", batch.into());
        }
        if entry.payload_align_log2 > frame::BODY_ALIGN.trailing_zeros() as u8 {
            return out("payload_align_log2", entry.payload_align_log2.into());
        }
        if EntryFlags::from_bits(entry.flags.get()).is_none() {
            return out("entry flags", entry.flags.get().into());
        }
        if let Some(first) = entries[..second]
            .iter()
            .position(|other| other.main == entry.main)
        {
            let offset = main;
            return Err(ImageError::SameMain {
                first,
                second,
                offset,
            });
        }
    }
    Ok(())
}
