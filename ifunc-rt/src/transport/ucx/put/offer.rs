//! How a side offers its ring: after the target's welcome, and in the source's answer to it. All numbers are little-endian.
//!
//! ```text
//! address of the memory (u64), nonce of the commit words (u32), length of the key (u32), UCX's remote key
//! ```

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::Layout;

/// Longest remote key that is offered or taken.
const LONGEST_KEY: usize = 768;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Opening {
    address: U64,
    nonce: U32,
    key: U32,
}

/// A ring to put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Offer {
    pub(in super::super) address: u64,
    pub(in super::super) nonce: u32,
    pub(in super::super) key: Vec<u8>,
}

impl Offer {
    pub(in super::super) fn encode(&self) -> Vec<u8> {
        let opening = Opening {
            address: self.address.into(),
            nonce: self.nonce.into(),
            key: (self.key.len() as u32).into(),
        };
        [opening.as_bytes(), &self.key].concat()
    }

    /// Validates the peer's offer of memory, which is laid out so.
    pub(in super::super) fn decode(bytes: &[u8], layout: Layout) -> Result<Self, &'static str> {
        let (opening, key) = Opening::read_from_prefix(bytes).map_err(|_| "a ring of no known form")?;
        if opening.key.get() as usize != key.len() || key.is_empty() || key.len() > LONGEST_KEY {
            return Err("a remote key of another length than it can have");
        }
        let address = opening.address.get();
        if address == 0 || !address.is_multiple_of(64) || address.checked_add(layout.len() as u64).is_none() {
            return Err("a ring where none can be");
        }
        Ok(Self {
            address,
            nonce: opening.nonce.get(),
            key: key.to_vec(),
        })
    }

    /// Whether its key is no longer than peers take.
    pub(in super::super) fn fits(&self) -> bool {
        !self.key.is_empty() && self.key.len() <= LONGEST_KEY
    }
}

/// A number that no other connection of this process is likely to have.
pub(in super::super) fn nonce() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // Keys from the system's random numbers and a counter.
    RandomState::new().hash_one(std::process::id()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::RingSize;

    fn layout() -> Layout {
        Layout::new(RingSize {
            slots: 2,
            data: RingSize::MIN_DATA,
        })
    }

    #[test]
    fn offers_survive_the_way() {
        let offer = Offer {
            address: 0x7f00_1234_5000,
            nonce: 0x89ab_cdef,
            key: (0..100).collect(),
        };
        assert_eq!(Offer::decode(&offer.encode(), layout()), Ok(offer.clone()));
        for wrong in [
            Offer {
                address: 0,
                ..offer.clone()
            },
            Offer {
                address: 8,
                ..offer.clone()
            },
            Offer {
                address: u64::MAX - 63,
                ..offer.clone()
            },
            Offer {
                key: vec![],
                ..offer.clone()
            },
            Offer {
                key: vec![0; LONGEST_KEY + 1],
                ..offer.clone()
            },
        ] {
            assert!(Offer::decode(&wrong.encode(), layout()).is_err(), "{wrong:?}");
        }
        let mut longer = offer.encode();
        longer.push(0);
        assert!(Offer::decode(&longer, layout()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            let _ = Offer::decode(&bytes, layout());
        }
    }
}
