//! The ready bitmap: one page for all connections of a target, with a bit for each parked connection that has an event.
//!
//! A target polls only the connections that have work. It has parked the others: their segments say that it does not poll
//! them. A source that publishes to a parked connection sets the connection's bit here. The target reads the bits, 64
//! connections a word. A target that sleeps announces it here, too; the source that sets a bit then wakes it over the socket.
//!
//! The page is shared by all sources of the target's own user, each of which can clear the bits of others, and deny that the
//! target sleeps. So the page is a hint, which saves system calls, and nothing waits on it alone:
//!
//! * a source that set its bit, and then sleeps, also sends a wake-up over its socket, which no other source can write to;
//! * what arrives over a socket is marked in a bitmap of the target's own;
//! * a target whose page several sources share looks at all parked connections once per [`LOOK_INTERVAL`], for those of sources
//!   that send and never wait.
//!
//! Sources of other users do not get the page: they always send wake-ups over their sockets.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::mapping::{AdoptError, Mapping, sealed_len, sealed_memory};
use super::segment::{Apart, GRANULE};
use bitmap::{AtomicU32, AtomicU64};

pub(super) mod bitmap;
#[cfg(all(test, loom))]
mod model;

/// Most connections that a bitmap has bits for.
pub(in super::super) const MOST: usize = 1 << 16;

/// The longest time for which a bit that another source clears keeps a source waiting that does not wait for anything.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What lies before the words.
#[repr(C)]
struct Head {
    /// Not 0: the target sleeps and must be woken.
    asleep: Apart<AtomicU32>,
}

/// A mapped ready bitmap.
#[derive(Debug)]
pub(super) struct ReadyBitmap(Mapping);

/// Words with bits for the most connections.
const WORDS: usize = MOST / bitmap::BITS;

const _: () = assert!(size_of::<Head>() + WORDS * size_of::<u64>() <= GRANULE);

impl ReadyBitmap {
    /// A new bitmap, and the memfd for the sources.
    fn create() -> io::Result<(Self, OwnedFd)> {
        let fd = sealed_memory("ifunc-ready", GRANULE)?;
        Ok((Self::map(fd.as_fd())?, fd))
    }

    /// Maps the bitmap that a target created.
    pub(super) fn adopt(fd: BorrowedFd<'_>) -> Result<Self, AdoptError> {
        if sealed_len(fd)? != GRANULE {
            return Err(AdoptError::Unfit("its ready bitmap is of a size that cannot be"));
        }
        Ok(Self::map(fd)?)
    }

    /// Maps it. `fd` is sealed and of [`GRANULE`] bytes.
    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut mapping = Mapping::reserve(GRANULE)?;
        mapping.place(0..GRANULE, fd, 0)?;
        Ok(Self(mapping))
    }

    pub(super) fn asleep(&self) -> &AtomicU32 {
        // SAFETY: `Head` lies at the (page-aligned) begin of the mapping, which is longer (asserted above) and cannot shrink
        // (seals); it holds only an atomic integer, for which any bytes and any concurrent writer are fine.
        let head: &Head = unsafe { self.0.base().cast().as_ref() };
        &head.asleep.0
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: after `Head`, whose size is a multiple of eight; within the mapping (asserted above); atomics, as above.
        unsafe { std::slice::from_raw_parts(self.0.at(size_of::<Head>()).cast().as_ptr(), WORDS) }
    }

    /// Sets a bit. Returns whether the caller must wake the target.
    pub(super) fn set(&self, bit: u32) -> bool {
        bitmap::set(self.words(), self.asleep(), bit as usize)
    }
}

/// A target's ready bitmap, and the allocator of its bits.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    bitmap: ReadyBitmap,
    /// The bits that the target itself sets.
    marked: Box<[AtomicU64]>,
    /// For sources of the same user.
    pub(super) memory: OwnedFd,
    /// Most connections at a time.
    pub(super) most: usize,
    bits: Mutex<Bits>,
    /// Words in which a bit was ever allocated. Only those are read.
    used: AtomicUsize,
}

#[derive(Debug, Default)]
struct Bits {
    free: BTreeSet<u32>,
    /// All bits from here on are free, too.
    next: u32,
}

impl ConnectionSlots {
    /// For at most `most` connections.
    pub(super) fn new(most: usize) -> io::Result<Self> {
        let most = most.min(MOST);
        let (bitmap, memory) = ReadyBitmap::create()?;
        Ok(Self {
            marked: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            bitmap,
            memory,
            most,
            bits: Mutex::default(),
            used: AtomicUsize::new(0),
        })
    }

