//! What each side of a connection sends before its first frame.
//!
//! A handshake message begins with an [`Opening`], which is the same in every version, so that each side can report the
//! version of the other. After it comes a [`Hello`] or, from a side that does not take the connection, the reason as UTF-8.
//! After a hello comes what the transport itself needs: file descriptors, ring sizes, addresses.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 5 | `ifunc` |
//! | 5 | 3 | [`TransportTag`] |
//! | 8 | 4 | [`WIRE_VERSION`] |
//! | 12 | 4 | 0 hello, 1 refused, 2 refused at this moment |
//! | 16 | 2 | hello: [architecture](Hello::arch) |
//! | 18 | 2 | [roles](Roles) |
//! | 20 | 4 | [number of the node](Hello::node) and 1; 0: it is no node of a group |
//! | 24 | 8 | [CPU features](Hello::cpu_features) |
//! | 32 | 8 | [epoch](Hello::epoch) |
//! | 40 | 24 | [limits](Hello::limits): largest payload, image, answer |
//!
//! Processes that connect by UCX tell each other the addresses of their workers first, over a socket: each sends one [`Exchange`].
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 16 | as above; 1 refused, 2 refused at this moment, 3 worker |
//! | 16 | 4 | length of what follows, [`Exchange::MOST`] at most |
//! | 20 | 16 | worker: [nonce](Exchange::Worker::nonce) |
//! | 36 | | worker: the address of it, to the end |
//!
//! All numbers are little-endian.

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::Limits;
use crate::machine::Machine;

/// Version of everything that crosses a link: handshake, headers, the bodies of frames, and the layouts of the transports.
/// Both sides of a connection must have the same.
pub const WIRE_VERSION: u32 = 19;

const MAGIC: [u8; 5] = *b"ifunc";
const KIND_HELLO: u32 = 0;
const KIND_REFUSED: u32 = 1;
const KIND_BUSY: u32 = 2;
const KIND_WORKER: u32 = 3;

/// Which transport a handshake message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransportTag(pub [u8; 3]);

impl TransportTag {
    /// Shared memory.
    pub const SHM: Self = Self(*b"shm");
    /// UCX active messages.
    pub const UCX: Self = Self(*b"ucx");
    /// UCX puts.
    pub const UCX_PUT: Self = Self(*b"put");
    /// TLS.
    pub const TLS: Self = Self(*b"tls");
}

/// How each handshake message begins, in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Opening {
    magic: [u8; 5],
    transport: [u8; 3],
    version: U32,
    kind: U32,
}

impl Opening {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    const fn new(transport: TransportTag, kind: u32) -> Self {
        Self {
            magic: MAGIC,
            transport: transport.0,
            version: U32::new(WIRE_VERSION),
            kind: U32::new(kind),
        }
    }

    fn is_of_this_version(&self) -> Result<(), HelloError> {
        match self.version.get() {
            WIRE_VERSION => Ok(()),
            version => Err(HelloError::Version(version)),
        }
    }

    /// Whether it is of this transport and version.
    fn is_of(&self, transport: TransportTag) -> Result<(), HelloError> {
        if self.transport != transport.0 {
            return Err(HelloError::Transport(TransportTag(self.transport)));
        }
        self.is_of_this_version()
    }

    /// Opens a message with the reason why the connection is not taken; `busy`: at this moment.
    #[must_use]
    pub const fn refusal(transport: TransportTag, busy: bool) -> Self {
        Self::new(transport, if busy { KIND_BUSY } else { KIND_REFUSED })
    }
}

/// What a side does. Either side of a link may do either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles(u16);

impl Roles {
    /// It runs what the peer invokes: its limits count.
    pub const SERVES: Self = Self(1);
    /// It installs images and invokes.
    pub const INVOKES: Self = Self(2);

    /// Whether all roles of `other` are among them.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The roles of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a side states about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// ELF `e_machine` of the images that it runs.
    pub arch: u16,
    /// What it does.
    pub roles: Roles,
    /// CPU features that it has: bits as in [`RawHeader::cpu_features`](crate::image::RawHeader::cpu_features).
    pub cpu_features: u64,
    /// Its number, if it is a node of a group: less than `u32::MAX`.
    pub node: Option<u32>,
    /// A number that a listening process chooses when it starts: a larger one after a restart. 0 from a side that does not
    /// listen.
    pub epoch: u64,
    /// What it accepts: payloads and images if it [serves](Roles::SERVES), answers in any case.
    pub limits: Limits,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    arch: U16,
    roles: U16,
    node: U32,
    cpu_features: U64,
    epoch: U64,
    limits: [U64; 3],
}

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The other side takes the connection; what the transport added.
    Hello(Hello, &'a [u8]),
    /// It refuses the connection, with the reason in UTF-8.
    Refused(&'a [u8]),
    /// It refuses the connection at this moment, with the reason in UTF-8.
    Busy(&'a [u8]),
}

/// Why bytes are no handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// They do not begin as one of any version.
    #[error("it does not say what it is")]
    NoHello,
    /// They are of another transport.
    #[error("it speaks over another transport")]
    Transport(TransportTag),
    /// They are of another version.
    #[error(
        "it speaks version {0} of the wire format, the other side speaks version {WIRE_VERSION}; help: build both with the same release of ifunc-rt"
    )]
    Version(u32),
    /// They are too short, or of an unknown kind.
    #[error("its first message is of no known form")]
    Form,
}

