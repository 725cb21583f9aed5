//! What a connection keeps for its invocations.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_exec::InstalledEntry;
use ifunc_proto::Closed;
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::host::{Event, Refusal, ReplyTo};

use super::bound::{Bound, Counted, index_of};
use crate::observe::{About, IfuncKey, Pages, SUPPRESSED, SourceMetrics, limited};
use crate::policy::{Meter, SourceInfo};
use crate::target::Host;
use crate::target::answers::TakenBySource;
use crate::target::argument::Argument;
use crate::target::unfinished::Held;
use crate::target::visits::TakenVisit;
use crate::transport::{Link, Peer};

/// State that a connection keeps for its invocations.
pub(in crate::target) struct State {
    pub(in crate::target) source: SourceInfo,
    /// The number of the peer, if it is a node of the group.
    pub(in crate::target) node: Option<u32>,
    /// The number of the link, if the connection may have several.
    pub(in crate::target) link: u64,
    /// Payloads that cannot be used in place are copied here, and that of the invocation that was taken.
    pub(super) scratch: AlignedBuffer,
    /// An invocation that was taken out of the link, to run it after the poll, if there was memory for its payload.
    pub(super) taken: Option<(Counted, ReplyTo, Result<(), Refusal>)>,
    /// One that may travel on.
    pub(super) taken_visit: Option<TakenVisit>,
    /// What its unfinished body holds.
    pub(super) held: Held,
    /// What it may use, and uses.
    pub(in crate::target) meter: Arc<Meter>,
    /// Why the connection is ended: what it sent before is refused with that.
    pub(in crate::target) ending: Option<Refusal>,
    /// The generation of the policy that was last applied.
    pub(in crate::target) reviewed: u64,
    /// A line of the log says that the invocation is refused whose end is reported next.
    has_logged: Cell<bool>,
    /// Its limit of answers, if that is less than the target's.
    _answers: Option<TakenBySource>,
    /// Whether every payload is copied, because the source could change it and is not trusted to leave it unchanged.
    pub(in crate::target) copies_payloads: bool,
    /// Whether answers are written to memory of the target's before they are sent.
    pub(in crate::target) has_private_answers: bool,
    /// Whether the source may read the target's statistics.
    pub(super) may_ask: bool,
    pub(super) pages: Pages,
    /// Parent of the spans of its invocations.
    pub(in crate::target) span: tracing::Span,
    pub(in crate::target) metrics: SourceMetrics,
}

impl State {
    /// Of a link to a source that has just connected.
    pub(in crate::target) fn new(number: u64, link: &Link, host: &Host) -> Self {
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
    pub(in crate::target) fn of_node(number: u64, host: &Host) -> Self {
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
    pub(in crate::target) fn bind(
        &self,
        handle: u32,
        entry: &Arc<InstalledEntry>,
        argument: &Argument,
    ) -> Bound {
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
        Bound::new(counted, metrics, None)
    }

    /// Applies the policy to the connection: whether its peer may stay, the quotas, and each image that it has bound.
    #[cold]
    pub(in crate::target) fn review(
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
            bound.readmit(&self.source, &rules).inspect_err(|refusal| {
                let (reason, detail) = (refusal.reason, &refusal.detail);
                let (ifunc, signer) = (&*bound.counted.entry.name, bound.signer());
                limited!(warn, [parent: &self.span] refused = "installed image", source, ifunc, signer, %reason, %detail, "image released: the policy was replaced");
            })
        });
    }

    /// Whether the unfinished body is overdue. If so, it holds nothing any longer.
    pub(in crate::target) fn is_overdue(&mut self, unfinished: Option<u64>, now: Instant) -> bool {
        let is_overdue = self.held.is_overdue(unfinished, now);
        if is_overdue {
            let _ = self.held.set(0);
            tracing::debug!(parent: &self.span, "dropped a body that was not complete in time");
        }
        is_overdue
    }

    /// Logs that a quota refuses an invocation, before its end is reported.
    #[cold]
    pub(in crate::target) fn refuse(&self, counted: &Counted, signer: Option<&str>, refusal: &Refusal) {
        let (reason, detail) = (refusal.reason, &refusal.detail);
        let (source, ifunc) = (self.source.connection, &*counted.entry.name);
        limited!(warn, [parent: &self.span] refused = "invocation", source, ifunc, signer, %reason, %detail, "invocation refused");
        self.has_logged.set(true);
    }

    /// An invocation was refused. Unless a line says so, it has none: that of its image says why.
    #[cold]
    pub(in crate::target) fn refused(&self, reason: Rejection, detail: &[u8]) {
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
    pub(super) fn exceeded(&self, counted: &Counted, reason: Failure) {
        let (source, ifunc) = (self.source.connection, &*counted.entry.name);
        limited!(warn, [parent: &self.span] source, ifunc, %reason, "invocation failed");
    }

    /// Logs why the connection ended.
    #[cold]
    pub(in crate::target) fn ended(&self, closed: &Closed) {
        match closed {
            Closed::Left => limited!(info, [parent: &self.span] "source left"),
            Closed::Broke(what) => {
                limited!(warn, [parent: &self.span] refused = "frame", %what, "source broke the protocol; closed")
            }
        }
    }

    /// Counts what happened on the connection, and logs what was refused.
    pub(in crate::target) fn observe(&self, event: Event) {
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
