//! Where everything lies in the segment of a connection.
//!
//! ```text
//! file      control | slots to target | slots to source | data to target | data to source
//! mapping   control | slots to target | slots to source | data to target, twice | data to source, twice
//! ```
//!
//! Every part is a multiple of [`GRANULE`], so that any page size divides it; memory that is never written is
//! never taken.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ifunc_abi::frame::{INLINE, SLOT};

use crate::transport::RingSize;

/// Multiple of the page sizes of all supported machines.
pub(super) const GRANULE: usize = 1 << 16;

/// A slot as it lies in memory.
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) commit: AtomicU64,
    pub(super) words: [AtomicU64; 2],
    pub(super) inline: UnsafeCell<[u8; INLINE]>,
}

const _: () = assert!(size_of::<Slot>() == SLOT);

/// Lines of its own for a value: two, because processors fetch pairs.
#[repr(C, align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// In `asleep`: wake the side over the socket. Unknown values mean the same.
pub(super) const WAKE: u32 = 1;
/// In `asleep` of a target: set the connection's bit in the ready bitmap, and wake the target if it sleeps.
pub(super) const SET_BIT: u32 = 2;

/// Words of the connection. Only integers: a peer may write anything.
#[repr(C)]
pub(super) struct Control {
    /// Not 0: the side does not poll, and is woken as the word says ([`WAKE`], [`SET_BIT`]). By [`Side`].
    pub(super) asleep: [Apart<AtomicU32>; 2],
    /// Frames and bytes that the consumer of the direction *towards* the side released.
    pub(super) credits: [Apart<[AtomicU64; 2]>; 2],
    /// Room for a hint how much of a large body is written; zero in this version.
    pub(super) progress: [Apart<AtomicU64>; 2],
}

const _: () = assert!(size_of::<Control>() <= GRANULE);

/// Which side of a connection; indexes what there is for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Target = 0,
    Source = 1,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Target => Self::Source,
            Self::Source => Self::Target,
        }
    }
}

/// Sizes and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The ring towards each [`Side`]. Both are valid.
    sizes: [RingSize; 2],
}

impl Layout {
    /// The layout of rings of these sizes, if they can be.
    pub(super) fn new(to_target: RingSize, to_source: RingSize) -> Option<Self> {
        (to_target.is_valid() && to_source.is_valid()).then_some(Self {
            sizes: [to_target, to_source],
        })
    }

    /// Size of the ring towards `side`.
    pub(super) fn ring(&self, side: Side) -> RingSize {
        self.sizes[side as usize]
    }

    fn slot_bytes(&self, side: Side) -> usize {
        (self.ring(side).slots as usize * SLOT).next_multiple_of(GRANULE)
    }

    /// Where the slots towards `side` begin, in the file and in the mapping.
    pub(super) fn slots(&self, side: Side) -> usize {
        match side {
            Side::Target => GRANULE,
            Side::Source => GRANULE + self.slot_bytes(Side::Target),
        }
    }

    /// Length of the part that is mapped once: all before the data rings.
    pub(super) fn head(&self) -> usize {
        self.slots(Side::Source) + self.slot_bytes(Side::Source)
    }

    /// Length of the data ring towards `side`.
    pub(super) fn data_len(&self, side: Side) -> usize {
        self.ring(side).data as usize
    }

    /// Where the data ring towards `side` begins in the file.
    pub(super) fn data_in_file(&self, side: Side) -> usize {
        match side {
            Side::Target => self.head(),
            Side::Source => self.head() + self.data_len(Side::Target),
        }
    }

    /// Where the data ring towards `side` begins in the mapping.
    pub(super) fn data_in_mapping(&self, side: Side) -> usize {
        match side {
            Side::Target => self.head(),
            Side::Source => self.head() + 2 * self.data_len(Side::Target),
        }
    }

    /// Length of the file.
    pub(super) fn file_len(&self) -> usize {
        self.data_in_file(Side::Source) + self.data_len(Side::Source)
    }

    /// Length of the mapping.
    pub(super) fn mapping_len(&self) -> usize {
        self.data_in_mapping(Side::Source) + 2 * self.data_len(Side::Source)
    }
}
