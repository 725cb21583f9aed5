//! One side of a connection whose frames are messages, and the parts that it shares with one whose frames are put.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{BODY_ALIGN, Header};
use ifunc_abi::hello::Hello;

use super::attached::Attached;
use super::credits::units;
use super::engine::{Core, Engine, Locked};
use super::events::{Data, EventQueue};
use super::gather::Next;
use super::header::{Head, Name, ONE_PIECE};
use super::packed::Entry;
use super::packet::Packet;
use super::put;
use super::receive_queue::{Frame, ReceiveQueue, with_queue};
use super::requests::discard;
use super::table::{Connection, ConnectionId, Signs, Stage};
use crate::os::wait_readable;
use crate::transport::window::Credits;
use crate::transport::{self, Body, Ends, Inbound, Key, Link, LinkError, Outbound, Park, Peer, Waiter};

/// A connection of an engine. The parts of a [`Link`] share it; the connection ends with the last of them.
pub(super) struct Handle {
    pub(super) engine: Arc<Engine>,
    pub(super) id: ConnectionId,
    pub(super) signs: Arc<Signs>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.close(self.id.into());
    }
}

/// The link of a connection that is open.
pub(super) fn new(engine: &Arc<Engine>, id: ConnectionId) -> Option<Link> {
    let locked = engine.lock();
    let key = locked.state.acceptor.is_some().then(|| id.key());
    let connection = locked.state.connections.get(&id)?;
    let hello = connection.hello?;
    let peer = connection.known.clone().unwrap_or(Peer {
        uid: None,
        pid: None,
        key: None,
        certified: None,
    });
    let handle = Arc::new(Handle {
        engine: Arc::clone(engine),
        id,
        signs: Arc::clone(&connection.signs),
    });
    match &connection.stage {
        Stage::Open { out, .. } => {
            let sender = Sender {
                max_body: out.capacity().data as usize * BODY_ALIGN / 2,
                outbox: Outbox::new(&handle, Packet::LEAST, Sender::KEPT),
                left: Credits::default(),
                sent: out.sent().frames,
                next: Next::default(),
                handle: Arc::clone(&handle),
            };
            let receiver = Receiver {
                polled: engine.polls(),
                handle: Arc::clone(&handle),
                frame: None,
                is_released: false,
                is_due: false,
                passed: 0,
            };
            drop(locked);
            // Bodies are in packets, or in memory that is UCX's until they are released.
            Some(handle.link(hello, key, peer, Ends::other(sender, receiver), false))
        }
        Stage::Put(rings) => {
            let (view, layout) = (rings.view.clone(), rings.peer);
            drop(locked);
            let sender = put::link::Sender::new(&handle, view.clone(), layout);
            let receiver = put::link::Receiver::new(&handle, view);
            Some(handle.link(hello, key, peer, Ends::other(sender, receiver), true))
        }
        _ => None,
    }
}

/// The error for a connection that was removed.
const CLOSED: LinkError = LinkError::Closed;

impl Handle {
    fn link(
        self: Arc<Self>,
        hello: Hello,
        key: Option<Key>,
        peer: Peer,
        ends: Ends,
        shares_bodies: bool,
    ) -> Link {
        Link {
            ends,
            key,
            waiter: self,
            peer,
            shares_bodies,
            hello,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.signs.is_gone()
    }

    /// Ends the connection, because the peer broke the protocol.
    pub(super) fn malformed(&self, why: &'static str) -> LinkError {
        let gone = LinkError::Malformed(why);
        self.engine.lock().end(self.id, gone.clone());
        gone
    }

    /// Whether a target polls the connection only when it is ready.
    pub(super) fn set_parked(&self, parked: bool) {
        self.signs.parked.store(parked, Ordering::Relaxed);
    }
}

pub(super) fn connection<'a>(
    locked: &'a mut Locked<'_>,
    id: ConnectionId,
) -> Result<&'a mut Connection, LinkError> {
    locked.state.connections.get_mut(&id).ok_or(CLOSED)
}

/// The packet of the next frame: reserved for a body, or kept from the frame before.
pub(super) struct Outbox {
    handle: Arc<Handle>,
    packet: Option<Packet>,
    /// How much was reserved of it.
    reserved: Option<usize>,
    /// The largest packet that is never sparse: at least [`Packet::LEAST`].
    small: usize,
    /// The largest packet that is kept.
    most: usize,
}

