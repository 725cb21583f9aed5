//! One side of a connection whose frames are put.

use std::sync::Arc;

use ifunc_abi::frame::{FrameFlags, Header};

use super::layout::{HEADER_AT, Layout, SHORT, SLOT, View, body_at};
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
        // A body begins at a multiple of 64, here and there.
        let packet = self.outbox.reserve(len);
        Ok(packet.map(|packet| &mut packet.bytes_mut()[body_at(len)..][..len]))
    }

    fn commit(&mut self, mut header: Header, len: usize) -> u32 {
        let (mut packet, reserved) = self.outbox.take(len);
        let (from, at) = (body_at(reserved), body_at(len));
        if from != at {
            packet.bytes_mut().copy_within(from..from + len, at);
        }
        // Bytes of the packet behind its first line.
        let mut after = len;
        if len <= SHORT {
            header.flags = header.flags.union(FrameFlags::INLINE);
            // What the packet had before is not the peer's to read.
            packet.bytes_mut()[at + len..HEADER_AT].fill(0);
            after = SLOT - BODY;
        }
        let frame = self.producer.send(len);
        let mut locked = self.handle.engine.lock();
        let packet = self.outbox.shrink(&mut locked, packet, after, reserved);
        let (id, words) = (self.handle.id, header.words());
        let packet = locked.put_frame(id, packet, words, len, frame, &mut self.under_way);
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
    /// Polls in passing, in succession, that did not progress UCX.
    passed: u32,
}

impl Receiver {
    /// The most polls in passing, in succession, that do not progress UCX. Over TCP, UCX carries puts by messages, which end only in progress.
    const PASSED: u32 = 16;

    pub(crate) fn new(handle: &Arc<Handle>, view: View) -> Self {
        Self {
            handle: Arc::clone(handle),
            polled: handle.engine.polls(),
            consumer: Consumer::new(view.layout()),
            view,
            passed: 0,
        }
    }

    /// The frame that the consumer holds, or the next one, if it has landed.
    #[inline(always)]
    fn poll_ring(&mut self) -> Result<Option<Landed>, LinkError> {
        match self.consumer.poll(&self.view) {
            Ok(landed) => Ok(landed),
            Err(why) => Err(self.handle.malformed(why)),
        }
    }

    /// Looks for the next frame after the ring was found empty. Progresses UCX if no thread did since the last poll, unless a poll of the target
    /// has.
    #[inline]
    fn next(&mut self) -> Result<Option<Landed>, LinkError> {
        if self.handle.engine.polling.is_here() && !self.handle.is_gone() {
            self.polled = self.handle.engine.polls();
            return Ok(None);
        }
        self.progress()
    }

    /// As [`next`](Self::next), with the engine.
    #[inline(never)]
    fn progress(&mut self) -> Result<Option<Landed>, LinkError> {
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

    /// The frame that the consumer holds, which is `landed`.
    #[inline(always)]
    fn frame(&self, landed: Landed) -> Frame<Body<'_>> {
        Frame {
            sequence: landed.sequence,
            words: landed.words,
            // SAFETY: the memory is mapped as long as the view; the body of the frame that is held lies in its slot or in the ring, as its
            // length was validated, and its lines are this side's until `release`, which needs the receiver mutably.
            body: unsafe { Body::new(self.view.body(landed.body), landed.len) },
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
        // Returned from two places: if they shared the code, the frame would be in memory, and its reader would wait for the stores.
        match self.poll_ring()? {
            Some(landed) => Ok(Some(self.frame(landed))),
            None => Ok(self.next()?.map(|landed| self.frame(landed))),
        }
    }

    fn release(&mut self) {
        if self.consumer.release() {
            self.publish();
        }
    }

    fn settle(&mut self) {
        // Credits for slots that are not due do not keep the peer from sending. A body may need all lines of the ring, with those that are left
        // out before it.
        if self.consumer.owes_lines() {
            self.publish();
        }
    }

    fn is_empty(&mut self) -> bool {
        let passes = self.passed < Self::PASSED && !self.handle.is_gone();
        let is_empty = passes && self.consumer.is_empty(&self.view);
        self.passed = if is_empty { self.passed + 1 } else { 0 };
        is_empty
    }

    /// An answer to the first frame goes before the put that gives credits back, as it does after each frame whose body lies in lines.
    fn first_quantum(&self) -> usize {
        1
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The peer learns what was consumed, as a `FIN` over the socket does not say it.
        self.publish();
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
        if self.consumer.poll(&self.view) != Ok(None) {
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
        !is_gone && verdict != Verdict::Unannounced && self.consumer.poll(&self.view) == Ok(None)
    }
}
