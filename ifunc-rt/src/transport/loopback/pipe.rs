//! One direction of a connection: a queue under a lock, with credits.

use std::collections::VecDeque;

use ifunc_abi::frame::BODY_ALIGN;
use ifunc_proto::buffer::AlignedBuffer;

use crate::transport::RingSize;

/// A frame on its way.
pub(super) struct QueuedFrame {
    pub(super) sequence: u32,
    pub(super) words: [u64; 2],
    pub(super) body: AlignedBuffer,
}

/// One direction.
pub(super) struct Pipe {
    queue: VecDeque<QueuedFrame>,
    size: RingSize,
    /// Frames sent whose credits did not come back.
    sent: u32,
    /// Bytes of those.
    bytes: usize,
    /// State of the generator that picks the next frame; `None` delivers in order.
    #[cfg(test)]
    shuffle: Option<u64>,
}

impl Pipe {
    pub(super) fn new(size: RingSize, #[cfg(test)] shuffle: Option<u64>) -> Self {
        Self {
            queue: VecDeque::new(),
            size,
            sent: 0,
            bytes: 0,
            #[cfg(test)]
            shuffle,
        }
    }

    /// Whether a body of `len` bytes has credits.
    pub(super) fn has_credit(&self, len: usize) -> bool {
        self.sent < self.size.slots
            && self.bytes + len.next_multiple_of(BODY_ALIGN) <= self.size.data as usize
    }

    pub(super) fn push(&mut self, frame: QueuedFrame) {
        self.sent += 1;
        self.bytes += frame.body.len().next_multiple_of(BODY_ALIGN);
        self.queue.push_back(frame);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next frame.
    pub(super) fn pop(&mut self) -> Option<QueuedFrame> {
        #[cfg(test)]
        if let Some(state) = self.shuffle {
            return self.pop_any(state);
        }
        self.queue.pop_front()
    }

    /// Any frame that is at most as many frames early as there are credits.
    #[cfg(test)]
    fn pop_any(&mut self, mut state: u64) -> Option<QueuedFrame> {
        let oldest = self
            .queue
            .iter()
            .map(|frame| frame.sequence)
            .reduce(|a, b| if (b.wrapping_sub(a) as i32) < 0 { b } else { a })?;
        let early = |frame: &QueuedFrame| frame.sequence.wrapping_sub(oldest) < self.size.slots;
        let candidates = self.queue.iter().filter(|frame| early(frame)).count();
        let pick = (next_random(&mut state) % candidates as u64) as usize;
        self.shuffle = Some(state);
        let index = self
            .queue
            .iter()
            .enumerate()
            .filter(|(_, frame)| early(frame))
            .nth(pick)?
            .0;
        self.queue.remove(index)
    }

    /// Gives credits back.
    pub(super) fn credit(&mut self, frames: u32, bytes: usize) {
        self.sent -= frames;
        self.bytes -= bytes;
    }

    pub(super) fn size(&self) -> RingSize {
        self.size
    }
}

/// xorshift64*, enough to shuffle a test.
#[cfg(test)]
fn next_random(state: &mut u64) -> u64 {
    *state |= 1;
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}
