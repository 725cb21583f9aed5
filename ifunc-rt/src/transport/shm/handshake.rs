//! What source and target tell each other before the first frame, over a Unix socket that keeps message
//! boundaries. All numbers are little-endian.
//!
//! ```text
//! source → target   magic (8), version (u32), flags (u32)
//! target → source   magic (8), version (u32), 0 (u32), flags (u32), 0 (u32), epoch (u64),
//!                   largest payload, image, answer (u64 each), slots and data bytes to target, to source (u32 each);
//!                   the connection's bit on the board (u32), 0 (u32);
//!                   with the segment's memfd, and the board's for a source of the target's user
//! target → source   magic (8), version (u32), 1 (u32), why it refuses (UTF-8)
//! target → source   magic (8), version (u32), 2 (u32), why it refuses at this moment (UTF-8)
//! ```
//!
//! Magic, version and kind stay where they are in every version, so that each side can tell the other's.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ifunc_abi::frame::Limits;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};

use super::barrier::Barriers;
use super::layout::{Layout, Side};
use crate::transport::RingSize;

/// Version of the handshake, the segment's layout and the rings, and of what the bodies of frames hold: whatever changes in
/// `ifunc_abi::frame` or `ifunc_abi::status` makes it another.
///
/// 2: a panic's body names calls. 3: sources may ask with `Stats`. 4: a target that looks no more is told on a board.
pub(super) const VERSION: u32 = 5;

const MAGIC: [u8; 8] = *b"ifuncshm";
const HEAD: usize = 16;
const WELCOME: usize = HEAD + 4 + 4 + 8 + 3 * 8 + 4 * 4 + 8;
/// Longest message; what is longer was not sent by us.
const LONGEST: usize = 1024;
const KIND_WELCOME: u32 = 0;
const KIND_REFUSED: u32 = 1;
const KIND_BUSY: u32 = 2;
/// Descriptors that come with a message.
const MOST_MEMORY: usize = 2;
/// This process cannot use `membarrier`.
const FLAG_FENCES: u32 = 1;

/// The source's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) barriers: Barriers,
}

/// The target's message, if it takes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) barriers: Barriers,
    pub(super) epoch: u64,
    pub(super) limits: Limits,
    pub(super) layout: Layout,
    /// The connection's bit on the board.
    pub(super) bit: u32,
}

/// The target's message, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome(Welcome),
    Refused(String),
    /// It does not take the connection, but may take one a moment later.
    Busy(String),
    /// It speaks this version.
    Version(u32),
    /// Not a message of any version, and why.
    Nonsense(&'static str),
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

fn head(number: u32) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes(), &number.to_le_bytes()].concat()
}

