//! The host of every connection: the protocol calls it to install images and to run invocations.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::frame::Header;
use ifunc_abi::rare::rarely;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::TravelHead;
use ifunc_exec::services::now;
use ifunc_exec::{BatchAnswers, BatchEnd, EntryProperties, Executor, ImageExecutor, InstalledEntry, Session};
use ifunc_proto::Closed;
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::host::{
    Answers, Event, Failed, Host as ProtocolHost, Install, Invocation, MalformedFrame, Payload, Refusal,
    ReplyTo, Run, RunEnd, run_each,
};
use ifunc_proto::link::Body;

use super::Host;
use super::accept::{Accepted, Charges};
use super::answers::TakenBySource;
use super::argument::Argument;
use super::companions;
use super::unfinished::Held;
use super::visits::TakenVisit;
use crate::observe::{
    About, HandleCounters, HandleMetrics, IfuncKey, Pages, SUPPRESSED, SourceMetrics, limited, run_observed,
};
use crate::policy::{Allowance, Authority, Limited, Meter, Readmission, Rules, SourceInfo};
use crate::transport::{Link, Peer};
use crate::travel::sent::Terms;

/// Bytes of a copied payload that are kept for the next one, where each invocation has its payload copied.
const KEPT: usize = 64 << 10;
/// Entries of a batch that run one by one in one poll.
const ONE_BY_ONE: usize = 64;

/// State that a connection keeps for its invocations.
pub(super) struct State {
    pub(super) source: SourceInfo,
    /// The number of the peer, if it is a node of the group.
    pub(super) node: Option<u32>,
    /// The number of the link, if the connection may have several.
    pub(super) link: u64,
    /// Payloads that cannot be used in place are copied here, and that of the invocation that was taken.
    scratch: AlignedBuffer,
    /// An invocation that was taken out of the link, to run it after the poll, if there was memory for its payload.
    taken: Option<(Counted, ReplyTo, Result<(), Refusal>)>,
    /// One that may travel on.
    taken_visit: Option<TakenVisit>,
    /// What its unfinished body holds.
    held: Held,
    /// What it may use, and uses.
    pub(super) meter: Arc<Meter>,
    /// Why the connection is ended: what it sent before is refused with that.
    pub(super) ending: Option<Refusal>,
    /// The generation of the policy that was last applied.
    pub(super) reviewed: u64,
    /// A line of the log says that the invocation is refused whose end is reported next.
    has_logged: Cell<bool>,
    /// Its limit of answers, if that is less than the target's.
    _answers: Option<TakenBySource>,
    /// Whether every payload is copied, because the source could change it and is not trusted to leave it unchanged.
    pub(super) copies_payloads: bool,
    /// Whether answers are written to memory of the target's before they are sent.
    pub(super) has_private_answers: bool,
    /// Whether the source may read the target's statistics.
    may_ask: bool,
    pages: Pages,
    /// Parent of the spans of its invocations.
    pub(super) span: tracing::Span,
    pub(super) metrics: SourceMetrics,
}

impl State {
    /// Of a link to a source that has just connected.
    pub(super) fn new(number: u64, link: &Link, host: &Host) -> Self {
        let source = SourceInfo::new(number, &link.peer);
        let node = host.hello.node.and(link.hello.node);
        let answers = host.answers.taken_by(number, link.hello.limits.max_answer);
        let state = Self::of(source, node, link.shares_bodies, &link.waiter.carried_by(), host);
        Self {
            _answers: answers,
            ..state
        }
    }

    /// Of what a node sends to itself.
    pub(super) fn of_node(number: u64, host: &Host) -> Self {
        let peer = Peer {
            uid: Some(rustix::process::geteuid().as_raw()),
            pid: i32::try_from(std::process::id()).ok(),
            key: None,
            certified: None,
        };
        let source = SourceInfo::new(number, &peer);
        Self::of(source, host.hello.node, false, "node", host)
    }

