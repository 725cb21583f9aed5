//! The memory of a connection, and where everything lies in it.
//!
//! ```text
//! file      control | slots to target | slots to source | data to target | data to source
//! mapping   control | slots to target | slots to source | data to target, twice | data to source, twice
//! ```
//!
//! The file is a memfd that is sealed against resizing, so that no access to it can fault. Every part is a multiple of
//! [`GRANULE`], so that any page size divides it. A slot is populated when it is written, and a data ring
//! to at most twice what was written, and at most 64 KiB more.

use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ifunc_abi::frame::{INLINE, SLOT};

use super::mapping::{AdoptError, Mapping, sealed_len, sealed_memory};
use crate::transport::RingSize;

/// Multiple of the page sizes of all supported machines.
pub(super) const GRANULE: usize = 1 << 16;

/// A slot as it lies in memory.
#[repr(C, align(64))]
pub(crate) struct Slot {
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

/// What a side states about itself, in one line.
#[repr(C)]
pub(super) struct SideWords {
    /// Not 0: the side does not poll, and is woken as the word says ([`WAKE`], [`SET_BIT`]).
    pub(super) asleep: AtomicU32,
    /// Not 0: the side closed the connection, and publishes nothing more. Its peer sets it too when the socket has ended.
    pub(super) closed: AtomicU32,
}

/// Words of the connection. Only integers: a peer may write anything.
#[repr(C)]
pub(super) struct Control {
    /// By [`Side`].
    pub(super) sides: [Apart<SideWords>; 2],
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

/// The sizes of a segment's rings, and so its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The ring towards each [`Side`]. Both are valid.
    sizes: [RingSize; 2],
}

impl Layout {
    /// The layout of the rings to the target and to the source, whose sizes are valid.
    pub(super) fn new(sizes: [RingSize; 2]) -> Self {
        debug_assert!(sizes.iter().all(|size| size.is_valid()));
        Self { sizes }
    }

    /// Size of the ring towards `side`.
    pub(super) fn ring(&self, side: Side) -> RingSize {
        self.sizes[side as usize]
    }

    /// Length of the data ring towards `side`.
    pub(super) fn data_len(&self, side: Side) -> usize {
        self.ring(side).data as usize
    }

    /// Where the slots towards `side` begin, in the file and in the mapping, and where they end.
    fn slots(&self, side: Side) -> [usize; 2] {
        let begin = match side {
            Side::Target => GRANULE,
            Side::Source => self.slots(Side::Target)[1],
        };
        let len = self.ring(side).slots as usize * SLOT;
        [begin, begin + len.next_multiple_of(GRANULE)]
    }

    /// Where the data ring towards `side` begins where each data ring lies `copies` times, and where it ends: once in the
    /// file, twice in the mapping.
    fn data(&self, side: Side, copies: usize) -> [usize; 2] {
        let begin = match side {
            Side::Target => self.slots(Side::Source)[1],
            Side::Source => self.data(Side::Target, copies)[1],
        };
        [begin, begin + copies * self.data_len(side)]
    }

    fn file_len(&self) -> usize {
        self.data(Side::Source, 1)[1]
    }

    pub(super) fn mapping_len(&self) -> usize {
        self.data(Side::Source, 2)[1]
    }
}

/// A mapped segment.
#[derive(Debug)]
pub(super) struct Segment {
    mapping: Mapping,
    layout: Layout,
}

impl Segment {
    /// A new segment, and the memfd to be sent to the peer.
    pub(super) fn create(layout: Layout) -> io::Result<(Self, OwnedFd)> {
        let fd = sealed_memory("ifunc-shm", layout.file_len())?;
        Ok((Self::map(fd.as_fd(), layout)?, fd))
    }

    /// The segment that a peer created, if it is what the peer said.
    pub(super) fn adopt(fd: BorrowedFd<'_>, layout: Layout) -> Result<Self, AdoptError> {
        if sealed_len(fd)? != layout.file_len() {
            return Err(AdoptError::Unfit(
                "its memory is not of the size that its rings need",
            ));
        }
        Ok(Self::map(fd, layout)?)
    }

