//! What source and target tell each other before the first frame. All numbers are little-endian.
//!
//! ```text
//! Hello     magic (8), version (u32), name (u64), address of a UCX worker (as `ucx-worker:` has it) or nothing
//! Welcome   magic (8), version (u32), name (u64), epoch (u64), largest payload, image, answer (u64 each),
//!           slots and data bytes to target, to source (u32 each); if frames are put, the target's ring
//! Memory    the source's ring, if frames are put
//! Refused   magic (8), version (u32), 0 (u64), why (UTF-8); the notice's number is 1 if it is for this moment
//! ```
//!
//! The [`Name`] is what the sender knows the connection by: every message to it says so. The address is that of a source that
//! UCX's listener did not bring in, and that has no endpoint which the target could answer by.
//!
//! Magic and version stay where they are in every version, as does where the header of these messages is, so that each side can
//! tell the other's. The magic also says by which
//! [`Way`] frames are to go. What a ring is given away by is in [`super::put::offer`].

use ifunc_abi::frame::Limits;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::header::Name;
use crate::transport::RingSize;
use crate::transport::address::WorkerAddress;

/// Version of the handshake, the header and the notices, and of what the bodies of frames hold.
///
/// 2: sources may ask with `Stats`. 3: connections have numbers. 5: and names; short bodies are in one piece with their headers.
pub(super) const VERSION: u32 = 5;
/// Length of a name.
const NAME: usize = size_of::<U64>();
/// Longest body of a notice; what is longer was not sent by us.
pub(super) const LONGEST: usize = size_of::<Opening>() + NAME + WorkerAddress::LONGEST;

/// How frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// By active messages: `ucx`.
    #[default]
    Messages,
    /// By puts into the receiver's ring: `ucx-put`.
    Puts,
}

impl Way {
    const ALL: [Self; 2] = [Self::Messages, Self::Puts];

    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Messages => *b"ifuncucx",
            Self::Puts => *b"ifuncput",
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

/// How each message begins.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Opening {
    magic: [u8; 8],
    version: U32,
}

impl Opening {
    /// How a message of this side begins, and the name.
    fn of(way: Way, name: Name) -> [u8; size_of::<Self>() + NAME] {
        let opening = Self {
            magic: way.magic(),
            version: U32::new(VERSION),
        };
        let mut bytes = [0; _];
        bytes[..size_of::<Self>()].copy_from_slice(opening.as_bytes());
        bytes[size_of::<Self>()..].copy_from_slice(U64::new(name.0).as_bytes());
        bytes
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Terms {
    epoch: U64,
    limits: [U64; 3],
    to_target: [U32; 2],
    to_source: [U32; 2],
}

/// What a target says to those it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) epoch: u64,
    pub(super) limits: Limits,
    pub(super) to_target: RingSize,
    pub(super) to_source: RingSize,
}

/// A message that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// The other side speaks this version.
    Version(u32),
    /// The other side sends its frames this way.
    Way(Way),
    /// Not a message of any version, and why.
    Nonsense(&'static str),
}

/// What a source says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// What it knows the connection by.
    pub(super) name: Name,
    /// Where an endpoint to it leads, if it needs one.
    pub(super) address: Option<WorkerAddress>,
}

impl Hello {
    pub(super) fn encode(&self, way: Way) -> Vec<u8> {
        let address = self.address.as_ref().map(WorkerAddress::to_bytes);
        [&Opening::of(way, self.name)[..], &address.unwrap_or_default()].concat()
    }

    /// Judges a source's message.
    pub(super) fn decode(way: Way, message: &[u8]) -> Result<Self, Malformed> {
        let (name, rest) = open(way, message)?;
        let address = match rest {
            [] => None,
            rest => Some(
                WorkerAddress::from_bytes(rest)
                    .map_err(|_| Malformed::Nonsense("the address of its worker is damaged"))?,
            ),
        };
        Ok(Self { name, address })
    }
}

/// A target's message that it does not take the connection.
pub(super) fn refusal(way: Way, why: &str) -> Vec<u8> {
    const ROOM: usize = 1000;
    let mut message = Opening::of(way, Name::NONE).to_vec();
    message.extend_from_slice(&why.as_bytes()[..why.floor_char_boundary(ROOM)]);
    message
}

/// Why the target does not take the connection.
pub(super) fn decode_refusal(way: Way, message: &[u8]) -> Result<String, Malformed> {
    open(way, message).map(|(_, why)| String::from_utf8_lossy(why).into_owned())
}

/// The name, and what follows.
fn open(way: Way, message: &[u8]) -> Result<(Name, &[u8]), Malformed> {
    const SHORT: Malformed = Malformed::Nonsense("its first message is too short");
    match Opening::read_from_prefix(message) {
        Ok((opening, _)) if opening.magic != way.magic() => {
            let other = Way::ALL.into_iter().find(|way| way.magic() == opening.magic);
            Err(other.map_or(Malformed::Nonsense("it does not say what it is"), Malformed::Way))
        }
        Ok((opening, _)) if opening.version != VERSION => Err(Malformed::Version(opening.version.get())),
        Ok((_, rest)) => match U64::read_from_prefix(rest) {
            Ok((name, rest)) => Ok((Name(name.get()), rest)),
            Err(_) => Err(SHORT),
        },
        Err(_) => Err(SHORT),
    }
}

