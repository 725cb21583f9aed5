//! Images: the part of an injected function that travels.
//!
//! An image is one contiguous run of bytes, all numbers little-endian:
//!
//! | part | size |
//! |---|---|
//! | [`RawHeader`] | 64 |
//! | entries, [`RawEntry`] each, by ascending name | 40 × `entry_count` |
//! | imports, [`RawImport`] each | 16 × `import_count` |
//! | RELATIVE install relocations, [`RawRelative`] each, by ascending offset | 8 × `relative_count` |
//! | IMPORT install relocations, [`RawImportReloc`] each, by ascending offset | 16 × `import_reloc_count` |
//! | needed shared libraries, [`RawStr`] each | 8 × `needed_count` |
//! | strings: what the tables refer to | `strings_len` |
//! | read-execute part: text, read-only data, the slot | `rx_len` |
//! | read-write part: initialised data | `rw_len` |
//!
//! The parts follow each other without padding, and nothing follows the last one. In memory, the read-execute
//! part lies at offset 0 of the image's address space, aligned to `1 << rx_align_log2`. The read-write part
//! lies at `rw_at`, a multiple of 4096. It is `rw_mem` bytes long; all bytes after the first `rw_len` are
//! zero. The distance between the two parts is a link-time constant.
//!
//! An image has 1 to [`MAX_ENTRIES`] entries: the ifuncs that share its code and data. An ifunc that sends or forwards to another
//! one is linked with it into one image. An image has no name of its own, so the images of two ifuncs that refer to each other are
//! the same bytes. No two entries begin at the same offset: the address of an `X_main` identifies its entry.
//!
//! Code reaches every import through the *slot*, eight bytes at offset `slot` of the read-execute part. The
//! target stores the address of a GOT in it. The GOT holds one 8-byte address per import, in table order. A
//! RELATIVE relocation stores the image's address plus an addend. An IMPORT relocation stores an import's
//! address plus an addend: it serves static data that holds a function's address, and the few operand forms
//! that cannot use the slot.
mod cpu;
mod encode;
mod parse;
#[cfg(all(test, feature = "alloc"))]
mod tests_of_limits;

pub use cpu::AARCH64_FEATURES;
#[cfg(feature = "alloc")]
pub use encode::{EntryPart, ImageParts, ImportPart};
pub use parse::{Image, ImageError, Stage};

use zerocopy::little_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Fingerprint;

/// First four bytes of every image.
pub const MAGIC: [u8; 4] = *b"IFNC";
/// Alignment of `rw_at`: the page size of x86-64. Linkers for AArch64 align to 64 KiB, and a target refuses an image whose `rw_at` is no
/// multiple of its own page size.
pub const RW_GRANULE: u32 = 4096;
/// Largest log2 of the alignment of the read-execute part: one page.
pub const MAX_RX_ALIGN_LOG2: u8 = 12;
/// Value of `slot` in an image whose code reaches no import.
pub const NO_SLOT: u32 = u32::MAX;
/// Value of `batch` of an entry without a function for batches.
pub const NO_BATCH: u32 = u32::MAX;
/// Most entries of an image.
pub const MAX_ENTRIES: usize = 64;
/// ELF `e_machine` of x86-64, the `arch` of its images.
pub const ARCH_X86_64: u16 = 62;
/// ELF `e_machine` of AArch64, the `arch` of its images.
pub const ARCH_AARCH64: u16 = 183;

/// The header: the first 64 bytes of an image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// [`ABI_VERSION`](crate::ABI_VERSION).
    pub abi: U16,
    /// ELF `e_machine`.
    pub arch: U16,
    /// [`ImageFlags`].
    pub flags: U32,
    /// Length of the image in bytes.
    pub total_len: U32,
    /// CPU features that the code needs beyond the architecture's baseline. Each architecture defines its
    /// bits; on x86-64, bit 0 is x86-64-v2, bit 1 v3 and bit 2 v4; on AArch64, they are [`AARCH64_FEATURES`].
    pub cpu_features: U64,
    /// Offset of the slot in the read-execute part, or [`NO_SLOT`].
    pub slot: U32,
    /// Length of the read-execute part in bytes.
    pub rx_len: U32,
    /// Offset of the read-write part in the image's address space, a multiple of [`RW_GRANULE`]; 0 if there
    /// is none.
    pub rw_at: U32,
    /// Bytes of the read-write part that the image carries.
    pub rw_len: U32,
    /// Bytes of the read-write part in memory, at least `rw_len`.
    pub rw_mem: U32,
    /// Log2 of the alignment of the read-execute part.
    pub rx_align_log2: u8,
    /// Zero.
    pub reserved: u8,
    /// Number of entries.
    pub entry_count: U16,
    /// Number of imports.
    pub import_count: U16,
    /// Number of needed shared libraries.
    pub needed_count: U16,
    /// Number of RELATIVE relocations.
    pub relative_count: U32,
    /// Number of IMPORT relocations.
    pub import_reloc_count: U32,
    /// Length of the strings in bytes.
    pub strings_len: U32,
}

/// One entry: an ifunc of the image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawEntry {
    /// Offset of the name in the strings.
    pub name_at: U32,
    /// Length of the name in bytes.
    pub name_len: u8,
    /// Log2 of the alignment of the payload.
    pub payload_align_log2: u8,
    /// [`EntryFlags`].
    pub flags: U16,
    /// Offset of `X_main` in the read-execute part.
    pub main: U32,
    /// Offset of `X_batch` in the read-execute part, or [`NO_BATCH`].
    pub batch: U32,
    /// Fingerprint of the payload type; 0: not stated.
    pub payload: U64,
    /// Fingerprint of the target type; 0: not stated.
    pub target: U64,
    /// Fingerprint of the answer type; 0: not stated.
    pub answer: U64,
}

