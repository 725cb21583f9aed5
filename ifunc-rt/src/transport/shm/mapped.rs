//! A ring in the mapped segment.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::barrier::Barriers;
use super::connection::Connection;
use super::first_lap::FirstLap;
use super::line_owner;
use super::pace::Pace;
use super::ring::shared::{Shared, SideState};
use super::ring::words;
use super::segment::{Apart, Side, SideWords, Slot};
use crate::ticks::ticks;
use crate::transport::{nontemporal, prefetch};

/// Slots between the committed one and the one whose line the producer requests: as many as it fills while a line comes. What
/// the consumer's processor fetches ahead takes back lines that were requested earlier (32 bytes 47 → 30 ns with 6 instead of
/// 16).
const AHEAD: usize = 6;

/// The producer requests as many bytes after a body as the body had. In a stream it does so for bodies up to this length only, and requests
/// the first line after a longer one, for the consumer may have read that line alone ([`is_image`](super::ring)). The stores request the others a moment later.
const NEXT: usize = 4 << 10;
/// Most bytes of the data ring that the producer requests.
const MOST_NEXT: usize = 128 << 10;
/// Bodies up to this length are moved out of the producer's cache. The consumer would read the beginning of a larger one while
/// the rest is moved, and both would wait.
const MOVED: usize = 2 << 10;
/// Ticks between two bodies below which they are a stream; each byte adds a part of a tick. A message and its answer between
/// two cores take twice as many, a stream half, from 64 bytes to a mebibyte. A stream whose bodies are moved by mistake takes
/// longer, and is still recognised.
const STREAM: usize = 768;

/// The ring towards a side, as the mapping of one side shows it.
pub(crate) struct Mapped {
    connection: Arc<Connection>,
    /// The direction.
    towards: Side,
    /// Copies of what `connection` leads to, for the hot path.
    slots: NonNull<Slot>,
    data: NonNull<u8>,
    /// Index of the last slot: a mask.
    last: usize,
    /// Whether the peer sleeps, and whether it closed the connection.
    peer: NonNull<SideWords>,
    barriers: Barriers,
    /// Of the bodies that are published.
    pace: Pace,
    /// The producer's.
    first_lap: FirstLap,
}

// SAFETY: the pointers lead into the mapping that `connection` keeps; slots are reached through atomics,
// bodies through the one producer or consumer that owns this value.
unsafe impl Send for Mapped {}

impl Mapped {
    /// The ring towards a side.
    pub(super) fn new(connection: Arc<Connection>, towards: Side) -> Self {
        let (slots, data) = (
            connection.segment.slots(towards),
            connection.segment.data(towards),
        );
        let last = connection.segment.layout().ring(towards).slots as usize - 1;
        let (peer, barriers) = (connection.peer_words().into(), connection.barriers);
        Self {
            connection,
            towards,
            slots,
            data,
            last,
            peer,
            barriers,
            pace: Pace::default(),
            first_lap: FirstLap::new(),
        }
    }

    /// Takes memory for the bodies after one of `len` bytes, the first of which begins at byte `next`.
    #[cold]
    #[inline(never)]
    fn populate(&self, next: usize, len: usize) {
        let segment = &self.connection.segment;
        let data = segment.layout().data_len(self.towards);
        let part = self.first_lap.next_part(next, len, data);
        segment.populate_data(self.towards, part);
    }

    #[inline(always)]
    fn peer(&self) -> &SideWords {
        // SAFETY: they lie in the mapping, which `connection` keeps, and are atomics, for which any concurrent writer is fine.
        unsafe { self.peer.as_ref() }
    }

    #[inline]
    fn credits(&self) -> &[AtomicU64; 2] {
        let Apart(credits) = &self.connection.segment.control().credits[self.towards as usize];
        credits
    }
}

// SAFETY: the inline bytes are a field of the slot; `data` of `Segment` begins a range of twice the data
// ring's length, so that from any place in its first half on there is room for a whole one. `connection`
// keeps the mapping.
unsafe impl Shared for Mapped {
    type Slot<'a> = &'a Slot;

    const INLINE_STRIDE: usize = size_of::<Slot>();

    #[inline(always)]
    fn slot(&self, frame: u64) -> &Slot {
        // SAFETY: the mapping has `last + 1` slots, a power of two. `Slot` holds only atomics and a cell: a concurrent
        // writer is fine.
        unsafe { self.slots.add(frame as usize & self.last).as_ref() }
    }

