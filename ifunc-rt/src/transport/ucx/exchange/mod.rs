//! How source and target tell each other the addresses of their workers, before UCX takes a byte of either.
//!
//! A target listens at a socket of its own ([`acceptor`]). A source connects there and says the address of its worker ([`source`]). The
//! target answers with that of its own, and with a [`Nonce`](super::handshake::Nonce), or refuses. Then both make
//! their endpoints, and the source sends its hello ([`handshake`](super::handshake)), with the nonce: over UCX, or, where frames are put, over this
//! socket ([`notices`]). A target takes a hello only from a source that it has answered, once.
//!
//! The messages are those of [`Exchange`]. Where the target has keys, they are inside of TLS, and both sides have proved theirs.
//!
//! The socket stays open as long as the connection ([`liveness`]): when a process ends, the kernel closes it, and its peer
//! learns that at once, whatever transports of UCX's carry the frames.

pub(super) mod acceptor;
pub(super) mod liveness;
pub(super) mod notices;
pub(super) mod source;

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use ifunc_abi::hello::{Exchange, HelloError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::transport::address::WorkerAddress;

// An address of any length fits.
const _: () = assert!(size_of::<u128>() + WorkerAddress::LONGEST <= Exchange::MOST);

/// Bytes that are taken from a socket at a time.
const CHUNK: usize = 4 << 10;

/// A message that is arriving.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Incoming {
    /// Takes the next bytes. Returns whether the message is whole, or known to be of another version.
    ///
    /// # Errors
    /// No message begins so, or something follows it: the peer waits for an answer first.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<bool, &'static str> {
        let most = Exchange::PREFIX + Exchange::MOST;
        if self.bytes.len() + bytes.len() > most {
            return Err("a first message that is too long");
        }
        if self.bytes.try_reserve(bytes.len()).is_err() {
            return Err("there is no memory for its first message");
        }
        self.bytes.extend_from_slice(bytes);
        self.is_whole = match Exchange::len(&self.bytes) {
            Ok(Some(len)) if self.bytes.len() > len => return Err("more than a first message"),
            Ok(len) => len == Some(self.bytes.len()),
            Err(HelloError::Version(_)) => true,
            Err(HelloError::NoHello) => return Err("it does not say what it is"),
            Err(_) => return Err("its first message is of no known form"),
        };
        Ok(self.is_whole)
    }

    /// What the last [`take`](Self::take) returned.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The message, once it is whole.
    pub(super) fn message(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what a socket has received; see [`take`](Self::take).
    ///
    /// # Errors
    /// The peer closed the socket: no reason; or what it sent is no message.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Option<&'static str>> {
        while let Some(is_whole) = receive_some(socket, |bytes| self.take(bytes))? {
            if is_whole {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Calls `take` with what a socket has received, a bounded number of bytes. Returns what it returned; `None`: nothing has arrived.
///
/// # Errors
/// The peer closed the socket: no reason; or that of `take`.
fn receive_some<T>(
    socket: BorrowedFd<'_>,
    take: impl FnOnce(&[u8]) -> Result<T, &'static str>,
) -> Result<Option<T>, Option<&'static str>> {
    let mut buffer = [MaybeUninit::uninit(); CHUNK];
    loop {
        return match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((([], _), _)) => Err(None),
            Ok(((bytes, _), _)) => take(bytes).map(Some).map_err(Some),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(_) => Err(None),
        };
    }
}

/// The first byte of what a socket has received, which stays there. `Ok(None)`: nothing has arrived.
///
/// # Errors
/// The peer closed the socket.
fn first_byte(socket: BorrowedFd<'_>) -> Result<Option<u8>, Errno> {
    let mut first = [MaybeUninit::uninit(); 1];
    match recv(socket, &mut first, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok(((&mut [first], _), _)) => Ok(Some(first)),
        Ok(_) => Err(Errno::CONNRESET),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends what the socket takes of `message`. Returns how much.
fn send_some(socket: BorrowedFd<'_>, message: &[u8]) -> Result<usize, Errno> {
    match send(socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => result,
    }
}

/// Sends `message`. Returns whether the socket took all of it.
fn send_whole(socket: BorrowedFd<'_>, message: &[u8]) -> bool {
    send_some(socket, message) == Ok(message.len())
}

/// The first byte of a TLS handshake.
const TLS: u8 = 22;

#[cfg(test)]
mod tests {
    use ifunc_abi::hello::TransportTag;

    use super::*;

    fn message(len: usize) -> Vec<u8> {
        let mut message = Vec::new();
        let address = vec![7; len];
        Exchange::Worker {
            nonce: 1,
            address: &address,
        }
        .encode(TransportTag::UCX, &mut message);
        message
    }

    #[test]
    fn a_message_arrives_in_pieces_and_nothing_follows_it() {
        let message = message(500);
        let mut incoming = Incoming::default();
        let (last, rest) = message.split_last().unwrap();
        for byte in rest {
            assert_eq!(incoming.take(&[*byte]), Ok(false));
        }
        assert_eq!(incoming.take(&[*last]), Ok(true));
        assert_eq!(incoming.message(), message);
        assert!(incoming.take(&[0]).is_err());
    }

    #[test]
    fn what_is_no_message_takes_no_memory() {
        for wrong in [&[0; 24][..], &[22, 3, 1], b"GET / HTTP/1.1", &[0xff; 1 << 16]] {
            assert!(Incoming::default().take(wrong).is_err());
        }
        let mut long = message(0);
        long[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Incoming::default().take(&long).is_err());
        let longest = message(Exchange::MOST - size_of::<u128>());
        assert_eq!(Incoming::default().take(&longest), Ok(true));
        let longer = [&longest[..], b"x"].concat();
        let refused = Incoming::default().take(&longer);
        assert_eq!(refused, Err("a first message that is too long"));
        // A message of another version is answered as soon as its version is there.
        let mut newer = message(9);
        newer[8] += 1;
        assert_eq!(Incoming::default().take(&newer[..12]), Ok(true));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_taken(
            mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100),
            real in 0..37_usize,
            piece in 1..40_usize,
        ) {
            bytes.splice(..0, message(30)[..real].iter().copied());
            let mut incoming = Incoming::default();
            let whole: Vec<_> = bytes.chunks(piece).map(|bytes| incoming.take(bytes)).collect();
            // Nothing is taken after a message.
            let first = whole.iter().position(|taken| *taken != Ok(false));
            if let Some(first) = first && whole[first] == Ok(true) && Exchange::len(incoming.message()).is_ok() {
                assert!(whole[first + 1..].iter().all(Result::is_err));
            }
        }
    }
}