    /// Allocates the lowest free bit. `None`: there are too many connections.
    pub(super) fn allocate(&self) -> Option<u32> {
        let mut bits = self.bits();
        let bit = bits.free.pop_first().or_else(|| {
            let bit = bits.next;
            ((bit as usize) < self.most).then(|| {
                bits.next += 1;
                bit
            })
        })?;
        let words = bit as usize / bitmap::BITS + 1;
        self.used.fetch_max(words, Ordering::Release);
        Some(bit)
    }

    /// Frees the bit of a connection. A source may still set it: then the target polls the bit's next owner once in vain.
    pub(super) fn free(&self, bit: u32) {
        self.bits().free.insert(bit);
    }

    /// Marks a connection as ready, where no source can take the mark back.
    pub(super) fn mark(&self, bit: u32) {
        bitmap::mark(&self.marked, bit as usize);
    }

    /// Takes the bits that are set.
    pub(super) fn take_ready(&self, mut each: impl FnMut(usize)) {
        let used = self.used.load(Ordering::Acquire);
        bitmap::take(&self.bitmap.words()[..used], &mut each);
        bitmap::take(&self.marked[..used], &mut each);
    }

    /// Announces that the target is about to sleep, or that it is not.
    pub(super) fn announce(&self, sleeps: bool) {
        if sleeps {
            bitmap::announce(self.bitmap.asleep());
        } else {
            bitmap::withdraw(self.bitmap.asleep());
        }
    }

    fn bits(&self) -> MutexGuard<'_, Bits> {
        self.bits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::mapping::SEALS;
    use super::*;

    #[test]
    fn bits_cross_between_mappings_and_are_given_again() {
        let slots = ConnectionSlots::new(130).unwrap();
        let theirs = ReadyBitmap::adopt(slots.memory.as_fd()).unwrap();
        let bits: Vec<u32> = (0..130).map(|_| slots.allocate().unwrap()).collect();
        assert_eq!(bits, (0..130).collect::<Vec<_>>());
        assert_eq!(slots.allocate(), None);
        assert_eq!(slots.used.load(Ordering::Relaxed), 3, "words that are read");
        slots.free(64);
        slots.free(3);
        assert_eq!(
            (slots.allocate(), slots.allocate(), slots.allocate()),
            (Some(3), Some(64), None)
        );

        let set = || {
            let mut set = Vec::new();
            slots.take_ready(|bit| set.push(bit));
            set
        };
        assert!(!theirs.set(129));
        assert!(!theirs.set(0));
        // No source can take this one back.
        slots.mark(77);
        for word in theirs.words() {
            word.fetch_and(!(1 << (77 % 64)), Ordering::Relaxed);
        }
        slots.announce(true);
        assert!(theirs.set(5), "it sleeps");
        assert!(!theirs.set(64), "it was woken");
        slots.announce(false);
        assert_eq!((set(), set()), (vec![0, 5, 64, 129, 77], vec![]));
        // Beyond the end: a target that says so harms itself.
        assert!(!theirs.set(u32::MAX));
    }

    #[test]
    fn memory_that_could_shrink_is_not_mapped() {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, GRANULE as u64).unwrap();
        assert!(matches!(
            ReadyBitmap::adopt(fd.as_fd()),
            Err(AdoptError::Unfit(_))
        ));
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        assert!(ReadyBitmap::adopt(fd.as_fd()).is_ok());
        for odd in [4096, 2 * GRANULE] {
            let odd = sealed_memory("test", odd).unwrap();
            assert!(matches!(
                ReadyBitmap::adopt(odd.as_fd()),
                Err(AdoptError::Unfit(_))
            ));
        }
    }

    #[test]
    fn the_most_connections_have_bits() {
        let slots = ConnectionSlots::new(usize::MAX).unwrap();
        assert_eq!(slots.most, MOST);
        (0..MOST as u32).for_each(|bit| assert_eq!(slots.allocate(), Some(bit)));
        assert_eq!(slots.allocate(), None);
        let theirs = ReadyBitmap::adopt(slots.memory.as_fd()).unwrap();
        let last = MOST as u32 - 1;
        theirs.set(last);
        slots.mark(last);
        let mut taken = Vec::new();
        slots.take_ready(|bit| taken.push(bit));
        assert_eq!(taken, [MOST - 1; 2]);
    }
}