    /// Maps it. `fd` is sealed and of the layout's length.
    fn map(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        let mut mapping = Mapping::reserve(layout.mapping_len())?;
        mapping.place(0..layout.slots(Side::Source)[1], fd, 0)?;
        for side in [Side::Target, Side::Source] {
            let ([at, _], [offset, _], len) =
                (layout.data(side, 2), layout.data(side, 1), layout.data_len(side));
            mapping.place(at..at + len, fd, offset)?;
            mapping.place(at + len..at + 2 * len, fd, offset)?;
        }
        Ok(Self { mapping, layout })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The words of the connection.
    #[inline]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: `Control` lies at the (page-aligned) begin of the mapping and fits (asserted beside it); it holds only
        // atomic integers, for which any bytes and any concurrent writer are fine; the mapping cannot shrink (seals).
        unsafe { self.mapping.base().cast().as_ref() }
    }

    /// The slots towards `side`: `layout().ring(side).slots` of them.
    pub(super) fn slots(&self, side: Side) -> NonNull<Slot> {
        self.mapping.at(self.layout.slots(side)[0]).cast()
    }

    /// Takes the memory of a part of the data ring towards `side`, which is about to be written for the first time.
    pub(super) fn populate_data(&self, side: Side, part: Range<usize>) {
        debug_assert!(part.end <= self.layout.data_len(side));
        let [begin, _] = self.layout.data(side, 2);
        // Otherwise it is taken when it is written.
        let _ = self.mapping.populate(begin + part.start..begin + part.end);
    }

    /// The data ring towards `side`: twice `layout().data_len(side)` bytes.
    pub(super) fn data(&self, side: Side) -> NonNull<u8> {
        self.mapping.at(self.layout.data(side, 2)[0])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::super::mapping::SEALS;
    use super::*;
    use crate::transport::RingSize;

    fn layout(slots: u32) -> Layout {
        let size = RingSize {
            slots,
            data: RingSize::MIN_DATA,
        };
        Layout::new([size, size])
    }

    #[test]
    fn both_sides_see_the_same_and_the_data_rings_twice() {
        let (mine, memory) = Segment::create(layout(2048)).unwrap();
        let theirs = Segment::adopt(memory.as_fd(), layout(2048)).unwrap();
        let ends = |segment: &Segment, side: Side| {
            let (slots, data) = (segment.slots(side).cast::<u8>(), segment.data(side));
            let len = segment.layout().data_len(side);
            // SAFETY: first and last byte of the slots, of the first mapping of the data and of the second.
            unsafe {
                [
                    slots,
                    slots.add(2048 * 64 - 1),
                    data,
                    data.add(len - 1),
                    data.add(len),
                    data.add(2 * len - 1),
                ]
            }
        };
        for (number, side) in [(1, Side::Target), (11, Side::Source)] {
            for (place, at) in ends(&mine, side).into_iter().take(4).enumerate() {
                // SAFETY: within the mapping, see above; no other thread uses it.
                unsafe { at.write(number + place as u8) };
            }
        }
        for (number, side) in [(1, Side::Target), (11, Side::Source)] {
            // SAFETY: as above.
            let seen = ends(&theirs, side).map(|at| unsafe { at.read() });
            assert_eq!(seen, [0, 1, 2, 3, 2, 3].map(|place| number + place));
        }
    }

    #[test]
    fn memory_that_could_shrink_is_not_adopted() {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, layout(2).file_len() as u64).unwrap();
        assert!(matches!(
            Segment::adopt(fd.as_fd(), layout(2)),
            Err(AdoptError::Unfit(_))
        ));
        fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        assert!(matches!(
            Segment::adopt(fd.as_fd(), layout(2)),
            Err(AdoptError::Unfit(_))
        ));
        fcntl_add_seals(&fd, SEALS).unwrap();
        assert!(Segment::adopt(fd.as_fd(), layout(2)).is_ok());
        assert!(matches!(
            Segment::adopt(fd.as_fd(), layout(2048)),
            Err(AdoptError::Unfit(_))
        ));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(
            Segment::adopt(file.as_fd(), layout(2)),
            Err(AdoptError::Unfit(_))
        ));
    }
}
