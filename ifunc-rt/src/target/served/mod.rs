//! The host of every connection: the protocol calls it to install images and to run invocations.

mod bound;
mod run;
mod state;

use std::sync::Arc;
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::frame::Header;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use ifunc_exec::services::now;
use ifunc_exec::{Executor, ImageExecutor, Session};
use ifunc_proto::host::{
    Answers, Event, Failed, Host as ProtocolHost, Install, Invocation, MalformedFrame, Refusal, ReplyTo, Run,
    RunEnd,
};
use ifunc_proto::link::Body;

pub(crate) use self::bound::Bound;
pub(super) use self::bound::Counted;
use self::bound::InstalledBy;
pub(super) use self::run::NOT_SHAREABLE;
use self::run::copied;
pub(super) use self::state::State;
use super::Host;
use super::accept::Accepted;
use super::argument::Argument;
use super::visits::TakenVisit;
use crate::observe::{About, IfuncKey};
use crate::policy::Limited;
use crate::travel::sent::Terms;

/// What invocations run with during a poll: the node, the thread, and the target arguments.
pub(super) struct Execution<'a> {
    pub(super) host: &'a Host,
    pub(super) session: Session<'a>,
    pub(super) argument: Argument,
}

impl Execution<'_> {
    /// The same, borrowed: for one of several connections, or for a function that is not inlined. If that took the original, the fast path
    /// would write it to memory, too.
    #[inline]
    pub(super) fn reborrow(&mut self) -> Execution<'_> {
        Execution {
            host: self.host,
            session: self.session.reborrow(),
            argument: self.argument,
        }
    }
}

/// A connection's host, for one poll. If it `TAKES` invocations, it runs each after the poll.
pub(super) struct Served<'a, 'e, const TAKES: bool> {
    pub(super) state: &'a mut State,
    pub(super) execution: Execution<'e>,
}

impl<const TAKES: bool> ProtocolHost for Served<'_, '_, TAKES> {
    type Image = Bound;

    const TAKES: bool = TAKES;

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Bound>, Refusal> {
        // Before the thread runs anything: a target may have moved between threads.
        self.execution.session.prepare_thread();
        let Accepted {
            image,
            authority,
            allowance,
            charges,
            signed_by,
            companions,
        } = self.accept(&install)?;
        let terms = Terms::new(Limited::new(&authority, allowance.as_ref()), companions);
        let (first, size) = (install.handle, install.image.len());
        self.state.metrics.installed();
        let entries = ImageExecutor::entries(&image).enumerate();
        let bound = entries.map(|(index, entry)| {
            let key = IfuncKey {
                id: image.id,
                entry: index as u8,
            };
            let name = &entry.name;
            let about = About { key, name, size };
            let metrics = self.state.metrics.bound(first + index as u32, about);
            let counters = Arc::clone(&metrics.counters);
            let copies_payloads = self.state.copies_payloads;
            let counted = Counted::new(
                entry,
                counters,
                &self.execution.argument,
                copies_payloads,
                terms.clone(),
            );
            let by = InstalledBy {
                authority: Arc::clone(&authority),
                signed_by,
                len: size,
                _charges: Arc::clone(&charges),
            };
            Bound::new(counted, metrics, Some(by))
        });
        Ok(bound.collect())
    }

    fn has_id(&mut self, bound: &Bound, id: &ImageId) -> bool {
        let is_same = bound.counted.entry.image().id == *id;
        if is_same {
            self.state.metrics.bound_again(bound.metrics());
        }
        is_same
    }

    #[inline(always)]
    fn invoke<B: Body>(
        &mut self,
        bound: &Bound,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        self.run(&bound.counted, invocation, answer)
    }

    fn invoke_run<B: Body>(&mut self, bound: &Bound, run: Run<B>, answers: Option<Answers<'_>>) -> RunEnd {
        self.run_batch(&bound.counted, bound, run, answers)
    }

