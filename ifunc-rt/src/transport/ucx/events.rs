//! What UCX's callbacks write down: events, from which more follows when UCX has returned, and frames, which they put into their
//! connections' [receive queues](super::receive_queue).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use ::ucx::{Buffer, Callback, EndpointId, Handler, Kept, Message, Readable, Rendezvous, Status};
use ifunc_abi::frame::BODY_ALIGN;

use super::handshake::LONGEST;
use super::header::{HEADER, Head, MAX_PACKED_BODY, Name};
use super::packed::{Entries, Entry, LENGTHS, Malformed};
use super::packet::{Packet, Pool, Tag};
use super::receive_queue::ReceiveQueues;
use crate::os::EventFd;

/// Bodies up to this length are copied: cheaper than to keep UCX's buffer, which is as large as its largest message.
const COPIED: usize = MAX_PACKED_BODY;

/// Events that were not dispatched yet, frames that were not taken, and the packets that are free.
pub(super) struct EventQueue {
    /// In their order.
    queue: VecDeque<Event>,
    pub(super) receive_queues: ReceiveQueues,
    /// An event was added, or a frame has arrived.
    is_changed: bool,
    pub(super) pool: Pool,
    /// Where the worker is the application's, whose calls fill the queue at any time, on any thread.
    wake: Option<Wake>,
}

/// Wakes a thread of ours that waits for an application's worker.
struct Wake {
    is_armed: bool,
    event_fd: Arc<EventFd>,
}

/// Something that happened, beside the arrival of a frame that a receive queue took.
pub(super) enum Event {
    /// A message came.
    Message {
        /// By which endpoint it is answered, if it says so.
        from: Option<EndpointId>,
        head: Header,
        data: Data,
    },
    /// The operation of this packet has ended.
    Completed(Packet, Result<(), Status>),
    /// An endpoint's peer is gone.
    Failed(EndpointId, Status),
}

/// The header of a message.
#[derive(Clone, Copy)]
pub(super) enum Header {
    /// Its own.
    Head(Head),
    /// Of an entry of a packed message to this connection.
    Entry(Name, Entry),
    /// A packed message to this connection, the rest of which is malformed.
    CutOff(Name),
    /// It is not of this transport.
    Unknown,
}

impl Header {
    /// The connection that it names.
    pub(super) fn to(&self) -> Name {
        match self {
            Self::Head(head) => head.to,
            Self::Entry(to, _) | Self::CutOff(to) => *to,
            Self::Unknown => Name::NONE,
        }
    }
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
            queue: VecDeque::new(),
            receive_queues: ReceiveQueues::default(),
            is_changed: false,
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
        self.queue.is_empty()
    }

    /// The next event.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    pub(super) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
        self.set_changed();
    }

    /// Whether anything has happened since the last call.
    #[inline]
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Something has happened.
    #[inline]
    fn set_changed(&mut self) {
        self.is_changed = true;
        if let Some(wake) = &mut self.wake
            && std::mem::take(&mut wake.is_armed)
        {
            wake.event_fd.wake();
        }
    }

    /// The entries of a packed message, each in a packet of its own.
    #[inline(always)]
    fn packed(&mut self, message: Readable<'_>) {
        let read = |at| {
            let mut word = [0; size_of::<u64>()];
            message.copy_from(at, &mut word);
            u64::from_le_bytes(word)
        };
        let to = Name(read(0));
        let mut entries = Entries::new(message.len(), read);
        // Nearly always there is one.
        if let Some(first) = entries.next() {
            self.entry(message, to, first);
        }
        if !entries.is_over() {
            self.more_entries(message, to, entries);
        }
    }

    #[inline(never)]
    fn more_entries(&mut self, message: Readable<'_>, to: Name, entries: Entries<impl Fn(usize) -> u64>) {
        for entry in entries {
            self.entry(message, to, entry);
        }
    }

    #[inline(always)]
    fn entry(&mut self, message: Readable<'_>, to: Name, entry: Result<(Entry, Range<usize>), Malformed>) {
        let Ok((entry, body)) = entry else {
            return self.cut_off(to);
        };
        let len = entry.len.into();
        let mut packet = self.pool.take(len);
        message.copy_from(body.start, packet.body_mut(len));
        match self.receive_queues.receive_next(to, &entry, packet) {
            Ok(()) => self.set_changed(),
            Err(packet) => self.unusual(to, entry, packet),
        }
    }

    /// An entry that is not the next frame of its connection, or from which more follows.
    #[cold]
    fn unusual(&mut self, to: Name, entry: Entry, packet: Packet) {
        let data = Data::Copied(packet, entry.len.into());
        self.push(Event::Message {
            from: None,
            head: Header::Entry(to, entry),
            data,
        });
    }

    /// The rest of a packed message is malformed.
    #[cold]
    fn cut_off(&mut self, to: Name) {
        let data = Data::Copied(self.pool.take(0), 0);
        self.push(Event::Message {
            from: None,
            head: Header::CutOff(to),
            data,
        });
    }
}

impl Handler for EventQueue {
    type Tag = Tag;

    /// Inlined, and so is [`packed`](EventQueue::packed): UCX's arguments stay in registers.
    #[inline(always)]
    fn data_only(&mut self, _: u16, data: Readable<'_>) -> bool {
        let is_packed = LENGTHS.contains(&data.len());
        if is_packed {
            self.packed(data);
        }
        is_packed
    }

    /// One with a header of UCX's, or that is none of ours.
    #[inline(never)]
    fn message(&mut self, _: &mut Callback<'_, Self>, message: Message<'_>) {
        let (from, len) = (message.sender(), message.len());
        let mut head = Header::Unknown;
        // Notices are decoded as a whole; the longest has the address of a worker.
        let mut copied = COPIED;
        if message.header_len() == HEADER {
            let mut header = [0; HEADER];
            message.copy_header(&mut header);
            let decoded = Head::decode(&header);
            if decoded.is_notice() {
                copied = LONGEST;
            }
            head = Header::Head(decoded);
        }
        let may_keep = len > copied && message.is_aligned(BODY_ALIGN);
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

    fn completed(&mut self, _: &mut Callback<'_, Self>, buffer: Buffer<Tag>, result: Result<(), Status>) {
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
}
