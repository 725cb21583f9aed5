//! The acceptor: how sources come in.

use ifunc_abi::hello::HelloError;
use std::time::{Duration, Instant};

use ::ucx::{ConnectionRequest, EndpointId, ErrorMode};

use super::credits::{Incoming, send_window};
use super::engine::Locked;
use super::events::Data;
use super::handshake::{Hello, Malformed, Mode, Welcome, refusal};
use super::header::{Head, Name, Notice};
use super::table::{ConnectionId, Stage};
use crate::transport::no_more_than;

/// How long a connection may be half open.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many half-open connections there may be at a time.
pub(super) const MOST_HALF_OPEN: usize = if cfg!(test) { 32 } else { 256 };
/// How many connections the target may leave waiting.
pub(super) const MOST_WAITING: usize = 1024;

impl Locked<'_> {
    /// A peer connects to UCX's listener.
    pub(super) fn admit(&mut self, request: ConnectionRequest) {
        let from = self.worker.client_address(&request);
        let full = self
            .state
            .acceptor
            .as_ref()
            .is_none_or(|acceptor| acceptor.half_open.len() >= MOST_HALF_OPEN);
        if full {
            tracing::warn!(
                ?from,
                "refused a connection: too many are being made at this moment"
            );
            return self.worker.reject(request);
        }
        match self.worker.accept(request, ErrorMode::Peer) {
            Ok(endpoint) => {
                tracing::debug!(?from, "a peer connects");
                let id = self.state.insert(endpoint, true, Stage::HalfOpen);
                if let Some(acceptor) = &mut self.state.acceptor {
                    acceptor.half_open.push_back((id, Instant::now()));
                }
            }
            Err(status) => tracing::warn!(?from, %status, "a connection could not be made"),
        }
    }

    /// A message to no connection. Where there is no listener, it may be a hello.
    pub(super) fn admit_by_message(&mut self, from: Option<EndpointId>, head: Option<Head>, data: Data) {
        let open =
            self.state.acceptor.as_ref().is_some_and(|acceptor| {
                acceptor.listener.is_none() && acceptor.half_open.len() < MOST_HALF_OPEN
            });
        let says_hello = |head: &Head| head.to == Name::NONE && head.as_notice() == Ok(Some(Notice::Hello));
        let says_welcome = |head: &Head| head.as_notice() == Ok(Some(Notice::Welcome));
        let hello = match &data {
            Data::Copied(packet, len) if head.as_ref().is_some_and(says_hello) => {
                Some(Hello::decode(self.state.way, packet.body(*len)))
            }
            _ => None,
        };
        let waits_in_vain = match &data {
            Data::Copied(packet, len) if head.as_ref().is_some_and(says_welcome) => {
                let welcome = Welcome::decode(self.state.way, packet.body(*len));
                welcome.ok().map(|(_, name, _)| name)
            }
            _ => None,
        };
        self.discard(data);
        if let Some(name) = waits_in_vain {
            // No source here waits for that any more.
            return self.answer_with_fin(from, name);
        }
        let Some(hello) = hello else { return };
        if !open {
            return hello.map_or((), |hello| self.answer_with_fin(from, hello.name));
        }
        // A peer that speaks another version, or none, is answered over the endpoint that its message names.
        let known = hello.as_ref().ok();
        let (endpoint, owned) = match (known.and_then(|hello| hello.address.as_ref()), from) {
            (Some(address), _) => match self.connect_to_worker(address) {
                Ok(endpoint) => (endpoint, true),
                Err(status) => {
                    return tracing::warn!(%status, "a source cannot be reached at the address that it says");
                }
            },
            (None, None) => return,
            // SAFETY: UCX named it with a message of this worker's. An application keeps its endpoints until it has said that their peers
            // are gone; others are UCX's own.
            (None, Some(from)) => (unsafe { self.worker.borrow_endpoint(from) }, false),
        };
        let am_id = known.and_then(|hello| Some(hello.address.as_ref()?.am_id()));
        let id = self.state.insert(endpoint, owned, Stage::HalfOpen);
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.am_id = am_id;
        }
        if let Some(acceptor) = &mut self.state.acceptor {
            acceptor.half_open.push_back((id, Instant::now()));
        }
        if let Err(why) = self.receive_hello(id, hello) {
            tracing::debug!(why, "a peer that is not a source connected");
            self.forget(id);
        }
    }

    /// Tells a peer over an endpoint of the application's that no connection of this name is here.
    fn answer_with_fin(&mut self, from: Option<EndpointId>, name: Name) {
        let Some(from) = from.filter(|_| self.attached().is_some()) else {
            return;
        };
        // SAFETY: as in `admit_by_message`.
        let endpoint = unsafe { self.worker.borrow_endpoint(from) };
        let id = self.state.insert(endpoint, false, Stage::TurnedAway);
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.peer = name;
        }
        self.notify_peer(id, Notice::Fin, 0, &[]);
        self.forget(id);
    }

    /// A hello arrived on a half-open connection.
    pub(super) fn receive_hello(
        &mut self,
        id: ConnectionId,
        hello: Result<Hello, Malformed>,
    ) -> Result<(), &'static str> {
        let state = &mut self.state;
        let way = state.way;
        let Some(acceptor) = &mut state.acceptor else {
            return Err("a source that calls a source");
        };
        let welcome = acceptor.welcome;
        let mut name = Name::NONE;
        if let Some(connection) = state.connections.get_mut(&id) {
            name = connection.name;
            if let Ok(hello) = &hello {
                connection.peer = hello.name;
                connection.hello = Some(hello.hello);
            }
        }
        // A connection that puts is half open until the source has offered its ring.
        if way == Mode::Messages || hello.is_err() {
            acceptor.half_open.retain(|(open, _)| *open != id);
        }
        let most = acceptor.most;
        let taken = |stage: &Stage| matches!(stage, Stage::Open { .. } | Stage::Put(_));
        let live = state.connections.values();
        let live = live.filter(|c| taken(&c.stage) && c.gone.is_none() && c.linger.is_none());
        let is_full = hello.is_ok() && live.count() >= most;
        if is_full && way == Mode::Puts {
            acceptor.half_open.retain(|(open, _)| *open != id);
        }
        let mut in_terms_of = way;
        // Other refusals are the same at the next attempt.
        let busy = hello.is_ok();
        let why = match hello {
            Ok(_) if is_full => no_more_than(most),
            Ok(_) if way == Mode::Puts && acceptor.waiting.len() < MOST_WAITING => {
                self.offer_ring(id, welcome);
                return Ok(());
            }
            Ok(_) if acceptor.waiting.len() < MOST_WAITING => {
                acceptor.waiting.push_back(id);
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.stage = Stage::Open {
                        out: send_window(welcome.to_source),
                        incoming: Incoming::new(welcome.to_target),
                    };
                }
                self.notify_peer(id, Notice::Welcome, 0, &welcome.encode(way, name));
                return Ok(());
            }
            Ok(_) => "it does not take the connections that wait already".to_owned(),
            Err(Malformed::Version(theirs)) => HelloError::Version(theirs).to_string(),
            Err(Malformed::Mode(theirs)) => {
                in_terms_of = theirs;
                let (ours, theirs) = (way.scheme(), theirs.scheme());
                format!("it is reached by `{ours}://`, not by `{theirs}://`")
            }
            Err(Malformed::Nonsense(why)) => return Err(why),
        };
        self.turn_away(id, in_terms_of, &why, busy);
        Ok(())
    }

    /// Refuses a half-open connection; `busy`: at this moment.
    pub(super) fn turn_away(&mut self, id: ConnectionId, way: Mode, why: &str, busy: bool) {
        self.notify_peer(id, Notice::Refused, busy.into(), &refusal(way, busy, why));
        // The peer closes it when it has read that; until then it is half open, and a second hello is malformed.
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.stage = Stage::TurnedAway;
        }
        if let Some(acceptor) = &mut self.state.acceptor {
            acceptor.half_open.retain(|(open, _)| *open != id);
            acceptor.half_open.push_back((id, Instant::now()));
        }
    }
}