impl Welcome {
    /// To a source, who says it with this name to it.
    pub(super) fn encode(&self, way: Way, name: Name) -> Vec<u8> {
        let Limits {
            max_payload,
            max_image,
            max_answer,
        } = self.limits;
        let ring = |size: RingSize| [size.slots.into(), size.data.into()];
        let terms = Terms {
            epoch: self.epoch.into(),
            limits: [max_payload, max_image, max_answer].map(U64::new),
            to_target: ring(self.to_target),
            to_source: ring(self.to_source),
        };
        [&Opening::of(way, name)[..], terms.as_bytes()].concat()
    }

    /// Judges a target's message; and by which name the target knows the connection, and what it says of its ring, which is
    /// nothing if frames are not put.
    pub(super) fn decode(way: Way, message: &[u8]) -> Result<(Self, Name, &[u8]), Malformed> {
        let (name, rest) = open(way, message)?;
        let (terms, ring_of_target) = Terms::read_from_prefix(rest)
            .map_err(|_| Malformed::Nonsense("its welcome is of no known form"))?;
        if way == Way::Messages && !ring_of_target.is_empty() {
            return Err(Malformed::Nonsense("its welcome is of no known form"));
        }
        let ring = |[slots, data]: [U32; 2]| RingSize {
            slots: slots.get(),
            data: data.get(),
        };
        let [max_payload, max_image, max_answer] = terms.limits.map(U64::get);
        let welcome = Self {
            epoch: terms.epoch.get(),
            limits: Limits {
                max_payload,
                max_image,
                max_answer,
            },
            to_target: ring(terms.to_target),
            to_source: ring(terms.to_source),
        };
        if !welcome.to_target.is_valid() || !welcome.to_source.is_valid() {
            return Err(Malformed::Nonsense("its rings are of sizes that cannot be"));
        }
        Ok((welcome, name, ring_of_target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: Name = Name(0x8765_4321_0000_0007);

    fn welcome() -> Welcome {
        Welcome {
            epoch: 0x0123_4567_89ab_cdef,
            limits: Limits {
                max_payload: 1,
                max_image: 2,
                max_answer: 3,
            },
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
    fn messages_survive_the_way() {
        let mut hello = Hello {
            name: NAMED,
            address: None,
        };
        for way in Way::ALL {
            let mut message = welcome().encode(way, NAMED);
            assert_eq!(Welcome::decode(way, &message), Ok((welcome(), NAMED, &b""[..])));
            message.push(7);
            assert_eq!(Welcome::decode(way, &message).is_ok(), way == Way::Puts);
            for address in [None, Some(WorkerAddress::new(27, &[1; 300]).unwrap())] {
                hello.address = address;
                assert_eq!(Hello::decode(way, &hello.encode(way)), Ok(hello.clone()));
            }
            assert_eq!(decode_refusal(way, &refusal(way, "full")), Ok("full".into()));
            let long = "ü".repeat(LONGEST);
            assert!(refusal(way, &long).len() <= LONGEST);
        }
        let other = Hello::decode(Way::Messages, &hello.encode(Way::Puts));
        assert_eq!(other, Err(Malformed::Way(Way::Puts)));
    }

    #[test]
    fn other_versions_are_told_apart_from_nonsense() {
        const WAY: Way = Way::Messages;
        let mut newer = welcome().encode(WAY, NAMED);
        newer[8] = VERSION as u8 + 1;
        newer.truncate(12);
        assert_eq!(Welcome::decode(WAY, &newer), Err(Malformed::Version(VERSION + 1)));
        newer[8] = VERSION as u8;
        assert!(matches!(
            Welcome::decode(WAY, &newer),
            Err(Malformed::Nonsense(_))
        ));
        assert!(matches!(
            Hello::decode(WAY, b"HTTP/1.1 400 Bad Request"),
            Err(Malformed::Nonsense(_))
        ));
        let mut huge = welcome().encode(WAY, NAMED);
        *huge.last_mut().unwrap() = 0x80;
        assert!(matches!(Welcome::decode(WAY, &huge), Err(Malformed::Nonsense(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100), real in 0..2) {
            const WAY: Way = Way::Puts;
            if real > 0 {
                bytes.splice(..0, Hello { name: NAMED, address: None }.encode(WAY));
            }
            let _ = Hello::decode(WAY, &bytes);
            let _ = decode_refusal(WAY, &bytes);
            if let Ok((welcome, ..)) = Welcome::decode(WAY, &bytes) {
                assert!(welcome.to_target.is_valid() && welcome.to_source.is_valid());
            }
        }
    }
}