    #[inline(always)]
    fn slots<'a>(&'a self) -> impl Fn(u64) -> &'a Slot {
        let (slots, last) = (self.slots, self.last);
        // SAFETY: as in `slot`.
        move |frame| unsafe { slots.add(frame as usize & last).as_ref() }
    }

    #[inline(always)]
    fn load_commit(slot: &Slot) -> u64 {
        words::load_commit(&slot.commit)
    }

    #[inline(always)]
    fn load_words(slot: &Slot) -> [u64; 2] {
        words::load_words(&slot.words)
    }

    fn consumer_takes(&self) -> bool {
        line_owner::consumer_takes()
    }

    #[inline(always)]
    fn take_slot(slot: &Slot, word: u64) {
        words::store_second_word(&slot.words, word);
    }

    #[inline]
    fn take_body(&self, at: usize, len: usize) {
        for line in (at..at + len).step_by(nontemporal::LINE) {
            // SAFETY: `at` is a cursor in the data ring, and bodies that were consumed together are at most as long as that is; it is mapped
            // twice. A line is aligned for a word. The producer writes there after it has got the credits of these bodies, which this side
            // publishes later; a peer that breaks the protocol finds its own bytes changed.
            unsafe { self.data.add(line).cast::<u64>().write_volatile(0) };
        }
    }

    #[inline(always)]
    fn publish(&self, frame: u64, words: [u64; 2], commit: u64) {
        let slot = self.slot(frame);
        words::store_words(&slot.words, words);
        words::store_commit(&slot.commit, commit);
        // For the last slots of the ring the address is past its end: a prefetch does not fault, and to mask the index would take longer than
        // the hint saves.
        prefetch::for_writing(std::ptr::from_ref(slot).wrapping_add(AHEAD));
    }

    #[inline(always)]
    fn inline(&self, slot: &Slot) -> *mut u8 {
        slot.inline.get().cast()
    }

    fn inline_run(&self, frame: u64) -> *const u8 {
        // SAFETY: the mapping has `last + 1` slots. The pointer is that of the mapping, not of one slot.
        unsafe { (&raw const (*self.slots.add(frame as usize & self.last).as_ptr()).inline).cast() }
    }

    #[inline]
    fn data(&self, at: usize) -> *mut u8 {
        debug_assert!(at < self.connection.segment.layout().data_len(self.towards));
        // SAFETY: `at` is a cursor masked by the length of the data ring, which is mapped there twice.
        unsafe { self.data.add(at) }.as_ptr()
    }

    /// A consumer that waits for this body finds a moved line sooner (64 B 313 → 264 ns, 1 KiB 600 → 499 ns), and the next body
    /// is written sooner if its lines are there (4 KiB 1290 → 1020 ns, 64 KiB 11.9 → 6.4 µs). In a stream the consumer is late:
    /// lines that are moved away and fetched again delay it (1 KiB 128 → 280 ns).
    #[inline]
    fn body_published(&self, at: usize, len: usize, next: usize, free: usize) {
        if self.first_lap.needs_memory(next, len) {
            self.populate(next, len);
        }
        let moves = len <= MOVED;
        let per_byte = if moves { len / 4 * 3 } else { len / 4 };
        let streams = self.pace.streams((STREAM + per_byte) as u64, ticks);
        if !streams && moves {
            prefetch::each_line(self.data(at), len, prefetch::for_others);
        }
        let most = if !streams || len <= NEXT { MOST_NEXT } else { 1 };
        let len = len.min(most).min(free);
        prefetch::each_line(self.data(next), len, prefetch::for_writing);
    }

    #[inline]
    fn body_found(&self, at: usize, len: usize) {
        prefetch::body(self.data(at), len);
    }

    #[inline]
    fn slot_expected(&self, frame: u64) {
        prefetch::for_reading(self.slot(frame));
    }

    fn load_credits(&self) -> [u64; 2] {
        words::load_credits(self.credits())
    }

    fn store_credits(&self, credits: [u64; 2]) {
        words::store_credits(self.credits(), credits);
    }

    #[inline(always)]
    fn is_peer_asleep(&self) -> bool {
        words::is_peer_asleep(self.barriers, &self.peer().asleep)
    }

    #[inline(always)]
    fn wake_peer(&self) {
        if self.is_peer_asleep() {
            self.connection.wake_sleeper();
        }
    }

    fn announce(&self, state: SideState) {
        self.connection.announce(state);
    }

    #[inline]
    fn is_gone(&self) -> bool {
        self.connection.is_gone()
    }

    #[inline(always)]
    fn has_closed(&self) -> bool {
        self.peer().closed.load(Ordering::Relaxed) != 0
    }
}
