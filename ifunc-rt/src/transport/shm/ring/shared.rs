//! What a ring needs of the memory that both sides see. Mapped memory implements it, and so does loom's model.

/// What a side announces to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideState {
    /// It polls the link, and needs no wake-up.
    Polls,
    /// It sleeps. What the peer published before it found no announcement is visible to loads after the call.
    Sleeps,
    /// A target does not poll the link, and its listener's fence follows.
    Parked,
}

/// One direction of a connection as one side sees it.
///
/// # Safety
/// `inline` and `data` must return pointers that stay valid for reads and writes, for the lengths that they
/// name, as long as the value lives. What `inline_run` returns must be valid for reads as far as it says.
pub(crate) unsafe trait Shared: Send {
    /// Distance in bytes between the inline bodies of two slots that follow one another.
    const INLINE_STRIDE: usize;

    /// A slot.
    type Slot<'a>: Copy
    where
        Self: 'a;

    /// The slot of a frame. Frames are counted from 0; a slot belongs to one frame of each lap.
    fn slot(&self, frame: u64) -> Self::Slot<'_>;

    /// As [`slot`](Self::slot), for several frames: what all of them need is loaded once.
    fn slots<'a>(&'a self) -> impl Fn(u64) -> Self::Slot<'a> {
        |frame| self.slot(frame)
    }

    /// Loads the commit word of a slot; what was stored before it was stored is visible then.
    fn load_commit(slot: Self::Slot<'_>) -> u64;

    /// Copies words 1 and 2 of a slot.
    fn load_words(slot: Self::Slot<'_>) -> [u64; 2];

    /// Whether a consumer stores into the cache lines that it has read.
    fn consumer_takes(&self) -> bool;

    /// Stores word 2 of a slot again: the slot's line is this side's then.
    fn take_slot(slot: Self::Slot<'_>, word: u64);

    /// Overwrites something in each cache line of `len` bytes from byte `at` of the data ring on, whose bodies were consumed.
    fn take_body(&self, at: usize, len: usize);

    /// Stores words 1 and 2 of a frame's slot, and then its commit word, after everything else.
    fn publish(&self, frame: u64, words: [u64; 2], commit: u64);

    /// The 40 bytes for an inline body.
    fn inline(&self, slot: Self::Slot<'_>) -> *mut u8;

    /// The inline body of a frame, from which on those of the slots after it can be read, up to the last slot.
    fn inline_run(&self, frame: u64) -> *const u8;

    /// Byte `at` of the data ring. As many bytes as the data ring has may be used from there on.
    fn data(&self, at: usize) -> *mut u8;

    /// Hints to the processor that a body of `len` bytes was published at byte `at` of the data ring, and that the next one
    /// begins at `next`, where `free` bytes are free.
    fn body_published(&self, at: usize, len: usize, next: usize, free: usize) {
        let _ = (at, len, next, free);
    }

    /// Hints to the processor that a body of `len` bytes at byte `at` of the data ring is read next.
    fn body_found(&self, at: usize, len: usize) {
        let _ = (at, len);
    }

    /// Hints to the processor that the slot of a frame is read soon.
    fn slot_expected(&self, frame: u64) {
        let _ = frame;
    }

    /// Frames and bytes that the consumer released, as it published them.
    fn load_credits(&self) -> [u64; 2];

    /// Publishes the frames and bytes that this side released, after its last use of them.
    fn store_credits(&self, credits: [u64; 2]);

    /// After something was published: whether the peer announced that it does not poll.
    fn is_peer_asleep(&self) -> bool;

    /// Wakes the peer if it announced that it does not poll. What was stored before is visible to a peer that announces it
    /// later.
    fn wake_peer(&self);

    /// Announces how this side receives, instead of what it announced before.
    fn announce(&self, state: SideState);

    /// Whether the peer is known to be gone. If so, all that it ever stored is visible.
    fn is_gone(&self) -> bool;

    /// A hint that [`is_gone`](Self::is_gone) is true: one load from the line that [`wake_peer`](Self::wake_peer) reads. A peer
    /// may withhold it.
    #[inline(always)]
    fn has_closed(&self) -> bool {
        self.is_gone()
    }
}
