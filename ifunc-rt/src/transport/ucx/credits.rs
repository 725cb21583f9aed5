//! Credits: how much may be sent, in frames and bytes of one direction.

use crate::transport::RingSize;

use super::header::{Credits, units};

/// The direction that this side sends in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    size: RingSize,
    sent: Credits,
    /// What the peer released of it, as far as it said.
    acked: Credits,
}

/// The direction that this side receives in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    size: RingSize,
    received: Credits,
    /// Frames whose bodies are here, too.
    complete: u32,
    released: Credits,
    /// What the peer was told of that.
    published: Credits,
}

/// What UCX was given to send and has not sent. Credits do not bound it: a peer may give them for what it never read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWay {
    messages: u32,
    units: u32,
}

impl UnderWay {
    /// How many times as much may be under way as the peer has room for. A peer that keeps to its credits may have released
    /// what UCX here has not seen the end of.
    const LAPS: u32 = 2;

    /// UCX took a message with a body of `len` bytes.
    pub(super) fn begin(&mut self, len: usize) {
        self.messages = self.messages.saturating_add(1);
        self.units = self.units.saturating_add(units(len));
    }

    /// UCX is done with it.
    pub(super) fn end(&mut self, len: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.units = self.units.saturating_sub(units(len));
    }

    /// Whether UCX is done with everything.
    pub(super) fn is_nothing(&self) -> bool {
        self.messages == 0
    }

    pub(super) fn has_room(&self, size: RingSize, len: usize) -> bool {
        self.messages < size.slots.saturating_mul(Self::LAPS)
            && self.units.saturating_add(units(len)) <= units_of(size).saturating_mul(Self::LAPS)
    }
}

/// For how much there were credits. It only grows, but for what is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendWindow(Credits);

impl SendWindow {
    /// Whether there is some for a body of `len` bytes.
    pub(super) fn has(&self, len: usize) -> bool {
        self.0.frames > 0 && units(len) <= self.0.units
    }
}

fn units_of(size: RingSize) -> u32 {
    units(size.data as usize)
}

impl Outgoing {
    pub(super) fn new(size: RingSize) -> Self {
        Self {
            size,
            sent: Credits::default(),
            acked: Credits::default(),
        }
    }

    pub(super) fn max_body(&self) -> usize {
        self.size.max_body()
    }

    /// Frames sent.
    pub(super) fn frames(&self) -> u32 {
        self.sent.frames
    }

    /// Whether the peer, as far as it has said, has not released this frame. It releases them in order.
    pub(super) fn is_unconsumed(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.acked.frames) as i32 > 0
    }

    /// Whether a frame with a body of `len` bytes may be sent where so much is under way.
    pub(super) fn has_room(&self, len: usize, under_way: UnderWay) -> bool {
        under_way.has_room(self.size, len)
            && self.sent.frames.wrapping_sub(self.acked.frames) < self.size.slots
            && self.sent.units.wrapping_sub(self.acked.units) + units(len) <= units_of(self.size)
    }

    /// For what there is room where so much is under way.
    pub(super) fn window(&self, under_way: UnderWay) -> SendWindow {
        let (slots, all) = (self.size.slots, units_of(self.size));
        let not_acked = Credits {
            frames: self.sent.frames.wrapping_sub(self.acked.frames),
            units: self.sent.units.wrapping_sub(self.acked.units),
        };
        let left = |all: u32, not_acked: u32, under_way: u32| {
            let laps = all.saturating_mul(UnderWay::LAPS);
            all.saturating_sub(not_acked).min(laps.saturating_sub(under_way))
        };
        SendWindow(Credits {
            frames: left(slots, not_acked.frames, under_way.messages),
            units: left(all, not_acked.units, under_way.units),
        })
    }

    /// Whether credits may be sent by themselves where so much is under way.
    pub(super) fn may_credit(&self, under_way: UnderWay) -> bool {
        under_way.has_room(self.size, 0)
    }

    /// A frame is sent; its sequence number.
    pub(super) fn send(&mut self, len: usize) -> u32 {
        self.sent.frames = self.sent.frames.wrapping_add(1);
        self.sent.units = self.sent.units.wrapping_add(units(len));
        self.sent.frames
    }

    /// Takes in what the peer says that it released.
    pub(super) fn credit(&mut self, credits: Credits) -> Result<(), &'static str> {
        take_in(&mut self.acked, self.sent, credits)
    }
}

/// Takes in what the peer says that it released of what was sent.
pub(super) fn take_in(acked: &mut Credits, sent: Credits, credits: Credits) -> Result<(), &'static str> {
    let pairs = [
        (credits.frames, &mut acked.frames, sent.frames),
        (credits.units, &mut acked.units, sent.units),
    ];
    for (new, acked, sent) in pairs {
        let more = new.wrapping_sub(*acked);
        // Said before what is known already: messages overtake each other.
        if more as i32 <= 0 {
            continue;
        }
        if more > sent.wrapping_sub(*acked) {
            return Err("credits for frames that were never sent");
        }
        *acked = new;
    }
    Ok(())
}

impl Incoming {
    pub(super) fn new(size: RingSize) -> Self {
        Self {
            size,
            received: Credits::default(),
            complete: 0,
            released: Credits::default(),
            published: Credits::default(),
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.size.slots
    }

    /// Judges a frame with a body of `len` bytes.
    pub(super) fn receive(&mut self, len: usize) -> Result<(), &'static str> {
        if len > self.size.max_body() {
            return Err("a body larger than a frame can have");
        }
        let frames = self.received.frames.wrapping_add(1);
        let all = self.received.units.wrapping_add(units(len));
        if frames.wrapping_sub(self.published.frames) > self.size.slots
            || all.wrapping_sub(self.published.units) > units_of(self.size)
        {
            return Err("more frames than it has credits for");
        }
        self.received = Credits { frames, units: all };
        Ok(())
    }

