//! The arena: one range of address space that installed images live in.
//!
//! It is a sealed memfd whose only mapping is read-execute. Code gets in by `pwrite`, so there is never a writable alias,
//! and no page is ever both writable and executable. The read-write part of an image is anonymous memory mapped over the arena
//! at its fixed displacement; it is mapped back when the image goes.
//!
//! The mapping is private, so that a debugger can put breakpoints into it: the kernel refuses to write into a
//! shared one. A page with a breakpoint is a copy that no longer shows the file; `write` detects that and maps the page anew.
//!
//! What is freed is used again in batches: one barrier for many ranges, after which no core has decoded instructions of what lay
//! there, and no system call for the memory of ranges that are about to be used again.

use std::ffi::c_void;
use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock, Weak};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::arch;
use crate::page::page_size;
use crate::ranges::FreeRanges;

/// What allocations are rounded to: a cache line, so that no line holds code of two images.
const GRANULE: usize = 64;
/// Most bytes that were freed and wait for the barrier, unless the room is needed before. In arenas of less than 16 times as much, a
/// sixteenth.
const MAX_SLACK: usize = 1 << 20;
/// Free pages keep their memory, up to so many times as much: what is freed is room for what comes next.
const KEPT: usize = 4;
/// With more words to replace, code is copied, and written in one piece.
const MAX_WORDS: usize = 16;

/// The arena.
#[derive(Debug)]
pub(crate) struct Arena {
    memfd: Arc<File>,
    base: *mut c_void,
    len: usize,
    free: FreeRanges,
    /// Ranges that were freed since the last barrier, and the sum of their lengths: a core may still have decoded instructions of
    /// what lay there.
    stale: (Vec<std::ops::Range<usize>>, usize),
    /// Free pages that have memory.
    resident: PageSet,
    /// Everything below was handed out at least once.
    used: usize,
    /// The kernel can make all cores discard decoded instructions. Without that an address is used once, so that no core has run
    /// what lay there.
    serializes: bool,
    /// Stays mapped when this is dropped: something in it gave away its address.
    leaked: bool,
}

// SAFETY: the mapping belongs to this value; it is bound to no thread.
unsafe impl Send for Arena {}

/// Why the arena could not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArenaError {
    /// No free range is large enough.
    #[error("no room for {0} bytes of code")]
    Full(usize),
    /// The kernel refused.
    #[error("the kernel refused memory for code: {0}")]
    Os(#[from] rustix::io::Errno),
}

/// A range of the arena. Given back with [`Arena::free`].
#[derive(Debug)]
pub(crate) struct Range {
    offset: usize,
    len: usize,
    /// Offset in the range and length of the anonymous pages, if there are any.
    anonymous: Option<(usize, usize)>,
}

