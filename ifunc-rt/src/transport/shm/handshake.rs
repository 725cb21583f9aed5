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

use ifunc_abi::hello::{self, HelloError, Message, Opening, TransportTag};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::barrier::Barriers;
use super::layout::{Layout, Side};
use crate::transport::RingSize;

const TRANSPORT: TransportTag = TransportTag::SHM;
/// Longest message. A longer one is no message of this transport.
const LONGEST: usize = 1024;
/// Descriptors that come with a message.
const MOST_MEMORY: usize = 2;
/// This process cannot use `membarrier`.
const FLAG_FENCES: u32 = 1;

/// The source's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) hello: hello::Hello,
    pub(super) barriers: Barriers,
}

/// The target's message, if it takes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) hello: hello::Hello,
    pub(super) barriers: Barriers,
    pub(super) layout: Layout,
    /// The connection's slot in the ready bitmap.
    pub(super) bit: u32,
}

/// The target's message, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome(Welcome),
    Refused(String),
    /// It does not take the connection, but may take one a moment later.
    Busy(String),
    /// It speaks this version.
    Version(u32),
    /// Not a message of any version, and why.
    Malformed(&'static str),
}

/// What follows the hello of a [`Request`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    flags: U32,
}

/// What follows the hello of a [`Welcome`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWelcome {
    flags: U32,
    /// Slots and bytes, to target and to source.
    rings: [[U32; 2]; 2],
    bit: U32,
}

fn flags(barriers: Barriers) -> u32 {
    if barriers == Barriers::Fences {
        FLAG_FENCES
    } else {
        0
    }
}

fn barriers(flags: u32) -> Barriers {
    if flags & FLAG_FENCES == 0 {
        Barriers::Sleeper
    } else {
        Barriers::Fences
    }
}

impl Request {
    fn encode(self) -> Vec<u8> {
        let raw = RawRequest {
            flags: flags(self.barriers).into(),
        };
        [&self.hello.encode(TRANSPORT)[..], raw.as_bytes()].concat()
    }

    fn decode(message: &[u8]) -> Result<Self, HelloError> {
        let Message::Hello(hello, rest) = hello::parse(TRANSPORT, message)? else {
            return Err(HelloError::Form);
        };
        let (raw, _) = RawRequest::read_from_prefix(rest).map_err(|_| HelloError::Form)?;
        Ok(Self {
            hello,
            barriers: barriers(raw.flags.get()),
        })
    }

