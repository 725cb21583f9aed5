//! The credits of a connection whose frames are messages, and the bound of what UCX has under way.

use ifunc_abi::frame::BODY_ALIGN;

use crate::transport::RingSize;
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};

/// Units of data that a body takes.
pub(super) fn units(len: usize) -> u64 {
    len.div_ceil(BODY_ALIGN) as u64
}

/// What a message with a body of `len` bytes takes.
pub(super) fn message_of(len: usize) -> Credits {
    Credits {
        frames: 1,
        data: units(len),
    }
}

/// The send window of a direction whose receiver has a ring of this size.
pub(super) fn send_window(size: RingSize) -> SendWindow {
    SendWindow::new(Credits::of(size, BODY_ALIGN))
}

/// The direction that this side receives in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    window: ReceiveWindow,
    received: Credits,
    /// Frames whose bodies are here, too.
    complete: u32,
}

/// Messages that UCX has and has not sent. Credits do not bound them: a peer may return credits for frames that it never read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWay(Credits);

impl UnderWay {
    /// How many capacities may be under way. A peer that keeps to its credits may have released frames whose sends UCX here has not
    /// completed.
    const LAPS: u64 = 2;

    /// UCX took a message of so many frames and so much data.
    pub(super) fn begin(&mut self, sent: Credits) {
        self.0.frames += sent.frames;
        self.0.data += sent.data;
    }

    /// UCX is done with it.
    pub(super) fn end(&mut self, sent: Credits) {
        self.0.frames = self.0.frames.saturating_sub(sent.frames);
        self.0.data = self.0.data.saturating_sub(sent.data);
    }

    /// Whether UCX is done with everything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.frames == 0
    }

    /// How much may be under way, where so much may be on its way.
    fn most(capacity: Credits) -> Credits {
        Credits {
            frames: capacity.frames * Self::LAPS,
            data: capacity.data * Self::LAPS,
        }
    }

    /// Whether a notice may be given to UCX, where so much may be on its way.
    pub(super) fn may_begin(&self, capacity: Credits) -> bool {
        let most = Self::most(capacity);
        self.0.frames < most.frames && self.0.data <= most.data
    }

    /// What may be sent: UCX has as much under way afterwards as it may, or the peer has no more credits.
    pub(super) fn left(&self, window: &SendWindow) -> Credits {
        let (most, left) = (Self::most(window.capacity()), window.left());
        Credits {
            frames: left.frames.min(most.frames.saturating_sub(self.0.frames)),
            data: left.data.min(most.data.saturating_sub(self.0.data)),
        }
    }
}

impl Incoming {
    pub(super) fn new(size: RingSize) -> Self {
        Self {
            window: ReceiveWindow::new(Credits::of(size, BODY_ALIGN)),
            received: Credits::default(),
            complete: 0,
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.window.capacity().frames as u32
    }

    /// Validates a frame with a body of `len` bytes.
    pub(super) fn receive(&mut self, len: usize) -> Result<(), &'static str> {
        if units(len) > self.window.capacity().data / 2 {
            return Err("a body larger than a frame can have");
        }
        let received = Credits {
            frames: self.received.frames + 1,
            data: self.received.data + units(len),
        };
        if !self.window.admits(received) {
            return Err("more frames than it has credits for");
        }
        self.received = received;
        Ok(())
    }

    /// How many frames have come, and whether bodies of some are still fetched.
    pub(super) fn come(&self) -> (u64, bool) {
        (self.received.frames, self.complete != self.received.frames as u32)
    }

    /// The body of a frame is here.
    pub(super) fn complete(&mut self) {
        self.complete = self.complete.wrapping_add(1);
    }

