//! Memory for GOTs: images read it, the runtime alone writes it.
//!
//! A sealed memfd with two mappings. Images find their GOT in the read-only one; the runtime writes through the other one. No
//! page of either is ever executable, and after both are made no further writable mapping can be: the file is sealed against it.
//! An entry is a word that is loaded and stored whole, so the runtime rebinds an import of code that runs with one store.

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::arena::ArenaError;
use crate::page::page_size;
use crate::ranges::FreeRanges;

/// What allocations are rounded to: a cache line, so that a change to one GOT does not slow code that reads another.
const GRANULE: usize = 64;
/// Bytes of an entry.
const ENTRY: usize = size_of::<AtomicUsize>();

/// The memory.
#[derive(Debug)]
pub(crate) struct GotMemory {
    /// The mapping that code reads.
    readable: Mapping,
    /// The mapping that the runtime writes through.
    writable: Mapping,
    free: Mutex<FreeRanges>,
}

/// A mapping of the whole file.
#[derive(Debug)]
struct Mapping {
    base: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to this value; it is bound to no thread.
unsafe impl Send for Mapping {}
// SAFETY: all accesses are atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: impl std::os::fd::AsFd, len: usize, protection: ProtFlags) -> rustix::io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)? };
        let mapping = Self { base, len };
        // A child of a fork has no code that would read it, and must not change what its parent's code reads.
        // SAFETY: advice about our own mapping.
        unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork)? };
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the whole range, and each GOT holds the memory that it lies in.
        let result = unsafe { rustix::mm::munmap(self.base, self.len) };
        debug_assert!(result.is_ok());
    }
}

impl GotMemory {
    /// Reserves `len` bytes (rounded up to pages) of address space, twice; memory is taken as images come.
    pub(crate) fn new(len: usize) -> rustix::io::Result<Arc<Self>> {
        let len = len.next_multiple_of(page_size()).max(page_size());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know MFD_NOEXEC_SEAL.
        let file = rustix::fs::memfd_create("ifunc-got", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create("ifunc-got", flags))?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let writable = Mapping::new(&file, len, ProtFlags::READ | ProtFlags::WRITE)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        // Kernels before 5.1 do not know F_SEAL_FUTURE_WRITE: there a descriptor that the process does not keep could write.
        rustix::fs::fcntl_add_seals(&file, seals | SealFlags::FUTURE_WRITE | SealFlags::SEAL)
            .or_else(|_| rustix::fs::fcntl_add_seals(&file, seals | SealFlags::SEAL))?;
        Ok(Arc::new(Self {
            readable: Mapping::new(&file, len, ProtFlags::READ)?,
            writable,
            free: Mutex::new(FreeRanges::new(len)),
        }))
    }

    /// A GOT of `entries`.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn allocate(self: &Arc<Self>, entries: &[usize]) -> Result<Got, ArenaError> {
        let len = Got::size_of(entries.len());
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = match len {
            0 => 0,
            len => free.take(len, GRANULE, 0).ok_or(ArenaError::Full(len))?,
        };
        drop(free);
        let got = Got {
            memory: Arc::clone(self),
            offset,
            entries: entries.len(),
        };
        for (index, entry) in entries.iter().enumerate() {
            got.set(index, *entry);
        }
        Ok(got)
    }
}

/// The GOT of an image: one entry per import. Its memory is free again when it is dropped.
pub(crate) struct Got {
    memory: Arc<GotMemory>,
    offset: usize,
    entries: usize,
}

impl Got {
    /// Bytes that a GOT of `entries` takes.
    pub(crate) fn size_of(entries: usize) -> usize {
        (entries * ENTRY).next_multiple_of(GRANULE)
    }

    /// Bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        Self::size_of(self.entries)
    }

    /// Where code reads it. An image without imports has none.
    pub(crate) fn address(&self) -> usize {
        match self.entries {
            0 => 0,
            _ => self.memory.readable.base as usize + self.offset,
        }
    }

    fn entry(&self, index: usize) -> &AtomicUsize {
        assert!(index < self.entries, "an image has an entry per import");
        // SAFETY: in the range that this GOT has of the writable mapping, aligned, and accessed by atomic operations alone: the
        // only other mapping is read-only, and code loads entries whole.
        unsafe { &*self.memory.writable.base.add(self.offset + index * ENTRY).cast() }
    }

    /// The address that an import is bound to.
    pub(crate) fn get(&self, index: usize) -> usize {
        self.entry(index).load(Ordering::Relaxed)
    }

    /// The addresses that all imports are bound to, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.entries).map(|index| self.get(index))
    }

    /// Binds an import to an address. Code that runs sees it at its next load of the entry.
    pub(crate) fn set(&self, index: usize, address: usize) {
        self.entry(index).store(address, Ordering::Release);
    }
}

impl fmt::Debug for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Drop for Got {
    fn drop(&mut self) {
        if self.entries > 0 {
            let range = self.offset..self.offset + self.len();
            let mut free = self.memory.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.give_back(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What code would load.
    fn loaded(got: &Got, index: usize) -> usize {
        // SAFETY: an entry of the mapping for code.
        unsafe { std::ptr::with_exposed_provenance::<usize>(got.address() + index * ENTRY).read_volatile() }
    }

    #[test]
    fn code_sees_what_the_runtime_writes() {
        let memory = GotMemory::new(1).unwrap();
        let got = memory.allocate(&[1, 2, 3]).unwrap();
        assert_eq!((loaded(&got, 0), loaded(&got, 2)), (1, 3));
        got.set(1, 7);
        assert_eq!((loaded(&got, 1), got.get(1)), (7, 7));
        let none = memory.allocate(&[]).unwrap();
        assert_eq!((none.address(), none.len()), (0, 0));
        let page = vec![0; page_size() / ENTRY];
        let too_much = memory.allocate(&page);
        assert!(matches!(too_much, Err(ArenaError::Full(len)) if len == page_size()));
        drop((got, none));
        assert!(memory.free.lock().unwrap().is_whole(page_size()));
        assert!(memory.allocate(&page).is_ok());
    }

    #[test]
    fn code_cannot_write_and_neither_mapping_is_executable() {
        let memory = GotMemory::new(page_size()).unwrap();
        let protection = |mapping: &Mapping| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let line = maps
                .lines()
                .find(|line| line.starts_with(&format!("{:x}-", mapping.base as usize)));
            line.unwrap().split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!(protection(&memory.readable), "r--s");
        assert_eq!(protection(&memory.writable), "rw-s");
    }
}