    fn of(source: SourceInfo, node: Option<u32>, shares_bodies: bool, carried_by: &str, host: &Host) -> Self {
        let me = rustix::process::geteuid().as_raw();
        let number = source.connection;
        let lanes = carried_by.split_whitespace().map(Into::into).collect();
        let span = tracing::info_span!(
            "connection",
            source = number,
            uid = source.uid,
            pid = source.pid,
            key = source.key.map(tracing::field::display),
            name = source.name.as_deref(),
            over = carried_by
        );
        limited!(info, [parent: &span] "source connected");
        // A transport that does not know the peer's user trusts every peer that reaches the address, with more than numbers.
        let may_ask = host.share_stats.unwrap_or(source.uid.is_none_or(|uid| uid == me));
        let is_other_user = source.uid != Some(me);
        let metrics = host.metrics.connected(source.clone(), lanes);
        Self {
            source,
            node,
            link: 0,
            scratch: AlignedBuffer::default(),
            taken: None,
            taken_visit: None,
            held: Held::new(&host.unfinished),
            // Larger images are refused by the limit that the source was told.
            meter: Meter::new(
                "this connection",
                host.policy.rules().quotas().image_bytes(usize::MAX),
            ),
            ending: None,
            reviewed: host.policy.generation(),
            has_logged: Cell::new(false),
            _answers: None,
            copies_payloads: host.copy_payloads || is_other_user && shares_bodies,
            has_private_answers: host.copy_payloads || is_other_user,
            may_ask,
            pages: Pages::default(),
            span,
            metrics,
        }
    }

    /// An entry that runs without a connection, and what counts its invocations.
    pub(super) fn bind(&self, handle: u32, entry: &Arc<InstalledEntry>, argument: &Argument) -> Bound {
        let about = About {
            key: IfuncKey {
                id: entry.image().id,
                entry: index_of(entry),
            },
            name: &entry.name,
            size: 0,
        };
        let metrics = self.metrics.bound(handle, about);
        let counters = Arc::clone(&metrics.counters);
        let counted = Counted::new(Arc::clone(entry), counters, argument, false, None);
        let rest = Rest {
            metrics,
            by: None,
            _charges: None,
        };
        Bound {
            counted,
            rest: Box::new(rest),
        }
    }

    /// Applies the policy to the connection: whether its peer may stay, the quotas, and each image that it has bound.
    #[cold]
    pub(super) fn review(
        &mut self,
        host: &Host,
        readmitted: Result<(), Refusal>,
        images: impl FnOnce(&mut dyn FnMut(&mut Bound) -> Result<(), Refusal>),
    ) {
        self.reviewed = host.policy.generation();
        let rules = host.policy.rules();
        self.meter.set_quotas(rules.quotas().image_bytes(usize::MAX));
        self.ending = readmitted.err();
        let source = self.source.connection;
        if let Some(refusal) = &self.ending {
            let (reason, detail) = (refusal.reason, &refusal.detail);
            limited!(warn, [parent: &self.span] refused = "connection", source, %reason, %detail, "ending a connection: the policy was replaced");
        }
        images(&mut |bound| {
            if let Some(refusal) = &self.ending {
                return Err(refusal.clone());
            }
            let Some(by) = &mut bound.rest.by else {
                return Ok(());
            };
            match by.readmit(&bound.counted, &self.source, &rules) {
                Ok((authority, allowance)) => {
                    bound.counted.limit_by(&authority, allowance.as_ref());
                    by.authority = authority;
                    Ok(())
                }
                Err(refusal) => {
                    let (reason, detail) = (refusal.reason, &refusal.detail);
                    let (ifunc, signer) = (&*bound.counted.entry.name, by.authority.signer());
                    limited!(warn, [parent: &self.span] refused = "installed image", source, ifunc, signer, %reason, %detail, "image released: the policy was replaced");
                    Err(refusal)
                }
            }
        });
    }

    /// Whether the unfinished body is overdue. If so, it holds nothing any longer.
    pub(super) fn is_overdue(&mut self, unfinished: Option<u64>, now: Instant) -> bool {
        let is_overdue = self.held.is_overdue(unfinished, now);
        if is_overdue {
            let _ = self.held.set(0);
            tracing::debug!(parent: &self.span, "dropped a body that was not complete in time");
        }
        is_overdue
    }

