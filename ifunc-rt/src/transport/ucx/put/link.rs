//! One side of a connection whose frames are put.

use std::sync::Arc;

use ifunc_abi::frame::{FrameFlags, Header};

use super::layout::{Layout, SHORT, View};
use super::ring::{Consumer, Landed, Producer};
use super::sleeping::Verdict;
use crate::transport::ucx::credits::UnderWay;
use crate::transport::ucx::link::{Handle, Outbox, connection};
use crate::transport::ucx::packet::BODY;
use crate::transport::{Body, Frame, Inbound, LinkError, Outbound, Park, assert_fits};

/// Frames out.
pub(crate) struct Sender {
    handle: Arc<Handle>,
    view: View,
    producer: Producer,
    /// The sends under way after the last frame: there are no more now.
    under_way: UnderWay,
    outbox: Outbox,
}

impl Sender {
    /// The largest packet that is small enough for any body.
    const SMALL: usize = 4096;

    pub(crate) fn new(handle: &Arc<Handle>, view: View, peer: Layout) -> Self {
        Self {
            handle: Arc::clone(handle),
            view,
            producer: Producer::new(peer),
            under_way: UnderWay::default(),
            outbox: Outbox::new(handle, Self::SMALL, usize::MAX),
        }
    }

    fn has_room(&mut self, len: usize) -> Result<bool, LinkError> {
        if self.producer.has_room(len, self.under_way) {
            return Ok(true);
        }
        self.read_credits()?;
        let mut locked = self.handle.engine.lock();
        self.under_way = connection(&mut locked, self.handle.id)?.under_way;
        Ok(self.producer.has_room(len, self.under_way))
    }

    fn read_credits(&mut self) -> Result<(), LinkError> {
        let credited = self.producer.credit(self.view.credits());
        credited.map_err(|why| self.handle.malformed(why))
    }
}

impl Outbound for Sender {
    fn max_body(&self) -> usize {
        self.producer.max_body()
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert_fits(len, align, self.max_body());
        if self.handle.signs.has_left() {
            let mut locked = self.handle.engine.lock();
            let gone = connection(&mut locked, self.handle.id)?.gone.clone();
            return match gone {
                None if !self.handle.is_gone() => Ok(None),
                gone => Err(gone.unwrap_or(LinkError::Closed)),
            };
        }
        if !self.has_room(len)? {
            return Ok(None);
        }
        if !self.outbox.fits(len) {
            self.outbox.fill(&mut self.handle.engine.lock(), len);
        }
        // Both begin at a multiple of 64, here and there.
        let packet = self.outbox.reserve(len);
        Ok(packet.map(|packet| match len <= SHORT {
            true => &mut packet.bytes_mut()[..len],
            false => packet.body_mut(len),
        }))
    }

    fn commit(&mut self, mut header: Header, len: usize) -> u32 {
        let (mut packet, reserved) = self.outbox.take(len);
        // Bytes of the packet behind the slot's.
        let mut after = len;
        if len <= SHORT {
            header.flags = header.flags.union(FrameFlags::INLINE);
            if reserved > SHORT {
                packet.bytes_mut().copy_within(BODY..BODY + len, 0);
            }
            // The packet had another use before.
            packet.bytes_mut()[len..SHORT].fill(0);
            after = 0;
        }
        let frame = self.producer.send(len);
        let mut locked = self.handle.engine.lock();
        let packet = self.outbox.shrink(&mut locked, packet, after, reserved);
        let (packet, under_way) = locked.put_frame(self.handle.id, packet, header.words(), len, frame);
        self.under_way = under_way;
        if let Some(packet) = packet {
            self.outbox.give_back(&mut locked, packet);
        }
        frame.0
    }

    fn sent(&self) -> u64 {
        self.producer.sent()
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        // The last credits of a peer that is gone are all that it will ever say.
        self.producer.credit(self.view.credits()).is_err() || self.producer.is_unconsumed(sequence)
    }
}

/// Frames in.
pub(crate) struct Receiver {
    handle: Arc<Handle>,
    view: View,
    consumer: Consumer,
    /// `Engine::polls` at the last poll.
    polled: u64,
    /// The frame that `peek` found.
    held: Option<Landed>,
}

