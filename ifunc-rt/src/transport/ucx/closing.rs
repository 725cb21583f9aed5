//! How connections end: by the peer's `FIN`, by this side's, or by what went wrong.

use std::time::Instant;

use ::ucx::Status;
use ::ucx::code::UCS_ERR_CONNECTION_RESET;

use super::engine::{Core, LINGER, Locked};
use super::handshake::Mode;
use super::header::Notice;
use super::receive_queue::with_queue;
use super::routes::Leave;
use super::table::{ConnectionId, Stage, State};
use crate::transport::LinkError;

impl Locked<'_> {
    /// When the peer has closed the connection and all that it sent has arrived, this side acknowledges, and the connection is over.
    pub(super) fn acknowledge_fin(&mut self, id: ConnectionId) -> Result<(), &'static str> {
        let Core { worker, state } = &mut **self;
        let Some(connection) = state.connections.get_mut(&id) else {
            return Ok(());
        };
        let (Some(sent), None) = (connection.fin, &connection.gone) else {
            return Ok(());
        };
        let all = match &mut connection.stage {
            Stage::Open { .. } => with_queue(worker, id, |queue| queue.are_all(sent)).unwrap_or(Ok(false))?,
            Stage::Put(rings) => rings.are_all(sent)?,
            _ => false,
        };
        if all {
            self.notify_peer(id, Notice::FinAck, 0, &[]);
            if let Some(connection) = self.state.connections.get_mut(&id) {
                // The endpoint stays: the acknowledgement has to go out.
                connection.end(LinkError::Closed);
            }
            if self.puts_over_tcp(id) {
                self.state.parting.push(id);
            }
        }
        Ok(())
    }

    /// A connection is over.
    pub(super) fn end(&mut self, id: ConnectionId, why: LinkError) {
        self.state.notify(id);
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let broke = matches!(why, LinkError::Malformed(_));
        if broke && connection.gone.is_none() {
            tracing::debug!(%why, "closing a connection");
        }
        connection.end(why);
        if broke {
            // What such a peer sent before is not delivered.
            self.state.broken.push(id);
            self.discard_arrived(id);
        }
    }

    /// A connection is over, because UCX refused an operation.
    pub(super) fn lose(&mut self, id: ConnectionId, doing: &'static str, status: Status) {
        tracing::debug!(%status, doing, "losing a connection");
        self.end(id, LinkError::Closed);
    }

    /// Closes the endpoint of a connection, if it has one of its own or is the last on its route, and the socket.
    pub(super) fn drop_endpoint(&mut self, id: ConnectionId) {
        let (mode, puts_over_tcp) = (self.state.mode, self.puts_over_tcp(id));
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let route = connection.route;
        let is_done = match connection.stage {
            Stage::HalfOpen => connection.leaving.is_some(),
            Stage::Calling => false,
            // What was said of it came by its socket, which says nothing of UCX.
            Stage::Put(ref mut rings) => connection.leaving.is_some() || rings.has_landed(),
            _ => mode == Mode::Messages || connection.leaving.is_some(),
        };
        // A peer whose process is over answers nothing.
        let is_here = connection
            .socket
            .as_ref()
            .is_some_and(|socket| !socket.is_hung_up());
        let is_orderly = puts_over_tcp && is_here && connection.said_goodbye();
        let when = match is_done {
            true if is_orderly => Leave::Flushed,
            true => Leave::AtOnce,
            false => Leave::Rested,
        };
        // By its end the peer learns that the connection is over.
        let socket = connection.socket.take().filter(|_| is_orderly);
        let Some(endpoint) = connection.endpoint.take() else {
            return;
        };
        let closing = if endpoint.is_owned() {
            self.state.endpoints.remove(&endpoint.id());
            self.close(endpoint)
        } else {
            route.and_then(|route| self.leave_route(route, when, socket))
        };
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.closing = closing;
        }
    }

    /// Forgets a connection.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.drop_pack(id);
        self.drop_endpoint(id);
        self.remove_queue(id);
        let Some(connection) = self.state.connections.remove(&id) else {
            return;
        };
        self.state.awake.remove(&id);
        self.state.expecting.remove(&id);
        self.state.timed -= usize::from(connection.deadline.is_some());
        let Stage::Put(rings) = connection.stage else {
            return;
        };
        let State { closing, routes, .. } = &mut self.state;
        if let Some(kept) = connection.closing.and_then(|id| closing.get_mut(&id)) {
            return kept.push(*rings);
        }
        let Some(id) = connection.route else { return };
        if routes.get_mut(&id).is_some_and(|route| route.keep(*rings)) {
            let why = self.worker.library().status(UCS_ERR_CONNECTION_RESET);
            self.route_failed(id, why);
        }
    }

    /// This side does not use a connection any more. It sends `FIN`, and lingers until the peer has all frames.
    pub(super) fn close_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let over = connection.gone.is_some();
        let sent = match &connection.stage {
            Stage::Open { out, .. } if !over => Some(out.sent().frames as u32),
            // They may land after the `FIN`: the peer waits for so many.
            Stage::Put(rings) if !over && rings.remote.is_some() => Some(rings.view.frames_posted()),
            _ => None,
        };
        connection.closed = sent.is_some();
        self.set_closing(id);
        self.discard_arrived(id);
        match sent {
            Some(sent) => {
                self.state.set_deadline(id, Some(LINGER));
                self.notify_peer(id, Notice::Fin, sent.into(), &[]);
            }
            None => self.forget(id),
        }
    }

    /// Forgets closed connections that the peer has acknowledged, and half-open ones that send nothing; closes endpoints that have rested.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        let connections = self.state.connections.iter();
        let over = connections.filter(|(_, connection)| {
            connection
                .deadline
                .is_some_and(|until| connection.fin_acked || connection.gone.is_some() || until <= now)
        });
        for id in Vec::from_iter(over.map(|(id, _)| id)) {
            self.forget(id);
        }
        self.close_rested(now);
    }

    /// Waits, for a bounded time, until the peers of connections that this side has closed have everything.
    pub(super) fn wait_for_closes(&mut self) {
        let connections = self.state.connections.values();
        let until = connections.filter_map(|connection| connection.deadline).max();
        if let Some(until) = until {
            self.progress_until(until, |locked| locked.state.timed == 0);
        }
        self.forget_connections();
    }

    /// Gives back what arrived and was not delivered, and forgets all connections.
    pub(super) fn forget_all(&mut self) {
        self.dispatch();
        self.forget_connections();
    }

    fn forget_connections(&mut self) {
        for id in self.state.connections.ids() {
            self.forget(id);
        }
    }
}
