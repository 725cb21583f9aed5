//! The steps of those that invoke: sources, and nodes that invoke a source which is a target, too.

use ifunc_abi::travel::{SlotRef, TravelHead};
use ifunc_proto::caller::Submission;
use zerocopy::little_endian::{U32, U64};

use super::ledger::{Call, Record, Scope};
use super::visit::{image_of, payload_of};
use super::{Mesh, Peer, say};
use crate::link::End;
use crate::rng::Rng;

/// What a driver invokes over a connection, and awaits.
#[derive(Debug)]
pub(super) struct Client {
    /// The number of the node that it invokes.
    pub(super) target: usize,
    /// Calls that are not over: tokens, and numbers in the ledger.
    pub(super) calls: Vec<(u64, u32)>,
    /// Scopes that are not over: their numbers in the ledger.
    pub(super) scopes: Vec<u32>,
    /// Grants that it has not sent to its target: tokens, and counts.
    ungranted: Vec<(u64, u32)>,
    /// Numbers of scopes that it used.
    numbers: u32,
}

impl Client {
    pub(super) fn new(target: usize) -> Self {
        Self {
            target,
            calls: Vec::new(),
            scopes: Vec::new(),
            ungranted: Vec::new(),
            numbers: 0,
        }
    }
}

impl Mesh {
    /// Submits an invocation. `false`: the connection does not take it now.
    pub(super) fn submit(&mut self, rng: &mut Rng, at: usize, port: usize) -> bool {
        let own = &mut self.nodes[at].ports[port];
        let Some(client) = &mut own.client else {
            return false;
        };
        let taste = self.taste;
        let travels = rng.below(8) >= taste.plain;
        let wants_completion = rng.below(8) < taste.calls;
        let is_streamed = travels && wants_completion && rng.below(8) < taste.streamed;
        let mut head = TravelHead::of_source(taste.hop_limit);
        let mut deadline = u64::MAX;
        if travels && rng.below(8) < taste.deadlines {
            let left = rng.pick(&[1_000, 10_000_000, 2_000_000_000]);
            head.deadline = U64::new(left);
            deadline = self.now + left;
        }
        if is_streamed {
            head.stream_next = U32::ZERO;
            head.stream_window = U32::new(taste.window);
        }
        let mut scope = None;
        if travels && rng.below(8) < taste.scoped {
            let mut open = client.scopes.iter().copied();
            let open = open.rfind(|&scope| self.ledger.scopes[scope as usize].token.is_none());
            let index = open.unwrap_or_else(|| {
                client.numbers += 1;
                self.ledger.scopes.push(Scope {
                    number: client.numbers,
                    ..Scope::default()
                });
                let index = (self.ledger.scopes.len() - 1) as u32;
                client.scopes.push(index);
                index
            });
            head.scope = SlotRef::scope_of_source(self.ledger.scopes[index as usize].number);
            scope = Some(index);
        }
        let image = image_of(rng.next());
        let len = 4 + rng.below(taste.payload);
        let id = self.ledger.add(Record {
            call: None,
            scope,
            to: client.target,
            len,
            depth: 0,
            image,
            travels,
            runs: 0,
            is_closed: false,
        });
        let bytes = payload_of(id, len);
        let caller = &mut own.connection.caller;
        let submission = Submission {
            handle: caller.bind(image),
            bound: len,
            align: 64,
            wants_completion,
            carries_code: false,
        };
        let mut encode = |memory: &mut [u8]| {
            memory[..len].copy_from_slice(&bytes);
            Ok::<_, ()>(len)
        };
        let mut end = End::new(&mut self.links[own.link].channels, own.side);
        let token = if travels {
            own.connection
                .submit_travel(&mut end, submission, &head, &mut encode)
                .map(|accepted| accepted.token)
        } else if rng.one_in(2) {
            own.connection.append(&mut end, submission, false, &mut encode)
        } else {
            match own.connection.submit_at_once(&mut end, &submission, &mut encode) {
                Some(sent) => sent,
                None => own.connection.submit(&mut end, submission, &mut encode),
            }
        };
        let text = format!("{token:?}");
        let Ok(token) = token else {
            let _ = own.connection.caller.take_reports();
            self.ledger.take_back(id);
            return false;
        };
        if wants_completion {
            self.ledger.calls.push(Call {
                current: id,
                end: None,
                visited: Vec::new(),
                deadline,
                is_streamed,
                window: taste.window,
                partials: 0,
                taken: 0,
                is_over: false,
                is_dropped: false,
            });
            let call = (self.ledger.calls.len() - 1) as u32;
            self.ledger.records[id as usize].call = Some(call);
            client.calls.push((token, call));
        }
        self.coverage.plain += u64::from(!travels);
        let peer = self.nodes[at].ports[port].peer;
        self.coverage.to_sources += u64::from(matches!(peer, Peer::Source(_)));
        self.coverage.of_programs += u64::from(matches!(peer, Peer::Node(_)));
        say!(
            self,
            "driver {at}: sends number {id} over link {}, travels: {travels}, scope {scope:?}: {text}",
            self.nodes[at].ports[port].link
        );
        true
    }