    fn take<B: Body>(&mut self, bound: &Bound, invocation: &Invocation<'_, B>, reply_to: ReplyTo) {
        let has_memory = copied(&mut self.state.scratch, invocation.payload);
        self.state.taken = Some((bound.counted.clone(), reply_to, has_memory));
    }

    fn admits_travel(&mut self) -> bool {
        let admits = self.execution.host.travels.admits();
        if !admits {
            self.execution.host.travels.hold();
        }
        admits
    }

    fn travel<B: Body>(
        &mut self,
        bound: &Bound,
        invocation: Invocation<'_, B>,
        head: &TravelHead,
        reply_to: ReplyTo,
        answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        if !TAKES {
            return self.visit(&bound.counted, invocation, head, &reply_to, answer);
        }
        let has_memory = copied(&mut self.state.scratch, invocation.payload).map(drop);
        self.state.taken_visit = Some(TakenVisit {
            counted: bound.counted.clone(),
            head: *head,
            reply_to,
            has_memory,
        });
        Ok(None)
    }

    fn reject_travel(
        &mut self,
        head: &TravelHead,
        reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        self.reject_visit(head, reply_to, failed)
    }

    fn finish(&mut self, scope: u32, reply_to: ReplyTo) -> Result<(), Refusal> {
        let (connection, origin) = (self.state.source.connection, self.state.origin(reply_to));
        self.execution
            .host
            .travels
            .with(|node| node.finish(connection, scope, origin, now()));
        Ok(())
    }

    fn grant(&mut self, token: u64, count: u32) {
        let connection = self.state.source.connection;
        self.execution
            .host
            .travels
            .with(|node| node.grant(connection, token, count));
    }

    fn cancel(&mut self, token: u64) {
        let connection = self.state.source.connection;
        self.execution
            .host
            .travels
            .with(|node| node.cancel(connection, token));
    }

    fn node_frame(&mut self, header: Header, body: &[u8]) -> Result<(), MalformedFrame> {
        let Some(from) = self.state.node else {
            return Err(MalformedFrame("a frame between nodes, and this target is none"));
        };
        self.execution
            .host
            .travels
            .with(|node| node.receive(from, header, body, now()))
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        let state = &mut *self.state;
        if !state.may_ask {
            let why = "this target does not tell what it counts; help: `Target::builder().share_stats(true)` on the target";
            return (Status::Rejected(Rejection::Policy), why.into());
        }
        let (metrics, connection) = (&state.metrics.metrics, state.source.connection);
        state.pages.page(metrics, connection, offset, max, Instant::now())
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.state.held.set(bytes)
    }

    fn observe(&mut self, event: Event) {
        self.state.observe(event);
    }

    fn refused(&mut self, reason: Rejection, detail: &[u8]) {
        self.state.refused(reason, detail);
    }
}

/// Counts what is sent over a connection outside of its polls.
pub(super) struct Counts<'a>(pub(super) &'a State);

impl ProtocolHost for Counts<'_> {
    type Image = Bound;

    fn install(&mut self, _: Install<'_>) -> Result<Vec<Bound>, Refusal> {
        Err(Refusal::new(
            Rejection::Policy,
            "nothing is installed outside of a poll",
        ))
    }

    fn has_id(&mut self, bound: &Bound, id: &ImageId) -> bool {
        bound.counted.entry.image().id == *id
    }

    fn invoke<B: Body>(
        &mut self,
        _: &Bound,
        _: Invocation<'_, B>,
        _: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        Err(Refusal::new(Rejection::Policy, "nothing runs outside of a poll").into())
    }

    fn stats(&mut self, _: u32, _: usize) -> (Status, Vec<u8>) {
        (Status::Rejected(Rejection::Policy), Vec::new())
    }

    fn observe(&mut self, event: Event) {
        self.0.observe(event);
    }

    fn refused(&mut self, reason: Rejection, detail: &[u8]) {
        self.0.refused(reason, detail);
    }
}
