//! How the sides exchange their rings when a connection is made.
//!
//! The target offers its ring with the welcome, and waits for the source's offer; the source may send as soon as it was welcomed.
//! An offer, whose numbers are little-endian:
//!
//! ```text
//! address of the memory (u64), nonce of the checksums (u32), length of the key (u32), process (u32), UCX's remote key
//! ```
//!
//! UCX 1.13 attaches the shared memory that a key names, and ends this process where that is gone because the peer has just been killed: what it
//! then gives back was never filled in. So a key is not given to UCX once its process is ending, which its number says on the same host.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ::ucx::code::UCS_ERR_EXCEEDS_LIMIT;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Layout, View};
use super::rings::Rings;
use crate::observe::limited;
use crate::transport::LinkError;
use crate::transport::handshake::{Declined, MOST_WAITING};
use crate::transport::ucx::engine::{Core, Locked};
use crate::transport::ucx::handshake::{Mode, Welcome};
use crate::transport::ucx::header::Notice;
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};

/// Longest remote key that is offered or taken.
const LONGEST_KEY: usize = 768;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Opening {
    address: U64,
    nonce: U32,
    key: U32,
    process: U32,
}

/// A ring to put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    address: u64,
    nonce: u32,
    /// Its owner, as its own host numbers it.
    process: u32,
    key: Vec<u8>,
}

impl Offer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let opening = Opening {
            address: self.address.into(),
            nonce: self.nonce.into(),
            key: (self.key.len() as u32).into(),
            process: self.process.into(),
        };
        [opening.as_bytes(), &self.key].concat()
    }

    /// Validates the peer's offer of memory with this layout.
    pub(super) fn decode(bytes: &[u8], layout: Layout) -> Result<Self, &'static str> {
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
            process: opening.process.get(),
            key: key.to_vec(),
        })
    }
}

impl Locked<'_> {
    /// Allocates memory with the layout `mine`, which this side receives in. Returns the offer of it.
    fn make_offer(&mut self, mine: Layout, peer: Layout) -> Result<(Box<Rings>, Offer), ::ucx::Error> {
        let memory = self.worker.allocate(mine.len())?;
        let offer = Offer {
            address: memory.address(),
            // Keys from the system's random numbers and a counter.
            nonce: RandomState::new().hash_one(std::process::id()) as u32,
            process: std::process::id(),
            key: memory.key().to_vec(),
        };
        if offer.key.len() > LONGEST_KEY {
            return Err(::ucx::Error {
                doing: "offering a ring: its key is too long",
                status: self.worker.library().status(UCS_ERR_EXCEEDS_LIMIT),
            });
        }
        let view = View::new(Arc::new(memory), mine, offer.nonce);
        view.clear();
        Ok((Box::new(Rings::new(view, peer)), offer))
    }

    /// Takes the peer's offer. Returns whether it was taken; `false`: the peer is ending, and the connection is over.
    fn take_offer(&mut self, id: ConnectionId, message: &[u8]) -> Result<bool, &'static str> {
        let Core { worker, state } = &mut **self;
        let Some(Connection {
            endpoint: Some(endpoint),
            stage: Stage::Put(rings),
            socket,
            ..
        }) = state.connections.get_mut(&id)
        else {
            return Ok(false);
        };
        let Offer {
            address,
            nonce,
            process,
            key,
        } = Offer::decode(message, rings.peer)?;
        if socket
            .as_ref()
            .is_some_and(|socket| socket.has_ending_peer(process))
        {
            self.end(id, LinkError::Closed);
            return Ok(false);
        }
        // SAFETY: peers are trusted with the process, as `docs/transports.md` says; the form of the key was validated.
        let remote = unsafe { worker.unpack(endpoint, &key, address, rings.peer.len()) };
        let remote = remote.map_err(|error| {
            limited!(warn, %error, "a connection could not be made");
            "a ring whose key UCX does not take"
        })?;
        rings.nonce = nonce;
        rings.remote = Some(remote);
        Ok(true)
    }

    /// A target welcomes a source, and offers its ring.
    pub(crate) fn offer_ring(&mut self, id: ConnectionId, welcome: Welcome) {
        let (to_target, to_source) = (Layout::new(welcome.to_target), Layout::new(welcome.to_source));
        match self.make_offer(to_target, to_source) {
            Ok((rings, offer)) => {
                let Some(connection) = self.state.connections.get_mut(&id) else {
                    return;
                };
                connection.stage = Stage::Put(rings);
                let mut message = welcome.encode(Mode::Puts, connection.name);
                message.extend(offer.encode());
                self.notify_peer(id, Notice::Welcome, 0, &message);
            }
            Err(error) => {
                let ::ucx::Error { doing, status } = error;
                let why = format!("it has no memory for a ring: {doing}: {status}");
                self.turn_away(id, Mode::Puts, &why, true);
            }
        }
    }

    /// A source offers its ring: the connection is established.
    pub(crate) fn receive_offer(&mut self, id: ConnectionId, message: &[u8]) -> Result<(), &'static str> {
        if !self.take_offer(id, message)? {
            return Ok(());
        }
        self.state.awake.insert(id);
        let Some(acceptor) = &mut self.state.acceptor else {
            return Err("a source that calls a source");
        };
        if acceptor.waiting.len() < MOST_WAITING {
            acceptor.waiting.push_back(id);
            self.state.set_deadline(id, None);
        } else {
            limited!(
                warn,
                refused = "connection",
                "closed a connection: too many wait already"
            );
            self.end(id, LinkError::Closed);
        }
        Ok(())
    }

    /// A target welcomes this source, and offers its ring.
    pub(crate) fn receive_welcome(&mut self, id: ConnectionId, welcome: Welcome, ring: &[u8]) {
        let (to_target, to_source) = (Layout::new(welcome.to_target), Layout::new(welcome.to_source));
        let made = self.make_offer(to_source, to_target);
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        match made {
            Ok((rings, ours)) => {
                connection.stage = Stage::Put(rings);
                match self.take_offer(id, ring) {
                    Ok(true) => self.notify_peer(id, Notice::Memory, 0, &ours.encode()),
                    Ok(false) => {}
                    Err(why) => self
                        .state
                        .set_stage(id, Stage::Declined(Declined::Malformed(why))),
                }
            }
            Err(error) => {
                limited!(warn, %error, "a connection could not be made");
                connection.failure = Some(error.status);
                self.end(id, LinkError::Closed);
            }
        }
    }
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
    fn offers_are_decoded_as_they_were_encoded() {
        let offer = Offer {
            address: 0x7f00_1234_5000,
            nonce: 0x89ab_cdef,
            process: 77,
            key: (0..100).collect(),
        };
        let longest = Offer {
            key: vec![1; LONGEST_KEY],
            ..offer.clone()
        };
        for right in [&offer, &longest] {
            assert_eq!(Offer::decode(&right.encode(), layout()).as_ref(), Ok(right));
        }
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
        fn any_bytes_are_validated(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            let _ = Offer::decode(&bytes, layout());
        }
    }
}