    /// Logs that a quota refuses an invocation, before its end is reported.
    #[cold]
    pub(super) fn refuse(&self, counted: &Counted, signer: Option<&str>, refusal: &Refusal) {
        let (reason, detail) = (refusal.reason, &refusal.detail);
        let (source, ifunc) = (self.source.connection, &*counted.entry.name);
        limited!(warn, [parent: &self.span] refused = "invocation", source, ifunc, signer, %reason, %detail, "invocation refused");
        self.has_logged.set(true);
    }

    /// An invocation was refused. Unless a line says so, it has none: that of its image says why.
    #[cold]
    pub(super) fn refused(&self, reason: Rejection, detail: &[u8]) {
        if !self.has_logged.take() {
            tracing::debug!(
                target: SUPPRESSED,
                parent: &self.span,
                refused = "invocation",
                source = self.source.connection,
                %reason,
                detail = %String::from_utf8_lossy(detail),
                "invocation refused"
            );
        }
    }

    /// Logs that an invocation failed at a limit of the policy: that of its answer, or of its stack.
    #[cold]
    fn exceeded(&self, counted: &Counted, reason: Failure) {
        let (source, ifunc) = (self.source.connection, &*counted.entry.name);
        limited!(warn, [parent: &self.span] source, ifunc, %reason, "invocation failed");
    }

    /// Logs why the connection ended.
    #[cold]
    pub(super) fn ended(&self, closed: &Closed) {
        match closed {
            Closed::Left => limited!(info, [parent: &self.span] "source left"),
            Closed::Broke(what) => {
                limited!(warn, [parent: &self.span] refused = "frame", %what, "source broke the protocol; closed")
            }
        }
    }
}

/// An entry of an installed image and its counters for this connection.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) counted: Counted,
    /// Apart: what each invocation uses is in one cache line.
    rest: Box<Rest>,
}

// The table of bindings adds a word.
const _: () = assert!(size_of::<Bound>() + size_of::<u64>() <= 64);

/// What invocations of a bound entry do not use.
#[derive(Debug)]
struct Rest {
    metrics: HandleMetrics,
    /// What the next policy asks of it. `None`: it runs by the authority of this node.
    by: Option<InstalledBy>,
    /// What the image counts, until its last entry is released.
    _charges: Option<Arc<Charges>>,
}

/// By what a source's image was installed.
#[derive(Debug)]
struct InstalledBy {
    authority: Arc<Authority>,
    /// The key that signed it, whether the policy knows it or not.
    signed_by: Option<[u8; 32]>,
    /// The size of the image.
    len: usize,
}

impl InstalledBy {
    /// By whose authority the image runs from now on, with what accompanies it, and which allowance it uses beside that.
    ///
    /// # Errors
    /// Why it runs no more.
    fn readmit(
        &self,
        counted: &Counted,
        source: &SourceInfo,
        rules: &Rules,
    ) -> Result<(Arc<Authority>, Option<Allowance>), Refusal> {
        let image = counted.entry.image();
        let names = image.entries.iter().map(|entry| &*entry.name);
        let readmitted = rules.readmit(Readmission {
            source,
            authority: &self.authority,
            signed_by: self.signed_by.as_ref(),
            id: &image.id,
            len: self.len,
            names: &names.collect::<Vec<_>>(),
            imports: &image.import_names().collect::<Vec<_>>(),
            needed: &image.library_names().collect::<Vec<_>>(),
        })?;
        if let Some(kept) = counted.terms.as_ref().and_then(|terms| terms.companions.as_ref()) {
            companions::readmit(kept, source, rules, &self.authority)?;
        }
        Ok(readmitted)
    }
}

/// An entry of an installed image, what counts its invocations, and what every one of them would compute again.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    entry: Arc<InstalledEntry>,
    counters: Arc<HandleCounters>,
    /// The [key](Argument::key) of the target arguments that the entry was found to suit, or [`LIMITED`].
    suits: u64,
    /// Bits that are 0 in the address of a payload that is used in place.
    misplaced: usize,
    /// On what terms each invocation runs, and what it sends.
    terms: Option<Arc<Terms>>,
}

