//! The acceptor: how sources come in.

use ifunc_abi::hello::HelloError;

use ::ucx::{ConnectionRequest, EndpointId, ErrorMode};

use super::credits::{Incoming, send_window};
use super::engine::Locked;
use super::events::{Data, Header};
use super::handshake::{Hello, Mode, Welcome};
use super::header::{Name, Notice};
use super::table::{ConnectionId, Stage};
use crate::observe::limited;
use crate::transport::handshake::{HANDSHAKE_TIMEOUT, MOST_WAITING, TOO_MANY_WAIT, refusal};
use crate::transport::no_more_than;

/// How many half-open connections there may be at a time.
pub(super) const MOST_HALF_OPEN: usize = if cfg!(test) { 32 } else { 256 };

impl Locked<'_> {
    /// A peer connects to UCX's listener.
    pub(super) fn admit(&mut self, request: ConnectionRequest) {
        let from = self.worker.client_address(&request);
        let address = from.map(|from| from.ip());
        let acceptor = self.state.acceptor.as_ref();
        let is_admitted = acceptor.is_none_or(|acceptor| acceptor.connect.get().admits_address(address));
        if !is_admitted {
            limited!(
                warn,
                ?from,
                "refused a connection: the policy does not admit its address"
            );
        }
        // A peer that is not admitted is accepted to be told why, as long as half of the places are left to the others.
        let places = MOST_HALF_OPEN / if is_admitted { 1 } else { 2 };
        let unadmitted = address.filter(|_| !is_admitted);
        let is_full = acceptor.is_none() || self.state.half_open().count() >= places;
        if !is_admitted && (is_full || unadmitted.is_none()) {
            return self.worker.reject(request);
        }
        if is_full {
            limited!(
                warn,
                ?from,
                "refused a connection: too many are being made at this moment"
            );
            return self.worker.reject(request);
        }
        match self.worker.accept(request, ErrorMode::Peer) {
            Ok(endpoint) => {
                tracing::debug!(?from, "a peer connects");
                let id = self.state.insert(endpoint, Stage::HalfOpen);
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.unadmitted = unadmitted;
                }
                self.state.set_deadline(id, Some(HANDSHAKE_TIMEOUT));
            }
            Err(status) => limited!(warn, ?from, %status, "a connection could not be made"),
        }
    }

    /// A message to no connection. Where there is no listener, it may be a hello.
    pub(super) fn admit_by_message(&mut self, from: Option<EndpointId>, head: Header, data: Data) {
        let acceptor = self.state.acceptor.as_ref();
        let open = acceptor.is_some_and(|acceptor| acceptor.listener.is_none())
            && self.state.half_open().count() < MOST_HALF_OPEN;
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
        if !open {
            return hello.map_or((), |hello| self.answer_with_fin(from, hello.name));
        }
        // A peer that speaks another version, or none, is answered over the endpoint that its message names.
        let known = hello.as_ref().ok();
        let endpoint = match (known.and_then(|hello| hello.address.as_ref()), from) {
            (Some(address), _) => match self.connect_to_worker(address) {
                Ok(endpoint) => endpoint,
                Err(status) => {
                    limited!(warn, %status, "a source cannot be reached at the address that it says");
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
            tracing::debug!(why, "a peer that is not a source connected");
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
        let (mut name, mut unadmitted) = (Name::NONE, None);
        if let Some(connection) = state.connections.get_mut(&id) {
            (name, unadmitted) = (connection.name, connection.unadmitted);
            if let Ok(hello) = &hello {
                connection.peer = hello.name;
                connection.hello = Some(hello.hello);
            }
        }
        let most = acceptor.most;
        let taken = |stage: &Stage| matches!(stage, Stage::Open { .. } | Stage::Put(_));
        let live = state.connections.values();
        let live = live.filter(|c| taken(&c.stage) && c.gone.is_none() && !c.closed);
        let is_full = hello.is_ok() && live.count() >= most;
        let mut in_terms_of = mode;
        // Other refusals are the same at the next attempt.
        let busy = hello.is_ok() && unadmitted.is_none();
        let why = match hello {
            Ok(_) if let Some(address) = unadmitted => {
                format!("its policy does not admit {address}; help: `Policy::connect_from` on the target")
            }
            Ok(_) if is_full => no_more_than(most),
            Ok(_) if mode == Mode::Puts && acceptor.waiting.len() < MOST_WAITING => {
                // Half open until the source has offered its ring.
                self.offer_ring(id, welcome);
                return Ok(());
            }
            Ok(_) if acceptor.waiting.len() < MOST_WAITING => {
                acceptor.waiting.push_back(id);
                let stage = Stage::Open {
                    out: send_window(welcome.to_source),
                    incoming: Incoming::new(welcome.to_target),
                };
                self.state.set_stage(id, stage);
                self.state.set_deadline(id, None);
                self.notify_peer(id, Notice::Welcome, 0, &welcome.encode(mode, name));
                return Ok(());
            }
            Ok(_) => TOO_MANY_WAIT.to_owned(),
            Err(error @ HelloError::Version(_)) => error.to_string(),
            Err(HelloError::Transport(tag)) if let Some(theirs) = Mode::of(tag) => {
                in_terms_of = theirs;
                let (ours, theirs) = (mode.scheme(), theirs.scheme());
                format!("it is reached by `{ours}://`, not by `{theirs}://`")
            }
            Err(_) => return Err("its first message is of no known form"),
        };
        self.turn_away(id, in_terms_of, &why, busy);
        Ok(())
    }

    /// Refuses a half-open connection; `busy`: at this moment.
    pub(super) fn turn_away(&mut self, id: ConnectionId, mode: Mode, why: &str, busy: bool) {
        self.notify_peer(id, Notice::Refused, 0, &refusal(mode.tag(), busy, why));
        // The peer closes it when it has read that; until then it is half open, and a second hello is malformed.
        self.state.set_stage(id, Stage::TurnedAway);
        self.state.set_deadline(id, Some(HANDSHAKE_TIMEOUT));
    }
}
