//! How sources come in.

use std::time::{Duration, Instant};

use ucx_sys::{
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR, UCS_OK, socket_addr, ucp_conn_request_attr_t,
    ucp_conn_request_h, ucp_ep_h,
};

use super::credits::{Incoming, Outgoing};
use super::engine::Locked;
use super::handshake::{Hello, Misheard, VERSION, Way, Welcome, refusal};
use super::header::{Head, Name, Notice};
use super::inbox::Data;
use super::table::{ConnectionId, Stage};
use crate::transport::no_more_than;

/// How long a guest may say nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How many guests there may be at a time.
pub(super) const MOST_GUESTS: usize = if cfg!(test) { 32 } else { 256 };
/// How many connections the target may leave waiting.
pub(super) const MOST_WAITING: usize = 1024;

impl Locked<'_> {
    /// Somebody wants to connect.
    pub(super) fn knock(&mut self, request: ucp_conn_request_h) {
        let mut attr = ucp_conn_request_attr_t {
            field_mask: u64::from(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR),
            ..ucp_conn_request_attr_t::default()
        };
        // SAFETY: the request was not used up yet; the fields of the mask are written.
        let status = unsafe { self.ucx().ucp_conn_request_query(request, &raw mut attr) };
        let from = (status == UCS_OK)
            .then(|| socket_addr(&attr.client_address))
            .flatten();
        let full = self
            .state
            .door
            .as_ref()
            .is_none_or(|door| door.guests.len() >= MOST_GUESTS);
        if full {
            tracing::warn!(
                ?from,
                "refused a connection: too many are being made at this moment"
            );
            if let Some(listener) = self.state.door.as_ref().and_then(|door| door.listener) {
                // SAFETY: the listener is alive, and the request used up by this.
                unsafe { self.ucx().ucp_listener_reject(listener, request) };
            }
            return;
        }
        match self.accept(request) {
            Ok(ep) => {
                tracing::debug!(?from, "somebody connects");
                let id = self.state.insert(ep, true, Stage::Guest);
                if let Some(door) = &mut self.state.door {
                    door.guests.push_back((id, Instant::now()));
                }
            }
            Err(status) => tracing::warn!(?from, %status, "a connection could not be made"),
        }
    }

    /// A message of nobody that is known. Where there is no listener, it may be that of somebody who comes in.
    pub(super) fn visit(&mut self, from: ucp_ep_h, head: Option<Head>, data: Data) {
        let open = self
            .state
            .door
            .as_ref()
            .is_some_and(|door| door.listener.is_none() && door.guests.len() < MOST_GUESTS);
        let says_hello = |head: &Head| head.to == Name::NONE && head.as_notice() == Ok(Some(Notice::Hello));
        let says_welcome = |head: &Head| head.as_notice() == Ok(Some(Notice::Welcome));
        let hello = match &data {
            Data::Copied(parcel, len) if head.as_ref().is_some_and(says_hello) => {
                Some(Hello::decode(self.state.way, parcel.body(*len)))
            }
            _ => None,
        };
        let waits_in_vain = match &data {
            Data::Copied(parcel, len) if head.as_ref().is_some_and(says_welcome) => {
                let welcome = Welcome::decode(self.state.way, parcel.body(*len));
                welcome.ok().map(|(_, name, _)| name)
            }
            _ => None,
        };
        self.discard(data);
        if let Some(name) = waits_in_vain {
            // Nobody here waits for that any more.
            return self.see_out(from, name);
        }
        let Some(hello) = hello else { return };
        if !open {
            return hello.map_or((), |hello| self.see_out(from, hello.name));
        }
        // Who speaks another version, or none, is answered by the way that it came.
        let known = hello.as_ref().ok();
        let (ep, own) = match known.and_then(|hello| hello.address.as_ref()) {
            Some(address) => match self.connect_to_worker(address) {
                Ok(ep) => (ep, true),
                Err(status) => {
                    return tracing::warn!(%status, "a source cannot be reached at the address that it says");
                }
            },
            None if from.is_null() => return,
            None => (from, false),
        };
        let am_id = known.and_then(|hello| Some(hello.address.as_ref()?.am_id()));
        let id = self.state.insert(ep, own, Stage::Guest);
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.am_id = am_id;
        }
        if let Some(door) = &mut self.state.door {
            door.guests.push_back((id, Instant::now()));
        }
        if let Err(why) = self.greet(id, hello) {
            tracing::debug!(why, "somebody came in who is no source");
            self.forget(id);
        }
    }

    /// Tells somebody over an endpoint of the application's that there is nobody for it here.
    fn see_out(&mut self, from: ucp_ep_h, name: Name) {
        if self.borrowed().is_none() || from.is_null() {
            return;
        }
        let id = self.state.insert(from, false, Stage::TurnedAway);
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.peer = name;
        }
        self.say(id, Notice::Bye, 0, &[]);
        self.forget(id);
    }

    /// A guest said what it is.
    pub(super) fn greet(
        &mut self,
        id: ConnectionId,
        hello: Result<Hello, Misheard>,
    ) -> Result<(), &'static str> {
        let state = &mut *self.state;
        let way = state.way;
        let Some(door) = &mut state.door else {
            return Err("a source that calls a source");
        };
        let welcome = door.welcome;
        let mut name = Name::NONE;
        if let Some(connection) = state.connections.get_mut(&id) {
            name = connection.name;
            if let Ok(hello) = &hello {
                connection.peer = hello.name;
            }
        }
        // Whoever has to give a ring away is a guest until then.
        if way == Way::Messages || hello.is_err() {
            door.guests.retain(|(guest, _)| *guest != id);
        }
        let most = door.most;
        let taken = |stage: &Stage| matches!(stage, Stage::Open { .. } | Stage::Offered(_) | Stage::Put(_));
        let live = state.connections.values();
        let live = live.filter(|c| taken(&c.stage) && c.gone.is_none() && c.left.is_none());
        let is_full = hello.is_ok() && live.count() >= most;
        if is_full && way == Way::Puts {
            door.guests.retain(|(guest, _)| *guest != id);
        }
        let mut in_terms_of = way;
        // The others are no better at the next attempt.
        let busy = hello.is_ok();
        let why = match hello {
            Ok(_) if is_full => no_more_than(most),
            Ok(_) if way == Way::Puts && door.waiting.len() < MOST_WAITING => {
                return self.invite(id, welcome);
            }
            Ok(_) if door.waiting.len() < MOST_WAITING => {
                door.waiting.push_back(id);
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.stage = Stage::Open {
                        welcome,
                        out: Outgoing::new(welcome.to_source),
                        incoming: Incoming::new(welcome.to_target),
                    };
                }
                self.say(id, Notice::Welcome, 0, &welcome.encode(way, name));
                return Ok(());
            }
            Ok(_) => "it does not take the connections that wait already".to_owned(),
            Err(Misheard::Version(theirs)) => {
                format!("it speaks version {VERSION} of the transport, not {theirs}")
            }
            Err(Misheard::Way(theirs)) => {
                in_terms_of = theirs;
                let (ours, theirs) = (way.scheme(), theirs.scheme());
                format!("it is reached by `{ours}://`, not by `{theirs}://`")
            }
            Err(Misheard::Nonsense(why)) => return Err(why),
        };
        self.turn_away(id, in_terms_of, &why, busy);
        Ok(())
    }

    /// Tells a guest that it is not taken; `busy`: at this moment.
    pub(super) fn turn_away(&mut self, id: ConnectionId, way: Way, why: &str, busy: bool) {
        self.say(id, Notice::Refused, busy.into(), &refusal(way, why));
        // It leaves when it has heard that; until then it is a guest, but it has said what it had to say.
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.stage = Stage::TurnedAway;
        }
        if let Some(door) = &mut self.state.door {
            door.guests.retain(|(guest, _)| *guest != id);
            door.guests.push_back((id, Instant::now()));
        }
    }
}
