//! Frames that have arrived.

use ::ucx::Kept;

use super::packet::{Arrived, Packet};

/// A frame that has arrived, whose header was validated. Its body is in the packet, or in a buffer of UCX's that the packet's tag holds. It goes
/// through several hands within nanoseconds, and only the packet's address does: what lies in memory would be read, each time, by loads that
/// wait for the stores.
pub(super) struct Frame(Packet);

impl Frame {
    /// A frame whose body, of `len` bytes, was copied into a packet.
    #[inline(always)]
    pub(super) fn copied(mut packet: Packet, len: usize, sequence: u32, words: [u64; 2]) -> Self {
        let arrived = packet.arrived_mut();
        (arrived.sequence, arrived.words, arrived.len) = (sequence, words, len);
        Self(packet)
    }

    /// A frame whose body is in a buffer of UCX's. The packet only notes that.
    pub(super) fn kept(packet: Packet, kept: Kept, sequence: u32, words: [u64; 2]) -> Self {
        let mut frame = Self::copied(packet, kept.as_ptr().len(), sequence, words);
        frame.0.arrived_mut().kept = Some(kept);
        frame
    }

    fn arrived(&self) -> &Arrived {
        self.0.arrived()
    }

    pub(super) fn sequence(&self) -> u32 {
        self.arrived().sequence
    }

    pub(super) fn words(&self) -> [u64; 2] {
        self.arrived().words
    }

    /// Length of the body.
    pub(super) fn len(&self) -> usize {
        self.arrived().len
    }

    /// Whether the body is in a buffer of UCX's.
    pub(super) fn is_kept(&self) -> bool {
        self.arrived().kept.is_some()
    }

    /// Where the body is, for as long as the frame.
    pub(super) fn body(&self) -> *const u8 {
        match &self.arrived().kept {
            None => self.0.body(self.len()).as_ptr(),
            Some(kept) => kept.as_ptr().cast(),
        }
    }

    /// Takes the buffer of UCX's that the body is in. The body is not read afterwards; its length is still known.
    pub(super) fn take_kept(&mut self) -> Option<Kept> {
        self.0.arrived_mut().kept.take()
    }

    /// The memory of the frame: the packet, and the buffer of UCX's.
    #[inline(always)]
    pub(super) fn into_memory(mut self) -> (Packet, Option<Kept>) {
        let kept = self.take_kept();
        (self.0, kept)
    }
}