/// Takes numbers off the front of a message whose length was checked.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (number, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *number
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl Hello {
    fn encode(self) -> Vec<u8> {
        head(flags(self.barriers))
    }

    fn decode(message: &[u8]) -> Option<Self> {
        let rest = message.strip_prefix(&MAGIC)?;
        let mut numbers = Numbers(rest);
        (rest.len() >= 8).then(|| Self {
            version: numbers.u32(),
            barriers: barriers(numbers.u32()),
        })
    }

    /// Sends it. A refusal may already be there and the target away: errors show up at [`receive_answer`].
    pub(super) fn send(self, socket: BorrowedFd<'_>) {
        let _ = send(socket, &self.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Receives it: `None` for what is none.
    pub(super) fn receive(socket: BorrowedFd<'_>) -> rustix::io::Result<Option<Self>> {
        let mut buffer = [0; LONGEST];
        let (len, _) = recv(socket, &mut buffer, RecvFlags::DONTWAIT)?;
        Ok(Self::decode(&buffer[..len]))
    }
}

impl Welcome {
    fn encode(&self) -> Vec<u8> {
        let mut message = head(KIND_WELCOME);
        message.extend(flags(self.barriers).to_le_bytes());
        message.extend([0; 4]);
        message.extend(self.epoch.to_le_bytes());
        let Limits {
            max_payload,
            max_image,
            max_answer,
        } = self.limits;
        for limit in [max_payload, max_image, max_answer] {
            message.extend(limit.to_le_bytes());
        }
        for side in [Side::Target, Side::Source] {
            let RingSize { slots, data } = self.layout.ring(side);
            message.extend(slots.to_le_bytes());
            message.extend(data.to_le_bytes());
        }
        message.extend(self.bit.to_le_bytes());
        message.extend([0; 4]);
        debug_assert_eq!(message.len(), WELCOME);
        message
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

/// Tells a source why it is refused, if it still listens.
pub(super) fn send_refusal(socket: BorrowedFd<'_>, why: &str) {
    send_words(socket, KIND_REFUSED, why);
}

/// Tells a source why it is refused now, if it still listens: it may try again.
pub(super) fn send_busy(socket: BorrowedFd<'_>, why: &str) {
    send_words(socket, KIND_BUSY, why);
}

fn send_words(socket: BorrowedFd<'_>, kind: u32, why: &str) {
    let mut message = head(kind);
    message.extend_from_slice(&why.as_bytes()[..why.floor_char_boundary(LONGEST - HEAD)]);
    let _ = send(socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

impl Answer {
    fn decode(message: &[u8]) -> Self {
        let Some(rest) = message.strip_prefix(&MAGIC) else {
            return Self::Nonsense("it does not say what it is");
        };
        let mut numbers = Numbers(rest);
        let (version, kind) = (numbers.u32(), numbers.u32());
        if version != VERSION {
            return Self::Version(version);
        }
        match kind {
            KIND_REFUSED => Self::Refused(String::from_utf8_lossy(numbers.0).into_owned()),
            KIND_BUSY => Self::Busy(String::from_utf8_lossy(numbers.0).into_owned()),
            KIND_WELCOME if message.len() == WELCOME => {
                let flags = numbers.u32();
                let _reserved = numbers.u32();
                let epoch = numbers.u64();
                let limits = Limits {
                    max_payload: numbers.u64(),
                    max_image: numbers.u64(),
                    max_answer: numbers.u64(),
                };
                let mut ring = || RingSize {
                    slots: numbers.u32(),
                    data: numbers.u32(),
                };
                let (to_target, to_source) = (ring(), ring());
                let bit = numbers.u32();
                match Layout::new(to_target, to_source) {
                    Some(layout) => Self::Welcome(Welcome {
                        barriers: barriers(flags),
                        epoch,
                        limits,
                        layout,
                        bit,
                    }),
                    None => Self::Nonsense("its rings are of sizes that cannot be"),
                }
            }
            _ => Self::Nonsense("its answer is of no known form"),
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
            barriers: Barriers::Fences,
            epoch: 0x0123_4567_89ab_cdef,
            limits: Limits {
                max_payload: 1,
                max_image: 2,
                max_answer: 3,
            },
            layout: Layout::new(to_target, to_source).unwrap(),
            bit: 77,
        }
    }

    #[test]
    fn messages_survive_the_way() {
        assert_eq!(Answer::decode(&welcome().encode()), Answer::Welcome(welcome()));
        let hello = Hello {
            version: VERSION,
            barriers: Barriers::Sleeper,
        };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let mut refusal = head(KIND_REFUSED);
        refusal.extend(b"full");
        assert_eq!(Answer::decode(&refusal), Answer::Refused("full".into()));
        let mut busy = head(KIND_BUSY);
        busy.extend(b"full");
        assert_eq!(Answer::decode(&busy), Answer::Busy("full".into()));
    }

    #[test]
    fn other_versions_are_told_apart_from_nonsense() {
        let mut newer = welcome().encode();
        newer[8] = VERSION as u8 + 1;
        newer.truncate(HEAD);
        assert_eq!(Answer::decode(&newer), Answer::Version(VERSION + 1));
        assert!(matches!(
            Answer::decode(b"HTTP/1.1 400 Bad Request"),
            Answer::Nonsense(_)
        ));
        let mut huge = welcome().encode();
        huge[WELCOME - 9] = 0x80;
        assert!(matches!(Answer::decode(&huge), Answer::Nonsense(_)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100), magic in 0..3) {
            if magic > 0 {
                bytes.splice(..0, head(KIND_WELCOME));
            }
            if magic > 1 {
                bytes.resize(WELCOME, 1);
            }
            let _ = Hello::decode(&bytes);
            if let Answer::Welcome(welcome) = Answer::decode(&bytes) {
                assert!(welcome.layout.mapping_len() < 5 << 30);
            }
        }
    }
}
