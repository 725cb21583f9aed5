//! The two ends of a connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ifunc_abi::frame::{BODY_ALIGN, Header};
use ifunc_proto::buffer::AlignedBuffer;

use super::lock;
use super::pipe::{Pipe, QueuedFrame};
use super::ready_list::ReadyList;
use crate::os::EventFd;
use crate::transport::{Body, Frame, Inbound, Key, LinkError, ListenConfig, Outbound, Park, Waiter};
use std::os::fd::{AsFd, BorrowedFd};

/// What both ends share.
pub(super) struct Connection {
    pipes: [Mutex<Pipe>; 2],
    sides: [Side; 2],
}

/// How a side is woken.
struct Side {
    event_fd: Arc<EventFd>,
    asleep: AtomicBool,
    left: AtomicBool,
    /// A target looks at this connection only when it is in that list.
    parked: AtomicBool,
    ready: Option<(Arc<ReadyList>, Key)>,
}

impl Side {
    fn new(event_fd: Arc<EventFd>, ready: Option<(Arc<ReadyList>, Key)>) -> Self {
        Self {
            event_fd,
            asleep: AtomicBool::new(false),
            left: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            ready,
        }
    }

    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.event_fd.wake();
        }
        if let Some((ready, key)) = &self.ready
            && self.parked.swap(false, Ordering::SeqCst)
        {
            ready.put(*key);
        }
    }
}

const TARGET: usize = 0;
const SOURCE: usize = 1;

impl Connection {
    pub(super) fn new(config: &ListenConfig, target: (Arc<ReadyList>, Key), source: Arc<EventFd>) -> Self {
        let event_fd = Arc::clone(&target.0.event_fd);
        let pipe = |size| {
            Mutex::new(Pipe::new(
                size,
                #[cfg(test)]
                config.shuffle,
            ))
        };
        Self {
            pipes: [pipe(config.to_target), pipe(config.to_source)],
            sides: [Side::new(event_fd, Some(target)), Side::new(source, None)],
        }
    }
}

/// One end. When the last part of a link drops it, the other end learns so.
pub(super) struct End {
    connection: Arc<Connection>,
    me: usize,
}

impl End {
    pub(super) fn source(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            me: SOURCE,
        }
    }

    pub(super) fn target(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            me: TARGET,
        }
    }

    fn outgoing(&self) -> &Mutex<Pipe> {
        &self.connection.pipes[1 - self.me]
    }

    fn incoming(&self) -> &Mutex<Pipe> {
        &self.connection.pipes[self.me]
    }

    fn own(&self) -> &Side {
        &self.connection.sides[self.me]
    }

    fn peer(&self) -> &Side {
        &self.connection.sides[1 - self.me]
    }

    fn is_gone(&self) -> bool {
        self.peer().left.load(Ordering::SeqCst)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.own().left.store(true, Ordering::SeqCst);
        self.peer().event_fd.wake();
        self.peer().wake();
        if let Some((ready, _)) = &self.own().ready {
            ready.leave();
        }
    }
}

/// Frames out.
pub(super) struct Sender {
    end: Arc<End>,
    reserved: Option<AlignedBuffer>,
    sequence: u32,
    max_body: usize,
}

impl Sender {
    pub(super) fn new(end: Arc<End>) -> Self {
        let max_body = lock(end.outgoing()).size().max_body();
        Self {
            end,
            reserved: None,
            sequence: 0,
            max_body,
        }
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
        if self.end.is_gone() {
            return Err(LinkError::Closed);
        }
        if !lock(self.end.outgoing()).has_credit(len) {
            return Ok(None);
        }
        let body = self.reserved.insert(AlignedBuffer::default());
        body.resize(len);
        Ok(Some(body.as_mut_slice()))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let mut body = self.reserved.take().expect("`reserve` comes before `commit`");
        assert!(len <= body.len(), "a body larger than what was reserved");
        body.resize(len);
        self.sequence = self.sequence.wrapping_add(1);
        let frame = QueuedFrame {
            sequence: self.sequence,
            words: header.words(),
            body,
        };
        lock(self.end.outgoing()).push(frame);
        self.end.peer().wake();
        self.sequence
    }
}

/// Frames in.
pub(super) struct Receiver {
    end: Arc<End>,
    peeked: Option<QueuedFrame>,
    /// Credits that were not given back yet: frames, bytes.
    kept: (u32, usize),
    /// From how many frames and bytes on they are.
    lap: (u32, usize),
}

impl Receiver {
    pub(super) fn new(end: Arc<End>) -> Self {
        let size = lock(end.incoming()).size();
        Self {
            end,
            peeked: None,
            kept: (0, 0),
            lap: ((size.slots / 4).max(1), size.data as usize / 4),
        }
    }
}

impl Inbound for Receiver {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.peeked.is_none() {
            // Looked at before the queue: what was sent before leaving is delivered.
            let gone = self.end.is_gone();
            self.peeked = lock(self.end.incoming()).pop();
            if self.peeked.is_none() && gone {
                return Err(LinkError::Closed);
            }
        }
        Ok(self.peeked.as_ref().map(|frame| {
            let bytes = frame.body.as_slice();
            Frame {
                sequence: frame.sequence,
                words: frame.words,
                body: Body::from(bytes),
            }
        }))
    }

    fn release(&mut self) {
        let Some(frame) = self.peeked.take() else { return };
        self.kept.0 += 1;
        self.kept.1 += frame.body.len().next_multiple_of(BODY_ALIGN);
        if self.kept.0 >= self.lap.0 || self.kept.1 >= self.lap.1 {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let (frames, bytes) = std::mem::take(&mut self.kept);
        if frames > 0 {
            lock(self.end.incoming()).credit(frames, bytes);
            self.end.peer().wake();
        }
    }
}

impl Park for Receiver {
    fn arm(&mut self) -> bool {
        self.end.own().asleep.store(true, Ordering::SeqCst);
        self.peeked.is_none() && !self.end.is_gone() && lock(self.end.incoming()).is_empty()
    }

    fn disarm(&mut self) {
        self.end.own().asleep.store(false, Ordering::SeqCst);
        self.end.own().parked.store(false, Ordering::SeqCst);
    }

    fn park(&mut self) {
        self.end.own().parked.store(true, Ordering::SeqCst);
    }

    fn is_idle(&mut self) -> bool {
        self.peeked.is_none() && !self.end.is_gone() && lock(self.end.incoming()).is_empty()
    }
}

/// Sleeping.
pub(super) struct Sleeper {
    end: Arc<End>,
}

impl Sleeper {
    pub(super) fn new(end: Arc<End>) -> Self {
        Self { end }
    }
}

impl Waiter for Sleeper {
    fn doorbell(&self) -> BorrowedFd<'_> {
        self.end.own().event_fd.as_fd()
    }

    fn clear_doorbell(&self) {
        self.end.own().event_fd.clear();
    }

    fn close(&self) {
        self.end.own().event_fd.wake();
    }

    fn carried_by(&self) -> String {
        "loopback".into()
    }

    fn is_peer_closed(&self) -> bool {
        self.end.is_gone()
    }
}