    /// The body of a frame is here.
    pub(super) fn complete(&mut self) {
        self.complete = self.complete.wrapping_add(1);
    }

    /// Whether all of the `sent` frames are here; an error if there are more.
    pub(super) fn are_all(&self, sent: u32) -> Result<bool, &'static str> {
        if (sent.wrapping_sub(self.received.frames) as i32) < 0 {
            return Err("it closed the connection with fewer frames sent than have come");
        }
        Ok(self.complete == sent)
    }

    /// Memory of a frame is free again. `true`: the peer should be told.
    ///
    /// It is told every quarter lap, and otherwise by what is sent to it anyway: what it then does not know of is too little
    /// to keep it from anything. Half of the bytes, the largest body, are always left.
    pub(super) fn release(&mut self, len: usize) -> bool {
        self.released.frames = self.released.frames.wrapping_add(1);
        self.released.units = self.released.units.wrapping_add(units(len));
        let behind = Credits {
            frames: self.released.frames.wrapping_sub(self.published.frames),
            units: self.released.units.wrapping_sub(self.published.units),
        };
        behind.frames >= (self.size.slots / 4).max(1) || behind.units >= units_of(self.size) / 4
    }

    /// What `release` will say of a frame.
    pub(super) fn is_due(&self, len: usize) -> bool {
        let mut then = *self;
        then.release(len)
    }

    /// What the peer is told now.
    pub(super) fn publish(&mut self) -> Credits {
        self.published = self.released;
        self.released
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
    fn a_sender_that_keeps_to_its_credits_is_never_refused_and_never_stuck() {
        // Lengths that no pattern of laps fits, and both counters cross their wrap.
        let (mut out, mut incoming) = (Outgoing::new(SIZE), Incoming::new(SIZE));
        let start = Credits {
            frames: u32::MAX - 500,
            units: u32::MAX - 100_000,
        };
        (out.sent, out.acked) = (start, start);
        (incoming.received, incoming.released, incoming.published) = (start, start, start);
        let mut held = std::collections::VecDeque::new();
        let mut len = 1usize;
        for round in 0..5000 {
            len = len * 31 % (SIZE.max_body() + 1);
            assert_eq!(
                out.window(UnderWay::default()).has(len),
                out.has_room(len, UnderWay::default())
            );
            while !out.has_room(len, UnderWay::default()) {
                // Everything is consumed, and still only what reached a quarter is told.
                let Some(len) = held.pop_front() else {
                    panic!("stuck in round {round} at {len} bytes");
                };
                let is_due = incoming.is_due(len);
                assert_eq!(incoming.release(len), is_due);
                if is_due {
                    out.credit(incoming.publish()).unwrap();
                }
            }
            out.send(len);
            incoming.receive(len).unwrap();
            incoming.complete();
            held.push_back(len);
        }
    }

    #[test]
    fn a_peer_that_does_not_is_refused() {
        let mut incoming = Incoming::new(SIZE);
        assert!(incoming.receive(SIZE.max_body() + 1).is_err());
        for _ in 0..2 {
            incoming.receive(SIZE.max_body()).unwrap();
        }
        assert_eq!(incoming.receive(1), Err("more frames than it has credits for"));
        let mut incoming = Incoming::new(SIZE);
        (0..8).for_each(|_| incoming.receive(0).unwrap());
        assert_eq!(incoming.receive(0), Err("more frames than it has credits for"));

        let mut out = Outgoing::new(SIZE);
        out.send(100);
        let credits = |frames, units| Credits { frames, units };
        assert!(out.credit(credits(2, 1)).is_err());
        assert!(out.credit(credits(1, 3)).is_err());
        assert_eq!(out.credit(credits(1, 2)), Ok(()));
        // Old news.
        assert_eq!(out.credit(credits(0, 0)), Ok(()));
        assert_eq!(out.acked, credits(1, 2));
    }

    #[test]
    fn what_is_under_way_bounds_what_credits_do_not() {
        let mut out = Outgoing::new(SIZE);
        let mut under_way = UnderWay::default();
        let fill = |out: &mut Outgoing, under_way: &mut UnderWay, len| {
            let mut n = 0;
            while out.has_room(len, *under_way) {
                assert!(out.window(*under_way).has(len));
                out.send(len);
                under_way.begin(len);
                // Credits for everything, as soon as it was sent.
                out.credit(out.sent).unwrap();
                n += 1;
            }
            assert!(!out.window(*under_way).has(len));
            n
        };
        assert_eq!(fill(&mut out, &mut under_way, 0), 16);
        assert!(!out.may_credit(under_way));
        (0..16).for_each(|_| under_way.end(0));
        assert_eq!(fill(&mut out, &mut under_way, SIZE.max_body()), 4);
        under_way.end(SIZE.max_body());
        assert!(out.has_room(SIZE.max_body(), under_way) && out.may_credit(under_way));
    }

    #[test]
    fn a_leaver_says_how_many_frames_it_sent() {
        let mut incoming = Incoming::new(SIZE);
        incoming.receive(10).unwrap();
        assert_eq!(incoming.are_all(1), Ok(false));
        incoming.complete();
        assert_eq!(incoming.are_all(1), Ok(true));
        assert_eq!(incoming.are_all(2), Ok(false));
        assert!(incoming.are_all(0).is_err());
    }
}
