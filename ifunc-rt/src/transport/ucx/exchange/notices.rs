//! Notices over the socket of an exchange, where frames are put.
//!
//! UCX carries nothing but puts and gets then. Over its shared memory all senders of messages share the receiver's queue, and one that is
//! killed after it has taken an element and before it has filled it stops the queue for all of them, for ever.
//!
//! A notice is its header and its body, as in a message of UCX's ([`header`](crate::transport::ucx::header)), without the name of a connection. Where the
//! target has keys, notices are inside of the TLS stream in which both have proved theirs. A peer reads its notices at any
//! time, so one whose socket is full is not waited for.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{CHUNK, send_some};
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
    /// The beginning of a notice.
    arrived: Vec<u8>,
    /// The peer has closed the socket.
    is_ended: bool,
}

/// A notice, with its number and its body.
type Arrived = (Notice, u64, Vec<u8>);

impl Channel {
    pub(in crate::transport::ucx) fn new(encrypted: Option<Encrypted>) -> Self {
        Self {
            encrypted: encrypted.map(Box::new),
            ..Self::default()
        }
    }

    /// Sends bytes. Returns whether the socket took all of them.
    pub(super) fn say(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> bool {
        match &mut self.encrypted {
            Some(stream) => stream.send(socket, bytes),
            None => send_some(socket, bytes) == Ok(bytes.len()),
        }
    }

    /// Sends a notice. Returns whether the socket took all of it.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, head: &Head, body: &[u8]) -> bool {
        self.say(socket, &[&head.encode()[..], body].concat())
    }

    /// Takes what the socket has received, a bounded number of bytes.
    ///
    /// # Errors
    /// What arrived is refused by TLS.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<(), &'static str> {
        let Self {
            encrypted, arrived, ..
        } = self;
        let received = match encrypted {
            Some(stream) => stream.receive(socket, |bytes| {
                arrived.extend_from_slice(bytes);
                Ok(())
            }),
            None => receive_plain(socket, arrived),
        };
        match received {
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
    pub(in crate::transport::ucx) fn arrived(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// The next notice that has arrived whole.
    ///
    /// # Errors
    /// What has arrived is no notice, or one that is too long.
    pub(in crate::transport::ucx) fn next(&mut self) -> Result<Option<Arrived>, &'static str> {
        let Some(header) = self.arrived.first_chunk::<HEADER>() else {
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
        let Some(body) = self.arrived.get(HEADER..end) else {
            return Ok(None);
        };
        let body = body.to_vec();
        self.arrived.drain(..end);
        Ok(Some((notice, head.words[1], body)))
    }
}

fn receive_plain(socket: BorrowedFd<'_>, arrived: &mut Vec<u8>) -> Result<(), Option<&'static str>> {
    let mut buffer = [MaybeUninit::uninit(); CHUNK];
    match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
        Ok((([], _), _)) => Err(None),
        Ok(((bytes, _), _)) => {
            arrived.extend_from_slice(bytes);
            Ok(())
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(_) => Err(None),
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
        let Some((channel, socket)) = channel_of(self.state.connections.get_mut(&id)) else {
            return;
        };
        let mut result = channel.receive(socket);
        while result.is_ok() {
            let Some((channel, _)) = channel_of(self.state.connections.get_mut(&id)) else {
                return;
            };
            result = match channel.next() {
                Ok(Some(arrived)) => self.take_notice(id, &arrived),
                Ok(None) => return,
                Err(why) => Err(why),
            };
        }
        if let Err(why) = result {
            self.end(id, LinkError::Malformed(why));
        }
    }

    fn take_notice(
        &mut self,
        id: ConnectionId,
        (notice, number, body): &Arrived,
    ) -> Result<(), &'static str> {
        let connection = self.state.connections.get(&id);
        if connection.is_none_or(|connection| connection.gone.is_some()) {
            return Ok(());
        }
        self.state.notify(id);
        self.notice(id, *notice, *number, body)?;
        self.acknowledge_fin(id)
    }

    /// Takes the notices of all connections.
    pub(in crate::transport::ucx) fn receive_all_notices(&mut self) {
        for id in Vec::from_iter(self.state.connections.keys().copied()) {
            self.receive_notices(id);
        }
    }

    /// Ends connections whose peers have left, where this thread keeps the lock, without which the background thread cannot.
    pub(in crate::transport::ucx) fn hang_up_ended(&mut self) {
        let connections = self.state.connections.iter_mut();
        let ended = connections.filter_map(|(&id, connection)| {
            let (channel, _) = channel_of(Some(connection))?;
            channel.is_ended.then_some(id)
        });
        for id in Vec::from_iter(ended) {
            self.hang_up(id);
        }
    }

    /// Waits until UCX or a socket has something for this thread, which keeps the lock, or until a time.
    pub(in crate::transport::ucx) fn wait_for_events(&self, until: Instant) {
        let connections = self.state.connections.values();
        // The socket of a peer that has left stays readable.
        let connections = connections.filter(|connection| connection.leaving.is_none());
        let sockets = connections.filter_map(|connection| connection.socket.as_ref()?.socket_of_notices());
        wait_readable_any(self.engine().bell(), sockets, until);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::transport::window::Credits;

    /// Sends bytes in pieces, and returns what is received of them.
    fn received(bytes: &[u8], piece: usize) -> Result<Vec<Arrived>, &'static str> {
        let (mut from, to) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(None);
        let mut all = Vec::new();
        for piece in bytes.chunks(piece) {
            from.write_all(piece).unwrap();
            channel.receive(to.as_fd())?;
            while let Some(arrived) = channel.next()? {
                all.push(arrived);
            }
            assert!(channel.arrived.len() < HEADER + LONGEST);
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
