//! The acceptor: how sources come in.

use ifunc_abi::hello::HelloError;

use ::ucx::EndpointId;

use super::engine::Locked;
use super::events::{Data, Header};
use super::handshake::{Hello, Mode, Nonce, Welcome};
use super::header::{Name, Notice};
use super::table::{Acceptor, ConnectionId, Stage, State};
use crate::observe::limited;
use crate::policy::CLOSED;
use crate::transport::address::WorkerAddress;
use crate::transport::handshake::{HANDSHAKE_TIMEOUT, MOST_WAITING, TOO_MANY_WAIT, refusal};
use crate::transport::{Peer, no_more_than};

/// How many half-open connections there may be at a time.
pub(super) const MOST_HALF_OPEN: usize = if cfg!(test) { 32 } else { 256 };
/// How many endpoints may be being closed at a time where sources are taken.
pub(super) const MOST_CLOSING: usize = MOST_HALF_OPEN;
/// What a source is told where there are more.
pub(super) const TOO_MANY_CLOSE: &str = "too many of its connections are being closed at this moment";

impl Locked<'_> {
    /// A source asks for the address of this worker, and says that of its own: makes a half-open connection to it. Returns this worker's
    /// address, and the nonce with which the source says hello.
    ///
    /// # Errors
    /// Why the connection is not taken, and whether at this moment alone.
    pub(super) fn introduce(
        &mut self,
        known: Option<Peer>,
        source: &WorkerAddress,
    ) -> Result<(ConnectionId, Nonce, WorkerAddress), (bool, String)> {
        // The next endpoint may have the id of one that failed.
        self.dispatch();
        let Some(acceptor) = &self.state.acceptor else {
            return Err((true, "it stops listening".into()));
        };
        if let Some(why) = acceptor.why_busy(&self.state) {
            return Err((true, why));
        }
        self.free_a_place();
        let refused = |doing: &str, why: &dyn std::fmt::Display| {
            Err((
                false,
                format!(
                    "{doing}: UCX says: {why}; help: both sides need a transport in common: see UCX_TLS and UCX_NET_DEVICES of both"
                ),
            ))
        };
        let own = match self.address() {
            Ok(own) => own,
            Err(error) => return refused(error.doing, &error.status),
        };
        let endpoint = match self.route_to(source) {
            Ok(endpoint) => endpoint,
            Err(status) => return refused("it cannot reach this process's worker", &status),
        };
        let id = self.state.insert(endpoint, Stage::HalfOpen);
        let random = self.state.random(id, "nonce");
        let mut nonce = Nonce::NONE;
        if let Some(connection) = self.state.connections.get_mut(&id) {
            nonce = Nonce::new(connection.name, random);
            connection.nonce = nonce;
            connection.known = known;
            connection.am_id = Some(source.am_id());
        }
        self.state.set_deadline(id, Some(HANDSHAKE_TIMEOUT));
        Ok((id, nonce, own))
    }

    /// Ends half-open connections that are overdue; where there are as many as there may be, the oldest.
    fn free_a_place(&mut self) {
        self.expire();
        let half_open = self.state.half_open();
        let oldest = half_open.min_by_key(|id| self.state.connections.get(id).and_then(|c| c.deadline));
        if self.state.half_open().count() >= MOST_HALF_OPEN
            && let Some(oldest) = oldest
        {
            limited!(
                warn,
                refused = "connection",
                most = MOST_HALF_OPEN,
                "closed a connection before its handshake was over: too many are being made at this moment"
            );
            self.forget(oldest);
        }
    }

    /// A message to no connection. Where sources connect without an exchange, it may be a hello.
    pub(super) fn admit_by_message(&mut self, from: Option<EndpointId>, head: Header, data: Data) {
        let acceptor = self.state.acceptor.as_ref();
        let by_exchange = acceptor.is_some_and(|acceptor| acceptor.by_exchange);
        let open = acceptor.is_some()
            && !by_exchange
            && self.state.half_open().count() < MOST_HALF_OPEN
            && self.state.has_place_to_close();
        let (mut hello, mut welcomed) = (None, None);
        if let (Data::Copied(packet, len), Header::Head(head)) = (&data, head) {
            let body = packet.body(*len);
            match head.as_notice() {
                Ok(Some(Notice::Hello)) if head.to == Name::NONE => {
                    hello = Some(Hello::decode(self.state.mode, body));
                }
                Ok(Some(Notice::Welcome)) => {
                    let welcome = Welcome::decode(self.state.mode, body);
                    welcomed = welcome.ok().map(|(_, name, _)| name);
                }
                _ => {}
            }
        }
        self.discard(data);
        if let Some(name) = welcomed {
            // The source has given up.
            return self.answer_with_fin(from, name);
        }
        let Some(hello) = hello else { return };
        if by_exchange {
            limited!(
                warn,
                refused = "connection",
                "dropped a hello without the nonce that this target gives sources: a process reaches the port of its UCX worker"
            );
            return;
        }
        if !open {
            return hello.map_or((), |hello| self.answer_with_fin(from, hello.name));
        }
        // A peer that speaks another version, or none, is answered over the endpoint that its message names.
        let known = hello.as_ref().ok();
        let endpoint = match (known.and_then(|hello| hello.address.as_ref()), from) {
            (Some(address), _) => match self.connect_to_worker(address) {
                Ok(endpoint) => endpoint,
                Err(status) => {
                    limited!(warn, refused = "connection", %status, "a source cannot be reached at the address that it says");
                    return;
                }
            },
            (None, None) => return,
            // SAFETY: UCX named it with a message of this worker's. An application keeps its endpoints until it has said that their peers
            // are gone; others are UCX's own.
            (None, Some(from)) => unsafe { self.worker.borrow_endpoint(from) },
        };
        let am_id = known.and_then(|hello| Some(hello.address.as_ref()?.am_id()));
        let id = self.state.insert(endpoint, Stage::HalfOpen);
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.am_id = am_id;
        }
        self.state.set_deadline(id, Some(HANDSHAKE_TIMEOUT));
        if let Err(why) = self.receive_hello(id, hello) {
            limited!(
                warn,
                refused = "connection",
                why,
                "a peer that is not a source connected"
            );
            self.forget(id);
        }
    }

    /// Answers over an endpoint of the application's that no connection of this name is here.
    fn answer_with_fin(&mut self, from: Option<EndpointId>, name: Name) {
        let Some(from) = from.filter(|_| self.attached().is_some()) else {
            return;
        };
        // SAFETY: as in `admit_by_message`.
        let endpoint = unsafe { self.worker.borrow_endpoint(from) };
        let id = self.state.insert(endpoint, Stage::TurnedAway);
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
        hello: Result<Hello, HelloError>,
    ) -> Result<(), &'static str> {
        let state = &mut self.state;
        let mode = state.mode;
        let Some(acceptor) = &mut state.acceptor else {
            return Err("a source that calls a source");
        };
        let welcome = acceptor.welcome;
        let by_exchange = acceptor.by_exchange;
        let mut name = Name::NONE;
        if let Some(connection) = state.connections.get_mut(&id) {
            if by_exchange && hello.as_ref().is_ok_and(|hello| hello.nonce != connection.nonce) {
                if mode == Mode::Puts {
                    // The socket is this source's own.
                    return Err("a hello with another nonce than the source was given");
                }
                // It may be another peer's. The source has its time.
                limited!(
                    warn,
                    refused = "connection",
                    "dropped a hello with another nonce than the source was given"
                );
                return Ok(());
            }
            name = connection.name;
            if let Ok(hello) = &hello {
                connection.peer = hello.name;
                connection.hello = Some(hello.hello);
            }
        }
        let busy = state
            .acceptor
            .as_ref()
            .and_then(|acceptor| acceptor.why_busy(state));
        let mut in_terms_of = mode;
        // Other refusals are the same at the next attempt.
        let is_busy = hello.is_ok();
        let why = match (hello, busy) {
            (Ok(_), Some(why)) => why,
            (Ok(_), None) if mode == Mode::Puts => {
                // Half open until the source has offered its ring.
                self.offer_ring(id, welcome);
                return Ok(());
            }
            (Ok(_), None) => {
                if let Some(acceptor) = &mut state.acceptor {
                    acceptor.waiting.push_back(id);
                }
                self.open(id, welcome.to_source, welcome.to_target);
                self.state.set_deadline(id, None);
                self.notify_peer(id, Notice::Welcome, 0, &welcome.encode(mode, name));
                return Ok(());
            }
            (Err(error @ HelloError::Version(_)), _) => error.to_string(),
            (Err(HelloError::Transport(tag)), _) if let Some(theirs) = Mode::of(tag) => {
                in_terms_of = theirs;
                let (ours, theirs) = (mode.scheme(), theirs.scheme());
                format!("it is reached by `{ours}://`, not by `{theirs}://`")
            }
            (Err(_), _) => return Err("its first message is of no known form"),
        };
        self.turn_away(id, in_terms_of, &why, is_busy);
        Ok(())
    }

    /// Refuses a half-open connection, and logs that; `busy`: at this moment.
    pub(super) fn turn_away(&mut self, id: ConnectionId, mode: Mode, why: &str, busy: bool) {
        limited!(warn, refused = "connection", why, "refused a connection");
        self.notify_peer(id, Notice::Refused, 0, &refusal(mode.tag(), busy, why));
        // The peer closes it when it has read that; until then it is half open, and a second hello is malformed.
        self.state.set_stage(id, Stage::TurnedAway);
        self.state.set_deadline(id, Some(HANDSHAKE_TIMEOUT));
    }
}

impl State {
    /// Whether one more endpoint may be closed, or rest, at the same time as others.
    fn has_place_to_close(&self) -> bool {
        self.closing.len() + self.resting < MOST_CLOSING
    }
}

impl Acceptor {
    /// Why the target takes no connection at this moment.
    fn why_busy(&self, state: &State) -> Option<String> {
        if self.connect.is_closed() {
            return Some(CLOSED.to_owned());
        }
        let is_taken = |stage: &Stage| matches!(stage, Stage::Open { .. } | Stage::Put(_));
        let live = state.connections.values();
        let live = live.filter(|c| is_taken(&c.stage) && c.gone.is_none() && !c.closed);
        if !state.has_place_to_close() {
            // Each took a descriptor or more, and UCX is not done with it.
            return Some(TOO_MANY_CLOSE.to_owned());
        }
        if live.count() >= self.most {
            return Some(no_more_than(self.most));
        }
        (self.waiting.len() >= MOST_WAITING).then(|| TOO_MANY_WAIT.to_owned())
    }
}
