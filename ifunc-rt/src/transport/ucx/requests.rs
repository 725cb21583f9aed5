//! Operations of the worker: sending messages, fetching bodies, making and closing endpoints.

use std::ops::Range;

use ::ucx::{
    Endpoint, ErrorMode, Flags, Operation, OperationId, Operations, Posted, Rendezvous, Serialized, Status,
    Worker,
};

use super::arming::QUIET_ROUNDS;
use super::credits::message_of;
use super::engine::{Core, Locked};
use super::events::{Data, EventQueue};
use super::frame::Frame;
use super::header::{HEADER, Head, MAX_PACKED_BODY};
use super::packed::Entry;
use super::packet::{BODY, Packet, Purpose};
use super::table::{Connection, ConnectionId};
use crate::transport::address::WorkerAddress;
use crate::transport::window::Credits;

impl Locked<'_> {
    /// A packet for a body of `len` bytes.
    pub(super) fn packet(&mut self, len: usize) -> Packet {
        self.worker.handler().pool.take(len)
    }

    /// Takes a packet back.
    pub(super) fn give(&mut self, packet: Packet) {
        self.worker.handler().pool.give(packet);
    }

    /// Begins an operation. `Ok(Some)`: it has ended already.
    pub(super) fn begin(
        &mut self,
        operation: Operation<'_>,
        packet: Packet,
    ) -> Result<Option<Packet>, Status> {
        Ok(match self.worker.post(operation, packet.0)? {
            Posted::Done(buffer) => Some(Packet(buffer)),
            Posted::UnderWay(_) => None,
        })
    }

    /// Sends `len` bytes of the packet's body to the peer of a connection, after what was gathered for it. `Some`: UCX is done with the
    /// packet. What goes wrong is the end of the connection.
    pub(super) fn send(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        head: Head,
        len: usize,
    ) -> Option<Packet> {
        if !self.state.gather.is_empty() {
            self.send_pack(id);
        }
        let am_id = self.am_id();
        let Core { worker, state } = &mut **self;
        let Some(connection) = state.connections.get_mut(&id) else {
            return Some(packet);
        };
        let posted = connection.send(worker, id, am_id, packet, head, len);
        self.posted(id, posted)
    }

    /// Posts a message of parts of the packet.
    pub(super) fn post_message(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        message: Parts,
    ) -> Option<Packet> {
        let am_id = self.am_id();
        let Core { worker, state } = &mut **self;
        let Some(connection) = state.connections.get_mut(&id) else {
            return Some(packet);
        };
        let posted = connection.post_message(worker, id, am_id, packet, message);
        self.posted(id, posted)
    }

    /// The packet, if UCX is done with it.
    #[inline]
    pub(super) fn posted(
        &mut self,
        id: ConnectionId,
        posted: Result<Option<Packet>, Status>,
    ) -> Option<Packet> {
        posted.unwrap_or_else(|status| {
            self.lose(id, "sending", status);
            None
        })
    }

    /// Fetches a body. `Ok(Some)`: it is here.
    pub(super) fn fetch(&mut self, message: Rendezvous, purpose: Purpose) -> Result<Option<Packet>, Status> {
        let len = message.len();
        let mut packet = self.packet(len);
        packet.set_purpose(purpose);
        let data = BODY..BODY + len;
        self.begin(Operation::Fetch { message, data }, packet)
    }

    /// Gives the memory of a frame back.
    pub(super) fn release(&mut self, frame: Frame) {
        let (packet, kept) = frame.into_memory();
        self.give(packet);
        if let Some(kept) = kept {
            self.worker.release(kept);
        }
    }

    /// Gives the memory of data back.
    pub(super) fn discard(&mut self, data: Data) {
        match data {
            Data::Copied(packet, _) => self.give(packet),
            Data::Kept(kept) => self.worker.release(kept),
            Data::Fetchable(message) => self.worker.discard(message),
        }
    }

    /// An endpoint to a worker whose address came by other means. UCX contacts the worker later.
    pub(super) fn connect_to_worker(&mut self, address: &WorkerAddress) -> Result<Endpoint, Status> {
        // SAFETY: bytes in the form of an address are trusted to be one: the user and the peers that send it are trusted with the process,
        // as `docs/transports.md` says; a checksum keeps accidents away.
        unsafe { self.worker.connect_to_worker(address.as_bytes(), ErrorMode::Peer) }
    }

    /// The worker's address, which others connect to.
    pub(super) fn address(&mut self) -> Result<WorkerAddress, ::ucx::Error> {
        let address = self.worker.address()?;
        WorkerAddress::new(self.am_id(), &address).ok_or_else(|| ::ucx::Error {
            doing: "asking UCX for the address of its worker",
            status: self.worker.library().status(::ucx::code::UCS_ERR_EXCEEDS_LIMIT),
        })
    }

    /// Closes an endpoint by force: without asking the peer; what was not sent is dropped. The operation, if it has not ended.
    pub(super) fn close(&mut self, endpoint: Endpoint) -> Option<OperationId> {
        if self.state.closed {
            return None;
        }
        self.state.quiet_rounds_due = QUIET_ROUNDS;
        let mut packet = self.packet(0);
        packet.set_purpose(Purpose::Closing);
        let force = true;
        let endpoint = &mut Some(endpoint);
        match self.worker.post(Operation::Close { endpoint, force }, packet.0) {
            Ok(Posted::UnderWay(closing)) => {
                self.state.closing.insert(closing, Vec::new());
                return Some(closing);
            }
            Ok(Posted::Done(buffer)) => self.give(Packet(buffer)),
            Err(status) => tracing::debug!(%status, "closing an endpoint"),
        }
        None
    }
}

