//! The header of an active message, which is a frame's or a notice: a message of the transport itself. Notices that go over a
//! [socket](super::exchange::notices) begin with it, too.
//!
//! Five little-endian 64-bit words, which are the message's header in UCX's sense. The body is the message's data, so that UCX can
//! align it and have it fetched. So is what is said before both sides know that they speak the same version
//! ([`handshake`](super::handshake)): whatever that is, they understand each other so far. Frames with short bodies, and other messages of
//! the transport, have shorter headers: [`packed`](super::packed).
//!
//! | word | frame | of the transport |
//! |---|---|---|
//! | 0 | sequence and length, as [`ifunc_abi::frame`] has them | 0, and the length of the body |
//! | 1 | as there: its low byte, the kind, is not 0 | what it is, one of [`Notice`], in bits 8–15 |
//! | 2 | token | a number that belongs to the notice |
//! | 3 | credits: frames released in bits 0–31, units of [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN) bytes in 32–63; both wrap | the same |
//! | 4 | the connection, by the [`Name`] that the receiver gave it | the same; 0 in a hello, whose receiver has none yet, and over a socket, which belongs to one connection |

use ifunc_abi::frame::{commit_word, split_commit_word};
use zerocopy::little_endian::U64;

use crate::transport::window::Credits;

/// Length of the header.
pub(super) const HEADER: usize = 40;
/// Longest body of a packed message. Its receiver copies it; up to this length a copy costs less than a separate header of UCX's and an event.
pub(super) const MAX_PACKED_BODY: usize = 4096;

/// The words, as they came or as they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) sequence: u32,
    pub(super) len: u32,
    pub(super) words: [u64; 2],
    /// `None`: the receiver knows them, or they are few. A header by itself always has them.
    pub(super) credits: Option<Credits>,
    /// Of the receiver's connections: an endpoint may carry several, and in both directions.
    pub(super) to: Name,
}

/// What one side has its peer call a connection: in bits 0–31 its index, and in bits 32–63 a random nonce. A message with another
/// nonce is dropped: it is of another peer, or means a connection of an earlier run. 0 is no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name(pub(super) u64);

/// A message of the transport itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, zerocopy::TryFromBytes)]
#[repr(u64)]
pub(super) enum Notice {
    /// A source says what it is.
    Hello = 1,
    /// The target takes the connection.
    Welcome = 2,
    /// The target does not, and says why.
    Refused = 3,
    /// Credits, and nothing else.
    Credit = 4,
    /// The sender closes the connection; the number is how many frames it has sent.
    Fin = 5,
    /// All of these frames have arrived.
    FinAck = 6,
    /// A source offers the ring that it receives in.
    Memory = 7,
    /// Something was put; the number is that of the sleep which the receiver had announced.
    Doorbell = 8,
}

/// The low halves of credits as one word: frames in bits 0–31, units in 32–63.
pub(super) fn pack(credits: Credits) -> u64 {
    credits.data << 32 | u64::from(credits.frames as u32)
}

/// As [`pack`] has them: [`SendWindow::acknowledge_low`](crate::transport::window::SendWindow::acknowledge_low) completes them.
pub(super) fn unpack(word: u64) -> Credits {
    Credits {
        frames: u64::from(word as u32),
        data: word >> 32,
    }
}

impl Name {
    /// Of a peer that has not said one.
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn new(number: u32, nonce: u32) -> Self {
        Self((nonce as u64) << 32 | number as u64)
    }

    pub(super) fn number(self) -> u32 {
        self.0 as u32
    }
}

impl Head {
    /// The head of a notice. Which connection it is for is said when it is sent.
    pub(super) fn notice(notice: Notice, number: u64, len: usize, credits: Credits) -> Self {
        Self {
            sequence: 0,
            len: len as u32,
            words: [(notice as u64) << 8, number],
            credits: Some(credits),
            to: Name::NONE,
        }
    }

    /// Whether it is no frame.
    pub(super) fn is_notice(&self) -> bool {
        self.words[0] as u8 == 0
    }

    /// Whether its header is UCX's, too, and says by which endpoint it is to be answered: the receiver may know neither the
    /// sender nor its version.
    pub(super) fn is_of_the_handshake(&self) -> bool {
        let of_handshake = [Notice::Hello, Notice::Welcome, Notice::Refused];
        self.to == Name::NONE
            || self.is_notice() && of_handshake.iter().any(|&n| n as u64 == self.words[0] >> 8)
    }

    /// Which notice it is; `Ok(None)` for a frame.
    pub(super) fn as_notice(&self) -> Result<Option<Notice>, &'static str> {
        if !self.is_notice() {
            return Ok(None);
        }
        let notice = zerocopy::try_transmute!(self.words[0] >> 8);
        notice
            .map(Some)
            .map_err(|_| "a notice that this version does not know")
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let words = [
            commit_word(self.sequence, self.len),
            self.words[0],
            self.words[1],
            pack(self.credits.unwrap_or_default()),
            self.to.0,
        ];
        zerocopy::transmute!(words.map(U64::new))
    }

    pub(super) fn decode(bytes: &[u8; HEADER]) -> Self {
        let words: [U64; HEADER / 8] = zerocopy::transmute!(*bytes);
        let [first, second, third, credits, to] = words.map(U64::get);
        let (sequence, len) = split_commit_word(first);
        Self {
            sequence,
            len,
            words: [second, third],
            credits: Some(unpack(credits)),
            to: Name(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_as_they_were_encoded() {
        let credits = Credits {
            frames: u32::MAX.into(),
            data: 7,
        };
        let frame = Head {
            sequence: 3,
            len: 1 << 20,
            words: [0x0102_0304_0506_0701, u64::MAX - 1],
            credits: Some(credits),
            to: Name::new(u32::MAX - 2, 0x8765_4321),
        };
        assert_eq!(Head::decode(&frame.encode()), frame);
        assert_eq!(frame.to.number(), u32::MAX - 2);
        assert_eq!(frame.as_notice(), Ok(None));
        let bye = Head::notice(Notice::Fin, 12, 0, credits);
        assert_eq!(Head::decode(&bye.encode()).as_notice(), Ok(Some(Notice::Fin)));
        let mut unknown = bye;
        unknown.words[0] = 77 << 8;
        assert!(unknown.as_notice().is_err());
    }

    #[test]
    fn what_a_peer_of_any_version_reads_has_its_own_form() {
        let to = |to, notice| Head {
            to,
            ..Head::notice(notice, 0, 0, Credits::default())
        };
        let (named, frame) = (
            Name::new(3, 4),
            Head {
                words: [(Notice::Hello as u64) << 8 | 1, 0],
                ..to(Name::new(3, 4), Notice::Hello)
            },
        );
        for notice in [Notice::Hello, Notice::Welcome, Notice::Refused] {
            assert!(to(named, notice).is_of_the_handshake(), "{notice:?}");
        }
        for notice in [
            Notice::Credit,
            Notice::Fin,
            Notice::FinAck,
            Notice::Memory,
            Notice::Doorbell,
        ] {
            assert!(!to(named, notice).is_of_the_handshake(), "{notice:?}");
            assert!(
                to(Name::NONE, notice).is_of_the_handshake(),
                "to a peer that has not said a name"
            );
        }
        assert!(!frame.is_notice() && !frame.is_of_the_handshake());
    }
}