impl Receiver {
    pub(crate) fn new(handle: &Arc<Handle>, view: View) -> Self {
        Self {
            handle: Arc::clone(handle),
            polled: handle.engine.polls(),
            consumer: Consumer::new(view.layout()),
            view,
            held: None,
        }
    }

    fn poll_ring(&mut self) -> Result<Option<Landed>, LinkError> {
        let landed = self.consumer.poll(&self.view);
        landed.map_err(|why| self.handle.malformed(why))
    }

    /// The next frame, if there is one. Progresses UCX if no thread did since the last poll, unless a poll of the target has.
    fn next(&mut self) -> Result<Option<Landed>, LinkError> {
        if let Some(landed) = self.poll_ring()? {
            return Ok(Some(landed));
        }
        if self.handle.engine.polling.is_here() && !self.handle.is_gone() {
            self.polled = self.handle.engine.polls();
            return Ok(None);
        }
        let mut locked = self.handle.engine.lock();
        let is_gone = connection(&mut locked, self.handle.id)?.gone.is_some();
        if self.polled == self.handle.engine.polls() && !is_gone {
            locked.progress();
        }
        self.polled = self.handle.engine.polls();
        let gone = connection(&mut locked, self.handle.id)?.gone.clone();
        drop(locked);
        // In this order: when a peer is gone, everything that it put has landed.
        match (gone, self.poll_ring()?) {
            (Some(gone @ LinkError::Malformed(_)), _) | (Some(gone), None) => Err(gone),
            (_, landed) => Ok(landed),
        }
    }

    fn publish(&mut self) {
        if let Some(credits) = self.consumer.publish() {
            self.handle.engine.lock().give_credits(self.handle.id, credits);
        }
    }
}

impl Inbound for Receiver {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.held.is_none() {
            self.held = self.next()?;
        }
        Ok(self.held.map(|landed| Frame {
            sequence: landed.sequence,
            words: landed.words,
            // SAFETY: the memory is mapped as long as the view; the body lies in its slot or in the ring, as its length was validated, and
            // its lines are this side's until `release`, which needs `self` mutably.
            body: unsafe { Body::new(self.view.body(landed.body), landed.len) },
        }))
    }

    fn release(&mut self) {
        let Some(landed) = self.held.take() else { return };
        if self.consumer.release(landed.place) {
            self.publish();
        }
    }

    fn settle(&mut self) {
        self.publish();
    }

    /// An answer to the first frame goes before the put that gives the frame's credits back.
    fn first_quantum(&self) -> usize {
        1
    }
}

impl Park for Receiver {
    fn arm(&mut self) -> bool {
        let id = self.handle.id;
        let mut locked = self.handle.engine.lock();
        locked.announce(id);
        locked.progress();
        locked.arm();
        let verdict = locked.may_sleep(id);
        if verdict == Verdict::Expecting {
            locked.state.expecting.insert(id);
        }
        let pause = locked.pause();
        drop(locked);
        if self.held.is_some() || !matches!(self.consumer.poll(&self.view), Ok(None)) {
            return false;
        }
        if verdict == Verdict::Expecting {
            std::thread::sleep(pause.unwrap_or_default());
        }
        verdict == Verdict::MaySleep && !self.handle.engine.has_late_notices()
    }

    fn disarm(&mut self) {
        // An announcement holds until it is answered.
        self.handle.set_parked(false);
    }

    fn park(&mut self) {
        let id = self.handle.id;
        let mut locked = self.handle.engine.lock();
        // The doorbell that answers it comes over the socket of the exchange.
        locked.announce(id);
        self.handle.set_parked(true);
    }

    fn is_idle(&mut self) -> bool {
        let mut locked = self.handle.engine.lock();
        let is_gone =
            connection(&mut locked, self.handle.id).is_ok_and(|connection| connection.gone.is_some());
        // What is expected keeps the listener awake.
        let verdict = locked.may_sleep(self.handle.id);
        drop(locked);
        self.held.is_none()
            && !is_gone
            && verdict != Verdict::Unannounced
            && matches!(self.consumer.poll(&self.view), Ok(None))
    }
}
