//! The handshake over UCX, or, where frames are put, over the socket of the exchange. All numbers are little-endian.
//!
//! ```text
//! Hello     hello, name (u64), nonce (u128), address of a UCX worker (as `ucx-worker:` has it) or nothing
//! Welcome   hello, name (u64), slots and data bytes to target, to source (u32 each); if frames are put, the target's ring
//! Memory    the source's ring, if frames are put
//! Refused   refusal
//! ```
//!
//! Hello and refusal are those of [`ifunc_abi::hello`]; the transport's tag states the [`Mode`]. The [`Name`] is what
//! the sender knows the connection by: every message to it over UCX carries the name. The [`Nonce`] is that of the target's answer in an
//! [`exchange`](super::exchange), or 0 where there was none; then the address is that of a source that has no endpoint over which the
//! target could answer.
//!
//! The header of these messages is the same in every version, so that each side can report the other's. The module `put::offer`
//! describes an offered ring.

use ifunc_abi::hello::{self, HelloError, Message, TransportTag};
use zerocopy::little_endian::{U64, U128};
use zerocopy::{FromBytes, IntoBytes};

use super::header::Name;
use crate::transport::RingSize;
use crate::transport::address::{Address, HostPort, WorkerAddress};
use crate::transport::handshake::{Declined, NO_KNOWN_FORM, StatedRings, parse_answer};

/// Length of a name.
const NAME: usize = size_of::<U64>();
/// Longest body of a notice.
pub(super) const LONGEST: usize = hello::Hello::SIZE + NAME + size_of::<U128>() + WorkerAddress::LONGEST;

/// What a target gives a source in an [`exchange`](super::exchange), and takes once: in bits 0–63 the [`Name`] of the connection, in
/// bits 64–127 a random number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Nonce(pub(super) u128);

impl Nonce {
    /// Of a source that was given none.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(name: Name, random: u64) -> Self {
        Self(u128::from(random) << 64 | u128::from(name.0))
    }

    /// What the target calls the connection.
    pub(super) fn name(self) -> Name {
        Name(self.0 as u64)
    }
}

impl std::fmt::Debug for Nonce {
    /// The random number is a secret of the two sides.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Nonce").field(&self.name().number()).finish()
    }
}

/// How frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By active messages: `ucx`.
    #[default]
    Messages,
    /// By puts into the receiver's ring: `ucx-put`.
    Puts,
}

impl Mode {
    const ALL: [Self; 2] = [Self::Messages, Self::Puts];

    /// The mode of the transport with this tag.
    pub(super) fn of(tag: TransportTag) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.tag() == tag)
    }

    pub(super) const fn tag(self) -> TransportTag {
        match self {
            Self::Messages => TransportTag::UCX,
            Self::Puts => TransportTag::UCX_PUT,
        }
    }

    /// The mode of a host's address, and the host.
    pub(super) fn of_host(address: &Address) -> Option<(Self, &HostPort)> {
        match address {
            Address::Ucx(at) => Some((Self::Messages, at)),
            Address::UcxPut(at) => Some((Self::Puts, at)),
            _ => None,
        }
    }

    /// How its addresses begin.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::Messages => "ucx",
            Self::Puts => "ucx-put",
        }
    }
}

/// What a target sends to the sources that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) hello: hello::Hello,
    pub(super) to_target: RingSize,
    pub(super) to_source: RingSize,
}

/// A source's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) hello: hello::Hello,
    /// What it knows the connection by.
    pub(super) name: Name,
    /// By which it proves that the target has answered it.
    pub(super) nonce: Nonce,
    /// Where an endpoint to it leads, if it needs one.
    pub(super) address: Option<WorkerAddress>,
}

impl Hello {
    pub(super) fn encode(&self, mode: Mode) -> Vec<u8> {
        let mut message = encode(mode, &self.hello, self.name);
        message.extend(U128::new(self.nonce.0).as_bytes());
        if let Some(address) = &self.address {
            message.extend(address.to_bytes());
        }
        message
    }

    /// Parses a source's message.
    pub(super) fn decode(mode: Mode, message: &[u8]) -> Result<Self, HelloError> {
        let Message::Hello(hello, rest) = hello::parse(mode.tag(), message)? else {
            return Err(HelloError::Form);
        };
        let (name, rest) = split_name(rest).ok_or(HelloError::Form)?;
        let (nonce, rest) = U128::read_from_prefix(rest).map_err(|_| HelloError::Form)?;
        let address = match rest {
            [] => None,
            rest => Some(WorkerAddress::from_bytes(rest).map_err(|_| HelloError::Form)?),
        };
        Ok(Self {
            hello,
            name,
            nonce: Nonce(nonce.get()),
            address,
        })
    }
}