/// One import. Entry `i` of the table belongs to entry `i` of the GOT.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawImport {
    /// The symbol.
    pub symbol: RawStr,
    /// Fingerprint of the signature; 0: not stated.
    pub fingerprint: U64,
}

/// A string: a range of the image's strings.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawStr {
    /// Offset in the strings.
    pub at: U32,
    /// Length in bytes.
    pub len: U16,
    /// [`ImportFlags`] in an import; zero elsewhere.
    pub flags: U16,
}

/// A RELATIVE install relocation: eight bytes at `offset` become image address + `addend`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawRelative {
    /// Offset in the image's address space.
    pub offset: U32,
    /// Addend.
    pub addend: I32,
}

/// An IMPORT install relocation: eight bytes at `offset` become the import's address + `addend`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawImportReloc {
    /// Offset in the image's address space.
    pub offset: U32,
    /// Index of the import.
    pub import: U32,
    /// Addend.
    pub addend: I64,
}

macro_rules! bitset {
    ($(#[$meta:meta])* $name:ident: $ty:ty { $($(#[$doc:meta])* $flag:ident = $bit:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name($ty);
        impl $name {
            $($(#[$doc])* pub const $flag: Self = Self(1 << $bit);)*
            /// The empty set.
            pub const NONE: Self = Self(0);
            const KNOWN: $ty = 0 $(| 1 << $bit)*;
            /// The flags in `bits`; `None` if a bit is unknown.
            #[must_use]
            pub const fn from_bits(bits: $ty) -> Option<Self> {
                if bits & !Self::KNOWN == 0 { Some(Self(bits)) } else { None }
            }
            /// The bits.
            #[must_use]
            pub const fn bits(self) -> $ty { self.0 }
            /// Whether every flag of `other` is set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }
            /// The flags of both.
            #[must_use]
            pub const fn union(self, other: Self) -> Self { Self(self.0 | other.0) }
            /// Adds `other` if `condition` holds.
            #[must_use]
            pub const fn union_if(self, condition: bool, other: Self) -> Self {
                if condition { self.union(other) } else { self }
            }
        }
    };
}

bitset! {
    /// Flags of an image.
    ImageFlags: u32 {
        /// A function's address outlives its invocation: the target never evicts the image.
        PINNED = 0;
        /// No instruction of its code writes what controls floating-point arithmetic (on x86-64: MXCSR and the control word of the
        /// x87), so the target neither saves it for an invocation nor compares it. Without the flag, the code may write it. A target
        /// takes the builder's word for it: an image whose code does so none the less leaves the host with another rounding, as
        /// accepted code also could by other means.
        KEEPS_FLOAT_CONTROL = 1;
    }
}

bitset! {
    /// Flags of an entry.
    EntryFlags: u16 {
        /// `X_main` returns nothing (C): the target ignores the result register.
        IGNORE_RESULT = 0;
        /// A source may send an invocation again when it does not know whether the first attempt ran.
        IDEMPOTENT = 1;
        /// The ifunc takes the target arguments by shared reference.
        SHARED = 2;
    }
}

bitset! {
    /// Flags of an import.
    ImportFlags: u16 {
        /// The import may be missing: its GOT entry is then null.
        WEAK = 0;
        /// It is a variable: the image's authors declare it as one.
        DATA = 1;
        /// It is a function: the image's code calls it, or its authors declare it as one.
        FUNCTION = 2;
    }
}

/// A parsed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Name of the ifunc.
    pub name: &'a str,
    /// Flags.
    pub flags: EntryFlags,
    /// Offset of `X_main` in the read-execute part.
    pub main: u32,
    /// Offset of `X_batch` in the read-execute part.
    pub batch: Option<u32>,
    /// Fingerprint of the payload type; 0: not stated.
    pub payload: Fingerprint,
    /// Fingerprint of the target type; 0: not stated.
    pub target: Fingerprint,
    /// Fingerprint of the answer type; 0: not stated.
    pub answer: Fingerprint,
    /// Alignment of the payload in bytes: 1 to 64.
    pub payload_align: usize,
}

/// A parsed import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// The symbol.
    pub symbol: &'a str,
    /// Flags.
    pub flags: ImportFlags,
    /// Fingerprint of the signature; 0: not stated.
    pub fingerprint: Fingerprint,
}

/// What an image takes an import for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportKind {
    /// It is called.
    Function,
    /// It is read or written.
    Variable,
    /// The image takes its address, and does not state what it is: an undeclared import of C.
    Unknown,
}

impl Import<'_> {
    /// What the image takes it for.
    #[must_use]
    pub fn kind(&self) -> ImportKind {
        if self.flags.contains(ImportFlags::DATA) {
            ImportKind::Variable
        } else if self.flags.contains(ImportFlags::FUNCTION) {
            ImportKind::Function
        } else {
            ImportKind::Unknown
        }
    }
}

/// A parsed install relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relocation {
    /// Eight bytes at `offset` become image address + `addend`.
    Relative {
        /// Offset in the image's address space.
        offset: u32,
        /// Addend.
        addend: i32,
    },
    /// Eight bytes at `offset` become the address of import `import` + `addend`.
    Import {
        /// Offset in the image's address space.
        offset: u32,
        /// Index in the import table.
        import: u32,
        /// Addend.
        addend: i64,
    },
}

impl Relocation {
    /// Offset in the image's address space that it writes to.
    #[must_use]
    pub const fn offset(self) -> u32 {
        match self {
            Self::Relative { offset, .. } | Self::Import { offset, .. } => offset,
        }
    }
}
