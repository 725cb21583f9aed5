//! One page for all connections of a target: a bit for each, which says that something happened while nobody looked.
//!
//! A target looks at the connections that have something to do. Of the others it has announced, in their own segments, that
//! it looks at them no more; whoever publishes something to one of those sets its bit here, and the target looks at the
//! bits, 64 connections a word. A target that sleeps says so here, too, and is rung over the socket by whoever set a bit.
//!
//! The page is shared by all sources of the target's own user, each of which can clear the bits of others, and so keep them
//! waiting: they could as well stop those processes, or the target. Sources of other users do not get it: they ring over
//! their sockets, and the target sets the bits for them.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::layout::Apart;
use super::segment::{AdoptError, SEALS, sealed_memory};
use words::{AtomicU32, AtomicU64};

#[cfg(all(test, loom))]
mod model;
pub(super) mod words;

/// Most connections that a board has bits for.
pub(in super::super) const MOST: usize = 1 << 16;

/// What lies before the words.
#[repr(C)]
struct Head {
    /// Not 0: the target sleeps and must be rung.
    asleep: Apart<AtomicU32>,
}

/// A mapped board.
#[derive(Debug)]
pub(super) struct Board {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone within the process; what it gives out are references to atomics.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

/// Length of a board with bits for so many.
fn bytes_for(connections: usize) -> usize {
    (size_of::<Head>() + connections.div_ceil(words::BITS) * size_of::<u64>())
        .next_multiple_of(super::layout::GRANULE)
}

impl Board {
    /// A new board for so many connections, and the memfd to be sent to their sources.
    fn create(connections: usize) -> io::Result<(Self, OwnedFd)> {
        let len = bytes_for(connections.min(MOST));
        let fd = sealed_memory("ifunc-board", len)?;
        Ok((Self::map(fd.as_fd(), len)?, fd))
    }

    /// The board that a target created.
    pub(super) fn adopt(fd: BorrowedFd<'_>) -> Result<Self, AdoptError> {
        let seals = fcntl_get_seals(fd).map_err(|_| AdoptError::Unfit("its board is not sealed"))?;
        if !seals.contains(SEALS) {
            return Err(AdoptError::Unfit("its board can be resized"));
        }
        let len = fstat(fd).map_err(|error| AdoptError::Io(error.into()))?.st_size;
        match usize::try_from(len) {
            Ok(len) if len >= bytes_for(1) && len <= bytes_for(MOST) && len % super::layout::GRANULE == 0 => {
                Self::map(fd, len).map_err(AdoptError::Io)
            }
            _ => Err(AdoptError::Unfit("its board is of a size that cannot be")),
        }
    }

    /// Maps it. `fd` is sealed and `len` bytes long.
    fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for, so that nothing is replaced.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
        })
    }

    pub(super) fn asleep(&self) -> &AtomicU32 {
        // SAFETY: `Head` lies at the (page-aligned) begin of the mapping, which is longer (`bytes_for`) and cannot shrink
        // (seals); it holds only an atomic integer, for which any bytes and any concurrent writer are fine.
        let head: &Head = unsafe { self.base.cast().as_ref() };
        &head.asleep.0
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        let words = (self.len - size_of::<Head>()) / size_of::<u64>();
        // SAFETY: behind `Head`, whose size is a multiple of eight; within the mapping; atomics, as above.
        unsafe { std::slice::from_raw_parts(self.base.add(size_of::<Head>()).cast().as_ptr(), words) }
    }

    /// Sets a bit; whether the target is to be rung.
    pub(super) fn mark(&self, bit: u32) -> bool {
        words::mark(self.words(), self.asleep(), bit as usize)
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping, and what points into it borrows this value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A target's board: which bits are whose.
#[derive(Debug)]
pub(super) struct Roll {
    board: Board,
    memory: OwnedFd,
    most: usize,
    places: Mutex<Places>,
    /// Words in which bits were ever given: those that are looked at.
    used: AtomicUsize,
}

#[derive(Debug, Default)]
struct Places {
    free: std::collections::BTreeSet<u32>,
    /// All from here on are free, too.
    next: u32,
    taken: usize,
}

impl Roll {
    /// For at most so many connections.
    pub(super) fn new(most: usize) -> io::Result<Self> {
        let most = most.min(MOST);
        let (board, memory) = Board::create(most)?;
        Ok(Self {
            board,
            memory,
            most,
            places: Mutex::default(),
            used: AtomicUsize::new(0),
        })
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// For sources of the same user.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Most connections at a time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A bit for a connection: the lowest that is free. `None`: there are too many.
    pub(super) fn enter(&self) -> Option<u32> {
        let mut places = self.places();
        if places.taken >= self.most {
            return None;
        }
        places.taken += 1;
        let bit = places.free.pop_first().unwrap_or_else(|| {
            places.next += 1;
            places.next - 1
        });
        let words = bit as usize / words::BITS + 1;
        self.used.fetch_max(words, Ordering::Release);
        Some(bit)
    }

    /// Gives the bit of a connection back. Somebody may still set it: its next owner is looked at once in vain.
    pub(super) fn leave(&self, bit: u32) {
        let mut places = self.places();
        places.taken -= 1;
        places.free.insert(bit);
    }

    /// Takes the bits that are set.
    pub(super) fn take(&self, each: impl FnMut(usize)) {
        let words = self.board.words();
        let used = self.used.load(Ordering::Acquire).min(words.len());
        words::take(&words[..used], each);
    }

    /// Announces that the target is about to sleep, or that it is not.
    pub(super) fn announce(&self, sleeps: bool) {
        if sleeps {
            words::announce(self.board.asleep());
        } else {
            words::withdraw(self.board.asleep());
        }
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_cross_between_mappings_and_are_given_again() {
        let roll = Roll::new(130).unwrap();
        let theirs = Board::adopt(roll.memory()).unwrap();
        let bits: Vec<u32> = (0..130).map(|_| roll.enter().unwrap()).collect();
        assert_eq!(bits, (0..130).collect::<Vec<_>>());
        assert_eq!(roll.enter(), None);
        roll.leave(64);
        roll.leave(3);
        assert_eq!(
            (roll.enter(), roll.enter(), roll.enter()),
            (Some(3), Some(64), None)
        );

        let set = || {
            let mut set = Vec::new();
            roll.take(|bit| set.push(bit));
            set
        };
        assert!(!theirs.mark(129));
        assert!(!theirs.mark(0));
        roll.announce(true);
        assert!(theirs.mark(5), "it sleeps");
        assert!(!theirs.mark(64), "it was rung");
        roll.announce(false);
        assert_eq!((set(), set()), (vec![0, 5, 64, 129], vec![]));
        // Beyond the end: a target that says so harms itself.
        assert!(!theirs.mark(u32::MAX));
    }

    #[test]
    fn memory_that_could_shrink_is_no_board() {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, bytes_for(1) as u64).unwrap();
        assert!(matches!(Board::adopt(fd.as_fd()), Err(AdoptError::Unfit(_))));
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        assert!(Board::adopt(fd.as_fd()).is_ok());
        let odd = sealed_memory("test", 4096).unwrap();
        assert!(matches!(Board::adopt(odd.as_fd()), Err(AdoptError::Unfit(_))));
    }
}