impl Range {
    /// No memory.
    pub(crate) const EMPTY: Self = Self {
        offset: 0,
        len: 0,
        anonymous: None,
    };

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Offset in the arena's file.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl Arena {
    /// Reserves `len` bytes (rounded up to pages) of address space; memory is taken as images come.
    pub(crate) fn new(len: usize) -> rustix::io::Result<Self> {
        let mut arena = Self::map(len)?;
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore).is_ok();
        arena.serializes = registered && (arch::PROBES.is_empty() || runs_what_is_written());
        if !arena.serializes && arch::WRITTEN_CODE_NEEDS_BARRIER {
            arch::synchronize_at_sessions();
        }
        Ok(arena)
    }

    /// One that uses each address once.
    fn map(len: usize) -> rustix::io::Result<Self> {
        let len = len.next_multiple_of(page_size()).max(page_size());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know MFD_EXEC and do not need it.
        let memfd = rustix::fs::memfd_create("ifunc-code", flags | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create("ifunc-code", flags))?;
        rustix::fs::ftruncate(&memfd, len as u64)?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::EXEC,
                MapFlags::PRIVATE,
                &memfd,
                0,
            )?
        };
        // A child of a fork would write into the code that its parent runs.
        // SAFETY: advice about our own mapping.
        unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork)? };
        Ok(Self {
            memfd: Arc::new(memfd.into()),
            base,
            len,
            free: FreeRanges::new(len),
            stale: (Vec::new(), 0),
            resident: PageSet::new(len / page_size()),
            used: 0,
            serializes: false,
            leaked: false,
        })
    }

    /// Takes `len` bytes aligned to `align` (a power of two, at most a page). With `whole_pages` the range shares no page with another.
    pub(crate) fn allocate(
        &mut self,
        len: usize,
        align: usize,
        whole_pages: bool,
    ) -> Result<Range, ArenaError> {
        let granule = if whole_pages { page_size() } else { GRANULE };
        let align = align.max(granule);
        let full = ArenaError::Full(len);
        let Some(len) = len.max(1).checked_next_multiple_of(granule) else {
            return Err(full);
        };
        if self.stale.1 > self.max_slack() {
            // If the kernel refuses, there may be other room.
            let _ = self.reclaim();
        }
        let from = if self.serializes { 0 } else { self.used };
        let at = match self.free.take(len, align, from) {
            Some(at) => at,
            None if self.stale.0.is_empty() => return Err(full),
            None => {
                self.reclaim()?;
                self.free.take(len, align, from).ok_or(full)?
            }
        };
        self.resident
            .remove(at / page_size()..(at + len).div_ceil(page_size()));
        self.used = self.used.max(at + len);
        Ok(Range {
            offset: at,
            len,
            anonymous: None,
        })
    }

    fn max_slack(&self) -> usize {
        MAX_SLACK.min(self.len / 16)
    }

    /// Makes what was freed free to be used again. Gives the kernel back the memory of free pages, if they have much.
    fn reclaim(&mut self) -> rustix::io::Result<()> {
        if self.serializes {
            membarrier(MembarrierCommand::PrivateExpeditedSyncCore)?;
        }
        let (ranges, bytes) = &mut self.stale;
        *bytes = 0;
        for freed in ranges.drain(..) {
            let free = self.free.give_back(freed.clone());
            // The pages that lie as a whole in the free range around it.
            let begin =
                (freed.start / page_size() * page_size()).max(free.start.next_multiple_of(page_size()));
            let end = freed
                .end
                .next_multiple_of(page_size())
                .min(free.end / page_size() * page_size());
            self.resident.add(begin / page_size()..end / page_size());
        }
        if self.resident.len() * page_size() > KEPT * self.max_slack() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            for pages in self.resident.take_all() {
                let (at, len) = (pages.start * page_size(), pages.len() * page_size());
                // Where the kernel refuses, the memory stays until the range is used again.
                let _ = rustix::fs::fallocate(&self.memfd, flags, at as u64, len as u64);
            }
        }
        Ok(())
    }

    /// The file that the arena maps, as long as there is an arena.
    pub(crate) fn file(&self) -> Weak<File> {
        Arc::downgrade(&self.memfd)
    }

    /// All of it.
    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        self.base as usize..self.base as usize + self.len
    }

    /// Address of a range.
    pub(crate) fn address(&self, range: &Range) -> usize {
        self.base as usize + range.offset
    }

    /// The first `len` bytes of a range.
    pub(crate) fn bytes(&self, range: &Range, len: usize) -> &[u8] {
        assert!(len <= range.len, "a part of the range");
        // SAFETY: part of our own mapping, which is readable and which only `&mut self` writes.
        unsafe { std::slice::from_raw_parts(self.base.add(range.offset).cast::<u8>(), len) }
    }

    /// Writes `bytes` at the start of a range, through the file, with these words in place of what they have at ascending offsets.
    pub(crate) fn write(
        &mut self,
        range: &Range,
        bytes: &[u8],
        words: &[(usize, Word)],
    ) -> Result<(), ArenaError> {
        assert!(bytes.len() <= range.len, "the caller allocated what it writes");
        if words.len() > MAX_WORDS {
            let mut copy = bytes.to_vec();
            for (at, word) in words {
                copy[*at..][..word.len()].copy_from_slice(word);
            }
            return self.write(range, &copy, &[]);
        }
        let mut parts = [IoSlice::new(&[]); 2 * MAX_WORDS + 1];
        let (mut count, mut rest) = (0, 0);
        for (at, word) in words {
            parts[count] = IoSlice::new(&bytes[rest..*at]);
            parts[count + 1] = IoSlice::new(word);
            (count, rest) = (count + 2, at + word.len());
        }
        parts[count] = IoSlice::new(&bytes[rest..]);
        let parts = &parts[..=count];
        self.write_all(parts, range.offset)?;
        // Detects a page with a breakpoint, which `pwritev` does not report. Also reads every page, so that no invocation has the page
        // fault. With 64 KiB it takes 1.2 µs; to ask `/proc/self/pagemap` which pages are copies takes 1.2 to 1.5 µs.
        if !self.shows(range.offset, parts) {
            let from = range.offset / page_size() * page_size();
            let end = (range.offset + bytes.len()).next_multiple_of(page_size());
            self.map_file(from, end - from)?;
            if !self.shows(range.offset, parts) {
                return Err(ArenaError::Os(rustix::io::Errno::IO));
            }
        }
        arch::publish_code(self.bytes(range, bytes.len()));
        if arch::WRITTEN_CODE_NEEDS_BARRIER && self.serializes {
            membarrier(MembarrierCommand::PrivateExpeditedSyncCore)?;
        }
        Ok(())
    }

    /// Writes to the file.
    fn write_all(&self, parts: &[IoSlice<'_>], offset: usize) -> rustix::io::Result<()> {
        let mut written = match rustix::io::pwritev(&*self.memfd, parts, offset as u64) {
            Err(rustix::io::Errno::INTR) => 0,
            result => result?,
        };
        let mut at = offset;
        for part in parts {
            // All of it, unless a signal came, or there is no memory, of which the next call tells.
            let rest = &part[written.min(part.len())..];
            if !rest.is_empty()
                && let Err(error) = self
                    .memfd
                    .write_all_at(rest, (at + part.len() - rest.len()) as u64)
            {
                return Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO));
            }
            written -= part.len() - rest.len();
            at += part.len();
        }
        Ok(())
    }

    /// Whether the mapping has these bytes from `offset` on.
    fn shows(&self, mut offset: usize, parts: &[IoSlice<'_>]) -> bool {
        parts.iter().all(|part| {
            // SAFETY: part of our own mapping, which is readable and which only `&mut self` writes.
            let there = unsafe { std::slice::from_raw_parts(self.base.add(offset).cast::<u8>(), part.len()) };
            offset += part.len();
            there == &**part
        })
    }

    /// Maps the file over whole pages of the arena.
    fn map_file(&self, from: usize, len: usize) -> rustix::io::Result<()> {
        // SAFETY: part of our own mapping. What the pages hold of installed images, the file holds too.
        unsafe {
            rustix::mm::mmap(
                self.base.add(from),
                len,
                ProtFlags::READ | ProtFlags::EXEC,
                MapFlags::PRIVATE | MapFlags::FIXED,
                &self.memfd,
                from as u64,
            )?;
            // A fresh mapping: advice does not outlive the old one.
            rustix::mm::madvise(self.base.add(from), len, Advice::LinuxDontFork)
        }
    }

    /// Maps zeroed read-write pages over `range` from `at` on (a multiple of a page), fills them with `data` and returns their address.
    pub(crate) fn map_anonymous(
        &mut self,
        range: &mut Range,
        at: usize,
        len: usize,
        data: &[u8],
    ) -> Result<(), ArenaError> {
        let len = len.next_multiple_of(page_size());
        assert!(
            range.anonymous.is_none()
                && at.is_multiple_of(page_size())
                && at + len <= range.len
                && data.len() <= len,
            "the caller allocated whole pages"
        );
        // SAFETY: the target is part of our own mapping and of a range that the caller allocated; no image is there yet.
        unsafe {
            let ptr = rustix::mm::mmap_anonymous(
                self.base.add(range.offset + at),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )?;
            range.anonymous = Some((at, len));
            std::ptr::copy_nonoverlapping(data.as_ptr(), ptr.cast::<u8>(), data.len());
        }
        Ok(())
    }

    /// Keeps everything mapped for as long as the process lives.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }

    /// Takes a range back.
    ///
    /// # Safety
    /// Nothing may run in the range or reach it any more.
    pub(crate) unsafe fn free(&mut self, range: Range) {
        if let Some((at, len)) = range.anonymous {
            // The read-write part, out of use by the caller's promise.
            if self.map_file(range.offset + at, len).is_err() {
                // The range stays out of use: better less room than a hole.
                return;
            }
        }
        let (stale, bytes) = &mut self.stale;
        stale.push(range.offset..range.offset + range.len);
        *bytes += range.len;
    }
}