    /// Sends it. A refusal may already be there and the target gone: [`receive_answer`] returns such errors.
    pub(super) fn send(self, socket: BorrowedFd<'_>) {
        let _ = send(socket, &self.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Receives it.
    pub(super) fn receive(socket: BorrowedFd<'_>) -> rustix::io::Result<Result<Self, HelloError>> {
        let mut buffer = [0; LONGEST];
        let (len, _) = recv(socket, &mut buffer, RecvFlags::DONTWAIT)?;
        Ok(Self::decode(&buffer[..len]))
    }
}

impl Welcome {
    fn encode(&self) -> Vec<u8> {
        let ring = |side| {
            let RingSize { slots, data } = self.layout.ring(side);
            [slots.into(), data.into()]
        };
        let raw = RawWelcome {
            flags: flags(self.barriers).into(),
            rings: [ring(Side::Target), ring(Side::Source)],
            bit: self.bit.into(),
        };
        [&self.hello.encode(TRANSPORT)[..], raw.as_bytes()].concat()
    }

    /// Sends it with the memory: the segment's and, to whom it is shown, the board's.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        memory: &OwnedFd,
        board: Option<BorrowedFd<'_>>,
    ) -> rustix::io::Result<()> {
        let memory: Vec<BorrowedFd<'_>> = std::iter::once(memory.as_fd()).chain(board).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_MEMORY))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&memory));
        let message = self.encode();
        sendmsg(
            socket,
            &[IoSlice::new(&message)],
            &mut ancillary,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}

/// Sends a source the reason why it is refused, if it is still there. If `busy`, it may try again.
pub(super) fn send_refusal(socket: BorrowedFd<'_>, busy: bool, why: &str) {
    let message = refusal(busy, why);
    let _ = send(socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn refusal(busy: bool, why: &str) -> Vec<u8> {
    let why = &why.as_bytes()[..why.floor_char_boundary(LONGEST - Opening::SIZE)];
    [Opening::refusal(TRANSPORT, busy).as_bytes(), why].concat()
}

impl Answer {
    fn decode(message: &[u8]) -> Self {
        const FORM: Answer = Answer::Malformed("its answer is of no known form");
        let text = |why| String::from_utf8_lossy(why).into_owned();
        let (hello, rest) = match hello::parse(TRANSPORT, message) {
            Ok(Message::Hello(hello, rest)) => (hello, rest),
            Ok(Message::Refused(why)) => return Self::Refused(text(why)),
            Ok(Message::Busy(why)) => return Self::Busy(text(why)),
            Err(HelloError::Version(theirs)) => return Self::Version(theirs),
            Err(HelloError::NoHello) => return Self::Malformed("it does not say what it is"),
            Err(HelloError::Transport(_) | HelloError::Form) => return FORM,
        };
        let Ok(raw) = RawWelcome::read_from_bytes(rest) else {
            return FORM;
        };
        let [to_target, to_source] = raw.rings.map(|[slots, data]| RingSize {
            slots: slots.get(),
            data: data.get(),
        });
        match Layout::new(to_target, to_source) {
            Some(layout) => Self::Welcome(Welcome {
                hello,
                barriers: barriers(raw.flags.get()),
                layout,
                bit: raw.bit.get(),
            }),
            None => Self::Malformed("its rings are of sizes that cannot be"),
        }
    }
}

/// The target's answer, and the memory that came with it: the segment's, and the board's. `AGAIN` while there is none.
pub(super) fn receive_answer(
    socket: BorrowedFd<'_>,
) -> rustix::io::Result<(Answer, [Option<OwnedFd>; MOST_MEMORY])> {
    let mut buffer = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_MEMORY))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, flags)?;
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
    Ok((Answer::decode(&buffer[..received.bytes]), memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ConnectConfig;

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
            hello: ConnectConfig::default().hello(),
            barriers: Barriers::Fences,
            layout: Layout::new(to_target, to_source).unwrap(),
            bit: 77,
        }
    }

    fn request() -> Request {
        Request {
            hello: ConnectConfig::default().hello(),
            barriers: Barriers::Sleeper,
        }
    }

    #[test]
    fn messages_survive_the_socket() {
        assert_eq!(Answer::decode(&welcome().encode()), Answer::Welcome(welcome()));
        assert_eq!(Request::decode(&request().encode()), Ok(request()));
        assert_eq!(
            Answer::decode(&refusal(false, "full")),
            Answer::Refused("full".into())
        );
        assert_eq!(
            Answer::decode(&refusal(true, "full")),
            Answer::Busy("full".into())
        );
        assert!(refusal(true, &"ü".repeat(LONGEST)).len() <= LONGEST);
    }

    #[test]
    fn other_versions_are_told_from_malformed_messages() {
        let mut newer = welcome().encode();
        newer[8] += 1;
        newer.truncate(Opening::SIZE);
        assert_eq!(Answer::decode(&newer), Answer::Version(hello::WIRE_VERSION + 1));
        assert!(matches!(
            Answer::decode(b"HTTP/1.1 400 Bad Request"),
            Answer::Malformed(_)
        ));
        let mut huge = welcome().encode();
        // The most significant byte of the last ring's length.
        let at = huge.len() - 5;
        huge[at] = 0x80;
        assert!(matches!(Answer::decode(&huge), Answer::Malformed(_)));
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
            if let Answer::Welcome(welcome) = Answer::decode(&bytes) {
                assert!(welcome.layout.mapping_len() < 5 << 30);
            }
        }
    }
}
