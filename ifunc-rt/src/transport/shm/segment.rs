//! The memory of a connection: a memfd that is sealed against resizing, so that no access to it can fault, and its
//! mapping.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::layout::{Control, Layout, Side, Slot};

/// Seals that make the size of a memfd certain.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A memfd of `len` bytes, sealed against resizing.
pub(super) fn sealed_memory(name: &str, len: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag that forbids executing it.
    let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags))?;
    ftruncate(&fd, len as u64)?;
    fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// A mapped segment.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the mapping belongs to this value alone within the process, and what points into it is used by
// atomics and by the one producer and the one consumer of each ring.
unsafe impl Send for Segment {}
// SAFETY: as above; `&Segment` gives out references to atomics and raw pointers only.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new segment, and the memfd to be sent to the peer.
    pub(super) fn create(layout: Layout) -> io::Result<(Self, OwnedFd)> {
        let fd = sealed_memory("ifunc-shm", layout.file_len())?;
        Ok((Self::map(fd.as_fd(), layout)?, fd))
    }

    /// The segment that a peer created, if it is what the peer said.
    pub(super) fn adopt(fd: BorrowedFd<'_>, layout: Layout) -> Result<Self, AdoptError> {
        let seals = fcntl_get_seals(fd).map_err(|_| AdoptError::Unfit("its memory is not sealed"))?;
        if !seals.contains(SEALS) {
            return Err(AdoptError::Unfit("its memory can be resized"));
        }
        let len = fstat(fd).map_err(|error| AdoptError::Io(error.into()))?.st_size;
        if u64::try_from(len) != Ok(layout.file_len() as u64) {
            return Err(AdoptError::Unfit(
                "its memory is not of the size that its rings need",
            ));
        }
        Self::map(fd, layout).map_err(AdoptError::Io)
    }

    /// Maps it. `fd` is sealed and of the layout's length.
    fn map(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        // SAFETY: no address is asked for, so that nothing is replaced.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                layout.mapping_len(),
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // From here on dropped, and so unmapped, on errors.
        let segment = Self {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            layout,
        };
        let place = |at: usize, len: usize, offset: usize| -> io::Result<()> {
            debug_assert!(at + len <= layout.mapping_len() && offset + len <= layout.file_len());
            // SAFETY: `at..at + len` lies in the range that was reserved above, which nothing else uses
            // (`Layout` counts the mapping of each part into `mapping_len`).
            unsafe {
                mmap(
                    segment.base.as_ptr().add(at).cast(),
                    len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED,
                    fd,
                    offset as u64,
                )
            }?;
            Ok(())
        };
        place(0, layout.head(), 0)?;
        for side in [Side::Target, Side::Source] {
            let len = layout.data_len(side);
            for copy in 0..2 {
                place(
                    layout.data_in_mapping(side) + copy * len,
                    len,
                    layout.data_in_file(side),
                )?;
            }
        }
        Ok(segment)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The words of the connection.
    #[inline]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: `Control` lies at the (page-aligned) begin of the mapping and fits (asserted beside
        // `Layout`); it holds only atomic integers, for which any bytes and any concurrent writer are fine;
        // the mapping cannot shrink (seals).
        unsafe { self.base.cast().as_ref() }
    }

    /// The slots towards `side`: `layout().ring(side).slots` of them.
    pub(super) fn slots(&self, side: Side) -> NonNull<Slot> {
        // SAFETY: `Layout` places the slots inside the mapping, at a multiple of `GRANULE`.
        unsafe { self.base.add(self.layout.slots(side)) }.cast()
    }

    /// The data ring towards `side`: twice `layout().data_len(side)` bytes.
    pub(super) fn data(&self, side: Side) -> NonNull<u8> {
        // SAFETY: `Layout` places both mappings of the data inside the mapping.
        unsafe { self.base.add(self.layout.data_in_mapping(side)) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `map` reserved exactly this range, and all that points into it holds this value alive.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.layout.mapping_len()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Why a peer's segment is not mapped.
#[derive(Debug)]
pub(super) enum AdoptError {
    /// It is not what it should be.
    Unfit(&'static str),
    /// The system refused.
    Io(io::Error),
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::transport::RingSize;

    fn layout(slots: u32) -> Layout {
        let size = RingSize {
            slots,
            data: RingSize::MIN_DATA,
        };
        Layout::new(size, size).unwrap()
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
