//! The event queue: what UCX's callbacks write down. What follows from it is decided when UCX has returned.

use std::sync::Arc;

use ::ucx::{Buffer, Callback, EndpointId, Handler, Kept, Message, Rendezvous, Status};
use ifunc_abi::frame::BODY_ALIGN;

use super::handshake::LONGEST;
use super::header::{HEADER, Head, ONE_PIECE};
use super::packet::{Packet, Pool, Purpose};
use crate::os::EventFd;

/// Bodies up to this length are copied: cheaper than to keep UCX's buffer, which is as large as its largest message.
const COPIED: usize = ONE_PIECE;

/// Events that were not dispatched yet, and the packets that are free.
pub(super) struct EventQueue {
    events: Vec<Event>,
    pub(super) pool: Pool,
    /// Where the worker is the application's, whose calls fill the queue at any time, on any thread.
    wake: Option<Wake>,
}

/// Wakes a thread of ours that waits for an application's worker.
struct Wake {
    is_armed: bool,
    event_fd: Arc<EventFd>,
}

/// Something that happened.
pub(super) enum Event {
    /// A message came.
    Message {
        /// By which endpoint it is answered, if it says so.
        from: Option<EndpointId>,
        /// `None`: it is not of this transport.
        head: Option<Head>,
        data: Data,
    },
    /// The operation of this packet has ended.
    Completed(Packet, Result<(), Status>),
    /// An endpoint's peer is gone.
    Failed(EndpointId, Status),
}

/// The data of a message.
pub(super) enum Data {
    /// Copied, so many bytes.
    Copied(Packet, usize),
    /// In a buffer of UCX's.
    Kept(Kept),
    /// Still the sender's.
    Fetchable(Rendezvous),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Copied(_, len) => *len,
            Self::Kept(kept) => kept.as_ptr().len(),
            Self::Fetchable(message) => message.len(),
        }
    }
}

impl EventQueue {
    /// `event_fd` is that of an application's worker.
    pub(super) fn new(event_fd: Option<Arc<EventFd>>) -> Self {
        Self {
            events: Vec::new(),
            pool: Pool::default(),
            wake: event_fd.map(|event_fd| Wake {
                is_armed: false,
                event_fd,
            }),
        }
    }

    /// Makes the next event wake the thread that sleeps on the descriptor.
    pub(super) fn arm(&mut self) {
        if let Some(wake) = &mut self.wake {
            wake.is_armed = true;
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Moves the events to `events`, which is empty.
    pub(super) fn take(&mut self, events: &mut Vec<Event>) {
        std::mem::swap(&mut self.events, events);
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push(event);
        if let Some(wake) = &mut self.wake
            && std::mem::take(&mut wake.is_armed)
        {
            wake.event_fd.wake();
        }
    }

    /// Whether all bodies are copied: an application's buffers of UCX are not ours to keep.
    fn copies_all(&self) -> bool {
        self.wake.is_some()
    }
}

impl Handler for EventQueue {
    type Tag = Purpose;

    fn message(&mut self, _: &mut Callback<'_, Self>, message: Message<'_>) {
        let from = message.sender();
        let (len, is_rendezvous) = (message.len(), message.is_rendezvous());
        let mut header = [0; HEADER];
        if message.header_len() == 0 && !is_rendezvous && (HEADER..=HEADER + ONE_PIECE).contains(&len) {
            let len = len - HEADER;
            let mut packet = self.pool.take(len);
            message.copy_to(&mut header);
            message.copy_from(HEADER, packet.body_mut(len));
            return self.push(Event::Message {
                from,
                head: Some(Head::decode(&header)),
                data: Data::Copied(packet, len),
            });
        }
        let head = (message.header_len() == HEADER).then(|| {
            message.copy_header(&mut header);
            Head::decode(&header)
        });
        // Notices are decoded as a whole; the longest has the address of a worker.
        let is_notice = head.as_ref().is_some_and(Head::is_notice);
        let copied = if is_notice { LONGEST } else { COPIED };
        let may_keep = len > copied && !self.copies_all() && message.is_aligned(BODY_ALIGN);
        let kept = match message.rendezvous() {
            Ok(message) => Ok(Data::Fetchable(message)),
            Err(message) if may_keep => message.keep().map(Data::Kept),
            Err(message) => Err(message),
        };
        let data = kept.unwrap_or_else(|message| {
            let mut packet = self.pool.take(len);
            message.copy_to(packet.body_mut(len));
            Data::Copied(packet, len)
        });
        self.push(Event::Message { from, head, data });
    }

    fn completed(&mut self, _: &mut Callback<'_, Self>, buffer: Buffer<Purpose>, result: Result<(), Status>) {
        self.push(Event::Completed(Packet(buffer), result));
    }

    fn endpoint_failed(&mut self, endpoint: EndpointId, why: Status) {
        self.push(Event::Failed(endpoint, why));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;
    use crate::os::wait_readable;

    #[test]
    fn the_next_event_wakes_a_thread_that_sleeps_on_a_worker_of_the_applications() {
        let event_fd = Arc::new(EventFd::new().unwrap());
        let mut queue = EventQueue::new(Some(Arc::clone(&event_fd)));
        let is_woken = || wait_readable((*event_fd).as_fd(), Instant::now());
        let event = || Event::Completed(Pool::default().take(0), Ok(()));
        queue.push(event());
        assert!(!is_woken(), "nobody sleeps");
        queue.arm();
        assert!(!is_woken());
        queue.push(event());
        assert!(is_woken());
        // Once: until it is armed again.
        event_fd.clear();
        queue.push(event());
        assert!(!is_woken() && !queue.is_empty());
    }

    #[test]
    fn only_buffers_of_a_worker_of_ours_are_kept() {
        assert!(!EventQueue::new(None).copies_all());
        let event_fd = Arc::new(EventFd::new().unwrap());
        assert!(EventQueue::new(Some(event_fd)).copies_all());
    }
}
