//! Shared memory of a fixed size.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

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

/// Why a peer's memory is not mapped.
#[derive(Debug)]
pub(super) enum AdoptError {
    /// It is not what it should be.
    Unfit(&'static str),
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for AdoptError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The length of a peer's memory, which nothing can change.
pub(super) fn sealed_len(fd: BorrowedFd<'_>) -> Result<usize, AdoptError> {
    let seals = fcntl_get_seals(fd).map_err(|_| AdoptError::Unfit("its memory is not sealed"))?;
    if !seals.contains(SEALS) {
        return Err(AdoptError::Unfit("its memory can be resized"));
    }
    let len = fstat(fd).map_err(io::Error::from)?.st_size;
    usize::try_from(len).map_err(|_| AdoptError::Unfit("its memory is of a size that cannot be"))
}

/// A range of addresses that this value owns, with shared memory in it.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to this value alone within the process. It gives out raw pointers only; their users answer for
// what they do with them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Addresses without memory.
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: no address is asked for, so that nothing is replaced.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Maps a file, from `offset` on, into a part of the range.
    pub(super) fn place(&mut self, part: Range<usize>, fd: BorrowedFd<'_>, offset: usize) -> io::Result<()> {
        assert!(part.start <= part.end && part.end <= self.len);
        // SAFETY: the part lies in the range that this value owns, and nothing points into it: `&mut`.
        unsafe {
            mmap(
                self.base.add(part.start).as_ptr().cast(),
                part.len(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                offset as u64,
            )
        }?;
        Ok(())
    }

    /// Takes the memory of a part before it is written: one call of the system, where a fault for each page would be several times as long.
    /// The bytes stay as they are. Linux before 5.14 cannot, and takes it when it is written.
    pub(super) fn populate(&self, part: Range<usize>) -> io::Result<()> {
        assert!(part.start <= part.end && part.end <= self.len);
        // From the begin of a page on.
        let start = part.start & !(page_size() - 1);
        // SAFETY: the part lies in the range that this value owns, and no byte changes.
        unsafe {
            madvise(
                self.base.add(start).as_ptr().cast(),
                part.end - start,
                Advice::LinuxPopulateWrite,
            )
        }?;
        Ok(())
    }

    /// The first byte, at the begin of a page.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The byte at `offset`.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: within the range, which is mapped as long as this value lives.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `reserve` took exactly this range, and all that points into it holds this value alive.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::io::{Errno, FdFlags, fcntl_getfd};

    use super::*;

    #[test]
    fn memory_is_not_passed_to_other_programs_and_unmapped_when_it_is_dropped() {
        let name = "ifunc-test-unmapped";
        let fd = sealed_memory(name, 1 << 16).unwrap();
        assert_eq!(fcntl_getfd(&fd).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(sealed_len(fd.as_fd()).unwrap(), 1 << 16);
        let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(name);
        let mut mapping = Mapping::reserve(1 << 17).unwrap();
        mapping.place(1 << 16..1 << 17, fd.as_fd(), 0).unwrap();
        assert!(is_mapped());
        drop(mapping);
        assert!(!is_mapped());
    }

    #[test]
    fn memory_is_taken_before_it_is_written_and_keeps_its_bytes() {
        let page = page_size();
        let fd = sealed_memory("ifunc-test-populated", 16 * page).unwrap();
        let mut mapping = Mapping::reserve(16 * page).unwrap();
        mapping.place(0..16 * page, fd.as_fd(), 0).unwrap();
        let taken = || fstat(&fd).unwrap().st_blocks as usize * 512 / page;
        // SAFETY: within the mapping, which nothing else uses.
        unsafe { mapping.at(2 * page).write(7) };
        assert_eq!(taken(), 1);
        match mapping.populate(2 * page + 64..5 * page + 1) {
            Ok(()) => assert_eq!(taken(), 4),
            Err(error) => assert_eq!(
                Errno::from_io_error(&error),
                Some(Errno::INVAL),
                "Linux before 5.14"
            ),
        }
        // SAFETY: as above.
        assert_eq!(unsafe { mapping.at(2 * page).read() }, 7);
    }
}