impl Outbox {
    /// A body moves to a packet of its size if the reserved one is this many times as large: credits bound the bytes that are
    /// sent, not those that were reserved.
    const SPARSE: usize = 4;

    pub(super) fn new(handle: &Arc<Handle>, small: usize, most: usize) -> Self {
        Self {
            handle: Arc::clone(handle),
            packet: None,
            reserved: None,
            small,
            most,
        }
    }

    /// Whether the packet has room for a body of `len` bytes.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.packet
            .as_ref()
            .is_some_and(|packet| packet.capacity() >= len)
    }

    /// Gets a packet for a body of `len` bytes.
    pub(super) fn fill(&mut self, locked: &mut Locked<'_>, len: usize) {
        if !self.fits(len) {
            let small = self.packet.replace(locked.packet(len));
            small.into_iter().for_each(|small| locked.give(small));
        }
    }

    /// Reserves the packet, which [fits](Self::fits).
    pub(super) fn reserve(&mut self, len: usize) -> Option<&mut Packet> {
        self.reserved = Some(len);
        self.packet.as_mut()
    }

    /// The reserved packet, and the length that was reserved.
    pub(super) fn take(&mut self, len: usize) -> (Packet, usize) {
        let reserved = self.packet.take().zip(self.reserved.take());
        let (packet, reserved) = reserved.expect("`reserve` comes before `commit`");
        assert!(len <= reserved, "a body larger than what was reserved");
        (packet, reserved)
    }

    /// Whether a body of `len` bytes is to move to a packet of its size.
    #[inline]
    fn is_sparse(&self, packet: &Packet, len: usize) -> bool {
        packet.capacity() > self.small && len.saturating_mul(Self::SPARSE) < packet.capacity()
    }

    /// The packet to send, whose body has `len` bytes: a copy if it is sparse. The other one is kept if the next frame, for which as much is
    /// `reserved` as for this one, needs it.
    #[inline]
    pub(super) fn shrink(
        &mut self,
        locked: &mut Locked<'_>,
        packet: Packet,
        len: usize,
        reserved: usize,
    ) -> Packet {
        if !self.is_sparse(&packet, len) {
            return packet;
        }
        let mut small = locked.packet(len);
        small.copy_from(&packet, len);
        if small.capacity() < reserved {
            self.packet = Some(packet);
        } else {
            locked.give(packet);
        }
        small
    }

    /// Sends a frame that is gathered, long, or in a packet that is much longer. `Some`: the packet, or another one, is free.
    #[inline(never)]
    fn send_unusual(
        &mut self,
        locked: &mut Locked<'_>,
        packet: Packet,
        head: Head,
        (joins, next): (bool, Next),
        reserved: usize,
    ) -> Option<Packet> {
        let (id, len) = (self.handle.id, head.len as usize);
        if locked.gathers(id, &head, packet.body(len), joins, next) {
            return Some(packet);
        }
        let packet = self.shrink(locked, packet, len, reserved);
        locked.send(id, packet, head, len)
    }

    /// Takes back a packet that was sent: keeps it, or gives it to the pool.
    pub(super) fn give_back(&mut self, locked: &mut Locked<'_>, packet: Packet) {
        if self.packet.is_none() && packet.capacity() <= self.most {
            self.packet = Some(packet);
        } else {
            locked.give(packet);
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take()
            && let Some(mut locked) = self.handle.engine.lock_here()
        {
            locked.give(packet);
        }
    }
}

/// Frames out.
struct Sender {
    handle: Arc<Handle>,
    max_body: usize,
    outbox: Outbox,
    /// What may be sent, as of the last look at the connection: only this sender sends frames. Notices that are under way since do not count.
    left: Credits,
    /// Frames that were sent.
    sent: u64,
    /// What follows the next frame.
    next: Next,
}

impl Sender {
    /// The largest packet that is kept for the next frame.
    const KEPT: usize = 4096;

    /// Gets a packet for a body of `len` bytes, if there is credit for it.
    fn make_room(&mut self, len: usize) -> Result<bool, LinkError> {
        let mut locked = self.handle.engine.lock();
        let connection = connection(&mut locked, self.handle.id)?;
        if let Some(gone) = &connection.gone {
            return Err(gone.clone());
        }
        if connection.signs.has_left() {
            return Ok(false);
        }
        let Stage::Open { out, .. } = &connection.stage else {
            return Err(CLOSED);
        };
        self.left = connection.under_way.left(out);
        let has_credit = self.left.covers(units(len));
        if has_credit {
            self.outbox.fill(&mut locked, len);
        }
        Ok(has_credit)
    }
}