/// Whether this thread runs the code that was last written to an address where it ran other code. Not under an emulator that keeps what
/// it translated before, as qemu-user did until 8.1: it does not see what is written to the file of a mapping.
fn runs_what_is_written() -> bool {
    static RUNS: OnceLock<bool> = OnceLock::new();
    *RUNS.get_or_init(|| {
        let Ok(mut arena) = Arena::map(1) else {
            return false;
        };
        let Ok(range) = arena.allocate(GRANULE, GRANULE, false) else {
            return false;
        };
        (1..).zip(arch::PROBES).all(|(number, code)| {
            let is_written = arena.write(&range, code, &[]).is_ok();
            let function = std::ptr::with_exposed_provenance::<c_void>(arena.address(&range));
            // SAFETY: a function without arguments that returns a number was written there, this one or the one before.
            let function = unsafe { std::mem::transmute::<*const c_void, extern "C" fn() -> u32>(function) };
            is_written && function() == number
        })
    })
}

/// A word that the installation writes into code.
pub(crate) type Word = [u8; size_of::<u64>()];

/// A set of pages, by their numbers.
#[derive(Debug)]
struct PageSet {
    /// A bit each.
    bits: Vec<u64>,
    len: usize,
}

impl PageSet {
    /// No page of so many.
    fn new(pages: usize) -> Self {
        Self {
            bits: vec![0; pages.div_ceil(64)],
            len: 0,
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn add(&mut self, pages: std::ops::Range<usize>) {
        for page in pages {
            let (word, bit) = (&mut self.bits[page / 64], 1 << (page % 64));
            self.len += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }

    fn remove(&mut self, pages: std::ops::Range<usize>) {
        for page in pages {
            let (word, bit) = (&mut self.bits[page / 64], 1 << (page % 64));
            self.len -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// Removes all, and returns them: what is in a row together.
    fn take_all(&mut self) -> Vec<std::ops::Range<usize>> {
        let mut all: Vec<std::ops::Range<usize>> = Vec::new();
        for page in 0..self.bits.len() * 64 {
            if self.bits[page / 64] & 1 << (page % 64) == 0 {
                continue;
            }
            match all.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => all.push(page..page + 1),
            }
        }
        self.bits.fill(0);
        self.len = 0;
        all
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: this value owns the whole range; the target drops every image before its arena.
        let result = unsafe { rustix::mm::munmap(self.base, self.len) };
        debug_assert!(result.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::testing::code;

    fn uses_addresses_again(arena: &Arena) -> bool {
        if !arena.serializes {
            eprintln!("SKIPPED: this kernel has no barrier, or this emulator keeps what it translated");
        }
        arena.serializes
    }

    #[test]
    fn memory_of_freed_ranges_goes_back_to_the_kernel() {
        let mut arena = Arena::new(64 * page_size()).unwrap();
        if !uses_addresses_again(&arena) {
            return;
        }
        let taken =
            |arena: &Arena| rustix::fs::fstat(&*arena.memfd).unwrap().st_blocks as usize * 512 / page_size();
        let small = arena.allocate(100, 16, false).unwrap();
        let large = arena.allocate(20 * page_size(), 16, false).unwrap();
        arena.write(&small, &[1; 100], &[]).unwrap();
        arena.write(&large, &vec![0xcc; 20 * page_size()], &[]).unwrap();
        let later = arena.allocate(2 * page_size(), page_size(), true).unwrap();
        arena.write(&later, &vec![3; 2 * page_size()], &[]).unwrap();
        assert_eq!(taken(&arena), 23);
        // SAFETY: nothing was executed there.
        unsafe { arena.free(large) };
        assert_eq!(taken(&arena), 23);
        let again = arena.allocate(3 * page_size(), 16, false).unwrap();
        assert_eq!(taken(&arena), 3, "the page that both are in stays");
        assert!(shows(&arena, &small, &[1; 100]) && shows(&arena, &later, &vec![3; 2 * page_size()]));
        arena.write(&again, &vec![7; 3 * page_size()], &[]).unwrap();
        assert!(shows(&arena, &again, &vec![7; 3 * page_size()]));
        assert_eq!(taken(&arena), 6);
        // SAFETY: as above.
        unsafe {
            arena.free(again);
            // A quarter of an arena of this size may keep its memory.
            arena.reclaim().unwrap();
            assert_eq!((taken(&arena), arena.resident.len()), (6, 3));
            arena.free(small);
            arena.reclaim().unwrap();
            assert_eq!((taken(&arena), arena.resident.len()), (6, 4));
            arena.free(later);
            arena.reclaim().unwrap();
            assert_eq!((taken(&arena), arena.resident.len()), (6, 6));
        }
        let all = arena.allocate(64 * page_size(), 64, false).unwrap();
        arena.write(&all, &vec![9; 64 * page_size()], &[]).unwrap();
        assert_eq!((taken(&arena), arena.resident.len()), (64, 0));
        // SAFETY: as above.
        unsafe { arena.free(all) };
        arena.reclaim().unwrap();
        assert_eq!((taken(&arena), arena.resident.len()), (0, 0));
    }

    /// Whether the mapping has these bytes at the start of a range.
    fn shows(arena: &Arena, range: &Range, bytes: &[u8]) -> bool {
        arena.shows(range.offset, &[IoSlice::new(bytes)])
    }

    #[test]
    fn words_replace_what_the_code_has_there() {
        let mut arena = Arena::new(8 * page_size()).unwrap();
        if !uses_addresses_again(&arena) {
            return;
        }
        let code: Vec<u8> = (0..2 * page_size()).map(|at| (at % 251) as u8).collect();
        for count in [0, 1, 2, MAX_WORDS, MAX_WORDS + 1, 300] {
            let range = arena.allocate(code.len(), 64, false).unwrap();
            // At the beginning, without a gap, and at the end.
            let at = |n: usize| {
                if n + 1 == count {
                    code.len() - 8
                } else {
                    8 * (n + n / 3)
                }
            };
            let words: Vec<_> = (0..count)
                .map(|n| (at(n), (u64::MAX - n as u64).to_le_bytes()))
                .collect();
            arena.write(&range, &code, &words).unwrap();
            let mut expected = code.clone();
            for (at, word) in &words {
                expected[*at..at + 8].copy_from_slice(word);
            }
            assert!(shows(&arena, &range, &expected), "{count}");
            // SAFETY: nothing was executed there.
            unsafe { arena.free(range) };
        }
    }

    #[test]
    fn what_is_freed_is_used_again_after_one_barrier_for_many() {
        let mut arena = Arena::new(64 * page_size()).unwrap();
        if !uses_addresses_again(&arena) {
            return;
        }
        let slack = arena.max_slack() / page_size();
        assert_eq!(slack, 4);
        let offsets: Vec<usize> = (0..3 * slack)
            .map(|_| {
                let range = arena.allocate(page_size(), 64, false).unwrap();
                let offset = range.offset / page_size();
                // SAFETY: nothing was executed there.
                unsafe { arena.free(range) };
                offset
            })
            .collect();
        assert_eq!(offsets, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]);
        // What is stale is room, too.
        assert!(arena.allocate(64 * page_size(), 64, false).is_ok());
        assert!(matches!(arena.allocate(1, 1, false), Err(ArenaError::Full(1))));
    }

    #[test]
    fn a_set_of_pages_is_returned_in_rows() {
        let mut pages = PageSet::new(130);
        pages.add(0..3);
        pages.add(2..66);
        pages.add(100..101);
        pages.add(128..130);
        pages.remove(10..20);
        pages.remove(15..21);
        assert_eq!(pages.len(), 66 - 11 + 3);
        assert_eq!(pages.take_all(), [0..10, 21..66, 100..101, 128..130]);
        assert_eq!((pages.len(), pages.take_all().len()), (0, 0));
    }

    #[test]
    fn ranges_come_back() {
        let mut arena = Arena::new(16 * page_size()).unwrap();
        if !uses_addresses_again(&arena) {
            return;
        }
        let a = arena.allocate(100, 16, false).unwrap();
        let b = arena.allocate(page_size() + 904, 64, true).unwrap();
        let c = arena.allocate(1, 1, false).unwrap();
        assert_eq!(
            (a.offset, b.offset, b.len, c.offset),
            (0, page_size(), 2 * page_size(), 128)
        );
        assert_eq!(
            (c.offset(), b.offset(), b.len()),
            (128, page_size(), 2 * page_size())
        );
        assert!(matches!(
            arena.allocate(16 * page_size(), 1, false),
            Err(ArenaError::Full(_))
        ));
        assert!(matches!(
            arena.allocate(usize::MAX, 1, false),
            Err(ArenaError::Full(_))
        ));
        // SAFETY: nothing was ever run there.
        unsafe {
            arena.free(b);
            arena.free(a);
            arena.free(c);
        }
        arena.reclaim().unwrap();
        assert!(arena.free.is_whole(16 * page_size()));
        assert!(arena.allocate(16 * page_size(), page_size(), true).is_ok());
    }

    #[test]
    fn code_is_executable_and_data_is_writable() {
        let mut arena = Arena::new(16 * page_size()).unwrap();
        let mut range = arena.allocate(3 * page_size(), page_size(), true).unwrap();
        // The first word of the next page.
        arena.write(&range, &code::loads_from(page_size()), &[]).unwrap();
        arena
            .map_anonymous(&mut range, page_size(), 8, &7u32.to_le_bytes())
            .unwrap();
        let address = arena.address(&range);
        // SAFETY: the bytes above are a function without arguments that returns a u32; the next page is the test's.
        unsafe {
            let f: extern "C" fn() -> u32 = std::mem::transmute(address);
            assert_eq!(f(), 7);
            *((address + page_size()) as *mut u32) = 8;
            assert_eq!(f(), 8);
            arena.free(range);
        }
    }

    #[test]
    fn at_an_address_that_is_used_again_the_new_code_runs() {
        let mut arena = Arena::new(16 * page_size()).unwrap();
        let mut addresses = Vec::new();
        for number in 0..40 {
            let range = arena.allocate(code::returns(number).len(), 64, false).unwrap();
            arena.write(&range, &code::returns(number), &[]).unwrap();
            let address = arena.address(&range);
            // SAFETY: what is there is a function without arguments that returns a u32.
            let run = || unsafe { std::mem::transmute::<usize, extern "C" fn() -> u32>(address)() };
            assert_eq!(run(), number);
            assert_eq!(
                std::thread::scope(|scope| scope.spawn(run).join()).unwrap(),
                number
            );
            addresses.push(address);
            // SAFETY: it has returned.
            unsafe { arena.free(range) };
            let _ = arena.reclaim();
        }
        addresses.dedup();
        assert_eq!(addresses.len(), if arena.serializes { 1 } else { 40 });
    }

    #[test]
    fn a_page_that_a_debugger_wrote_to_shows_what_is_installed_later() {
        let mut arena = Arena::new(8 * page_size()).unwrap();
        let before = arena.allocate(page_size(), page_size(), true).unwrap();
        let first = arena.allocate(12, 1, false).unwrap();
        let second = arena.allocate(12, 1, false).unwrap();
        // Another image's statics, in the page after theirs.
        let mut statics = arena.allocate(page_size(), page_size(), true).unwrap();
        arena
            .map_anonymous(&mut statics, 0, page_size(), &[5; 8])
            .unwrap();
        assert_eq!(
            (before.offset, first.offset, statics.offset),
            (0, page_size(), 2 * page_size())
        );
        arena.write(&first, &code::returns(7), &[]).unwrap();
        // As a debugger does it: the kernel writes into the mapping, whatever its protection.
        let memory = std::fs::OpenOptions::new()
            .write(true)
            .open("/proc/self/mem")
            .unwrap();
        let address = arena.address(&first);
        // Newer kernels can be told not to, for all processes (`proc_mem.force_override=never`) or for those that are not
        // traced.
        if let Err(error) = memory.write_at(&code::returns(8), address as u64) {
            eprintln!("SKIPPED: this kernel refuses writes to protected memory: {error}");
            return;
        }
        let run = |address: usize| {
            // SAFETY: what is there is a function without arguments that returns a u32.
            unsafe { std::mem::transmute::<usize, extern "C" fn() -> u32>(address)() }
        };
        arch::publish_code(arena.bytes(&first, code::returns(8).len()));
        assert_eq!(run(address), 8);
        arena.write(&second, &code::returns(9), &[]).unwrap();
        assert_eq!((run(address), run(arena.address(&second))), (7, 9));
        assert!(shows(&arena, &statics, &[5; 8]));
    }

    #[test]
    fn an_arena_is_unmapped_unless_its_address_was_given_away() {
        use std::os::unix::fs::MetadataExt as _;
        for leaks in [false, true] {
            let mut arena = Arena::new(16 * page_size()).unwrap();
            let inode = arena.memfd.metadata().unwrap().ino().to_string();
            let is_mapped = || {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
                maps.lines().any(|line| {
                    line.contains("memfd:ifunc-code") && line.split_whitespace().any(|word| word == inode)
                })
            };
            assert!(is_mapped());
            if leaks {
                arena.leak();
            }
            drop(arena);
            assert_eq!(is_mapped(), leaks);
        }
    }

    /// The barrier is asked for, and only then: the kernel refuses it to this thread.
    #[test]
    fn an_address_is_used_again_after_the_barrier_alone() {
        let alone = std::thread::spawn(|| {
            let mut arena = Arena::new(4 * page_size()).unwrap();
            if !uses_addresses_again(&arena) {
                return;
            }
            if !crate::tests::kernel::refuse(libc::SYS_membarrier) {
                return;
            }
            let first = arena.allocate(3 * page_size(), 1, false).unwrap();
            let offset = first.offset;
            // SAFETY: nothing was ever run there.
            unsafe { arena.free(first) };
            for _ in 0..2 {
                let refused = arena.allocate(2 * page_size(), 1, false);
                assert!(
                    matches!(refused, Err(ArenaError::Os(_))),
                    "{refused:?}, of {offset}"
                );
            }
            // There is other room.
            let other = arena.allocate(page_size(), 1, false).unwrap();
            assert_eq!(other.offset, 3 * page_size());
        });
        alone.join().unwrap();
    }

    #[test]
    fn without_the_barrier_an_address_is_used_once() {
        let mut arena = Arena::new(4 * page_size()).unwrap();
        arena.serializes = false;
        let whole = arena.allocate(page_size(), page_size(), true).unwrap();
        let small = arena.allocate(10, 1, false).unwrap();
        assert_eq!((whole.offset, small.offset), (0, page_size()));
        // SAFETY: nothing was ever run there.
        unsafe {
            arena.free(whole);
            arena.free(small);
        }
        assert_eq!(
            arena.allocate(10, 1, false).unwrap().offset,
            page_size() + GRANULE
        );
        assert!(arena.allocate(2 * page_size(), page_size(), true).is_ok());
        assert!(matches!(
            arena.allocate(page_size(), page_size(), true),
            Err(ArenaError::Full(_))
        ));
    }
}
