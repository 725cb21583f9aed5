//! The steps of sources: they call, take answers, and end scopes.

use ifunc_abi::travel::{SlotRef, TravelHead};
use ifunc_proto::caller::Submission;
use zerocopy::little_endian::{U32, U64};

use super::ledger::{Call, Record, Scope};
use super::node::{image_of, payload_of};
use super::{Mesh, say};
use crate::link::End;
use crate::rng::Rng;

impl Mesh {
    pub(super) fn submit(&mut self, rng: &mut Rng, at: usize) {
        let source = &mut self.sources[at];
        let Some(port) = &mut source.port else { return };
        let taste = self.taste;
        let wants_completion = rng.below(8) < taste.calls;
        let is_streamed = wants_completion && rng.below(8) < taste.streamed;
        let mut head = TravelHead::of_source(taste.hop_limit);
        let mut deadline = u64::MAX;
        if rng.below(8) < taste.deadlines {
            let left = rng.pick(&[1_000, 10_000_000, 2_000_000_000]);
            head.deadline = U64::new(left);
            deadline = self.now + left;
        }
        if is_streamed {
            head.stream_next = U32::ZERO;
            head.stream_window = U32::new(taste.window);
        }
        let mut scope = None;
        if rng.below(8) < taste.scoped {
            let mut open = source.scopes.iter().copied();
            let open = open.rfind(|&scope| self.ledger.scopes[scope as usize].token.is_none());
            let index = open.unwrap_or_else(|| {
                source.numbers += 1;
                self.ledger.scopes.push(Scope {
                    number: source.numbers,
                    ..Scope::default()
                });
                let index = (self.ledger.scopes.len() - 1) as u32;
                source.scopes.push(index);
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
            to: source.node,
            len,
            depth: 0,
            image,
            runs: 0,
            ran_at: 0,
            is_closed: false,
        });
        let bytes = payload_of(id, len);
        let caller = &mut port.connection.caller;
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
        let mut end = End::new(&mut self.links[port.link].channels, port.side);
        let accepted = port
            .connection
            .submit_travel(&mut end, submission, &head, &mut encode);
        let text = format!("{accepted:?}");
        let Ok(accepted) = accepted else {
            let _ = port.connection.caller.take_reports();
            self.ledger.take_back(id);
            return;
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
            });
            let call = (self.ledger.calls.len() - 1) as u32;
            self.ledger.records[id as usize].call = Some(call);
            source.calls.push((accepted.token, call));
        }
        say!(self, "source {at}: sends number {id} in scope {scope:?}: {text}");
    }

    /// Receives, and takes what ended: everything, if `takes`.
    pub(super) fn take_outcomes(&mut self, at: usize, takes: bool) -> bool {
        let source = &mut self.sources[at];
        let Some(port) = &mut source.port else {
            return false;
        };
        let before = port.connection.received();
        let mut end = End::new(&mut self.links[port.link].channels, port.side);
        port.connection.drive(&mut end);
        port.connection.receive(&mut end, 0);
        let mut has_moved = port.connection.received() != before;
        let is_linked = port.connection.is_linked();
        let takes = takes || !is_linked;
        let first = source.node;
        let _ = port.connection.caller.take_reports();
        while port.connection.caller.take_lost_node().is_some() {}
        let mut over = Vec::new();
        for &(token, call) in &source.calls {
            let connection = &mut port.connection;
            while takes && let Some(answer) = connection.caller.calls.take_partial(token) {
                self.ledger.partial(call, &answer);
                say!(self, "source {at}: takes a partial answer of call {call}");
                let mut end = End::new(&mut self.links[port.link].channels, port.side);
                // What is not granted now is granted never: the window gets smaller, and the call ends all the same.
                if is_linked && !connection.grant(&mut end, token, 1) {
                    source.ungranted.push((token, 1));
                }
                has_moved = true;
            }
            if takes && let Some(outcome) = connection.caller.calls.take(token) {
                over.push((call, outcome));
            }
        }
        let mut ungranted = std::mem::take(&mut source.ungranted);
        ungranted.retain(|&(token, count)| {
            let mut end = End::new(&mut self.links[port.link].channels, port.side);
            port.connection.is_linked() && !port.connection.grant(&mut end, token, count)
        });
        source.ungranted = ungranted;
        let mut ended = Vec::new();
        for &scope in &source.scopes {
            if let Some(token) = self.ledger.scopes[scope as usize].token
                && let Some(outcome) = port.connection.caller.calls.take(token)
            {
                ended.push((scope, outcome));
            }
        }
        source
            .calls
            .retain(|(_, call)| over.iter().all(|(other, _)| other != call));
        source
            .scopes
            .retain(|scope| ended.iter().all(|(other, _)| other != scope));
        has_moved |= !over.is_empty() || !ended.is_empty();
        let now = self.now;
        for (call, outcome) in over {
            say!(self, "source {at}: call {call} ended: {outcome:?}");
            self.ledger.call_ended(call, &outcome, now, first);
        }
        for (scope, outcome) in ended {
            say!(self, "source {at}: scope {scope} ended: {outcome:?}");
            self.ledger.scope_ended(scope, &outcome, first);
        }
        if !is_linked {
            self.source_lost_link(at);
        }
        has_moved
    }

    /// Asks for the end of a scope.
    pub(super) fn finish_scope(&mut self, rng: &mut Rng, at: usize) {
        if !self.sources[at].scopes.is_empty() {
            let index = rng.below(self.sources[at].scopes.len());
            let scope = self.sources[at].scopes[index];
            self.finish(at, scope);
        }
    }

    pub(super) fn finish(&mut self, at: usize, scope: u32) -> bool {
        let Some(port) = &mut self.sources[at].port else {
            return false;
        };
        let state = &mut self.ledger.scopes[scope as usize];
        if state.token.is_some() {
            return false;
        }
        let mut end = End::new(&mut self.links[port.link].channels, port.side);
        state.token = port.connection.finish(&mut end, state.number);
        let is_asked = state.token.is_some();
        say!(self, "source {at}: finishes scope {scope}: {is_asked}");
        is_asked
    }

    /// The link of a source died: what it awaits never ends.
    fn source_lost_link(&mut self, at: usize) {
        let source = &mut self.sources[at];
        source.port = None;
        source.ungranted.clear();
        for scope in source.scopes.drain(..) {
            self.ledger.scopes[scope as usize].is_over = true;
        }
        if !source.calls.is_empty() {
            let detail = format!("source {at}: {:?}", source.calls);
            self.ledger.fail("a call ends when its link dies", detail);
        }
    }
}
