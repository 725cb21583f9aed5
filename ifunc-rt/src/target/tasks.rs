//! What a node does beside serving its connections: it sends what waits for other nodes, runs what it sent to itself, makes the
//! links that it needs, and ends what is overdue.
//!
//! It takes its turn as a connection does, on whichever thread serves.

use std::time::Duration;

use ifunc_abi::ImageId;
use ifunc_exec::services::now;
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::caller::Image as _;
use ifunc_proto::host::Invocation;
use ifunc_proto::host::Payload;
use ifunc_proto::node::Local;

use super::Host;
use super::argument::Argument;
use super::served::{Bound, Counted, Execution, Served, State};
use crate::driver::backoff::after;
use crate::transport::Key;
use crate::travel::Origin;
use crate::travel::sent::SentEntry;

/// Invocations that one turn runs.
const QUANTUM: usize = 64;
/// Entries whose counters are kept.
const KEPT: usize = 64;
/// How long it tries to connect to a node that something is to be sent to.
const DIAL: Duration = Duration::from_secs(2);

/// A node's own work.
pub(super) struct Tasks {
    pub(super) state: State,
    /// The entries that it has run, by image and offset, the last one last.
    bound: Vec<(ImageId, u32, Bound)>,
    /// Handles that were bound.
    handles: u32,
    answer: AlignedBuffer,
    payload: AlignedBuffer,
}

impl Tasks {
    pub(super) fn new(number: u64, host: &Host) -> Self {
        Self {
            state: State::of_node(number, host),
            bound: Vec::new(),
            handles: 0,
            answer: AlignedBuffer::default(),
            payload: AlignedBuffer::default(),
        }
    }

    /// No listener gives out this key.
    pub(super) const KEY: Key = Key::of_own(0);

    pub(super) fn has_work(host: &Host) -> bool {
        host.travels.is_busy()
    }

    /// Does what there is to do. Returns the number of invocations that it ran.
    #[cold]
    pub(super) fn poll(&mut self, execution: &mut Execution<'_>) -> usize {
        let host = execution.host;
        if !host.travels.is_ready() {
            host.travels.idle();
        }
        host.travels.tick_coarsely();
        if !host.travels.is_ready() {
            return 0;
        }
        let mut ran = 0;
        while ran < QUANTUM
            && let Some(local) = host.travels.with(|node| node.next_local(now()))
        {
            self.run(execution, local);
            ran += 1;
        }
        host.send_to_nodes();
        host.dial_wanted();
        ran
    }

    fn run(&mut self, execution: &mut Execution<'_>, local: Local<SentEntry, Origin>) {
        let host = execution.host;
        let Local {
            image,
            payload,
            visit,
        } = local;
        let Some(counted) = self.counted(&image, &execution.argument) else {
            let failed = ifunc_proto::host::Refusal::new(
                ifunc_abi::status::Rejection::Unbound,
                "the image is not installed here",
            );
            host.travels
                .with(|node| node.end(visit, Err(failed.into()), now()));
            return;
        };
        self.payload.resize(payload.len());
        self.payload.as_mut_slice().copy_from_slice(&payload);
        let room = visit.max_answer().map(|max| max.min(host.travels.max_answer()));
        self.answer.resize(room.unwrap_or(0));
        let invocation = Invocation::<&[u8]> {
            sequence: 0,
            is_batched: false,
            payload: Payload::Private(self.payload.as_slice()),
        };
        let answer = room.map(|_| self.answer.as_mut_slice());
        let mut served = Served::<true> {
            state: &mut self.state,
            execution: execution.reborrow(),
        };
        // It has no source here: its outcome goes where its call awaits it.
        let _ = served.run_visit(&counted, visit, invocation, answer);
        self.payload.shrink(64 << 10);
    }

    /// The installed entry, with what counts its invocations, on the terms of the invocation that sent it.
    fn counted(&mut self, sent: &SentEntry, argument: &Argument) -> Option<Counted> {
        let SentEntry { library, terms } = sent;
        let entry = library.installed()?;
        let key = (*library.id(), entry.main_offset());
        if let Some((.., bound)) = self.bound.iter().find(|(id, main, _)| (*id, *main) == key) {
            return Some(bound.counted.clone().on_terms(terms.clone()));
        }
        self.handles += 1;
        let bound = self.state.bind(self.handles, entry, argument);
        let counted = bound.counted.clone().on_terms(terms.clone());
        if self.bound.len() == KEPT {
            self.bound.remove(0);
        }
        self.bound.push((key.0, key.1, bound));
        Some(counted)
    }

    /// Whether nothing is left to do. What waits for a closed window is sent when the node's link reports that.
    pub(super) fn is_quiet(host: &Host) -> bool {
        host.travels.idle();
        host.travels.tick();
        if host.travels.is_ready() {
            host.send_to_nodes();
            host.dial_wanted();
        }
        !host.travels.is_ready() && !host.travels.has_mail()
    }
}

impl Host {
    /// Sends what waits for other nodes, as far as their windows allow.
    pub(super) fn send_to_nodes(&self) {
        let Some(nodes) = self.nodes() else { return };
        let travels = &self.travels;
        let mut from = 0;
        while travels.is_ready()
            && let Some(peer) = travels.ready_peer(from)
        {
            from = peer.saturating_add(1);
            if let Some(connection) = nodes.connection_to(peer) {
                let mut state = connection.lock();
                state.connection.send_to_node();
                state.polled();
            }
        }
    }

    /// Makes the links that the node asked for.
    fn dial_wanted(&self) {
        for peer in self.travels.take_wanted() {
            let is_dialing = self
                .nodes()
                .is_some_and(|nodes| nodes.dial(peer, self.service(), after(DIAL)));
            if !is_dialing {
                self.travels.with(|node| node.lose(peer, now(), |_| true));
            }
        }
    }
}