    /// Whether all of the `sent` frames are here; an error if there are more.
    pub(super) fn are_all(&self, sent: u32) -> Result<bool, &'static str> {
        if (sent.wrapping_sub(self.received.frames as u32) as i32) < 0 {
            return Err("it closed the connection with fewer frames sent than have come");
        }
        Ok(self.complete == sent)
    }

    /// Memory of a frame is free again. `true`: send credits. Those of other frames go with another message to the peer once they are many.
    pub(super) fn release(&mut self, len: usize) -> bool {
        self.window.release(units(len))
    }

    /// The result of [`release`](Self::release) for a frame.
    pub(super) fn is_due(&self, len: usize) -> bool {
        self.window.is_due_after(units(len))
    }

    /// Credits for a message to the peer.
    pub(super) fn publish(&mut self) -> Credits {
        self.window.publish().unwrap_or_else(|| self.window.released())
    }

    /// Whether there are so many credits that the peer does not know that they go along with a short frame, which may take a second cache line of
    /// UCX's queue for them.
    #[inline(always)]
    pub(super) fn is_worth_publishing(&self) -> bool {
        self.window.is_worth_publishing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: RingSize = RingSize {
        slots: 8,
        data: 1 << 16,
    };

    #[test]
    fn credits_are_due_as_announced_and_never_too_late() {
        let (mut out, mut incoming) = (send_window(SIZE), Incoming::new(SIZE));
        let may_send = |out: &SendWindow, data| UnderWay::default().left(out).covers(data);
        let mut held = std::collections::VecDeque::new();
        let mut len = 1usize;
        for round in 0..5000 {
            len = len * 31 % (SIZE.max_body() + 1);
            while !may_send(&out, units(len)) {
                // Everything is consumed, and credits are published only when they are due.
                let Some(len) = held.pop_front() else {
                    panic!("stuck in round {round} at {len} bytes");
                };
                let is_due = incoming.is_due(len);
                assert_eq!(incoming.release(len), is_due);
                if is_due {
                    out.acknowledge(incoming.publish()).unwrap();
                }
            }
            out.send(units(len));
            incoming.receive(len).unwrap();
            incoming.complete();
            held.push_back(len);
        }
    }

    #[test]
    fn frames_without_credits_are_refused() {
        let mut incoming = Incoming::new(SIZE);
        assert!(incoming.receive(SIZE.max_body() + 1).is_err());
        for _ in 0..2 {
            incoming.receive(SIZE.max_body()).unwrap();
        }
        assert_eq!(incoming.receive(1), Err("more frames than it has credits for"));
        let mut incoming = Incoming::new(SIZE);
        (0..8).for_each(|_| incoming.receive(0).unwrap());
        assert_eq!(incoming.receive(0), Err("more frames than it has credits for"));
        assert_eq!([0, 1, 64, 65, 1 << 20].map(units), [0, 1, 1, 2, 1 << 14]);
    }

    #[test]
    fn sends_under_way_bound_what_credits_do_not() {
        let mut out = send_window(SIZE);
        let mut under_way = UnderWay::default();
        let fill = |out: &mut SendWindow, under_way: &mut UnderWay, len| {
            let mut n = 0;
            while under_way.left(out).covers(units(len)) {
                out.send(units(len));
                under_way.begin(message_of(len));
                // Credits for everything, as soon as it was sent.
                out.acknowledge(out.sent()).unwrap();
                n += 1;
            }
            n
        };
        assert_eq!(fill(&mut out, &mut under_way, 0), 16);
        assert!(!under_way.may_begin(out.capacity()));
        (0..16).for_each(|_| under_way.end(message_of(0)));
        assert!(under_way.is_empty());
        assert_eq!(fill(&mut out, &mut under_way, SIZE.max_body()), 4);
        under_way.end(message_of(SIZE.max_body()));
        assert!(under_way.left(&out).covers(units(SIZE.max_body())) && under_way.may_begin(out.capacity()));
    }

    #[test]
    fn a_fin_states_the_number_of_frames() {
        let mut incoming = Incoming::new(SIZE);
        assert_eq!(incoming.come(), (0, false));
        incoming.receive(10).unwrap();
        assert_eq!(incoming.come(), (1, true), "its body is fetched");
        assert_eq!(incoming.are_all(1), Ok(false));
        incoming.complete();
        assert_eq!(incoming.come(), (1, false));
        assert_eq!(incoming.are_all(1), Ok(true));
        assert_eq!(incoming.are_all(2), Ok(false));
        assert!(incoming.are_all(0).is_err());
    }
}
