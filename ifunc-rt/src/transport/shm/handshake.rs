//! The handshake over a Unix socket that keeps message boundaries. All numbers are little-endian.
//!
//! ```text
//! source → target   hello, flags (u32)
//! target → source   hello, flags (u32), slots and data bytes to target, to source (u32 each), the connection's slot in the
//!                   ready bitmap (u32); with the segment's memfd, and the ready bitmap's for a source of the target's user
//! target → source   a refusal
//! ```
//!
//! Hello and refusal are those of [`ifunc_abi::hello`].

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ifunc_abi::hello::{self, Hello, HelloError, Message, TransportTag};
use rustix::io::{Errno, Result as SystemResult};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::barrier::Barriers;
use super::segment::{Layout, Side};
use crate::transport::handshake::{Declined, NO_KNOWN_FORM, StatedRings, parse_answer, refusal};
use crate::transport::{ConnectError, Peer};

const TRANSPORT: TransportTag = TransportTag::SHM;
/// Longest message. A longer one is no message of this transport.
const LONGEST: usize = 1024;
/// Descriptors that come with a message.
const MOST_MEMORY: usize = 2;

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// The credentials of the process at the other end, as the kernel reports them.
pub(super) fn peer_of(socket: impl AsFd) -> SystemResult<Peer> {
    socket_peercred(socket).map(|peer| Peer {
        uid: Some(peer.uid.as_raw()),
        pid: Some(peer.pid.as_raw_pid()),
        key: None,
        certified: None,
    })
}

/// The source's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) hello: Hello,
    pub(super) barriers: Barriers,
}

impl Request {
    pub(super) fn encode(self) -> Vec<u8> {
        let flags = U32::new(self.barriers.flags());
        [&self.hello.encode(TRANSPORT)[..], flags.as_bytes()].concat()
    }

    pub(super) fn decode(message: &[u8]) -> Result<Self, HelloError> {
        let Message::Hello(hello, rest) = hello::parse(TRANSPORT, message)? else {
            return Err(HelloError::Form);
        };
        let (flags, _) = U32::read_from_prefix(rest).map_err(|_| HelloError::Form)?;
        let barriers = Barriers::from_flags(flags.get());
        Ok(Self { hello, barriers })
    }

    /// Sends it. A refusal may already be there and the target gone: [`receive_answer`] returns such errors.
    pub(super) fn send(self, socket: BorrowedFd<'_>) {
        let _ = send(socket, &self.encode(), SEND);
    }

    /// Receives it. `CONNRESET`: the source has closed the socket.
    pub(super) fn receive(socket: impl AsFd) -> SystemResult<Result<Self, HelloError>> {
        let mut buffer = [0; LONGEST];
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT)? {
            (0, _) => Err(Errno::CONNRESET),
            (len, _) => Ok(Self::decode(&buffer[..len])),
        }
    }
}

/// Sends the target's message that it does not take the connection, if the source is still there. `is_busy`: the target may take
/// the connection a moment later.
pub(super) fn refuse(socket: impl AsFd, is_busy: bool, why: &str) {
    let _ = send(socket, &refusal(TRANSPORT, is_busy, why), SEND);
}

/// The target's message, if it takes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) hello: Hello,
    pub(super) barriers: Barriers,
    pub(super) layout: Layout,
    /// The connection's slot in the ready bitmap.
    pub(super) bit: u32,
}

/// What follows the hello of a [`Welcome`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Terms {
    flags: U32,
    rings: StatedRings,
    bit: U32,
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let terms = Terms {
            flags: self.barriers.flags().into(),
            rings: StatedRings::new(self.layout.ring(Side::Target), self.layout.ring(Side::Source)),
            bit: self.bit.into(),
        };
        [&self.hello.encode(TRANSPORT)[..], terms.as_bytes()].concat()
    }

    /// Sends it with the segment's memory, and with the ready bitmap's for a source that may set bits in it.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        memory: &OwnedFd,
        bitmap: Option<BorrowedFd<'_>>,
    ) -> SystemResult<()> {
        let memory: Vec<BorrowedFd<'_>> = std::iter::once(memory.as_fd()).chain(bitmap).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_MEMORY))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&memory));
        sendmsg(socket, &[IoSlice::new(&self.encode())], &mut ancillary, SEND)?;
        Ok(())
    }

    /// Parses a target's answer.
    pub(super) fn decode(message: &[u8], max_ring: usize) -> Result<Self, Declined> {
        let (hello, terms) = parse_answer(TRANSPORT, message)?;
        let terms = Terms::read_from_bytes(terms).map_err(|_| NO_KNOWN_FORM)?;
        Ok(Self {
            hello,
            barriers: Barriers::from_flags(terms.flags.get()),
            layout: Layout::new(terms.rings.sizes(max_ring)?),
            bit: terms.bit.get(),
        })
    }
}

