//! What arrives on connections whose frames are messages. The queues are the handler's, so that UCX's callbacks put frames there: nearly always
//! a message is the next frame of its connection, and nothing else follows from it. Everything else is an [event](super::events), which
//! is dispatched when UCX has returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::ucx::{Serialized, Worker};

use super::credits::{Incoming, send_window};
use super::engine::{Core, Locked};
use super::events::EventQueue;
use super::frame::{Frame, Frames};
use super::gather::Unread;
use super::header::Name;
use super::packed::Entry;
use super::packet::Packet;
use super::table::{ConnectionId, Signs, Stage};
use crate::transport::RingSize;
use crate::transport::window::Credits;

/// The receive queues of an engine's connections, by the indices of their ids.
#[derive(Default)]
pub(super) struct ReceiveQueues(Vec<Option<Box<ReceiveQueue>>>);

impl ReceiveQueues {
    /// Adds the queue of a connection that is open from now on.
    pub(super) fn open(&mut self, queue: ReceiveQueue) {
        let index = queue.id.index();
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(Box::new(queue));
    }

    /// Removes the queue of a connection, with what was not taken from it.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Vec<Frame> {
        let queue = self.0.get_mut(id.index());
        let queue = queue.and_then(|queue| queue.take_if(|queue| queue.id == id));
        let frames = queue.map(|mut queue| queue.take_all());
        while self.0.pop_if(|queue| queue.is_none()).is_some() {}
        frames.unwrap_or_default()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut ReceiveQueue> {
        let queue = self.0.get_mut(id.index())?.as_deref_mut();
        queue.filter(|queue| queue.id == id)
    }

    /// Receives an entry of a message to this connection, if it is the connection's next frame and nothing else follows from it. `Err`: nothing has
    /// changed.
    #[inline]
    pub(super) fn receive_next(&mut self, to: Name, entry: &Entry, packet: Packet) -> Result<(), Packet> {
        match self.0.get_mut(to.number() as usize) {
            Some(Some(queue)) if queue.name == to => queue.receive_next(entry, packet),
            _ => Err(packet),
        }
    }
}

/// What has arrived on a connection and was not taken.
pub(super) struct ReceiveQueue {
    id: ConnectionId,
    /// What the peer calls the connection.
    name: Name,
    /// In their order.
    arrived: Frames,
    /// Those that overtook others, by sequence. There are at most as many as credits, because credits are given back for
    /// frames that were released, in order.
    early: BTreeMap<u32, Frame>,
    /// Sequence of the frame behind the last of `arrived`.
    next: u32,
    incoming: Incoming,
    /// This side has closed the connection, or the peer has said which frame is its last.
    is_closing: bool,
    /// The engine's.
    unread: Unread,
    signs: Arc<Signs>,
}

impl ReceiveQueue {
    /// Of a connection with these signs, whose peer has the credits of a ring of this size.
    pub(super) fn new(
        id: ConnectionId,
        name: Name,
        size: RingSize,
        unread: Unread,
        signs: Arc<Signs>,
    ) -> Self {
        Self {
            id,
            name,
            arrived: Frames::default(),
            early: BTreeMap::new(),
            next: 1,
            incoming: Incoming::new(size),
            is_closing: false,
            unread,
            signs,
        }
    }

    /// As [`ReceiveQueues::receive_next`].
    #[inline(always)]
    fn receive_next(&mut self, entry: &Entry, packet: Packet) -> Result<(), Packet> {
        let (len, is_frame) = (entry.len.into(), entry.words[0] as u8 != 0);
        let is_next = entry.number == self.next as u16 && self.early.is_empty();
        let is_usual = is_frame && is_next && entry.credits.is_none() && !self.is_closing;
        if !is_usual || !self.signs.needs_no_dispatch() || self.incoming.receive(len).is_err() {
            return Err(packet);
        }
        self.incoming.complete();
        self.arrive_next(Frame::copied(packet, len, self.next, entry.words));
        Ok(())
    }