/// The parts of a packet that are a message's, and how it is sent.
pub(super) struct Parts {
    /// Empty: the message is a packed one.
    pub(super) header: Range<usize>,
    pub(super) data: Range<usize>,
    pub(super) flags: Flags,
    /// Frames and data in it.
    pub(super) sent: Credits,
}

impl Connection {
    /// Sends `len` bytes of the packet's body to the peer. `Ok(Some)`: UCX is done with the packet.
    pub(super) fn send(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        id: ConnectionId,
        am_id: u16,
        mut packet: Packet,
        mut head: Head,
        len: usize,
    ) -> Result<Option<Packet>, Status> {
        head.to = self.peer;
        let of_handshake = head.is_of_the_handshake();
        if !of_handshake && len <= MAX_PACKED_BODY {
            return self.send_entry(worker, id, am_id, packet, &Entry::of(&head), len);
        }
        *packet.header_mut() = zerocopy::transmute!(head.encode());
        let mut flags = Flags::default();
        if of_handshake {
            // The receiver learns by which endpoint it is answered.
            flags = flags | Flags::REPLY;
        }
        if head.is_notice() || self.is_over_tcp {
            // Never fetched: over TCP, what is sent at once comes sooner, and does not wait for the source's next call.
            flags = flags | Flags::EAGER;
        }
        let message = Parts {
            header: BODY - HEADER..BODY,
            data: BODY..BODY + len,
            flags,
            sent: message_of(len),
        };
        self.post_message(worker, id, am_id, packet, message)
    }

    /// Sends an entry, whose body is the packet's and has `len` bytes, as a message of its own. `Ok(Some)`: UCX is done with the packet.
    #[inline(always)]
    pub(super) fn send_entry(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        id: ConnectionId,
        am_id: u16,
        mut packet: Packet,
        entry: &Entry,
        len: usize,
    ) -> Result<Option<Packet>, Status> {
        let header = entry.encode(Some(self.peer), packet.header_mut());
        let message = Parts {
            header: 0..0,
            data: BODY - header..BODY + len,
            // Never fetched.
            flags: Flags::EAGER,
            sent: message_of(len),
        };
        self.post_message(worker, id, am_id, packet, message)
    }

    /// Posts a message of parts of the packet. `Ok(Some)`: UCX is done with it.
    #[inline(always)]
    fn post_message(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        id: ConnectionId,
        am_id: u16,
        mut packet: Packet,
        message: Parts,
    ) -> Result<Option<Packet>, Status> {
        let Some(endpoint) = &self.endpoint else {
            return Ok(Some(packet));
        };
        let Parts {
            header,
            data,
            flags,
            sent,
        } = message;
        let is_packed = header.is_empty();
        packet.set_purpose(Purpose::Sending {
            connection: id,
            sent,
            is_packed,
        });
        let message = Operation::Message {
            endpoint,
            id: self.am_id.unwrap_or(am_id),
            header,
            data,
            flags,
        };
        match worker.post(message, packet.0)? {
            Posted::Done(buffer) => Ok(Some(Packet(buffer))),
            Posted::UnderWay(_) => {
                self.under_way.begin(sent);
                self.packed_under_way += usize::from(is_packed);
                Ok(None)
            }
        }
    }
}
