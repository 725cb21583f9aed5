//! Frames that have arrived.

use std::collections::VecDeque;

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

/// Frames in their order. Nearly always there is one at most, which does not go through the ring of those behind it.
#[derive(Default)]
pub(super) struct Frames {
    /// If this is `None`, `others` is empty.
    first: Option<Frame>,
    others: VecDeque<Frame>,
}

impl Frames {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    #[inline(always)]
    pub(super) fn push_back(&mut self, frame: Frame) {
        match self.first {
            None => self.first = Some(frame),
            Some(_) => self.others.push_back(frame),
        }
    }

    pub(super) fn push_front(&mut self, frame: Frame) {
        if let Some(second) = self.first.replace(frame) {
            self.others.push_front(second);
        }
    }

    #[inline(always)]
    pub(super) fn pop_front(&mut self) -> Option<Frame> {
        let first = self.first.take();
        if !self.others.is_empty() {
            self.first = self.others.pop_front();
        }
        first
    }

    /// Takes all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Frame> {
        self.first.take().into_iter().chain(self.others.drain(..))
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.first.iter().chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Pool;
    use super::*;

    fn frame(sequence: u32) -> Frame {
        Frame::copied(Pool::default().take(0), 0, sequence, [1, 0])
    }

    #[test]
    fn frames_leave_in_their_order_and_one_that_is_put_back_is_the_next() {
        let mut frames = Frames::default();
        assert!(frames.is_empty() && frames.pop_front().is_none());
        for round in 1..4 {
            for sequence in 0..round {
                frames.push_back(frame(sequence));
            }
            let taken = frames.pop_front().unwrap();
            assert_eq!((taken.sequence(), frames.len()), (0, round as usize - 1));
            frames.push_front(taken);
            let sequences: Vec<u32> = frames.iter().map(Frame::sequence).collect();
            assert_eq!(sequences, (0..round).collect::<Vec<_>>());
            for sequence in 0..round {
                assert_eq!(frames.pop_front().unwrap().sequence(), sequence);
            }
            assert!(frames.is_empty() && frames.pop_front().is_none());
        }
        (0..3).for_each(|sequence| frames.push_back(frame(sequence)));
        let drained: Vec<u32> = frames.drain().map(|frame| frame.sequence()).collect();
        assert_eq!((drained, frames.len()), (vec![0, 1, 2], 0));
    }
}