impl Outbound for Sender {
    fn max_body(&self) -> usize {
        self.max_body
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(
            len <= self.max_body && align <= BODY_ALIGN,
            "a body larger than the transport takes"
        );
        // Nearly always the packet of the last frame is back, and there are credits for many more.
        let is_ready = self.left.covers(units(len)) && !self.handle.signs.has_left() && self.outbox.fits(len);
        if !is_ready && !self.make_room(len)? {
            return Ok(None);
        }
        Ok(self.outbox.reserve(len).map(|packet| packet.body_mut(len)))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let id = self.handle.id;
        let (packet, reserved) = self.outbox.take(len);
        let mut locked = self.handle.engine.lock();
        let (am_id, is_gathering) = (locked.am_id(), locked.is_gathering());
        let Core { worker, state } = &mut *locked;
        let Some(connection) = state.connections.get_mut(&id) else {
            return 0;
        };
        let joins = connection.joins();
        let Stage::Open { out } = &mut connection.stage else {
            return 0;
        };
        failpoint!("transport.commit");
        let data = units(len);
        let sequence = out.send(data);
        (self.left.frames, self.left.data) = (self.left.frames - 1, self.left.data - data);
        self.sent += 1;
        let all_out = connection.under_way.is_empty();
        let brings_credits = len > ONE_PIECE || self.handle.signs.credits.load(Ordering::Relaxed);
        let credits = match brings_credits {
            true => with_queue(worker, id, ReceiveQueue::publish),
            false => None,
        };
        let next = self.next.take();
        let is_alone = !joins && !is_gathering && next == Next::Unknown && state.gather.is_empty();
        let is_entry = len <= ONE_PIECE && connection.peer != Name::NONE;
        // Nearly always.
        let back = if is_alone && is_entry && !self.outbox.is_sparse(&packet, len) {
            let entry = Entry {
                number: sequence as u16,
                len: len as u16,
                words: header.words(),
                credits,
            };
            let posted = connection.send_entry(worker, id, am_id, packet, &entry, len);
            locked.posted(id, posted)
        } else {
            let head = Head {
                sequence,
                len: len as u32,
                words: header.words(),
                credits,
                to: connection.peer,
            };
            self.outbox
                .send_unusual(&mut locked, packet, head, (joins, next), reserved)
        };
        let all_out = all_out && back.is_some();
        // Progress sends a frame that waits: the next poll does not pass.
        let waits = next == Next::MoreLikely && locked.has_gathered();
        self.handle.signs.sent.store(all_out && !waits, Ordering::Relaxed);
        self.handle.engine.polling.sent(all_out);
        if let Some(packet) = back {
            self.outbox.give_back(&mut locked, packet);
        }
        sequence
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn hold(&mut self) {
        self.next = Next::MoreAtOnce;
    }

    fn may_wait(&mut self) {
        // Not while a thread sleeps: it sends nothing.
        if self.next == Next::Unknown && !self.handle.signs.armed.load(Ordering::Relaxed) {
            self.next = Next::MoreLikely;
        }
    }

    fn flush(&mut self) {
        self.next = Next::Unknown;
        self.handle.engine.lock().send_unless_busy(self.handle.id);
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        let mut locked = self.handle.engine.lock();
        match connection(&mut locked, self.handle.id).map(|connection| &connection.stage) {
            Ok(Stage::Open { out, .. }) => out.is_unconsumed(sequence),
            _ => true,
        }
    }
}

/// Frames in.
struct Receiver {
    handle: Arc<Handle>,
    /// The frame that `peek` found. Once it is released its memory stays here until the lock is taken anyway; if credits are due, until
    /// the poll ends.
    frame: Option<Frame>,
    is_released: bool,
    /// The frame's memory is to be given back as soon as it is released.
    is_due: bool,
    /// [`Engine::polls`] at the last poll that found nothing.
    polled: u64,
    /// Polls in succession that did not progress UCX, because a frame was sent just before.
    passed: u32,
}

impl Receiver {
    /// Gets the next frame, if there is one. Progresses UCX if no thread did since the last poll, unless a poll of the target has. Nor where
    /// the last thing that happened is that a frame was sent: a sender polls in passing, for what cannot be there yet, and a waiting thread
    /// polls again.
    fn next(&mut self) -> Result<(), LinkError> {
        if self.passes() {
            return Ok(());
        }
        let engine = &self.handle.engine;
        let mut locked = engine.lock();
        if self.owes() {
            spend(&mut locked, self.handle.id, self.frame.take());
            self.is_released = false;
        }
        let may_progress = self.polled == engine.polls() && !engine.polling.is_here();
        if may_progress && is_empty(&mut locked, self.handle.id) {
            locked.progress();
            self.polled = engine.polls();
        }
        if !locked.worker.handler().is_empty() {
            // What came before the frame, in a call of the application's, is seen to before it.
            locked.dispatch();
        }
        let Core { worker, state } = &mut *locked;
        let mut handler = worker.handler();
        let EventQueue {
            receive_queues, pool, ..
        } = &mut *handler;
        let queue = receive_queues.get_mut(self.handle.id).ok_or(CLOSED)?;
        let mut released = None;
        // The credits of what was released are not due: they go with another message to the peer once they are many.
        if std::mem::take(&mut self.is_released)
            && let Some(frame) = self.frame.take()
        {
            queue.release(frame.data.len());
            match frame.data {
                Data::Copied(packet, _) => pool.give(packet),
                data => released = Some(data),
            }
        }
        match queue.take() {
            Some((frame, is_due)) => (self.frame, self.is_due) = (Some(frame), is_due),
            None => self.polled = engine.polls(),
        }
        drop(handler);
        if let Some(data) = released {
            discard(worker, data);
        }
        if self.frame.is_some() {
            return Ok(());
        }
        let connection = state.connections.get(&self.handle.id).ok_or(CLOSED)?;
        connection.gone.clone().map_or(Ok(()), Err)
    }

