//! What source and target tell each other before the first frame. All numbers are little-endian.
//!
//! ```text
//! Hello     magic (8), version (u32), 0 (u32)
//! Welcome   magic (8), version (u32), 0 (u32), epoch (u64), largest payload, image, answer (u64 each),
//!           slots and data bytes to target, to source (u32 each)
//! Refused   magic (8), version (u32), 0 (u32), why (UTF-8)
//! ```
//!
//! Magic and version stay where they are in every version, so that each side can tell the other's.

use ifunc_abi::frame::Limits;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::transports::RingSize;

/// Version of the handshake, the header and the notices, and of what the bodies of frames hold.
///
/// 2: sources may ask with `Stats`.
pub(super) const VERSION: u32 = 2;
/// Longest body of a notice; what is longer was not sent by us.
pub(super) const LONGEST: usize = 1024;

const MAGIC: [u8; 8] = *b"ifuncucx";

/// How each message begins.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Opening {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
}

const OPENING: Opening = Opening {
    magic: MAGIC,
    version: U32::new(VERSION),
    reserved: U32::new(0),
};

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
pub(super) enum Misheard {
    /// The other side speaks this version.
    Version(u32),
    /// Not a message of any version, and why.
    Nonsense(&'static str),
}

/// A source's message.
pub(super) fn hello() -> Vec<u8> {
    OPENING.as_bytes().to_vec()
}

/// Judges a source's message.
pub(super) fn judge_hello(message: &[u8]) -> Result<(), Misheard> {
    open(message).map(drop)
}

/// A target's message that it does not take the connection.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    let mut message = OPENING.as_bytes().to_vec();
    message.extend_from_slice(&why.as_bytes()[..why.floor_char_boundary(LONGEST - size_of::<Opening>())]);
    message
}

/// Why the target does not take the connection.
pub(super) fn judge_refusal(message: &[u8]) -> Result<String, Misheard> {
    open(message).map(|why| String::from_utf8_lossy(why).into_owned())
}

fn open(message: &[u8]) -> Result<&[u8], Misheard> {
    match Opening::read_from_prefix(message) {
        Ok((opening, _)) if opening.magic != MAGIC => Err(Misheard::Nonsense("it does not say what it is")),
        Ok((opening, _)) if opening.version != VERSION => Err(Misheard::Version(opening.version.get())),
        Ok((_, rest)) => Ok(rest),
        Err(_) => Err(Misheard::Nonsense("its first message is too short")),
    }
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
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
        [OPENING.as_bytes(), terms.as_bytes()].concat()
    }

    /// Judges a target's message.
    pub(super) fn decode(message: &[u8]) -> Result<Self, Misheard> {
        let terms = Terms::read_from_bytes(open(message)?)
            .map_err(|_| Misheard::Nonsense("its welcome is of no known form"))?;
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
            return Err(Misheard::Nonsense("its rings are of sizes that cannot be"));
        }
        Ok(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Welcome::decode(&welcome().encode()), Ok(welcome()));
        assert_eq!(judge_hello(&hello()), Ok(()));
        assert_eq!(judge_refusal(&refusal("full")), Ok("full".into()));
        let long = "ü".repeat(LONGEST);
        assert!(refusal(&long).len() <= LONGEST);
    }

    #[test]
    fn other_versions_are_told_apart_from_nonsense() {
        let mut newer = welcome().encode();
        newer[8] = VERSION as u8 + 1;
        newer.truncate(16);
        assert_eq!(Welcome::decode(&newer), Err(Misheard::Version(VERSION + 1)));
        assert!(matches!(
            judge_hello(b"HTTP/1.1 400 Bad Request"),
            Err(Misheard::Nonsense(_))
        ));
        let mut huge = welcome().encode();
        *huge.last_mut().unwrap() = 0x80;
        assert!(matches!(Welcome::decode(&huge), Err(Misheard::Nonsense(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100), real in 0..2) {
            if real > 0 {
                bytes.splice(..0, hello());
            }
            let _ = judge_hello(&bytes);
            let _ = judge_refusal(&bytes);
            if let Ok(welcome) = Welcome::decode(&bytes) {
                assert!(welcome.to_target.is_valid() && welcome.to_source.is_valid());
            }
        }
    }
}
