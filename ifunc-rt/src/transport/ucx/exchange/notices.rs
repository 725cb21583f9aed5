//! Notices over the socket of an exchange, where frames are put.
//!
//! UCX carries nothing but puts and gets then. Over its shared memory all senders of messages share the receiver's queue, and one that is
//! killed after it has taken an element and before it has filled it stops the queue for all of them, for ever.
//!
//! A notice is its header and its body, as in a message of UCX's ([`header`](crate::transport::ucx::header)), without the name of a connection. Where the
//! target has keys, notices are inside of the TLS stream in which both have proved theirs. A peer is owed a few notices at most, so a full
//! socket means that it reads none: the connection ends.
//!
//! The watching thread learns that something has arrived. The thread that uses the engine reads it, with its next poll.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::liveness::Liveness;
use super::{receive_some, send_whole};
use crate::os::wait_readable_any;
use crate::transport::LinkError;
use crate::transport::tls::once::Encrypted;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::handshake::LONGEST;
use crate::transport::ucx::header::{HEADER, Head, Notice};
use crate::transport::ucx::table::{Connection, ConnectionId};

/// What carries the notices of a connection, without its socket.
#[derive(Default)]
pub(in crate::transport::ucx) struct Channel {
    /// `None`: the target has no keys.
    encrypted: Option<Box<Encrypted>>,
    /// What was received; the first `taken` bytes were taken.
    received: Vec<u8>,
    taken: usize,
    /// The peer has closed the socket.
    is_ended: bool,
}

/// A notice, with its number and its body.
type Received = (Notice, u64, Vec<u8>);

impl Channel {
    pub(in crate::transport::ucx) fn new(encrypted: Option<Encrypted>) -> Self {
        Self {
            encrypted: encrypted.map(Box::new),
            ..Self::default()
        }
    }

    /// Sends bytes. Returns whether the socket took all of them.
    pub(super) fn send_bytes(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> bool {
        match &mut self.encrypted {
            Some(stream) => stream.send(socket, bytes),
            None => send_whole(socket, bytes),
        }
    }

    /// Sends a notice. Returns whether the socket took all of it.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, head: &Head, body: &[u8]) -> bool {
        self.send_bytes(socket, &[&head.encode()[..], body].concat())
    }

    /// Takes what the socket has received, a bounded number of bytes.
    ///
    /// # Errors
    /// What arrived is refused by TLS.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<(), &'static str> {
        // The rest is the beginning of a notice.
        self.received.drain(..std::mem::take(&mut self.taken));
        let Self {
            encrypted, received, ..
        } = self;
        let take = |bytes: &[u8]| {
            received.extend_from_slice(bytes);
            Ok(())
        };
        let result = match encrypted {
            Some(stream) => stream.receive(socket, take),
            None => receive_some(socket, take).map(drop),
        };
        match result {
            Ok(()) => Ok(()),
            Err(None) => {
                self.is_ended = true;
                Ok(())
            }
            Err(Some(why)) => Err(why),
        }
    }

    /// Takes bytes as if they had been received.
    #[cfg(fuzzing)]
    pub(in crate::transport::ucx) fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The next notice that has arrived whole.
    ///
    /// # Errors
    /// What has arrived is no notice, or one that is too long.
    pub(in crate::transport::ucx) fn next(&mut self) -> Result<Option<Received>, &'static str> {
        let bytes = &self.received[self.taken..];
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let head = Head::decode(header);
        let Some(notice) = head.as_notice()? else {
            return Err("a frame among the notices");
        };
        let end = HEADER + head.len as usize;
        if end > HEADER + LONGEST {
            return Err("a notice that is too long");
        }
        let Some(body) = bytes.get(HEADER..end) else {
            return Ok(None);
        };
        let body = body.to_vec();
        self.taken += end;
        Ok(Some((notice, head.words[1], body)))
    }
}

/// The channel of a connection, and its socket.
fn channel_of(connection: Option<&mut Connection>) -> Option<(&mut Channel, BorrowedFd<'_>)> {
    connection?.socket.as_mut()?.channel()
}