    /// Receives, and takes what ended: everything, if `takes`.
    pub(super) fn take_outcomes(&mut self, at: usize, port: usize, takes: bool) -> bool {
        let Some(own) = self.nodes[at].ports.get_mut(port) else {
            return false;
        };
        if own.client.is_none() {
            return false;
        }
        let before = own.connection.received();
        let mut end = End::new(&mut self.links[own.link].channels, own.side);
        own.connection.drive(&mut end);
        // One that serves receives in its polls.
        own.connection.receive(&mut end, 0);
        let has_moved = own.connection.received() != before;
        if !own.connection.is_linked() {
            let why = own.connection.lost_because().to_owned();
            self.port_is_over(at, port, &why);
            return true;
        }
        has_moved | self.take_ended(at, port, takes)
    }

    /// Takes what ended.
    pub(super) fn take_ended(&mut self, at: usize, port: usize, takes: bool) -> bool {
        let own = &mut self.nodes[at].ports[port];
        let Some(client) = &mut own.client else {
            return false;
        };
        let (connection, channels) = (&mut own.connection, &mut self.links[own.link].channels);
        let is_linked = connection.is_linked();
        let _ = connection.caller.take_reports();
        let mut has_moved = false;
        let mut over = Vec::new();
        for &(token, call) in &client.calls {
            while takes && let Some(answer) = connection.caller.calls.take_partial(token) {
                self.ledger.partial(call, &answer);
                let mut end = End::new(channels, own.side);
                if is_linked && !connection.grant(&mut end, token, 1) {
                    client.ungranted.push((token, 1));
                }
                has_moved = true;
            }
            if takes && let Some(outcome) = connection.caller.calls.take(token) {
                over.push((call, outcome));
            }
        }
        client.ungranted.retain(|&(token, count)| {
            let mut end = End::new(channels, own.side);
            is_linked && !connection.grant(&mut end, token, count)
        });
        let mut ended = Vec::new();
        for &scope in &client.scopes {
            if let Some(token) = self.ledger.scopes[scope as usize].token
                && let Some(outcome) = connection.caller.calls.take(token)
            {
                ended.push((scope, outcome));
            }
        }
        let target = client.target;
        client
            .calls
            .retain(|(_, call)| over.iter().all(|(other, _)| other != call));
        client
            .scopes
            .retain(|scope| ended.iter().all(|(other, _)| other != scope));
        has_moved |= !over.is_empty() || !ended.is_empty();
        let now = self.now;
        for (call, outcome) in over {
            say!(self, "driver {at}: call {call} ended: {outcome:?}");
            self.ledger.call_ended(call, &outcome, now, target);
        }
        for (scope, outcome) in ended {
            say!(self, "driver {at}: scope {scope} ended: {outcome:?}");
            self.ledger.scope_ended(scope, &outcome, target);
        }
        has_moved
    }

    /// Drops a call.
    pub(super) fn abandon(&mut self, rng: &mut Rng, at: usize, port: usize) {
        let own = &mut self.nodes[at].ports[port];
        let Some(client) = own.client.as_mut().filter(|client| !client.calls.is_empty()) else {
            return;
        };
        let (token, call) = client.calls.swap_remove(rng.below(client.calls.len()));
        client.ungranted.retain(|&(other, _)| other != token);
        own.connection.caller.abandon(token);
        let dropped = &mut self.ledger.calls[call as usize];
        (dropped.is_over, dropped.is_dropped) = (true, true);
        say!(self, "driver {at}: drops call {call}");
    }

    /// Asks for the end of a scope.
    pub(super) fn finish_scope(&mut self, rng: &mut Rng, at: usize, port: usize) {
        let client = self.nodes[at]
            .ports
            .get(port)
            .and_then(|port| port.client.as_ref());
        let scopes = client.map_or(&[][..], |client| &client.scopes);
        if !scopes.is_empty() {
            let scope = scopes[rng.below(scopes.len())];
            self.finish(at, port, scope);
        }
    }

    pub(super) fn finish(&mut self, at: usize, port: usize, scope: u32) -> bool {
        let Some(own) = self.nodes[at].ports.get_mut(port) else {
            return false;
        };
        let is_own = own
            .client
            .as_ref()
            .is_some_and(|client| client.scopes.contains(&scope));
        let state = &mut self.ledger.scopes[scope as usize];
        if !is_own || state.token.is_some() {
            return false;
        }
        let mut end = End::new(&mut self.links[own.link].channels, own.side);
        state.token = own.connection.finish(&mut end, state.number);
        let is_asked = state.token.is_some();
        say!(self, "driver {at}: finishes scope {scope}: {is_asked}");
        is_asked
    }

    /// The link of a driver died: everything ends, and what its scopes hold is forgotten.
    pub(super) fn client_lost_link(&mut self, at: usize, port: usize) {
        self.nodes[at].ports[port].connection.caller.give_up("lost");
        self.take_ended(at, port, true);
        let Some(client) = &mut self.nodes[at].ports[port].client else {
            return;
        };
        for scope in client.scopes.drain(..) {
            self.ledger.scopes[scope as usize].is_over = true;
        }
        if !client.calls.is_empty() {
            let detail = format!("driver {at}: {:?}", client.calls);
            self.ledger.fail("a call ends when its link dies", detail);
        }
    }
}