    /// Validates the length of a frame, and that the peer had credits for it, before [`receive`](Self::receive). `last`: the peer has said that it
    /// sent so many.
    pub(super) fn admit(&mut self, len: usize, last: Option<u32>) -> Result<(), &'static str> {
        if last.is_some_and(|sent| self.incoming.are_all(sent) == Ok(true)) {
            return Err("a frame after its last");
        }
        self.incoming.receive(len)
    }

    /// Takes a frame that is here with its body. `Err`: its number breaks the protocol, and it is not used.
    pub(super) fn receive(&mut self, frame: Frame) -> Result<(), (Frame, &'static str)> {
        self.incoming.complete();
        // Numbers wrap: what is past is far ahead.
        let sequence = frame.sequence();
        if sequence.wrapping_sub(self.next) >= self.incoming.slots() || self.early.contains_key(&sequence) {
            return Err((frame, "a frame whose number was not its turn"));
        }
        if sequence == self.next && self.early.is_empty() {
            // Nearly always.
            self.arrive_next(frame);
            return Ok(());
        }
        self.early.insert(sequence, frame);
        while let Some(frame) = self.early.remove(&self.next) {
            self.arrive_next(frame);
        }
        Ok(())
    }

    /// A frame was received whose connection is over.
    pub(super) fn count_dropped(&mut self) {
        self.incoming.complete();
    }

    /// Sequence of the frame behind the last that has arrived.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The next frame has arrived.
    #[inline(always)]
    fn arrive_next(&mut self, frame: Frame) {
        self.next = self.next.wrapping_add(1);
        self.arrive(frame);
    }

    #[inline(always)]
    pub(super) fn arrive(&mut self, frame: Frame) {
        self.arrived.push_back(frame);
        self.unread.set(self.unread.get() + 1);
        self.signs.arrived.store(true, Ordering::Release);
    }

    /// Puts the frame back that was taken last.
    pub(super) fn put_back(&mut self, frame: Frame) {
        self.arrived.push_front(frame);
        self.unread.set(self.unread.get() + 1);
        self.signs.arrived.store(true, Ordering::Release);
    }

    /// Frames that were not taken.
    #[cfg(test)]
    pub(super) fn arrived(&self) -> &Frames {
        &self.arrived
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// The next frame, and whether credits are due as soon as it was executed.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<(Frame, bool)> {
        let frame = self.arrived.pop_front()?;
        self.unread.set(self.unread.get() - 1);
        self.signs
            .arrived
            .store(!self.arrived.is_empty(), Ordering::Release);
        let is_due = self.incoming.is_due(frame.len());
        Some((frame, is_due))
    }

    /// Takes all frames.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        let early = std::mem::take(&mut self.early);
        self.unread.set(self.unread.get() - self.arrived.len());
        self.arrived.drain().chain(early.into_values()).collect()
    }

    /// The memory of a frame is free again. `true`: credits are due.
    #[inline(always)]
    pub(super) fn release(&mut self, len: usize) -> bool {
        let is_due = self.incoming.release(len);
        if self.incoming.is_worth_publishing() {
            self.signs.credits.store(true, Ordering::Relaxed);
        }
        is_due
    }

    /// Credits for a message to the peer.
    pub(super) fn publish(&mut self) -> Credits {
        self.signs.credits.store(false, Ordering::Relaxed);
        self.incoming.publish()
    }

    /// How many frames have come, and whether bodies of some are still fetched.
    pub(super) fn come(&self) -> (u64, bool) {
        self.incoming.come()
    }

    /// Whether all of the `sent` frames are here; an error if there are more.
    pub(super) fn are_all(&self, sent: u32) -> Result<bool, &'static str> {
        self.incoming.are_all(sent)
    }
}

/// Calls `with` for the queue of a connection, if it has one.
#[inline]
pub(super) fn with_queue<T>(
    worker: &mut Worker<EventQueue, Serialized>,
    id: ConnectionId,
    with: impl FnOnce(&mut ReceiveQueue) -> T,
) -> Option<T> {
    worker.handler().receive_queues.get_mut(id).map(with)
}