    /// Whether a poll finds nothing, and has nothing else to do.
    fn passes(&mut self) -> bool {
        let signs = &self.handle.signs;
        if signs.arrived.load(Ordering::Acquire) || signs.is_gone() || self.owes() {
            return false;
        }
        let engine = &self.handle.engine;
        let polls = engine.polls();
        if polls != self.polled || engine.polling.is_here() {
            self.polled = polls;
            return true;
        }
        if signs.sent.load(Ordering::Relaxed) && self.passed < PASSED {
            signs.sent.store(false, Ordering::Relaxed);
            self.passed += 1;
            return true;
        }
        self.passed = 0;
        // The next call answers the same.
        signs.sent.store(false, Ordering::Relaxed);
        false
    }

    /// Whether there is something to be given back that does not wait for another reason to take the lock.
    fn owes(&self) -> bool {
        self.is_released && self.is_due
    }

    /// Whether there is a frame that was not released.
    fn has_frame(&self) -> bool {
        self.frame.is_some() && !self.is_released
    }

    /// Gives back what was released.
    fn settle_up(&mut self) {
        if std::mem::take(&mut self.is_released) {
            spend(&mut self.handle.engine.lock(), self.handle.id, self.frame.take());
        }
    }
}

/// Polls in passing, in succession, that do not progress UCX.
const PASSED: u32 = 64;

/// Whether no frame is here, and the connection goes on.
fn is_empty(locked: &mut Locked<'_>, id: ConnectionId) -> bool {
    let is_open = connection(locked, id).is_ok_and(|connection| connection.gone.is_none());
    is_open && with_queue(&mut locked.worker, id, |queue| queue.is_empty()).unwrap_or(false)
}

/// Gives the memory of a frame back, and credits to the peer if they are due.
fn spend(locked: &mut Locked<'_>, id: ConnectionId, frame: Option<Frame>) {
    let Some(Frame { data, .. }) = frame else { return };
    let len = data.len();
    locked.discard(data);
    let is_due = with_queue(&mut locked.worker, id, |queue| queue.release(len)).unwrap_or(false);
    if is_due && connection(locked, id).is_ok_and(|connection| connection.gone.is_none()) {
        locked.credit(id);
    }
}

impl Inbound for Receiver {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<transport::Frame<Body<'_>>>, LinkError> {
        if !self.has_frame() {
            self.next()?;
        }
        let frame = self.frame.as_ref().filter(|_| !self.is_released);
        Ok(frame.map(|frame| {
            let (ptr, len) = match &frame.data {
                Data::Copied(packet, len) => (packet.body(*len).as_ptr(), *len),
                Data::Kept(kept) => (kept.as_ptr().cast(), kept.as_ptr().len()),
                Data::Fetchable(..) => unreachable!("what has arrived was fetched"),
            };
            transport::Frame {
                sequence: frame.sequence,
                words: frame.words,
                // SAFETY: the memory is the frame's until `release`, which needs `self` mutably; UCX's is there as long as the engine.
                body: unsafe { Body::new(ptr, len) },
            }
        }))
    }

