//! How the rings are given away when a connection is made.
//!
//! The target gives its own away with the welcome, and waits for the source's; the source may send as soon as it was welcomed.

use std::time::Instant;

use super::layout::Layout;
use super::offer::Offer;
use crate::transport::LinkError;
use crate::transport::ucx::acceptor::MOST_WAITING;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::handshake::{LONGEST, Malformed, Mode, Welcome};
use crate::transport::ucx::header::Notice;
use crate::transport::ucx::table::{ConnectionId, Stage};

impl Locked<'_> {
    /// A target tells a guest what it takes, and gives its ring away.
    pub(in super::super) fn offer_ring(
        &mut self,
        id: ConnectionId,
        welcome: Welcome,
    ) -> Result<(), &'static str> {
        let (to_target, to_source) = (Layout::new(welcome.to_target), Layout::new(welcome.to_source));
        match self.make_offer(to_target, to_source) {
            Ok((rings, offer)) => {
                let Some(connection) = self.state.connections.get_mut(&id) else {
                    return Ok(());
                };
                connection.stage = Stage::Offered(rings);
                let name = connection.name;
                let mut message = welcome.encode(Mode::Puts, name);
                message.extend(offer.encode());
                debug_assert!(message.len() <= LONGEST);
                self.notify_peer(id, Notice::Welcome, 0, &message);
            }
            Err(::ucx::Error { doing, status }) => {
                tracing::warn!(doing, %status, "refused a connection: there is no memory for its ring");
                self.turn_away(
                    id,
                    Mode::Puts,
                    &format!("it has no memory for a ring: {doing}: {status}"),
                    true,
                );
            }
        }
        Ok(())
    }

    /// A guest gave its ring away, and is in.
    pub(in super::super) fn receive_offer(
        &mut self,
        id: ConnectionId,
        message: &[u8],
    ) -> Result<(), &'static str> {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return Ok(());
        };
        let stage = std::mem::replace(&mut connection.stage, Stage::HalfOpen);
        let Stage::Offered(mut rings) = stage else {
            connection.stage = stage;
            return Err("a ring that was not its turn");
        };
        let taken = match Offer::decode(message, rings.peer) {
            Ok(offer) => self
                .take_offer(&mut rings, id, &offer)
                .map_err(|::ucx::Error { doing, status }| {
                    tracing::warn!(doing, %status, "refused a connection");
                    "a ring whose key UCX does not take"
                }),
            Err(why) => Err(why),
        };
        if let Some(connection) = self.state.connections.get_mut(&id) {
            // Also where it ends: its memory does with it.
            connection.stage = if taken.is_ok() {
                Stage::Put(rings)
            } else {
                Stage::Offered(rings)
            };
        }
        taken?;
        self.state.awake.insert(id);
        let Some(acceptor) = &mut self.state.acceptor else {
            return Err("a source that calls a source");
        };
        acceptor.half_open.retain(|(guest, _)| *guest != id);
        if acceptor.waiting.len() < MOST_WAITING {
            acceptor.waiting.push_back(id);
        } else {
            tracing::warn!("closed a connection: too many wait already");
            acceptor.half_open.push_back((id, Instant::now()));
            self.end(id, LinkError::Closed);
        }
        Ok(())
    }

    /// A target takes this source, and gave its ring away.
    pub(in super::super) fn receive_welcome(
        &mut self,
        id: ConnectionId,
        welcome: Welcome,
        ring: &[u8],
    ) -> Result<(), &'static str> {
        let (to_target, to_source) = (Layout::new(welcome.to_target), Layout::new(welcome.to_source));
        let connection = self.state.connections.get_mut(&id);
        let Some(connection) = connection.filter(|connection| connection.endpoint.is_some()) else {
            return Ok(());
        };
        let theirs = match Offer::decode(ring, to_target) {
            Ok(theirs) => theirs,
            Err(why) => {
                connection.stage = Stage::Malformed(Malformed::Nonsense(why));
                return Ok(());
            }
        };
        let made = self
            .make_offer(to_source, to_target)
            .and_then(|(mut rings, ours)| {
                self.take_offer(&mut rings, id, &theirs)?;
                Ok((rings, ours))
            });
        match made {
            Ok((rings, ours)) => {
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.stage = Stage::Put(rings);
                }
                self.notify_peer(id, Notice::Memory, 0, &ours.encode());
            }
            Err(::ucx::Error { doing, status }) => {
                tracing::warn!(doing, %status, "a connection could not be made");
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.failure = Some(status);
                }
                self.end(id, LinkError::Closed);
            }
        }
        Ok(())
    }

    /// Looks again, at the next look, whether everything has landed that a peer had sent when it left.
    pub(in super::super) fn await_the_rest(&mut self, id: ConnectionId) {
        let connection = self.state.connections.get(&id);
        if connection.is_some_and(|connection| connection.gone.is_none()) {
            self.state.fins.push(id);
        }
    }
}