impl Locked<'_> {
    /// Sends a notice over the socket of a connection's exchange.
    pub(in crate::transport::ucx) fn send_notice(&mut self, id: ConnectionId, head: &Head, body: &[u8]) {
        let channel = channel_of(self.state.connections.get_mut(&id));
        if channel.is_some_and(|(channel, socket)| !channel.send(socket, head, body)) {
            tracing::debug!("closing a connection whose peer takes no notices");
            self.end(id, LinkError::Closed);
        }
    }

    /// Takes the notices of a connection that have arrived.
    pub(super) fn receive_notices(&mut self, id: ConnectionId) {
        let result = self.try_receive_notices(id);
        if let Err(why) = result {
            self.end(id, LinkError::Malformed(why));
        }
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let is_gone = connection.gone.is_some();
        let Some(socket) = &mut connection.socket else {
            return;
        };
        let has_ended = socket.channel().is_some_and(|(channel, _)| channel.is_ended);
        if has_ended {
            // A peer may say inside of TLS that it has left, and keep the socket.
            socket.shut_down();
        }
        socket.watch_again(!is_gone && !has_ended);
    }

    fn try_receive_notices(&mut self, id: ConnectionId) -> Result<(), &'static str> {
        if let Some((channel, socket)) = channel_of(self.state.connections.get_mut(&id)) {
            channel.receive(socket)?;
        }
        while let Some((channel, _)) = channel_of(self.state.connections.get_mut(&id))
            && let Some(received) = channel.next()?
        {
            self.take_notice(id, &received)?;
        }
        Ok(())
    }

    fn take_notice(
        &mut self,
        id: ConnectionId,
        (notice, number, body): &Received,
    ) -> Result<(), &'static str> {
        let connection = self.state.connections.get(&id);
        if connection.is_none_or(|connection| connection.gone.is_some()) {
            return Ok(());
        }
        self.state.notify(id);
        self.notice(id, *notice, *number, body)?;
        self.acknowledge_fin(id)
    }

    /// Takes the notices of which the watching thread has learned.
    #[cold]
    #[inline(never)]
    pub(in crate::transport::ucx) fn receive_pending_notices(&mut self) {
        for id in self.engine().take_notices_pending() {
            self.receive_notices(id);
            self.leave_if_hung_up(id);
        }
    }

    /// Closes the endpoints of peers that have left, where they put over TCP: before UCX answers what they put last.
    #[cold]
    #[inline(never)]
    pub(in crate::transport::ucx) fn leave_who_has_left(&mut self) {
        if self.engine().has_notices_pending() {
            self.receive_pending_notices();
        }
        if self.state.resting > 0 {
            self.close_flushing(|sockets| sockets.iter().any(Liveness::is_hung_up));
        }
        let mut parting = std::mem::take(&mut self.state.parting);
        parting.retain(|&id| {
            self.leave_if_hung_up(id);
            let connection = self.state.connections.get(&id);
            connection.is_some_and(|connection| connection.endpoint.is_some())
        });
        self.state.parting.append(&mut parting);
    }

    /// Takes the notices of all connections, and ends those whose peers have left: for a thread that keeps the lock, which the watching
    /// thread cannot get.
    pub(in crate::transport::ucx) fn attend_to_sockets(&mut self) {
        for id in self.state.connections.ids() {
            self.receive_notices(id);
            self.leave_if_hung_up(id);
            let channel = channel_of(self.state.connections.get_mut(&id));
            if channel.is_some_and(|(channel, _)| channel.is_ended) {
                self.hang_up(id);
            }
        }
    }

    /// Waits until UCX or a socket has something for this thread, which keeps the lock, or until a time.
    pub(in crate::transport::ucx) fn wait_for_events(&self, until: Instant) {
        let connections = self.state.connections.values();
        // The socket of a peer that has left stays readable.
        let connections = connections.filter(|connection| connection.leaving.is_none());
        let sockets = connections.filter_map(|connection| connection.socket.as_ref()?.notice_socket());
        wait_readable_any(std::iter::once(self.engine().bell()).chain(sockets), until);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::super::CHUNK;
    use super::*;
    use crate::transport::window::Credits;

    /// Sends bytes in pieces, and returns what is received of them.
    fn received(bytes: &[u8], piece: usize) -> Result<Vec<Received>, &'static str> {
        let (mut from, to) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(None);
        let mut all = Vec::new();
        for piece in bytes.chunks(piece) {
            from.write_all(piece).unwrap();
            channel.receive(to.as_fd())?;
            while let Some(received) = channel.next()? {
                all.push(received);
            }
            assert!(channel.received.len() - channel.taken < HEADER + LONGEST);
        }
        assert!(!channel.is_ended);
        drop(from);
        channel.receive(to.as_fd())?;
        assert!(channel.is_ended);
        Ok(all)
    }

    fn head(notice: Notice, number: u64, len: usize) -> Head {
        Head::notice(notice, number, len, Credits::default())
    }

    #[test]
    fn notices_arrive_in_order_however_they_are_cut() {
        let longest = vec![7; LONGEST];
        let sent = [
            (Notice::Hello, 0, longest.clone()),
            (Notice::Doorbell, u64::MAX, Vec::new()),
            (Notice::Fin, 3, vec![1, 2, 3]),
        ];
        let mut bytes = Vec::new();
        for (notice, number, body) in &sent {
            bytes.extend(head(*notice, *number, body.len()).encode());
            bytes.extend(body);
        }
        for piece in [1, HEADER - 1, HEADER, HEADER + 1, CHUNK] {
            assert_eq!(received(&bytes, piece).unwrap(), sent, "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_notice_is_an_error_before_its_body_comes() {
        let too_long = head(Notice::Hello, 0, LONGEST + 1).encode();
        assert_eq!(received(&too_long, 7), Err("a notice that is too long"));
        let mut frame = head(Notice::Fin, 0, 0);
        frame.words[0] = 1;
        assert_eq!(received(&frame.encode(), 7), Err("a frame among the notices"));
        frame.words[0] = 99 << 8;
        assert!(received(&frame.encode(), 40).is_err());
    }

    #[test]
    fn a_socket_that_is_full_is_not_waited_for() {
        let (from, _to) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(None);
        let sent =
            (0..1_000_000).take_while(|_| channel.send(from.as_fd(), &head(Notice::Doorbell, 1, 0), b""));
        assert!((1..1_000_000).contains(&sent.count()));
    }
}