/// A hello, and the name.
fn encode(mode: Mode, hello: &hello::Hello, name: Name) -> Vec<u8> {
    [&hello.encode(mode.tag())[..], U64::new(name.0).as_bytes()].concat()
}

/// The name that follows a hello, and what follows it.
fn split_name(bytes: &[u8]) -> Option<(Name, &[u8])> {
    let (name, rest) = U64::read_from_prefix(bytes).ok()?;
    Some((Name(name.get()), rest))
}

impl Welcome {
    /// To a source that puts this name into its messages.
    pub(super) fn encode(&self, mode: Mode, name: Name) -> Vec<u8> {
        let mut message = encode(mode, &self.hello, name);
        message.extend(StatedRings::new(self.to_target, self.to_source).as_bytes());
        message
    }

    /// Parses a target's answer; and by which name the target knows the connection, and what it sends of its ring, which is
    /// nothing if frames are not put.
    pub(super) fn decode(mode: Mode, message: &[u8]) -> Result<(Self, Name, &[u8]), Declined> {
        let (hello, rest) = parse_answer(mode.tag(), message)?;
        let (name, rest) = split_name(rest).ok_or(NO_KNOWN_FORM)?;
        let (rings, ring_of_target) = StatedRings::read_from_prefix(rest).map_err(|_| NO_KNOWN_FORM)?;
        if mode == Mode::Messages && !ring_of_target.is_empty() {
            return Err(NO_KNOWN_FORM);
        }
        let [to_target, to_source] = rings.sizes(usize::MAX)?;
        let welcome = Self {
            hello,
            to_target,
            to_source,
        };
        Ok((welcome, name, ring_of_target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ConnectConfig;
    use crate::transport::handshake::refusal;

    const NAMED: Name = Name(0x8765_4321_0000_0007);

    fn welcome() -> Welcome {
        Welcome {
            hello: ConnectConfig::default().hello,
            to_target: RingSize {
                slots: 4,
                data: 1 << 20,
            },
            to_source: RingSize {
                slots: 2,
                data: 1 << 16,
            },
        }
    }

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        let mut hello = Hello {
            hello: welcome().hello,
            name: NAMED,
            nonce: Nonce::new(NAMED, 9),
            address: None,
        };
        assert_eq!(hello.nonce.name(), NAMED);
        for mode in Mode::ALL {
            let mut message = welcome().encode(mode, NAMED);
            assert_eq!(Welcome::decode(mode, &message), Ok((welcome(), NAMED, &b""[..])));
            message.push(7);
            assert_eq!(Welcome::decode(mode, &message).is_ok(), mode == Mode::Puts);
            for address in [None, Some(WorkerAddress::new(27, &[1; 300]).unwrap())] {
                hello.address = address;
                assert_eq!(Hello::decode(mode, &hello.encode(mode)), Ok(hello.clone()));
            }
            assert_eq!(
                Welcome::decode(mode, &refusal(mode.tag(), true, "full")),
                Err(Declined::Busy("full".into()))
            );
            hello.address = Some(WorkerAddress::new(27, &[1; WorkerAddress::MOST]).unwrap());
            assert_eq!(hello.encode(mode).len(), LONGEST, "the longest hello");
            let long = "ü".repeat(LONGEST);
            assert!(refusal(mode.tag(), true, &long).len() <= LONGEST);
        }
        let other = Hello::decode(Mode::Messages, &hello.encode(Mode::Puts));
        assert_eq!(other, Err(HelloError::Transport(Mode::Puts.tag())));
    }

    #[test]
    fn other_versions_are_distinguished_from_nonsense() {
        const WAY: Mode = Mode::Messages;
        let mut newer = welcome().encode(WAY, NAMED);
        newer[8] += 1;
        newer.truncate(12);
        let version = hello::WIRE_VERSION + 1;
        assert_eq!(Welcome::decode(WAY, &newer), Err(Declined::Version(version)));
        newer[8] -= 1;
        assert!(matches!(
            Welcome::decode(WAY, &newer),
            Err(Declined::Malformed(_))
        ));
        assert!(matches!(
            Hello::decode(WAY, b"HTTP/1.1 400 Bad Request"),
            Err(HelloError::NoHello)
        ));
        let mut huge = welcome().encode(WAY, NAMED);
        *huge.last_mut().unwrap() = 0x80;
        assert!(matches!(Welcome::decode(WAY, &huge), Err(Declined::Malformed(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_validated(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100), real in 0..2) {
            const WAY: Mode = Mode::Puts;
            if real > 0 {
                bytes.splice(..0, Hello { hello: welcome().hello, name: NAMED, nonce: Nonce::NONE, address: None }.encode(WAY));
            }
            let _ = Hello::decode(WAY, &bytes);
            if let Ok((welcome, ..)) = Welcome::decode(WAY, &bytes) {
                assert!(welcome.to_target.is_valid() && welcome.to_source.is_valid());
            }
        }
    }
}
