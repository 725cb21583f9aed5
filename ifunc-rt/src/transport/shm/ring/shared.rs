//! What a ring needs of the memory that both sides see. Mapped memory implements it, and the model that loom
//! checks.

/// One direction of a connection as one side sees it.
///
/// # Safety
/// `inline` and `data` must return pointers that stay valid for reads and writes, for the lengths that they
/// name, as long as the value lives.
pub(crate) unsafe trait Shared: Send {
    /// A slot.
    type Slot<'a>: Copy
    where
        Self: 'a;

    /// The slot of a frame. Frames are counted from 0; a slot belongs to one frame of each lap.
    fn slot(&self, frame: u64) -> Self::Slot<'_>;

    /// Loads the commit word of a slot; what was stored before it was stored is visible then.
    fn load_commit(slot: Self::Slot<'_>) -> u64;

    /// Copies words 1 and 2 of a slot.
    fn load_words(slot: Self::Slot<'_>) -> [u64; 2];

    /// Stores words 1 and 2 of a frame's slot, and then its commit word, after everything else.
    fn publish(&self, frame: u64, words: [u64; 2], commit: u64);

    /// The 40 bytes for an inline body.
    fn inline(&self, slot: Self::Slot<'_>) -> *mut u8;

    /// Byte `at`, less than the length of the data ring, of which as many bytes as the data ring has can be
    /// used.
    fn data(&self, at: usize) -> *mut u8;

    /// A body of `len` bytes was published that begins at byte `at` of the data ring; the next one will begin at `next`, from where
    /// on so many bytes are free. For hints to the processor.
    fn body_published(&self, at: usize, len: usize, next: usize, free: usize) {
        let _ = (at, len, next, free);
    }

    /// A body of `len` bytes was found at byte `at` of the data ring, and will be read. For hints to the processor.
    fn body_found(&self, at: usize, len: usize) {
        let _ = (at, len);
    }

    /// Frames and bytes that the consumer said it released.
    fn load_credits(&self) -> [u64; 2];

    /// Says so, after the last use of what was released.
    fn store_credits(&self, credits: [u64; 2]);

    /// Rings if the peer announced that it sleeps. What was stored before is visible to a peer that announces
    /// it later.
    fn wake_peer(&self);

    /// Announces that this side sleeps. What the peer stored before it looked for the announcement in vain is
    /// visible to loads behind this call.
    fn announce_sleep(&self);

    /// Takes the announcement back, of sleep or of rest.
    fn withdraw_sleep(&self);

    /// Announces that this side looks at this connection no more, without the barrier: the listener's.
    fn announce_parked(&self);

    /// Whether the peer is known to be gone. If so, all that it ever stored is visible.
    fn is_gone(&self) -> bool;
}