impl Hello {
    /// What the machine of this side is.
    #[must_use]
    pub const fn machine(&self) -> Machine {
        Machine {
            arch: self.arch,
            cpu_features: self.cpu_features,
        }
    }

    /// Size in bytes of the encoded hello, with its opening.
    pub const SIZE: usize = Opening::SIZE + size_of::<Raw>();

    /// Encodes the hello, with its opening.
    #[must_use]
    pub fn encode(&self, transport: TransportTag) -> [u8; Self::SIZE] {
        let Limits {
            max_payload,
            max_image,
            max_answer,
        } = self.limits;
        let raw = Raw {
            arch: U16::new(self.arch),
            roles: U16::new(self.roles.0),
            node: U32::new(self.node.map_or(0, |node| node.wrapping_add(1))),
            cpu_features: U64::new(self.cpu_features),
            epoch: U64::new(self.epoch),
            limits: [max_payload, max_image, max_answer].map(U64::new),
        };
        let mut bytes = [0; Self::SIZE];
        let (opening, rest) = bytes.split_at_mut(Opening::SIZE);
        opening.copy_from_slice(Opening::new(transport, KIND_HELLO).as_bytes());
        rest.copy_from_slice(raw.as_bytes());
        bytes
    }
}

/// Parses a handshake message of `transport`.
///
/// # Errors
/// It is none, or one of another transport or version.
pub fn parse(transport: TransportTag, message: &[u8]) -> Result<Message<'_>, HelloError> {
    let opening = opened(message)?;
    opening.is_of(transport)?;
    let rest = message.get(Opening::SIZE..).ok_or(HelloError::Form)?;
    match opening.kind.get() {
        KIND_REFUSED => Ok(Message::Refused(rest)),
        KIND_BUSY => Ok(Message::Busy(rest)),
        KIND_HELLO => {
            let (raw, rest) = Raw::read_from_prefix(rest).map_err(|_| HelloError::Form)?;
            let [max_payload, max_image, max_answer] = raw.limits.map(U64::get);
            let hello = Hello {
                arch: raw.arch.get(),
                roles: Roles(raw.roles.get()),
                node: raw.node.get().checked_sub(1),
                cpu_features: raw.cpu_features.get(),
                epoch: raw.epoch.get(),
                limits: Limits {
                    max_payload,
                    max_image,
                    max_answer,
                },
            };
            Ok(Message::Hello(hello, rest))
        }
        _ => Err(HelloError::Form),
    }
}

/// The opening of a message of this version.
fn opened(message: &[u8]) -> Result<Opening, HelloError> {
    // The kind is younger than magic and version: a message of another version may end before it.
    const VERSIONED: usize = 12;
    let mut opening = [0; Opening::SIZE];
    let len = message.len().min(Opening::SIZE);
    opening[..len].copy_from_slice(&message[..len]);
    let opening: Opening = zerocopy::transmute!(opening);
    if opening.magic != MAGIC {
        return Err(HelloError::NoHello);
    }
    if len < VERSIONED {
        return Err(HelloError::Form);
    }
    Ok(opening)
}