/// No target arguments have this key: each invocation looks at its quotas, and at what it is lent in a runner process. Others pay
/// nothing for that.
const LIMITED: u64 = 0;

impl Counted {
    /// An entry that was accepted for these target arguments.
    fn new(
        entry: Arc<InstalledEntry>,
        counters: Arc<HandleCounters>,
        argument: &Argument,
        copies_payloads: bool,
        terms: Option<Arc<Terms>>,
    ) -> Self {
        let misplaced = if copies_payloads {
            usize::MAX
        } else {
            entry.payload_align - 1
        };
        let suits = match entry.image().is_remote() {
            true => LIMITED,
            false => argument.key,
        };
        let counted = Self {
            entry,
            counters,
            suits,
            misplaced,
            terms: None,
        };
        counted.on_terms(terms)
    }

    /// Runs each invocation on these terms.
    pub(super) fn on_terms(mut self, terms: Option<Arc<Terms>>) -> Self {
        self.set_terms(terms);
        self
    }

    fn set_terms(&mut self, terms: Option<Arc<Terms>>) {
        self.terms = terms;
        if self.limited().is_some() {
            self.suits = LIMITED;
        }
    }

    /// On what terms an invocation runs.
    pub(super) fn terms(&self) -> Option<Arc<Terms>> {
        self.terms.clone()
    }

    /// Whose quotas each invocation counts against.
    fn limited(&self) -> Option<&Limited> {
        self.terms.as_ref()?.limited.as_ref()
    }