impl Locked<'_> {
    /// Opens a connection: frames may come and go, within rings of these sizes.
    pub(super) fn open(&mut self, id: ConnectionId, to_peer: RingSize, from_peer: RingSize) {
        let Core { worker, state } = &mut **self;
        let Some(connection) = state.connections.get_mut(&id) else {
            return;
        };
        connection.stage = Stage::Open {
            out: send_window(to_peer),
        };
        let (unread, signs) = (state.unread.clone(), Arc::clone(&connection.signs));
        let queue = ReceiveQueue::new(id, connection.name, from_peer, unread, signs);
        worker.handler().receive_queues.open(queue);
    }

    /// Credits for a message to the peer; none where other ways bring them.
    pub(super) fn credits(&mut self, id: ConnectionId) -> Credits {
        with_queue(&mut self.worker, id, ReceiveQueue::publish).unwrap_or_default()
    }

    /// What comes from now on for a connection is looked at with its state.
    pub(super) fn set_closing(&mut self, id: ConnectionId) {
        with_queue(&mut self.worker, id, |queue| queue.is_closing = true);
    }

    /// Discards what has arrived and was not delivered.
    pub(super) fn discard_arrived(&mut self, id: ConnectionId) {
        let frames = with_queue(&mut self.worker, id, ReceiveQueue::take_all);
        self.discard_all(frames.unwrap_or_default());
    }

    /// Removes the queue of a connection, and discards what was not taken from it.
    pub(super) fn remove_queue(&mut self, id: ConnectionId) {
        let frames = self.worker.handler().receive_queues.remove(id);
        self.discard_all(frames);
    }

    fn discard_all(&mut self, frames: Vec<Frame>) {
        frames.into_iter().for_each(|frame| self.release(frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ucx::packet::Pool;

    const NAME: Name = Name::new(0, 7);

    fn receive_queues() -> (ReceiveQueues, Arc<Signs>) {
        let (mut receive_queues, signs) = (ReceiveQueues::default(), Arc::<Signs>::default());
        let (id, unread) = (ConnectionId(1 << u32::BITS), Unread::default());
        let size = RingSize { slots: 2, data: 1024 };
        receive_queues.open(ReceiveQueue::new(id, NAME, size, unread, Arc::clone(&signs)));
        (receive_queues, signs)
    }

    fn entry(number: u16, len: u16) -> Entry {
        Entry {
            number,
            len,
            words: [1, 0],
            credits: None,
        }
    }

    fn receives(receive_queues: &mut ReceiveQueues, to: Name, entry: &Entry) -> bool {
        let packet = Pool::default().take(0);
        receive_queues.receive_next(to, entry, packet).is_ok()
    }

    #[test]
    fn only_the_next_frame_goes_into_a_queue_by_itself() {
        let (mut receive_queues, signs) = receive_queues();
        let mut is_refused = |what: &str, to, entry: &Entry| {
            assert!(!receives(&mut receive_queues, to, entry), "{what}");
        };
        is_refused("of another connection", Name::new(0, 8), &entry(1, 0));
        is_refused("past the table", Name::new(9, 7), &entry(1, 0));
        is_refused("one that overtook another", NAME, &entry(2, 0));
        is_refused("longer than a frame can be", NAME, &entry(1, 513));
        let words = [1 << 8, 0];
        is_refused("a notice", NAME, &Entry { words, ..entry(1, 0) });
        let credits = Some(Credits::default());
        is_refused(
            "one with credits",
            NAME,
            &Entry {
                credits,
                ..entry(1, 0)
            },
        );
        signs.parked.store(true, Ordering::Relaxed);
        is_refused("of a parked connection", NAME, &entry(1, 0));
        signs.parked.store(false, Ordering::Relaxed);
        assert!(
            receives(&mut receive_queues, NAME, &entry(1, 8))
                && receives(&mut receive_queues, NAME, &entry(2, 8))
        );
        assert!(signs.arrived.load(Ordering::Relaxed));
        assert!(
            !receives(&mut receive_queues, NAME, &entry(3, 0)),
            "without credit"
        );
        let queue = receive_queues.get_mut(ConnectionId(1 << u32::BITS)).unwrap();
        let sequences: Vec<u32> = queue.take_all().iter().map(Frame::sequence).collect();
        assert_eq!((sequences, queue.unread.get()), (vec![1, 2], 0));
        assert!(queue.release(8) && queue.release(8));
        queue.publish();
        queue.is_closing = true;
        assert!(
            !receives(&mut receive_queues, NAME, &entry(3, 0)),
            "of a connection that closes"
        );
        receive_queues
            .get_mut(ConnectionId(1 << u32::BITS))
            .unwrap()
            .is_closing = false;
        signs.set_gone();
        assert!(
            !receives(&mut receive_queues, NAME, &entry(3, 0)),
            "of a connection that is over"
        );
    }

    #[test]
    fn a_queue_is_found_by_the_whole_id() {
        let (mut receive_queues, _) = receive_queues();
        let (id, later) = (ConnectionId(1 << u32::BITS), ConnectionId(2 << u32::BITS));
        assert!(receive_queues.get_mut(later).is_none() && receive_queues.remove(later).is_empty());
        assert!(receives(&mut receive_queues, NAME, &entry(1, 0)));
        assert_eq!(receive_queues.remove(id).len(), 1);
        assert!(receive_queues.get_mut(id).is_none() && receive_queues.0.is_empty());
        assert!(!receives(&mut receive_queues, NAME, &entry(2, 0)));
    }
}