    fn is_empty(&mut self) -> bool {
        !self.has_frame() && self.passes()
    }

    fn release(&mut self) {
        self.is_released = self.frame.is_some();
    }

    fn is_drained(&self) -> bool {
        let (signs, polling) = (&self.handle.signs, &self.handle.engine.polling);
        // Outside of a poll, another look sends what is gathered.
        let ends = polling.is_here() || !polling.is_gathered();
        ends && !signs.arrived.load(Ordering::Acquire) && !signs.is_gone() && !self.owes()
    }

    fn settle(&mut self) {
        // Credits that are not due do not keep the peer from sending.
        if self.owes() {
            self.settle_up();
        }
    }
}

impl Park for Receiver {
    fn arm(&mut self) -> bool {
        self.settle_up();
        self.handle.signs.armed.store(true, Ordering::Relaxed);
        // Also on a worker that listens: this thread may be another one than its target's, or the target's between two polls.
        self.handle.engine.lock().arm();
        self.is_idle()
    }

    fn disarm(&mut self) {
        self.handle.signs.armed.store(false, Ordering::Relaxed);
        self.handle.set_parked(false);
    }

    fn park(&mut self) {
        self.settle_up();
        self.handle.set_parked(true);
    }

    fn is_idle(&mut self) -> bool {
        !self.has_frame() && self.handle.signs.is_idle()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Where the worker cannot be used it is the application's, and what it brought was copied.
        if let Some(frame) = self.frame.take()
            && let Some(mut locked) = self.handle.engine.lock_here()
        {
            locked.discard(frame.data);
        }
    }
}

/// Sleeping.
impl Handle {
    /// Calls of progress that find out about a peer's end: UCX takes several steps.
    const STEPS: usize = 4;
    /// The longest sleep: UCX notices some things, a peer's end among them, only in progress.
    const SLICE: Duration = Duration::from_millis(5);

    /// The longest sleep. Tests lengthen it by `IFUNC_TEST_UCX_SLICE`, in milliseconds: a wake-up that is lost is then not
    /// hidden by the end of a slice.
    fn slice() -> Duration {
        #[cfg(any(test, feature = "failpoints"))]
        {
            static SLICE: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
            *SLICE.get_or_init(|| {
                let longer = std::env::var("IFUNC_TEST_UCX_SLICE").ok();
                longer
                    .and_then(|milliseconds| milliseconds.parse().ok())
                    .map_or(Self::SLICE, Duration::from_millis)
            })
        }
        #[cfg(not(any(test, feature = "failpoints")))]
        Self::SLICE
    }
}

impl Waiter for Handle {
    fn sleep(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        let engine = &self.engine;
        let backoff = engine
            .lock_here()
            .map_or(Duration::ZERO, |locked| locked.backoff());
        if backoff.is_zero() {
            return self.sleep_on_doorbell(until, woken);
        }
        // The descriptor is readable, for threads that wait for nothing else.
        let until = until.min(Instant::now() + backoff);
        match woken {
            Some(woken) => drop(wait_readable(woken, until)),
            None => std::thread::sleep(until.saturating_duration_since(Instant::now())),
        }
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(Self::slice())
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.engine.bell()
    }

    fn clear_doorbell(&self) {
        // Arming does: UCX owns what the descriptor stands for.
    }

    fn serves_any_thread(&self) -> bool {
        self.engine.attached().is_none_or(Attached::is_anywhere)
    }

    fn carried_by(&self) -> String {
        self.engine.lock().carried_by(self.id)
    }

    fn close(&self) {
        // A sleeping thread polls again after a slice.
    }

    fn is_peer_closed(&self) -> bool {
        self.signs.is_gone()
    }

    fn check_peer_closed(&self) -> bool {
        // A worker that was left is not used any more, and its connections are gone.
        if !self.signs.is_gone() {
            let mut locked = self.engine.lock();
            for _ in 0..Self::STEPS {
                if self.signs.is_gone() || !locked.progress() {
                    break;
                }
            }
            locked.check_hung_up(self.id);
        }
        self.signs.is_gone()
    }
}