    /// Counts each invocation against the quotas of this authority from now on, if it limits them, and against those of the allowance.
    fn limit_by(&mut self, authority: &Arc<Authority>, allowance: Option<&Allowance>) {
        let companions = self.terms.as_ref().and_then(|terms| terms.companions.clone());
        self.set_terms(Terms::new(Limited::new(authority, allowance), companions));
    }
}

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
            let rest = Rest {
                metrics,
                by: Some(InstalledBy {
                    authority: Arc::clone(&authority),
                    signed_by,
                    len: size,
                }),
                _charges: Some(Arc::clone(&charges)),
            };
            Bound {
                counted,
                rest: Box::new(rest),
            }
        });
        Ok(bound.collect())
    }

    fn has_id(&mut self, bound: &Bound, id: &ImageId) -> bool {
        let is_same = bound.counted.entry.image().id == *id;
        if is_same {
            self.state.metrics.bound_again(&bound.rest.metrics);
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

impl State {
    pub(super) fn observe(&self, event: Event) {
        let (metrics, link) = (&self.metrics, &self.metrics.link);
        match event {
            Event::Frame => link.other_frames.add(1),
            Event::ImageBytes(bytes) => link.rare().bytes_in += bytes as u64,
            Event::Refused(reason) => {
                limited!(warn, [parent: &self.span] refused = "image", source = self.source.connection, %reason, "image refused");
                metrics.refused(reason, None);
            }
            Event::Failed {
                status,
                payload,
                detail,
            } => {
                let mut counts = link.rare();
                match status {
                    // The handle counts the payload.
                    Status::Failed(why) => counts.failed.add(why, 1),
                    Status::Rejected(why) => {
                        // A source is told the limit, and refuses itself what exceeds it.
                        if why == Rejection::TooLarge && payload > self.meter.quotas().payload_bytes {
                            limited!(warn, [parent: &self.span] refused = "invocation", source = self.source.connection, payload, reason = %why, "invocation refused");
                            self.has_logged.set(true);
                        }
                        counts.rejected.add(why, 1);
                        counts.bytes_in += payload as u64;
                    }
                    Status::Executed => {}
                }
                counts.bytes_out += detail as u64;
            }
            Event::ReplyBytes(bytes) => link.rare().bytes_out += bytes as u64,
            Event::Stalled(is_stalled) => link.stalled(is_stalled),
        }
    }
}

impl<const TAKES: bool> Served<'_, '_, TAKES> {
    /// Runs the invocation that the poll took, if it took one. Returns the length of what it wrote to `answer`, if the peer
    /// receives that over this link.
    pub(super) fn run_taken(
        &mut self,
        answer: &mut AlignedBuffer,
    ) -> Option<(ReplyTo, Result<usize, Box<Failed>>)> {
        if let Some(taken) = self.state.taken_visit.take() {
            let payload = std::mem::take(&mut self.state.scratch);
            let outcome = self.run_taken_visit(taken, payload.as_slice(), answer);
            if payload.len() <= KEPT {
                self.state.scratch = payload;
            }
            return outcome;
        }
        let (counted, reply_to, has_memory) = self.state.taken.take()?;
        if let Err(refusal) = has_memory {
            return Some((reply_to, Err(refusal.into())));
        }
        let payload = std::mem::take(&mut self.state.scratch);
        let invocation = reply_to.invocation(payload.as_slice());
        let max_answer = reply_to.max_answer();
        answer.resize(max_answer.unwrap_or(0));
        let outcome = self.run(&counted, invocation, max_answer.map(|_| answer.as_mut_slice()));
        if payload.len() <= KEPT {
            self.state.scratch = payload;
        }
        Some((reply_to, outcome))
    }

    /// Runs an invocation of an image that was accepted, and counts it.
    #[inline(always)]
    pub(super) fn run<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        if counted.suits != self.execution.argument.key {
            return rarely(move || self.run_unusual(counted, invocation, answer));
        }
        self.run_suited(counted, invocation, answer)
    }

    /// Runs an invocation that has quotas or runs in another process, or of an entry that was bound for other target arguments.
    fn run_unusual<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let (entry, executor) = (&*counted.entry, &self.execution.host.executor);
        if !self.execution.argument.suits(executor, entry) {
            return Err(unsuited(executor, entry, &self.execution.argument));
        }
        if entry.image().is_remote() {
            // SAFETY: they are of the type that the text describes. If they are copied, every content is a value of it, and `poll` borrows
            // them for this thread alone, as it does unless they are shared. `suits` compared the methods that the image imports.
            unsafe { self.execution.session.lend(self.execution.argument.lent()) };
        }
        let Some(limited) = counted.limited() else {
            return self.run_suited(counted, invocation, answer);
        };
        let begun = limited.begin(invocation.payload.len());
        let (run_time, _running) =
            begun.inspect_err(|refusal| self.state.refuse(counted, limited.signer(), refusal))?;
        let max = limited.max_answer();
        let answer = answer.map(|answer| {
            let len = answer.len().min(max);
            &mut answer[..len]
        });
        if run_time.is_some() {
            executor.limit_run_time(&mut self.execution.session, run_time);
        }
        let outcome = self.run_suited(counted, invocation, answer);
        if run_time.is_some() {
            executor.limit_run_time(&mut self.execution.session, None);
        }
        let failed = match outcome {
            Err(failed) => failed,
            executed => return executed,
        };
        // A long answer lies in memory of its own.
        match failed.answer.as_ref().map(|answer| answer.bytes().len()) {
            Some(len) if len > max => {
                self.state.exceeded(counted, Failure::Answer);
                let why = limited.exceeded_by_answer(len);
                Err(Box::new(Failed::new(
                    Status::Failed(Failure::Answer),
                    why.into_bytes(),
                )))
            }
            _ => Err(failed),
        }
    }

    /// Runs an invocation of an entry that suits the target arguments.
    #[inline(always)]
    fn run_suited<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let Self { state, execution } = self;
        let (entry, counters) = (&*counted.entry, &*counted.counters);
        let Invocation {
            sequence,
            is_batched,
            payload,
        } = invocation;
        let size = payload.len();
        let mut ptr = payload.as_ptr();
        if ptr.addr() & counted.misplaced != 0 {
            ptr = state.placed(entry, payload);
        }
        let invocation = move |argument: &Argument, source: &SourceInfo| {
            let (target, sender) = (argument.target, source.connection);
            // SAFETY: the policy accepted the image when it was installed. Its target type was compared with that of the
            // target arguments, now or by their key. A payload stays readable until its frame is released, after this call, and a
            // copy until the next one; it is aligned.
            unsafe { ifunc_exec::Invocation::new(&*counted.entry, ptr, size, target, sender) }
        };
        if is_batched {
            counters.batched(1);
        }
        if counters.is_due() || tracing::level_enabled!(tracing::Level::TRACE) {
            return rarely(move || {
                let invocation = invocation(&self.execution.argument, &self.state.source);
                self.run_timed(counted, invocation, size, sequence, answer)
            });
        }
        let is_answered = answer.is_some();
        let (session, argument, source) = (&mut execution.session, &execution.argument, &state.source);
        match ImageExecutor::run(session, move || invocation(argument, source), answer) {
            Ok(len) => {
                counters.executed(size, is_answered.then_some(len));
                Ok(len)
            }
            Err(failed) => {
                self.not_in_place(counted, size, &failed);
                Err(failed)
            }
        }
    }

    /// Runs an invocation that is timed or traced, and counts it.
    fn run_timed(
        &mut self,
        counted: &Counted,
        invocation: ifunc_exec::Invocation<'_>,
        size: usize,
        sequence: u32,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let (span, counters) = (&self.state.span, &*counted.counters);
        let outcome = run_observed(
            span,
            counters,
            &mut self.execution.session,
            invocation,
            sequence,
            answer,
        );
        match &outcome {
            Ok(len) => counters.executed(size, Some(*len)),
            Err(failed) => self.not_in_place(counted, size, failed),
        }
        outcome
    }

    /// Runs entries of a run in one crossing of the call gate, and counts them. One that is timed or traced, and those of an
    /// image without a function for batches, are run one by one.
    fn run_batch<B: Body>(
        &mut self,
        counted: &Counted,
        bound: &Bound,
        run: Run<B>,
        answers: Option<Answers<'_>>,
    ) -> RunEnd {
        let (entry, counters) = (&*counted.entry, &*counted.counters);
        let suits = counted.suits == self.execution.argument.key
            || counted.limited().is_none()
                && self
                    .execution
                    .argument
                    .suits(&self.execution.host.executor, entry);
        if !ImageExecutor::has_batch(entry) || !suits || tracing::level_enabled!(tracing::Level::TRACE) {
            return run_each(self, bound, run.part(0, run.count.min(ONE_BY_ONE)), answers);
        }
        let count = counters.together(run.count);
        if count == 0 {
            return run_each(self, bound, run.part(0, run.count.min(counters.timed())), answers);
        }
        let (state, session) = (&mut *self.state, &mut self.execution.session);
        let (mut ptr, mut stride) = (run.payloads.as_ptr(), run.stride);
        if (ptr.addr() | stride) & counted.misplaced != 0 {
            match state.placed_run(entry, &run.part(0, count)) {
                Some(placed) => (ptr, stride) = placed,
                // Each alone may have memory.
                None => return run_each(self, bound, run.part(0, count.min(ONE_BY_ONE)), answers),
            }
        }
        let (target, sender) = (self.execution.argument.target, state.source.connection);
        // SAFETY: as in `run`, for each entry: payloads lie `stride` bytes apart, and each is aligned.
        let batch = unsafe {
            let first = ifunc_exec::Invocation::new(entry, ptr, run.len, target, sender);
            ifunc_exec::Batch::new(first, stride, count)
        };
        let mut answers = answers.map(|answers| BatchAnswers {
            memory: answers.memory,
            max_answer: answers.max_answer,
            lens: answers.lens,
        });
        let borrowed = answers.as_mut().map(|answers| BatchAnswers {
            memory: answers.memory,
            max_answer: answers.max_answer,
            lens: answers.lens,
        });
        let BatchEnd { executed, failed } = ImageExecutor::run_batch(session, batch, borrowed);
        let answered = answers.map_or(0, |answers| {
            let lens = &answers.lens[..executed];
            lens.iter().map(|&len| len as usize).sum()
        });
        counters.executed_together(executed, run.len, answered);
        if run.is_batched {
            counters.batched(executed + usize::from(failed.is_some()));
        }
        if let Some(failed) = &failed {
            self.not_in_place(counted, run.len, failed);
        }
        RunEnd { executed, failed }
    }

    /// Counts an invocation that has no answer in the memory that it was lent.
    #[cold]
    #[inline(never)]
    fn not_in_place(&self, counted: &Counted, size: usize, failed: &Failed) {
        match &failed.answer {
            Some(answer) => counted.counters.executed(size, Some(answer.bytes().len())),
            None => self.failed(counted, size, failed),
        }
    }

    /// Counts and logs an invocation that has no answer, and calls the host's hook if it ended early.
    fn failed(&self, counted: &Counted, size: usize, failed: &Failed) {
        let (state, ifunc) = (&*self.state, &*counted.entry.name);
        counted.counters.failed(size);
        match failed.status {
            Status::Failed(why @ (Failure::Answer | Failure::StackLow)) => state.exceeded(counted, why),
            Status::Failed(why) => tracing::debug!(
                parent: &state.span, ifunc, source = state.source.connection, %why, "invocation failed"
            ),
            _ => {}
        }
        self.execution
            .host
            .escaped(&self.execution.argument, &state.source, ifunc, failed);
    }
}

