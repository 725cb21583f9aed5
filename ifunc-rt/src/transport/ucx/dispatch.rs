//! What is done about what happened.

use std::sync::Once;

use ucx_sys::{UCS_OK, lanes, ucp_ep_h, ucs_status_t};

use super::credits::{Incoming, Outgoing};
use super::engine::Locked;
use super::handshake::{Hello, Way, Welcome, judge_refusal};
use super::header::{Head, Name, Notice};
use super::inbox::{Data, Event};
use super::parcel::{Parcel, Purpose};
use super::table::{Connection, ConnectionId, Frame, Kind, Stage};
use crate::transport::LinkError;

/// Of a frame.
const NOT_ITS_TURN: &str = "a frame whose number was not its turn";

impl Locked<'_> {
    /// Looks at everything that happened; whether anything did.
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        let some = !self.inbox().is_empty() && self.look_at_events();
        if self.state.has_errands() {
            self.run_errands();
        }
        some
    }

    fn look_at_events(&mut self) -> bool {
        let mut some = false;
        while !self.inbox().is_empty() {
            let mut events = std::mem::take(&mut self.state.events);
            self.inbox().take(&mut events);
            if events.is_empty() {
                self.state.events = events;
                break;
            }
            some = true;
            // Endpoints are closed and made when the others have been looked at: the address of one that was closed may
            // be that of the next.
            let (mut failed, mut knocked) = (Vec::new(), Vec::new());
            for event in events.drain(..) {
                match event {
                    Event::Message { from, head, data } => self.message(from, head, data),
                    Event::Done(parcel, status) => self.done(parcel, status),
                    Event::Failed(ep, status) => failed.push((ep, status)),
                    Event::Knock(request) => knocked.push(request),
                }
            }
            self.state.events = events;
            for (ep, status) in failed {
                self.failed(ep, status);
            }
            for id in std::mem::take(&mut self.state.broken) {
                self.detach(id);
            }
            if !knocked.is_empty() {
                // Whose patience is over makes room for others.
                self.see_off();
            }
            for request in knocked {
                self.knock(request);
            }
        }
        some
    }

    /// What is to be done in a look, also where nothing happened.
    fn run_errands(&mut self) {
        // Whoever looks at a ring finds, without an event, what is wrong with it.
        for id in std::mem::take(&mut self.state.broken) {
            self.detach(id);
        }
        // What was put lands without an event.
        for id in std::mem::take(&mut self.state.byes) {
            match self.have_all_come(id) {
                Ok(()) => self.await_the_rest(id),
                Err(why) => self.end(id, LinkError::Malformed(why)),
            }
        }
        self.look_for_expected();
        if self.state.leaving > 0
            || self
                .state
                .door
                .as_ref()
                .is_some_and(|door| !door.guests.is_empty())
        {
            self.see_off();
        }
        self.wake_the_target();
    }

    /// Rings for a target that sleeps, if there is something for it.
    fn wake_the_target(&mut self) {
        let some_rested = !self.state.ready.is_empty();
        let Some(door) = &mut self.state.door else { return };
        if !door.asleep || !some_rested && door.waiting.is_empty() {
            return;
        }
        door.asleep = false;
        match self.borrowed() {
            Some(borrowed) => borrowed.bell.ring(),
            None => self.wake(),
        }
    }

    fn message(&mut self, from: ucp_ep_h, head: Option<Head>, data: Data) {
        let Some((id, connection)) = self.addressee(from, head) else {
            // Of somebody who comes in, of a connection that is closed, or of nobody that can be told.
            return self.visit(from, head, data);
        };
        if connection.gone.is_some() {
            return self.discard(data);
        }
        let fetchable = matches!(data, Data::Fetchable(..));
        let judged = connection.judge(head, data.len(), fetchable);
        // What nearly all messages are, without another look for the connection: a frame that is here, of a peer that stays.
        if judged == Ok(Kind::Frame)
            && let Some(Head { sequence, words, .. }) = head
            && !fetchable
            && connection.bye.is_none()
            && connection.left.is_none()
            && let Stage::Open { incoming, .. } = &mut connection.stage
        {
            incoming.complete();
            let frame = Frame {
                sequence,
                words,
                data,
            };
            let put = connection.put(frame);
            if std::mem::take(&mut connection.resting) {
                self.state.ready.push(id.key());
            }
            if let Err(frame) = put {
                self.discard(frame.data);
                self.end(id, LinkError::Malformed(NOT_ITS_TURN));
            }
            return;
        }
        self.state.stir(id);
        let result = match (judged, head) {
            (Ok(Kind::Frame), Some(head)) => self.frame(id, head, data),
            (Ok(Kind::Notice(notice)), Some(head)) => {
                let result = match &data {
                    Data::Copied(parcel, len) => {
                        let body = parcel.body(*len).to_vec();
                        self.notice(id, notice, head.words[1], &body)
                    }
                    _ => Err("a notice that is too long"),
                };
                self.discard(data);
                result
            }
            (Err(why), _) => {
                self.discard(data);
                Err(why)
            }
            (Ok(_), None) => unreachable!("a message without a header is judged to be none"),
        };
        if let Err(why) = result.and_then(|()| self.have_all_come(id)) {
            self.end(id, LinkError::Malformed(why));
        }
    }

    /// Which connection a message is for: that of the name that it says, all of which only the peer was told; without a name, that
    /// which has the endpoint to itself.
    fn addressee(&mut self, from: ucp_ep_h, head: Option<Head>) -> Option<(ConnectionId, &mut Connection)> {
        let to = head.map_or(Name::NONE, |head| head.to);
        if to == Name::NONE {
            let id = *self.state.endpoints.get(&from.addr())?;
            return Some((id, self.state.connections.get_mut(&id)?));
        }
        let id = ConnectionId(to.number());
        let connection = self.state.connections.get_mut(&id)?;
        (connection.name == to).then_some((id, connection))
    }

    fn frame(&mut self, id: ConnectionId, head: Head, data: Data) -> Result<(), &'static str> {
        let Head { sequence, words, .. } = head;
        let data = match data {
            Data::Fetchable(what, len) => {
                let purpose = Purpose::Receiving {
                    connection: id,
                    sequence,
                    words,
                    len,
                };
                match self.fetch(what, len, purpose) {
                    Ok(Some(parcel)) => Data::Copied(parcel, len),
                    Ok(None) => return Ok(()),
                    Err(status) => {
                        tracing::debug!(%status, "fetching a body");
                        self.end(id, LinkError::Closed);
                        return Ok(());
                    }
                }
            }
            data => data,
        };
        let frame = Frame {
            sequence,
            words,
            data,
        };
        self.arrived(id, frame)
    }

    /// A frame is here with its body.
    fn arrived(&mut self, id: ConnectionId, frame: Frame) -> Result<(), &'static str> {
        self.state.stir(id);
        let Some(connection) = self.state.connections.get_mut(&id) else {
            self.discard(frame.data);
            return Ok(());
        };
        if let Stage::Open { incoming, .. } = &mut connection.stage {
            incoming.complete();
        }
        if connection.gone.is_some() || connection.left.is_some() {
            self.discard(frame.data);
            return Ok(());
        }
        if let Err(frame) = connection.put(frame) {
            self.discard(frame.data);
            return Err(NOT_ITS_TURN);
        }
        self.have_all_come(id)
    }

    /// What the transport of the other side says.
    fn notice(
        &mut self,
        id: ConnectionId,
        notice: Notice,
        number: u64,
        body: &[u8],
    ) -> Result<(), &'static str> {
        let way = self.state.way;
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return Ok(());
        };
        match (notice, &connection.stage) {
            (Notice::Hello, Stage::Guest) => self.greet(id, Hello::decode(way, body)),
            (Notice::Welcome, Stage::Calling) => {
                match Welcome::decode(way, body) {
                    Ok((welcome, name, ring)) if way == Way::Puts => {
                        connection.peer = name;
                        return self.welcomed(id, welcome, ring);
                    }
                    Ok((welcome, name, _)) => {
                        connection.peer = name;
                        connection.stage = Stage::Open {
                            welcome,
                            out: Outgoing::new(welcome.to_target),
                            incoming: Incoming::new(welcome.to_source),
                        }
                    }
                    Err(misheard) => connection.stage = Stage::Misheard(misheard),
                }
                Ok(())
            }
            (Notice::Memory, Stage::Offered(_)) => self.enter(id, body),
            (Notice::Bell, Stage::Put(_)) => self.answered(id, number),
            (Notice::Refused, Stage::Calling) => {
                connection.stage = match judge_refusal(way, body) {
                    Ok(why) if number == 1 => Stage::Busy(why),
                    Ok(why) => Stage::Refused(why),
                    Err(misheard) => Stage::Misheard(misheard),
                };
                Ok(())
            }
            // The worker is there, and no target listens on it.
            (Notice::Bye, Stage::Calling) => {
                connection.end(LinkError::Closed);
                Ok(())
            }
            // Its credits were in the header.
            (Notice::Credit, Stage::Open { .. }) => Ok(()),
            (Notice::Bye, Stage::Open { .. }) if connection.bye.is_none() => {
                connection.bye = Some(number as u32);
                Ok(())
            }
            (Notice::Bye, Stage::Put(_)) if connection.bye.is_none() => {
                connection.bye = Some(number as u32);
                self.state.byes.push(id);
                Ok(())
            }
            (Notice::Heard, Stage::Open { .. } | Stage::Put(_)) if connection.left.is_some() => {
                connection.heard = true;
                Ok(())
            }
            _ => Err("a notice that was not its turn"),
        }
    }

    /// An operation has ended.
    fn done(&mut self, parcel: *mut Parcel, status: ucs_status_t) {
        let address = parcel;
        let Some(parcel) = self.ended(parcel) else { return };
        if !self.state.graves.is_empty() {
            self.closed(address);
        }
        match parcel.purpose {
            Purpose::Idle => {}
            Purpose::Closing => self.state.closing -= 1,
            Purpose::Crediting { .. } | Purpose::Announcing { .. } => {
                return self.one_sided_done(parcel, status);
            }
            Purpose::Sending { connection: id, len } => {
                self.state.stir(id);
                let mut owes = false;
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.under_way.end(len);
                    owes = std::mem::take(&mut connection.owes_credits) && connection.gone.is_none();
                }
                if status != UCS_OK {
                    self.end(id, LinkError::Closed);
                } else if owes && self.state.way == Way::Puts {
                    self.answer(id);
                } else if owes {
                    self.credit(id);
                }
            }
            Purpose::Receiving {
                connection: id,
                sequence,
                words,
                len,
            } => {
                if status != UCS_OK {
                    self.end(id, LinkError::Closed);
                } else {
                    let data = Data::Copied(parcel, len);
                    let frame = Frame {
                        sequence,
                        words,
                        data,
                    };
                    if let Err(why) = self.arrived(id, frame) {
                        self.end(id, LinkError::Malformed(why));
                    }
                    return;
                }
            }
        }
        self.inbox().give(parcel);
    }

    /// The peer of an endpoint is gone.
    fn failed(&mut self, ep: ucp_ep_h, status: ucs_status_t) {
        let Some(&id) = self.state.endpoints.get(&ep.addr()) else {
            return;
        };
        tracing::debug!(status = %self.ucx().status(status), "an endpoint failed");
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.failure = Some(status);
            connection.end(LinkError::Closed);
        }
        self.state.stir(id);
        self.detach(id);
    }

    /// Sends a notice, with the credits that there are.
    pub(super) fn say(&mut self, id: ConnectionId, notice: Notice, number: u64, body: &[u8]) {
        let mut parcel = self.inbox().parcel(body.len());
        parcel.body_mut(body.len()).copy_from_slice(body);
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return self.discard(Data::Copied(parcel, 0));
        };
        let credits = match &mut connection.stage {
            Stage::Open { incoming, .. } => incoming.publish(),
            _ => Default::default(),
        };
        let head = Head::notice(notice, number, body.len(), credits);
        if let Some(parcel) = self.post(id, parcel, head, body.len()) {
            self.inbox().give(parcel);
        }
    }

    /// Tells the peer what was released: now, or when it has taken some of what it was told before.
    pub(super) fn credit(&mut self, id: ConnectionId) {
        if let Some(connection) = self.state.connections.get_mut(&id)
            && let Stage::Open { out, .. } = &connection.stage
            && !out.may_credit(connection.under_way)
        {
            connection.owes_credits = true;
            return;
        }
        self.say(id, Notice::Credit, 0, &[]);
    }

    /// Which of UCX's transports carry a connection, by UCX's own account: `sysv/memory tcp/lo`. Nothing where the endpoint
    /// is closed.
    pub(super) fn carried_by(&self, id: ConnectionId) -> String {
        let ep = self.state.connections.get(&id).map(|connection| connection.ep);
        let Some(ep) = ep.filter(|ep| !ep.is_null()) else {
            return String::new();
        };
        // SAFETY: the endpoint is alive, and its worker this thread's.
        lanes(&unsafe { self.ucx().endpoint_info(ep) }).join(" ")
    }

    /// Says what carries a connection.
    pub(super) fn show(&self, id: ConnectionId) {
        let over = self.carried_by(id);
        tracing::info!(over, "connected by UCX");
        let version = self.ucx().version();
        if self.state.way == Way::Puts && over.split(' ').all(|lane| lane.starts_with("tcp/")) {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    over,
                    %version,
                    "puts over TCP are messages that UCX answers: UCX 1.13 may end this process when a peer dies; help: `ucx://`, which is also faster over TCP"
                );
            });
        }
        if self.state.way == Way::Puts && reorders((version.major, version.minor), &over) {
            tracing::warn!(
                over,
                %version,
                "ConnectX-8 may reorder puts that this UCX does not keep apart (openucx/ucx#10658): frames may be read before they are whole; use UCX 1.19 or newer, or `ucx://`"
            );
        }
    }

    /// Sends a parcel; `Some`: UCX is done with it. What goes wrong is the end of the connection.
    pub(super) fn post(
        &mut self,
        id: ConnectionId,
        parcel: Box<Parcel>,
        mut head: Head,
        len: usize,
    ) -> Option<Box<Parcel>> {
        let connection = self.state.connections.get(&id);
        let Some(connection) = connection.filter(|connection| !connection.ep.is_null()) else {
            return Some(parcel);
        };
        head.to = connection.peer;
        let (ep, am_id) = (connection.ep, connection.am_id);
        self.send(id, ep, am_id, parcel, head, len)
            .unwrap_or_else(|status| {
                tracing::debug!(%status, "sending");
                self.end(id, LinkError::Closed);
                None
            })
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
