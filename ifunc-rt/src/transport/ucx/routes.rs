//! Endpoints to workers whose addresses came by an [`exchange`](super::exchange). All connections between two workers use one endpoint.
//!
//! UCX pairs the endpoints that two workers make to each other by the order in which each side makes them. Of two connections that two
//! nodes make to each other at the same time, the endpoint of one could be paired with that of the other, and the end of one would be
//! the end of both.
//!
//! A route over which nothing has come stays open for a while when no connection uses it any more. The peer's request to pair may be on its
//! way; where it finds no endpoint, UCX makes one of its own and answers over that, by a connection of its own over TCP. UCX 1.13 ends a process
//! that destroys a worker while such an answer is under way, so a worker with endpoints that rest is flushed first.
//!
//! A route over which puts go by TCP rests until it is flushed ([`Leave::Flushed`]), and tells its peers until then that it is open.

use std::time::Instant;

use ::ucx::{Endpoint, EndpointId, Operation, OperationId, Operations as _, Posted, Status};

use super::engine::{CLOSING, Core, LINGER, Locked};
use super::exchange::liveness::Liveness;
use super::packet::{Packet, Purpose};
use super::put::rings::Rings;
use super::table::{ConnectionId, State};
use crate::transport::LinkError;
use crate::transport::address::WorkerAddress;

/// An endpoint, and who uses it.
pub(super) struct Route {
    endpoint: Endpoint,
    to: WorkerAddress,
    /// Connections that use it.
    users: usize,
    /// The peer has asked to pair, or does not any more.
    is_done: bool,
    /// No connection uses it, and the peer may still ask to pair, or a flush is under way: when it is closed at the latest.
    resting: Option<Instant>,
    /// A connection that is over has left answers of the peer's UCX to be waited for.
    is_flush_due: bool,
    /// Flushes of the endpoint under way. When the last has ended, or when the route has rested, the endpoint is closed.
    flushes: u32,
    /// Sockets of exchanges whose connections are over. By their end the peer learns that UCX answers nothing any more.
    sockets: Vec<Liveness>,
    /// Memory of connections that are over, into which the peer may still put as long as the endpoint is open.
    rings: Vec<Rings>,
}

/// When a connection that ends lets go of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    AtOnce,
    /// The peer may still ask to pair.
    Rested,
    /// When the peer's UCX has answered every put, as it does over TCP: UCX 1.13 ends a process whose answer finds the connection closed.
    Flushed,
}

/// Connections whose rings a route keeps. With one more its endpoint is closed, and the connections that use it are made again.
const MOST_RINGS: usize = 8;

impl Route {
    /// Keeps memory until the endpoint is closed. Returns whether that is due.
    pub(super) fn keep(&mut self, rings: Rings) -> bool {
        self.rings.push(rings);
        self.rings.len() > MOST_RINGS
    }

    /// Whether no connection uses it, and it is closed when it is flushed.
    fn is_flushing(&self) -> bool {
        self.flushes > 0 && self.resting.is_some()
    }
}

impl State {
    /// One more connection uses a route. `false`: the endpoint is no route's.
    pub(super) fn use_route(&mut self, id: EndpointId) -> bool {
        let Some(route) = self.routes.get_mut(&id) else {
            return false;
        };
        route.users += 1;
        self.resting -= usize::from(route.resting.take().is_some());
        true
    }

    fn remove_route(&mut self, id: EndpointId) -> Option<Route> {
        let route = self.routes.remove(&id)?;
        self.resting -= usize::from(route.resting.is_some());
        Some(route)
    }
}