impl State {
    /// Where a payload is read that may have to be copied. What is copied fits into a frame, whose size this target chose.
    #[cold]
    fn placed(&mut self, entry: &EntryProperties, payload: Payload<'_, impl Body>) -> *const u8 {
        if entry.is_aligned(payload.as_ptr()) && !(self.copies_payloads && payload.is_in_place()) {
            return payload.as_ptr();
        }
        self.scratch.resize(payload.len());
        payload.copy_to(self.scratch.as_mut_slice());
        self.scratch.as_slice().as_ptr()
    }

    /// Copies the payloads of a run, so that each is aligned. Returns the first one and their distance; `None`: there is no
    /// memory for them.
    #[cold]
    fn placed_run(&mut self, entry: &EntryProperties, run: &Run<impl Body>) -> Option<(*const u8, usize)> {
        let is_placed = run.stride & (entry.payload_align - 1) == 0;
        let stride = if is_placed {
            run.stride
        } else {
            run.len.next_multiple_of(entry.payload_align)
        };
        self.scratch.try_resize(stride * run.count)?;
        let memory = self.scratch.as_mut_slice();
        if is_placed {
            run.payloads.copy_to(&mut memory[..run.payloads.len()]);
        } else {
            for index in 0..run.count {
                let payload = run.invocation(index).payload;
                payload.copy_to(&mut memory[index * stride..][..run.len]);
            }
        }
        Some((self.scratch.as_slice().as_ptr(), stride))
    }
}