/// A message by which one of two processes says where its UCX worker is, over a socket, before UCX sends or takes a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange<'a> {
    /// The address of the sender's worker.
    Worker {
        /// From a target: a random number by which the source proves, over UCX, that it is who asked. From a source: 0.
        nonce: u128,
        /// The address.
        address: &'a [u8],
    },
    /// The target refuses the connection, with the reason in UTF-8.
    Refused(&'a [u8]),
    /// The target refuses the connection at this moment, with the reason in UTF-8.
    Busy(&'a [u8]),
}

impl<'a> Exchange<'a> {
    /// Bytes before what the length counts.
    pub const PREFIX: usize = Opening::SIZE + size_of::<U32>();
    /// Most bytes that the length counts.
    pub const MOST: usize = 12 << 10;
    /// The first byte of every message.
    pub const FIRST: u8 = MAGIC[0];

    /// Appends the message to `out`. What follows the length must be [`MOST`](Self::MOST) bytes at most.
    pub fn encode(&self, transport: TransportTag, out: &mut impl Extend<u8>) {
        let (kind, nonce, rest) = match *self {
            Self::Worker { nonce, address } => (KIND_WORKER, Some(U128::new(nonce)), address),
            Self::Refused(why) => (KIND_REFUSED, None, why),
            Self::Busy(why) => (KIND_BUSY, None, why),
        };
        let nonce = nonce.as_ref().map_or(&[][..], |nonce| nonce.as_bytes());
        let opening = Opening::new(transport, kind);
        let len = U32::new((nonce.len() + rest.len()) as u32);
        let parts = [opening.as_bytes(), len.as_bytes(), nonce, rest];
        parts
            .into_iter()
            .for_each(|part| out.extend(part.iter().copied()));
    }

    /// The length of the message that begins so. `None`: it is not there yet.
    ///
    /// # Errors
    /// No message begins so, or one of another version.
    pub fn len(begin: &[u8]) -> Result<Option<usize>, HelloError> {
        let magic = begin.len().min(MAGIC.len());
        if begin[..magic] != MAGIC[..magic] {
            return Err(HelloError::NoHello);
        }
        let opening = match opened(begin) {
            Err(_) => return Ok(None),
            Ok(opening) => opening,
        };
        opening.is_of_this_version()?;
        let Some(len) = begin.get(Opening::SIZE..Self::PREFIX) else {
            return Ok(None);
        };
        let len = U32::read_from_bytes(len).map_err(|_| HelloError::Form)?;
        match len.get() as usize {
            len @ ..=Self::MOST => Ok(Some(Self::PREFIX + len)),
            _ => Err(HelloError::Form),
        }
    }

    /// Parses a whole message.
    ///
    /// # Errors
    /// It is none, or one of another transport or version.
    pub fn parse(transport: TransportTag, message: &'a [u8]) -> Result<Self, HelloError> {
        let opening = opened(message)?;
        if Self::len(message)? != Some(message.len()) {
            return Err(HelloError::Form);
        }
        opening.is_of(transport)?;
        let rest = &message[Self::PREFIX..];
        match opening.kind.get() {
            KIND_REFUSED => Ok(Self::Refused(rest)),
            KIND_BUSY => Ok(Self::Busy(rest)),
            KIND_WORKER => {
                let (nonce, address) = U128::read_from_prefix(rest).map_err(|_| HelloError::Form)?;
                let nonce = nonce.get();
                Ok(Self::Worker { nonce, address })
            }
            _ => Err(HelloError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn hello() -> impl Strategy<Value = Hello> {
        let limits = [any::<u64>(), any::<u64>(), any::<u64>()];
        let node = prop::option::of(0..u32::MAX);
        (any::<u16>(), 0..4_u16, node, any::<u64>(), any::<u64>(), limits).prop_map(
            |(arch, roles, node, cpu_features, epoch, [max_payload, max_image, max_answer])| Hello {
                arch,
                roles: Roles(roles),
                node,
                cpu_features,
                epoch,
                limits: Limits {
                    max_payload,
                    max_image,
                    max_answer,
                },
            },
        )
    }

    proptest! {
        #[test]
        fn messages_survive_the_link(hello in hello(), rest in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut message = hello.encode(TransportTag::SHM).to_vec();
            message.extend(&rest);
            prop_assert_eq!(parse(TransportTag::SHM, &message), Ok(Message::Hello(hello, &rest)));
            let other = Err(HelloError::Transport(TransportTag::SHM));
            prop_assert_eq!(parse(TransportTag::UCX, &message), other);
            for busy in [false, true] {
                let mut refusal = Opening::refusal(TransportTag::UCX_PUT, busy).as_bytes().to_vec();
                refusal.extend(&rest);
                let refused = if busy { Message::Busy(&rest) } else { Message::Refused(&rest) };
                prop_assert_eq!(parse(TransportTag::UCX_PUT, &refusal), Ok(refused));
            }
        }

        #[test]
        fn any_bytes_are_parsed(mut bytes in prop::collection::vec(any::<u8>(), 0..100), hello in hello(), opened in 0..3) {
            let encoded = hello.encode(TransportTag::UCX);
            let opening = &encoded[..[0, 12, Opening::SIZE][opened as usize]];
            bytes.splice(..0, opening.iter().copied());
            if let Ok(Message::Hello(parsed, rest)) = parse(TransportTag::UCX, &bytes) {
                let mut again: Vec<u8> = parsed.encode(TransportTag::UCX).to_vec();
                again.extend(rest);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    fn exchange(kind: u8, nonce: u128, rest: &[u8]) -> Exchange<'_> {
        match kind {
            0 => Exchange::Worker { nonce, address: rest },
            1 => Exchange::Refused(rest),
            _ => Exchange::Busy(rest),
        }
    }

    proptest! {
        /// A message arrives byte by byte, and its length is known as soon as it can be.
        #[test]
        fn exchanges_survive_the_link(kind in 0..3_u8, nonce in any::<u128>(), rest in prop::collection::vec(any::<u8>(), 0..50)) {
            let message = exchange(kind, nonce, &rest);
            let mut bytes = Vec::new();
            message.encode(TransportTag::UCX, &mut bytes);
            for len in 0..=bytes.len() {
                let known = (len >= Exchange::PREFIX).then_some(bytes.len());
                prop_assert_eq!(Exchange::len(&bytes[..len]), Ok(known));
            }
            prop_assert_eq!(Exchange::parse(TransportTag::UCX, &bytes), Ok(message));
            let other = Err(HelloError::Transport(TransportTag::UCX));
            prop_assert_eq!(Exchange::parse(TransportTag::UCX_PUT, &bytes), other);
            prop_assert_eq!(Exchange::parse(TransportTag::UCX, &bytes[..bytes.len() - 1]), Err(HelloError::Form));
            bytes.push(0);
            prop_assert_eq!(Exchange::parse(TransportTag::UCX, &bytes), Err(HelloError::Form));
        }

        #[test]
        fn any_bytes_are_parsed_as_an_exchange(mut bytes in prop::collection::vec(any::<u8>(), 0..100), opened in 0..4) {
            let mut message = Vec::new();
            exchange(0, 7, &bytes).encode(TransportTag::UCX, &mut message);
            let opening = &message[..[0, 3, Opening::SIZE, Exchange::PREFIX][opened as usize]];
            bytes.splice(..0, opening.iter().copied());
            let len = Exchange::len(&bytes);
            if let Ok(parsed) = Exchange::parse(TransportTag::UCX, &bytes) {
                prop_assert_eq!(len, Ok(Some(bytes.len())));
                let mut again = Vec::new();
                parsed.encode(TransportTag::UCX, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_begins_no_exchange_is_told_at_its_first_byte() {
        let mut bytes = Vec::new();
        Exchange::Refused(b"no").encode(TransportTag::UCX, &mut bytes);
        assert_eq!(bytes[0], Exchange::FIRST);
        for begin in [&[0; 24][..], b"GET / HTTP/1.1", b"\x16\x03\x01", b"ig"] {
            assert_eq!(Exchange::len(begin), Err(HelloError::NoHello));
        }
        let mut newer = bytes.clone();
        newer[8] += 1;
        let version = Err(HelloError::Version(WIRE_VERSION + 1));
        assert_eq!(Exchange::len(&newer[..11]), Ok(None));
        assert_eq!(Exchange::len(&newer[..12]), version);
        assert_eq!(
            Exchange::parse(TransportTag::UCX, &newer).map(drop),
            version.map(drop)
        );
        // No length leads to an allocation that is larger than any message.
        for (len, known) in [
            (Exchange::MOST, Ok(Some(Exchange::PREFIX + Exchange::MOST))),
            (Exchange::MOST + 1, Err(HelloError::Form)),
            (u32::MAX as usize, Err(HelloError::Form)),
        ] {
            bytes[Opening::SIZE..Exchange::PREFIX].copy_from_slice(&(len as u32).to_le_bytes());
            assert_eq!(Exchange::len(&bytes), known);
        }
    }

    #[test]
    fn another_version_is_told_from_other_bytes() {
        let newer = *b"ifuncshm\x09\0\0\0";
        let error = parse(TransportTag::SHM, &newer).unwrap_err();
        assert_eq!(error, HelloError::Version(9));
        assert!(error.to_string().contains("version 9") && error.to_string().contains("help: "));
        assert_eq!(parse(TransportTag::SHM, &newer[..11]), Err(HelloError::Form));
        assert_eq!(
            parse(TransportTag::SHM, b"HTTP/1.1 400 Bad Request"),
            Err(HelloError::NoHello)
        );
        assert_eq!(parse(TransportTag::SHM, b""), Err(HelloError::NoHello));
    }

    #[test]
    fn a_side_may_have_both_roles() {
        let both = Roles::SERVES.with(Roles::INVOKES);
        assert!(both.contains(Roles::SERVES) && both.contains(Roles::INVOKES));
        assert!(!Roles::SERVES.contains(Roles::INVOKES) && !Roles::SERVES.contains(both));
    }
}