impl Locked<'_> {
    /// An endpoint to a worker, for one connection: a new one, or that of the others. UCX contacts the worker later.
    pub(super) fn route_to(&mut self, to: &WorkerAddress) -> Result<Endpoint, Status> {
        let known = self.state.routes.iter().find(|(_, route)| route.to == *to);
        let id = match known {
            Some((&id, _)) => id,
            None => {
                let endpoint = self.connect_to_worker(to)?;
                let id = endpoint.id();
                let route = Route {
                    endpoint,
                    to: to.clone(),
                    users: 0,
                    is_done: false,
                    resting: None,
                    is_flush_due: false,
                    flushes: 0,
                    sockets: Vec::new(),
                    rings: Vec::new(),
                };
                self.state.routes.insert(id, route);
                id
            }
        };
        // SAFETY: the route's endpoint, of this worker, which is closed when no connection uses it any more.
        Ok(unsafe { self.worker.borrow_endpoint(id) })
    }

    /// A connection does not use its route any more. Returns the operation that closes the endpoint, if this was the last. The socket is that of
    /// its exchange, if the peer shall not learn yet that it is over.
    pub(super) fn leave_route(
        &mut self,
        id: EndpointId,
        when: Leave,
        socket: Option<Liveness>,
    ) -> Option<OperationId> {
        let route = self.state.routes.get_mut(&id)?;
        route.users = route.users.saturating_sub(1);
        route.is_done |= when != Leave::Rested;
        route.is_flush_due |= when == Leave::Flushed;
        if route.users > 0 {
            return None;
        }
        let is_flushing = route.is_flush_due && when != Leave::AtOnce && self.flush_route(id);
        let route = self.state.routes.get_mut(&id)?;
        if is_flushing || !route.is_done {
            route.sockets.extend(socket);
            route.resting = Some(Instant::now() + LINGER);
            self.state.resting += 1;
            return None;
        }
        let route = self.state.remove_route(id)?;
        self.close_route(route)
    }

    /// Begins to flush the endpoint of a route. Returns whether that is under way.
    fn flush_route(&mut self, id: EndpointId) -> bool {
        let mut packet = self.packet(0);
        packet.set_purpose(Purpose::Flushing { route: id });
        let Core { worker, state } = &mut **self;
        let Some(route) = state.routes.get_mut(&id) else {
            return false;
        };
        let endpoint = &route.endpoint;
        match worker.post(Operation::Flush { endpoint }, packet.0) {
            Ok(Posted::UnderWay(_)) => {
                route.flushes += 1;
                return true;
            }
            Ok(Posted::Done(buffer)) => self.give(Packet(buffer)),
            Err(status) => tracing::debug!(%status, "an endpoint cannot be flushed"),
        }
        false
    }

    /// The endpoint of a route was flushed, or has failed.
    pub(super) fn route_flushed(&mut self, id: EndpointId) {
        let Some(route) = self.state.routes.get_mut(&id) else {
            return;
        };
        route.flushes = route.flushes.saturating_sub(1);
        if route.flushes == 0 && route.resting.is_some() && route.is_done {
            self.close_resting(id);
        }
    }

    fn close_resting(&mut self, id: EndpointId) {
        if let Some(mut route) = self.state.remove_route(id) {
            if route.flushes > 0 {
                // The peer's engine sees their end, and closes its endpoint before UCX there reads what this one has put.
                route.sockets.clear();
            }
            self.close_route(route);
        }
    }

    /// Closes the routes of which this is true. No connection uses them.
    fn close_all_resting(&mut self, which: impl Fn(&Route) -> bool) {
        let routes = self.state.routes.iter();
        let those = routes.filter(|(_, route)| which(route));
        for id in Vec::from_iter(those.map(|(&id, _)| id)) {
            self.close_resting(id);
        }
    }

    /// Closes the routes that are being flushed and of whose sockets this is true.
    pub(super) fn close_flushing(&mut self, which: impl Fn(&[Liveness]) -> bool) {
        self.close_all_resting(|route| route.is_flushing() && which(&route.sockets));
    }

    /// Waits, for a bounded time, until endpoints are flushed, and closes those that are not.
    pub(super) fn wait_for_flushes(&mut self) {
        if self.is_flushing() {
            let until = Instant::now() + CLOSING;
            self.progress_until(until, |locked| !locked.is_flushing());
            self.close_flushing(|_| true);
        }
    }

    fn is_flushing(&self) -> bool {
        self.state.routes.values().any(Route::is_flushing)
    }

    /// Closes routes that have rested.
    pub(super) fn close_rested(&mut self, now: Instant) {
        self.close_all_resting(|route| route.resting.is_some_and(|until| until <= now));
    }

    /// Lets UCX send, for a bounded time, what it answers peers over endpoints that rest: the worker is about to be destroyed.
    pub(super) fn flush_resting(&mut self) {
        if self.state.resting == 0 {
            return;
        }
        let mut packet = self.packet(0);
        packet.set_purpose(Purpose::Idle);
        match self.worker.post(Operation::FlushWorker, packet.0) {
            Ok(Posted::Done(buffer)) => self.give(Packet(buffer)),
            Ok(Posted::UnderWay(_)) => {
                let until = Instant::now() + CLOSING;
                self.progress_until(until, |locked| locked.worker.under_way() == 0);
            }
            Err(status) => tracing::debug!(%status, "a worker that is about to end cannot be flushed"),
        }
    }

    fn close_route(&mut self, route: Route) -> Option<OperationId> {
        let closing = self.close(route.endpoint)?;
        if let Some(kept) = self.state.closing.get_mut(&closing) {
            kept.extend(route.rings);
        }
        Some(closing)
    }

    /// An endpoint has failed. Returns whether it is a route's: then all connections that use it are over.
    pub(super) fn route_failed(&mut self, id: EndpointId, why: Status) -> bool {
        let Some(route) = self.state.remove_route(id) else {
            return false;
        };
        tracing::debug!(%why, users = route.users, "the route to a worker failed");
        let connections = self.state.connections.iter();
        let uses = connections.filter(|(_, connection)| {
            let endpoint = connection.endpoint.as_ref();
            endpoint.is_some_and(|endpoint| !endpoint.is_owned() && endpoint.id() == id)
        });
        let users = Vec::from_iter(uses.map(|(id, _)| id));
        let closing = self.close_route(route);
        for user in users {
            if let Some(connection) = self.state.connections.get_mut(&user) {
                (connection.endpoint, connection.closing) = (None, closing);
                connection.socket = None;
            }
            self.fail(user, why);
        }
        true
    }

    /// A connection is over, because its peer is gone.
    pub(super) fn fail(&mut self, id: ConnectionId, why: Status) {
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.failure = Some(why);
            connection.end(LinkError::Closed);
        }
        self.state.notify(id);
    }
}