/// What came with a [`Welcome`]: the memory of the segment, and of the ready bitmap.
pub(super) type Memory = [Option<OwnedFd>; MOST_MEMORY];

/// The answer of the target at `address`, whose rings may have `max_ring` bytes each, and the memory that came with it. `AGAIN` while
/// there is none: the socket is non-blocking.
pub(super) fn receive_answer(
    socket: BorrowedFd<'_>,
    address: &str,
    max_ring: usize,
) -> SystemResult<Result<(Welcome, Memory), ConnectError>> {
    let mut buffer = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_MEMORY))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    let mut memory = [None, None];
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            for (place, fd) in memory.iter_mut().zip(fds) {
                *place = Some(fd);
            }
        }
    }
    let welcome = Welcome::decode(&buffer[..received.bytes], max_ring);
    Ok(welcome
        .map(|welcome| (welcome, memory))
        .map_err(|declined| declined.into_error(address.to_owned())))
}

#[cfg(test)]
mod tests {
    use ifunc_abi::hello::{Opening, WIRE_VERSION};

    use super::*;
    use crate::transport::{ConnectConfig, RingSize};

    fn welcome() -> Welcome {
        let (to_target, to_source) = (
            RingSize {
                slots: 4,
                data: 1 << 20,
            },
            RingSize {
                slots: 2,
                data: 1 << 16,
            },
        );
        Welcome {
            hello: ConnectConfig::default().hello,
            barriers: Barriers::Fences,
            layout: Layout::new([to_target, to_source]),
            bit: 77,
        }
    }

    fn decode(message: &[u8]) -> Result<Welcome, ConnectError> {
        Welcome::decode(message, 1 << 30).map_err(|declined| declined.into_error("shm:test".into()))
    }

    fn request() -> Request {
        Request {
            hello: ConnectConfig::default().hello,
            barriers: Barriers::Sleeper,
        }
    }

    #[test]
    fn messages_survive_the_socket() {
        assert_eq!(decode(&welcome().encode()).unwrap(), welcome());
        assert_eq!(Request::decode(&request().encode()), Ok(request()));
        assert!(matches!(
            decode(&refusal(TRANSPORT, false, "full")),
            Err(ConnectError::Refused { reason, .. }) if reason == "full"
        ));
        assert!(matches!(
            decode(&refusal(TRANSPORT, true, "full")),
            Err(ConnectError::Busy { reason, .. }) if reason == "full"
        ));
        assert!(refusal(TRANSPORT, true, &"ü".repeat(LONGEST)).len() <= LONGEST);
    }

    #[test]
    fn other_versions_are_told_from_malformed_messages() {
        let mut newer = welcome().encode();
        newer[8] += 1;
        newer.truncate(Opening::SIZE);
        let error = decode(&newer).unwrap_err();
        assert!(
            matches!(error, ConnectError::Version { theirs, .. } if theirs == WIRE_VERSION + 1),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("help: build both with the same release"),
            "{error}"
        );
        let error = decode(b"HTTP/1.1 400 Bad Request").unwrap_err();
        assert!(matches!(error, ConnectError::Protocol { .. }), "{error}");
        assert!(
            error.to_string().contains("is not an ifunc target: ") && error.to_string().contains("help: "),
            "{error}"
        );
        let mut huge = welcome().encode();
        // The most significant byte of the last ring's length.
        let at = huge.len() - 5;
        huge[at] = 0x80;
        assert!(matches!(decode(&huge), Err(ConnectError::Protocol { .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100), opened in 0..3) {
            let welcome = welcome().encode();
            let opening = &welcome[..[0, Opening::SIZE, hello::Hello::SIZE][opened as usize]];
            bytes.splice(..0, opening.iter().copied());
            if opened > 1 {
                bytes.resize(welcome.len(), 1);
            }
            let _ = Request::decode(&bytes);
            if let Ok(welcome) = decode(&bytes) {
                assert!(welcome.layout.mapping_len() < 5 << 30);
            }
        }
    }
}
