//! How connections end: by the other side's leave, by this side's, or by what went wrong.

use std::time::Instant;

use ucx_sys::ucp_ep_h;

use super::door::PATIENCE;
use super::engine::{LINGER, Locked};
use super::header::Notice;
use super::parcel::Parcel;
use super::put::memory::Memory;
use super::table::{ConnectionId, Stage};
use crate::transport::LinkError;

impl Locked<'_> {
    /// When the other side has left and all that it sent has come, it is told so, and is gone.
    pub(super) fn have_all_come(&mut self, id: ConnectionId) -> Result<(), &'static str> {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return Ok(());
        };
        let (Some(sent), None) = (connection.bye, &connection.gone) else {
            return Ok(());
        };
        let all = match &mut connection.stage {
            Stage::Open { incoming, .. } => incoming.are_all(sent)?,
            Stage::Put(rings) => rings.are_all(sent)?,
            _ => false,
        };
        if all {
            self.say(id, Notice::Heard, 0, &[]);
            if let Some(connection) = self.state.connections.get_mut(&id) {
                // The endpoint stays: what was said last has to go out.
                connection.end(LinkError::Closed);
            }
        }
        Ok(())
    }

    /// A connection is over.
    pub(super) fn end(&mut self, id: ConnectionId, why: LinkError) {
        self.state.stir(id);
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let broke = matches!(why, LinkError::Malformed(_));
        if broke && connection.gone.is_none() {
            tracing::debug!(%why, "closing a connection");
        }
        connection.end(why);
        if broke {
            // What such a peer said before is not looked at any more.
            let frames = connection.empty();
            self.state.broken.push(id);
            for frame in frames {
                self.discard(frame.data);
            }
        }
    }

    /// The application says that the peer of one of its endpoints is gone; it closes the endpoint itself.
    pub(super) fn peer_gone(&mut self, ep: ucp_ep_h) {
        self.look();
        self.state.lost.insert(ep.addr());
        let mut over = Vec::new();
        for (&id, connection) in &mut self.state.connections {
            if connection.ep == ep && !connection.own {
                connection.ep = std::ptr::null_mut();
                connection.end(LinkError::Closed);
                over.push(id);
            }
        }
        for id in over {
            self.state.stir(id);
        }
    }

    /// Closes the endpoint of a connection, if it has one of its own.
    pub(super) fn detach(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let ep = std::mem::replace(&mut connection.ep, std::ptr::null_mut());
        if !ep.is_null() && connection.own {
            self.state.endpoints.remove(&ep.addr());
            let closing = self.close(ep);
            if let Some(connection) = self.state.connections.get_mut(&id) {
                connection.closing = closing;
            }
        }
    }

    /// Forgets a connection.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.detach(id);
        let Some(mut connection) = self.state.connections.remove(&id) else {
            return;
        };
        self.state.awake.remove(&id);
        self.state.expecting.remove(&id);
        if connection.left.is_some() {
            self.state.leaving -= 1;
        }
        for frame in connection.empty() {
            self.discard(frame.data);
        }
        if let Stage::Offered(rings) | Stage::Put(rings) = connection.stage {
            self.bury(rings.memory, connection.closing);
        }
    }

    /// Ends the memory of a connection, when its endpoint is closed: what a peer puts must not land in what is somebody else's.
    fn bury(&mut self, memory: Memory, closing: Option<*mut Parcel>) {
        match closing.filter(|parcel| self.state.parcels.contains(parcel)) {
            Some(parcel) => self.state.graves.push((parcel, memory)),
            None => self.end_memory(memory),
        }
    }

    /// An operation has ended; if it closed an endpoint, memory ends that was reached by it.
    pub(super) fn closed(&mut self, parcel: *mut Parcel) {
        let graves = &mut self.state.graves;
        let over: Vec<_> = graves.extract_if(.., |(closing, _)| *closing == parcel).collect();
        for (_, memory) in over {
            self.end_memory(memory);
        }
    }

    /// Memory whose endpoints are still being closed: to be ended when the worker is.
    pub(super) fn unearth(&mut self) -> Vec<Memory> {
        let mut memory: Vec<_> = self.state.graves.drain(..).map(|(_, memory)| memory).collect();
        for memory in &mut memory {
            self.end_key(memory);
        }
        memory
    }

    /// This side has no use for a connection any more. Its peer is told, and hears what was sent before.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let frames = connection.empty();
        let over = connection.gone.is_some();
        let sent = match &connection.stage {
            Stage::Open { out, .. } if !over => Some(out.frames()),
            // They may land behind the leave: the peer waits for so many.
            Stage::Put(rings) if !over => Some(rings.view.frames_posted()),
            _ => None,
        };
        if sent.is_some() {
            connection.left = Some(Instant::now() + LINGER);
            self.state.leaving += 1;
        }
        for frame in frames {
            self.discard(frame.data);
        }
        match sent {
            Some(sent) => self.say(id, Notice::Bye, sent.into(), &[]),
            None => self.forget(id),
        }
    }

    /// Forgets connections that were left and heard, and guests that say nothing.
    pub(super) fn see_off(&mut self) {
        let now = Instant::now();
        let over: Vec<_> = self
            .state
            .connections
            .iter()
            .filter(|(_, connection)| {
                connection
                    .left
                    .is_some_and(|until| connection.heard || connection.gone.is_some() || until <= now)
            })
            .map(|(&id, _)| id)
            .collect();
        for id in over {
            self.forget(id);
        }
        let state = &mut *self.state;
        let Some(door) = &mut state.door else { return };
        let mut over = Vec::new();
        door.guests.retain(|&(id, since)| {
            let there = state
                .connections
                .get(&id)
                .is_some_and(|guest| guest.gone.is_none());
            if !there || since + PATIENCE <= now {
                over.push(id);
            }
            over.last() != Some(&id)
        });
        for id in over {
            self.forget(id);
        }
    }

    /// Waits, not for long, until peers of connections that this side has left have heard everything.
    pub(super) fn say_goodbye(&mut self) {
        let until = self
            .state
            .connections
            .values()
            .filter_map(|connection| connection.left)
            .max();
        if let Some(until) = until {
            self.work_until(until, |locked| locked.state.leaving == 0);
        }
        let all: Vec<_> = self.state.connections.keys().copied().collect();
        for id in all {
            self.forget(id);
        }
    }

    /// Gives back what came and will not be looked at.
    pub(super) fn forget_all(&mut self) {
        self.look();
        let all: Vec<_> = self.state.connections.keys().copied().collect();
        for id in all {
            self.forget(id);
        }
    }
}
