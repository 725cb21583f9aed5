//! What follows from events.

use std::sync::Once;

use ::ucx::{EndpointId, Rendezvous, Status};

use super::engine::{Core, Locked};
use super::events::{Data, Event, Header};
use super::frame::Frame;
use super::gather::Next;
use super::handshake::{Hello, Mode, Welcome};
use super::header::{Head, Notice};
use super::packet::{Packet, Purpose};
use super::table::{Connection, ConnectionId, Stage};
use crate::observe::limited;
use crate::transport::LinkError;

impl Locked<'_> {
    /// Dispatches all events; whether anything has happened.
    #[inline(always)]
    pub(super) fn dispatch(&mut self) -> bool {
        let (some, has_events) = {
            let mut handler = self.worker.handler();
            (handler.take_changed(), !handler.is_empty())
        };
        if some {
            self.state.sleeps = 0;
        }
        if has_events {
            self.dispatch_events();
        }
        if self.engine().has_notices_pending() {
            self.receive_pending_notices();
        }
        if self.state.has_housekeeping() {
            self.do_housekeeping();
        }
        some
    }

    #[inline(never)]
    fn dispatch_events(&mut self) {
        loop {
            let event = self.worker.handler().pop();
            match event {
                Some(Event::Message { from, head, data }) => self.message(from, head, data),
                Some(Event::Completed(packet, result)) => self.completed(packet, result),
                // Endpoints are closed and made after the other events: the next endpoint may have the id of one that was closed.
                Some(Event::Failed(endpoint, why)) => self.state.failed.push((endpoint, why)),
                None if self.state.has_no_endpoint_to_drop() => break,
                None => self.drop_endpoints(),
            }
        }
    }

    /// Drops the endpoints that failed, those of peers that broke the protocol, and those that were flushed for that.
    #[cold]
    fn drop_endpoints(&mut self) {
        for (endpoint, why) in std::mem::take(&mut self.state.failed) {
            self.failed(endpoint, why);
        }
        for id in std::mem::take(&mut self.state.broken) {
            self.drop_endpoint(id);
        }
        for route in std::mem::take(&mut self.state.flushed) {
            self.route_flushed(route);
        }
    }

    /// What is to be done also where there was no event.
    #[cold]
    #[inline(never)]
    fn do_housekeeping(&mut self) {
        // A poll of a ring finds, without an event, what is wrong with it.
        self.drop_endpoints();
        self.poll_for_expected();
        if self.state.timed > 0 || self.state.resting > 0 {
            self.expire();
        }
        self.wake_the_target();
    }

    /// Wakes a target that sleeps, if there is something for it.
    pub(super) fn wake_the_target(&mut self) {
        let is_ready = !self.state.ready.is_empty();
        let Some(acceptor) = &mut self.state.acceptor else {
            return;
        };
        if !acceptor.asleep || acceptor.is_woken || !is_ready && acceptor.waiting.is_empty() {
            return;
        }
        acceptor.is_woken = true;
        match self.attached() {
            Some(attached) => attached.event_fd.wake(),
            None => self.wake(),
        }
    }

    fn message(&mut self, from: Option<EndpointId>, head: Header, data: Data) {
        let Core { worker, state } = &mut **self;
        let Some((id, connection)) = state.addressee(from, head.to()) else {
            // Of a source that connects, of a connection that is closed, or of an unknown peer.
            return self.admit_by_message(from, head, data);
        };
        if connection.gone.is_some() {
            return self.discard(data);
        }
        let mut handler = worker.handler();
        let queue = handler.receive_queues.get_mut(id);
        let head = match head {
            Header::Entry(to, entry) => {
                Ok(entry.complete(queue.as_ref().map_or(1, |queue| queue.next()), to))
            }
            Header::Head(head) => Ok(head),
            Header::CutOff(_) | Header::Unknown => Err("a message that is not a frame"),
        };
        let validated = head.and_then(|head| Ok((head, connection.validate(queue, &head, &data)?)));
        drop(handler);
        let result = match (validated, data) {
            (Ok((head, None)), Data::Fetchable(message)) => self.fetch_frame(id, head, message),
            (Ok((head, None)), Data::Copied(packet, len)) => {
                self.received(id, Frame::copied(packet, len, head.sequence, head.words))
            }
            (Ok((head, None)), Data::Kept(kept)) => {
                let packet = self.packet(0);
                self.received(id, Frame::kept(packet, kept, head.sequence, head.words))
            }
            (Ok((head, Some(notice))), Data::Copied(packet, len)) => {
                self.state.notify(id);
                let body = packet.body(len).to_vec();
                self.give(packet);
                self.notice(id, notice, head.words[1], &body)
            }
            (validated, data) => {
                self.discard(data);
                validated.and(Err("a notice that is too long"))
            }
        };
        if let Err(why) = result.and_then(|()| self.acknowledge_fin(id)) {
            self.end(id, LinkError::Malformed(why));
        }
    }

    /// A frame is here with its body.
    fn received(&mut self, id: ConnectionId, frame: Frame) -> Result<(), &'static str> {
        self.state.notify(id);
        let is_over = |connection: &Connection| connection.gone.is_some() || connection.closed;
        let is_over = self.state.connections.get(&id).is_none_or(is_over);
        let mut handler = self.worker.handler();
        let received = match handler.receive_queues.get_mut(id) {
            Some(queue) if !is_over => queue.receive(frame).map_err(|(frame, why)| (frame, Some(why))),
            Some(queue) => {
                queue.count_dropped();
                Err((frame, None))
            }
            None => Err((frame, None)),
        };
        drop(handler);
        let Err((frame, why)) = received else {
            return Ok(());
        };
        self.release(frame);
        why.map_or(Ok(()), Err)
    }

    /// Fetches the body of a frame.
    fn fetch_frame(
        &mut self,
        connection: ConnectionId,
        head: Head,
        message: Rendezvous,
    ) -> Result<(), &'static str> {
        match self.fetch(message, Purpose::Fetching { connection, head }) {
            Ok(Some(packet)) => self.fetched(connection, head, packet),
            Ok(None) => Ok(()),
            Err(status) => {
                self.lose(connection, "fetching a body", status);
                Ok(())
            }
        }
    }

    /// The body of a frame was fetched.
    fn fetched(&mut self, id: ConnectionId, head: Head, packet: Packet) -> Result<(), &'static str> {
        let len = head.len as usize;
        self.received(id, Frame::copied(packet, len, head.sequence, head.words))?;
        self.acknowledge_fin(id)
    }

    /// A notice of the peer's transport.
    pub(super) fn notice(
        &mut self,
        id: ConnectionId,
        notice: Notice,
        number: u64,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let mode = self.state.mode;
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return Ok(());
        };
        match (notice, &connection.stage) {
            (Notice::Hello, Stage::HalfOpen) => self.receive_hello(id, Hello::decode(mode, body)),
            (Notice::Welcome | Notice::Refused, Stage::Calling) => {
                let (welcome, name, ring) = match Welcome::decode(mode, body) {
                    Ok(decoded) => decoded,
                    Err(declined) => {
                        connection.stage = Stage::Declined(declined);
                        return Ok(());
                    }
                };
                connection.peer = name;
                connection.hello = Some(welcome.hello);
                match mode {
                    Mode::Puts => self.receive_welcome(id, welcome, ring),
                    Mode::Messages => self.open(id, welcome.to_target, welcome.to_source),
                }
                Ok(())
            }
            (Notice::Memory, Stage::Put(rings)) if rings.remote.is_none() => self.receive_offer(id, body),
            (Notice::Doorbell, Stage::Put(rings)) if rings.remote.is_some() => {
                self.receive_doorbell(id, number)
            }
            // The worker is there, and no target listens on it.
            (Notice::Fin, Stage::Calling) => {
                connection.end(LinkError::Closed);
                Ok(())
            }
            // Its credits were in the header.
            (Notice::Credit, Stage::Open { .. }) => Ok(()),
            (Notice::Fin, Stage::Open { .. }) if connection.fin.is_none() => {
                connection.fin = Some(number as u32);
                self.set_closing(id);
                Ok(())
            }
            (Notice::Fin, Stage::Put(rings)) if rings.remote.is_some() && connection.fin.is_none() => {
                connection.fin = Some(number as u32);
                self.state.expecting.insert(id);
                Ok(())
            }
            (Notice::FinAck, Stage::Open { .. } | Stage::Put(_)) if connection.closed => {
                connection.fin_acked = true;
                Ok(())
            }
            _ => Err("a notice that was not its turn"),
        }
    }

    /// An operation has ended.
    fn completed(&mut self, packet: Packet, result: Result<(), Status>) {
        match packet.purpose() {
            Purpose::Idle => {}
            Purpose::Flushing { route } => self.state.flushed.push(route),
            Purpose::Closing => drop(self.state.closing.remove(&packet.0.id())),
            Purpose::Crediting { connection } | Purpose::Announcing { connection } => {
                return self.one_sided_completed(connection, packet, result);
            }
            Purpose::Sending {
                connection: id,
                sent,
                is_packed,
            } => {
                self.state.notify(id);
                let mut owes = false;
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.under_way.end(sent);
                    connection.packed_under_way -= usize::from(is_packed);
                    owes = std::mem::take(&mut connection.owes_credits) && connection.gone.is_none();
                }
                if let Err(status) = result {
                    self.lose(id, "sending", status);
                } else if owes {
                    self.credit(id);
                }
                self.send_unless_busy(id);
            }
            Purpose::Fetching { connection: id, head } => match result {
                Ok(()) => {
                    if let Err(why) = self.fetched(id, head, packet) {
                        self.end(id, LinkError::Malformed(why));
                    }
                    return;
                }
                Err(status) => self.lose(id, "fetching a body", status),
            },
        }
        self.give(packet);
    }

    /// The peer of an endpoint is gone.
    fn failed(&mut self, endpoint: EndpointId, why: Status) {
        if self.route_failed(endpoint, why) {
            return;
        }
        let Some(&id) = self.state.endpoints.get(&endpoint) else {
            return;
        };
        tracing::debug!(%why, "an endpoint failed");
        self.fail(id, why);
        self.drop_endpoint(id);
    }

    /// Sends a notice, with the credits that there are.
    pub(super) fn notify_peer(&mut self, id: ConnectionId, notice: Notice, number: u64, body: &[u8]) {
        if self.state.mode == Mode::Puts {
            let head = Head::notice(notice, number, body.len(), Default::default());
            return self.send_notice(id, &head, body);
        }
        let mut packet = self.packet(body.len());
        packet.body_mut(body.len()).copy_from_slice(body);
        let credits = self.credits(id);
        let head = Head::notice(notice, number, body.len(), credits);
        if let Some(packet) = self.send(id, packet, head, body.len()) {
            self.give(packet);
        }
    }

    /// Sends credits: now, with what is gathered for the peer, or when UCX has sent some of the messages under way.
    pub(super) fn credit(&mut self, id: ConnectionId) {
        if let Some(connection) = self.state.connections.get_mut(&id)
            && let Stage::Open { out } = &connection.stage
        {
            if !connection.under_way.may_begin(out.capacity()) {
                connection.owes_credits = true;
                return;
            }
            let joins = connection.joins();
            let head = Head::notice(Notice::Credit, 0, 0, self.credits(id));
            if self.gathers(id, &head, &[], joins, Next::Unknown) {
                return;
            }
        }
        self.notify_peer(id, Notice::Credit, 0, &[]);
    }

    /// The transports that carry a connection, by UCX's own account: `sysv/memory tcp/lo`. Empty where the endpoint is
    /// closed.
    pub(super) fn carried_by(&self, id: ConnectionId) -> String {
        let connection = self.state.connections.get(&id);
        let endpoint = connection.and_then(|connection| connection.endpoint.as_ref());
        endpoint.map_or_else(String::new, |endpoint| self.worker.lanes(endpoint).join(" "))
    }

    /// Notes whether a connection goes over TCP alone, and whether puts do at all. Returns what carries it.
    pub(super) fn learn_lanes(&mut self, id: ConnectionId) -> String {
        let over = self.carried_by(id);
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.is_over_tcp = over.split(' ').all(|lane| lane.starts_with("tcp/"));
        }
        self.state.has_put_over_tcp |= self.state.mode == Mode::Puts && over.contains("tcp/");
        over
    }

    /// Notes and logs what carries a connection.
    pub(super) fn note_lanes(&mut self, id: ConnectionId) {
        let over = self.learn_lanes(id);
        let is_over_tcp = self
            .state
            .connections
            .get(&id)
            .is_some_and(|connection| connection.is_over_tcp);
        limited!(info, over, "connected by UCX");
        let version = self.worker.library().version();
        if self.state.mode == Mode::Puts && is_over_tcp {
            static LOGGED: Once = Once::new();
            LOGGED.call_once(|| {
                tracing::warn!(
                    over,
                    %version,
                    "puts over TCP are messages that UCX answers: UCX 1.13 may end this process when a peer dies; help: `ucx://`, which is also faster over TCP"
                );
            });
        }
        if self.state.mode == Mode::Puts && reorders((version.major, version.minor), &over) {
            tracing::warn!(
                over,
                %version,
                "ConnectX-8 may reorder puts that this UCX does not keep apart (openucx/ucx#10658): frames may be read before they are whole; use UCX 1.19 or newer, or `ucx://`"
            );
        }
    }
}

/// Whether puts over these transports may land in another order than a fence of this UCX says: some devices of the driver `mlx5`
/// place data out of order.
fn reorders(version: (u32, u32), over: &str) -> bool {
    version < (1, 19) && over.contains("mlx5")
}

#[cfg(test)]
mod tests {
    use super::reorders;

    #[test]
    fn only_devices_and_versions_that_reorder_are_warned_of() {
        assert!(reorders((1, 13), "rc_mlx5/mlx5_0:1 tcp/eth0"));
        assert!(!reorders((1, 19), "rc_mlx5/mlx5_0:1"));
        assert!(!reorders((1, 13), "tcp/lo sysv/memory"));
    }
}