/// The index of an entry in its image.
fn index_of(entry: &InstalledEntry) -> u8 {
    let entries = &entry.image().entries;
    let index = entries.iter().position(|other| other.main == entry.main_offset());
    index.unwrap_or_default() as u8
}

/// A copy of a payload, aligned for any image.
fn copied(scratch: &mut AlignedBuffer, payload: Payload<'_, impl Body>) -> Result<(), Refusal> {
    let size = payload.len();
    scratch.try_resize(size).ok_or_else(|| {
        Refusal::new(
            Rejection::Resources,
            format!("it has no memory for a payload of {size} bytes"),
        )
    })?;
    payload.copy_to(scratch.as_mut_slice());
    Ok(())
}

/// Why an entry does not run on these target arguments.
#[cold]
fn unsuited(executor: &ImageExecutor, entry: &InstalledEntry, argument: &Argument) -> Box<Failed> {
    if !argument.has_type(executor, entry.target) {
        return argument.wrong_target(executor, entry.target).into();
    }
    if let Err(refusal) = argument.admits_imports(executor, entry.image().import_names()) {
        return refusal.into();
    }
    Refusal::new(Rejection::NotShareable, NOT_SHAREABLE).into()
}

pub(super) const NOT_SHAREABLE: &str = "this target serves on several threads, and the ifunc takes its data for itself alone; help: take `&T` of a type that is `Sync` (atomics, or an opaque type with host functions that take `&T`), in C say `IFUNC_SHAREABLE(name)`, or let the target `serve`";
