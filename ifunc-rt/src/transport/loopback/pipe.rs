//! One direction of a connection: a queue under a lock, with credits.

use std::collections::VecDeque;

use ifunc_abi::frame::BODY_ALIGN;

use crate::transport::RingSize;

/// A body, aligned as bodies are.
#[derive(Default)]
pub(super) struct Bytes {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; BODY_ALIGN]);

impl Bytes {
    /// `len` zeros.
    pub(super) fn zeros(len: usize) -> Self {
        Self {
            lines: vec![Line([0; BODY_ALIGN]); len.div_ceil(BODY_ALIGN)],
            len,
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `lines` owns at least `len` initialised bytes (`zeros`, `truncate`), and `Line` has no
        // padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// A frame on its way.
pub(super) struct QueuedFrame {
    pub(super) sequence: u32,
    pub(super) words: [u64; 2],
    pub(super) body: Bytes,
}

/// One direction.
pub(super) struct Pipe {
    queue: VecDeque<QueuedFrame>,
    size: RingSize,
    /// Frames sent whose credits did not come back.
    sent: u32,
    /// Bytes of those.
    bytes: usize,
    /// State of the generator that picks; `None` delivers in order.
    shuffle: Option<u64>,
}

impl Pipe {
    pub(super) fn new(size: RingSize, shuffle: Option<u64>) -> Self {
        Self {
            queue: VecDeque::new(),
            size,
            sent: 0,
            bytes: 0,
            shuffle,
        }
    }

    /// Whether a body of `len` bytes has credits.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.sent < self.size.slots
            && self.bytes + len.next_multiple_of(BODY_ALIGN) <= self.size.data as usize
    }

    pub(super) fn push(&mut self, frame: QueuedFrame) {
        self.sent += 1;
        self.bytes += frame.body.as_slice().len().next_multiple_of(BODY_ALIGN);
        self.queue.push_back(frame);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next frame, or with a seed any that is at most as many frames early as there are credits.
    pub(super) fn pop(&mut self) -> Option<QueuedFrame> {
        let Some(state) = &mut self.shuffle else {
            return self.queue.pop_front();
        };
        let oldest = self
            .queue
            .iter()
            .map(|frame| frame.sequence)
            .reduce(|a, b| if (b.wrapping_sub(a) as i32) < 0 { b } else { a })?;
        let early = |frame: &QueuedFrame| frame.sequence.wrapping_sub(oldest) < self.size.slots;
        let candidates = self.queue.iter().filter(|frame| early(frame)).count();
        let pick = (next_random(state) % candidates as u64) as usize;
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
fn next_random(state: &mut u64) -> u64 {
    *state |= 1;
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}
