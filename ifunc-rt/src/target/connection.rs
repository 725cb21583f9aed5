//! One source, as its target sees it: frames in order, and how much of them in a turn.

use std::ffi::c_void;
use std::sync::Arc;

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::image::ImageFlags;
use ifunc_proto::link::Body as _;

use self::batch::Look;
use self::quick::quick;
use self::state::State;
use super::Host;
use super::replies::Replies;
use crate::observe::Pages;
use crate::policy::SourceInfo;
use crate::policy::TargetType;
use crate::transport::{Inbound, Incoming, Key, Link, LinkError, Park, Rx, Waiter, with_end};
use crate::wire::assembly::Assembly;
use crate::wire::order::{Order, Turn};
use ifunc_exec::InstalledImage;
use ifunc_exec::Session;
use ifunc_proto::buffer::AlignedBuffer;

mod batch;
mod binding;
mod exec;
mod install;
mod quick;
mod state;

/// A connection that is over, and why.
#[derive(Debug)]
pub(super) enum End {
    /// The source left; everything it had sent was run.
    Left,
    /// The source broke the protocol.
    Broke(String),
}

// Boxed: what nearly never happens travels in a register through what happens for every frame.
impl From<LinkError> for Box<End> {
    fn from(gone: LinkError) -> Self {
        Box::new(match gone {
            LinkError::Closed => End::Left,
            LinkError::Malformed(what) => End::Broke(what.into()),
        })
    }
}

/// What invocations run on.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub(super) target_type: TargetType,
    pub(super) target: *mut c_void,
    /// Others run on it at the same time.
    pub(super) shared: bool,
}

impl Argument {
    /// Whether an image can run on it.
    #[inline]
    fn suits(&self, image: &InstalledImage) -> bool {
        (image.target == 0 || image.target == self.target_type.fingerprint)
            // Bound while the target served on one thread.
            && (!self.shared || image.flags.contains(ImageFlags::SHARED))
    }
}

/// How much of a connection is looked at before the next one has its turn: so many frames and entries of batches, or bodies of
/// [`SHARE_BYTES`] bytes.
const SHARE: usize = 64;
/// By how much the invocations of a turn grow of a connection that has used up its last one.
const RUNS_GROW: usize = 4;
/// How many frames an image counts for, however small it is.
const INSTALL: usize = 8;
/// Bytes of bodies in a turn: as many as a processor copies in the time that 64 small invocations take.
const SHARE_BYTES: usize = 256 << 10;

pub(super) struct Connection {
    rx: Incoming,
    replies: Replies,
    /// Holds the transport's end of the connection open.
    waiter: Arc<dyn Waiter>,
    order: Order,
    state: State,
    /// The last look found a frame that has to wait for room.
    stalled: bool,
    /// It is over, and the last look dealt with something before it was.
    end: Option<Box<End>>,
    key: Key,
    /// A frame was found since [`take_busy`](Self::take_busy) asked.
    busy: bool,
    /// How many invocations its next turn has.
    runs: usize,
}

impl Connection {
    pub(super) fn new(number: u64, link: Link, host: &Host) -> Self {
        let me = rustix::process::geteuid().as_raw();
        let foreign = link.peer.uid != Some(me);
        let copy_payloads = host.copy_payloads || foreign;
        // Where nobody knows whose a peer is, whoever reaches the address is trusted with more than numbers.
        let may_ask = host
            .share_stats
            .unwrap_or(link.peer.uid.is_none_or(|uid| uid == me));
        let source = SourceInfo::new(number, &link.peer);
        let carried_by = link.waiter.carried_by();
        let lanes = carried_by.split_whitespace().map(Into::into).collect();
        let span = tracing::info_span!(
            "connection",
            source = number,
            uid = source.uid,
            pid = source.pid,
            over = carried_by
        );
        tracing::info!(parent: &span, "source connected");
        Self {
            runs: SHARE.min(link.rx.first_quantum()),
            rx: link.rx,
            replies: Replies::new(link.tx, host.limits.max_answer, copy_payloads),
            waiter: link.waiter,
            order: Order::new(),
            state: State {
                source,
                bindings: Vec::new(),
                assembly: Assembly::default(),
                scratch: AlignedBuffer::default(),
                batch_at: 0,
                copy_payloads,
                may_ask,
                pages: Pages::default(),
                span,
                metrics: host.metrics.connected(source, lanes),
            },
            stalled: false,
            end: None,
            key: link.key,
            busy: true,
        }
    }

    /// What carries it, by the transport's own account.
    pub(super) fn carried_by(&self) -> String {
        self.waiter.carried_by()
    }

    pub(super) fn source(&self) -> &SourceInfo {
        &self.state.source
    }

    /// Says why it is over.
    pub(super) fn ended(&self, end: &End) {
        match end {
            End::Left => tracing::info!(parent: &self.state.span, "source left"),
            End::Broke(what) => {
                tracing::warn!(parent: &self.state.span, %what, "source broke the protocol; closed")
            }
        }
    }

    /// By which the listener names it.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Whether a frame was found since the last time this was asked.
    pub(super) fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.busy)
    }

    /// Whether a look would find something. If not, the source gets its credits.
    pub(super) fn has_work(&mut self) -> bool {
        let some = self.end.is_some()
            || self.order.has_parked()
            || self.replies.owes()
            || !matches!(self.rx.peek(), Ok(None));
        if !some {
            self.rx.settle();
        }
        some
    }

    /// Looks at a fair share of what has arrived, and returns how many frames and entries of batches were dealt with.
    ///
    /// # Errors
    /// The connection is over. What was dealt with before is counted first: the next look says it.
    pub(super) fn poll(
        &mut self,
        host: &Host,
        session: &mut Session<'_>,
        argument: Argument,
    ) -> Result<usize, Box<End>> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        let Self {
            rx,
            replies,
            order,
            state,
            stalled,
            ..
        } = self;
        let was_stalled = std::mem::take(stalled);
        let mut share = Share::of(self.runs);
        let parts = Parts {
            replies,
            order,
            state,
            stalled,
            share: &mut share,
        };
        let looked = with_end!(rx, rx => look(rx, parts, host, session, &argument));
        if let Err(end) = looked {
            if share.done == 0 {
                return Err(end);
            }
            self.end = Some(end);
        }
        self.runs = if share.is_used_up() {
            SHARE.min(self.runs * RUNS_GROW)
        } else {
            SHARE.min(self.rx.first_quantum())
        };
        if self.stalled || was_stalled {
            self.state.metrics.link.stalled(self.stalled);
        }
        self.busy |= share.done > 0;
        Ok(share.done)
    }

    /// Announces that nobody looks here until the listener says so. It holds behind the listener's fence.
    pub(super) fn rest(&mut self) {
        self.rx.park();
    }

    /// Whether there is nothing to do. Asked behind the fence.
    pub(super) fn is_quiet(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        // What waits is known; what matters is room for its answer.
        if self.stalled {
            self.replies.is_full()
        } else {
            self.order.parked().is_none() && self.rx.is_idle()
        }
    }

    /// It is looked at again.
    pub(super) fn wake(&mut self) {
        self.rx.disarm();
        self.busy = true;
    }
}

/// What a turn needs of a connection beside the frames.
struct Parts<'a> {
    replies: &'a mut Replies,
    order: &'a mut Order,
    state: &'a mut State,
    stalled: &'a mut bool,
    share: &'a mut Share,
}

/// One poll of the link. Compiled for each kind of transport.
fn look<R: Rx>(
    rx: &mut R,
    mut parts: Parts<'_>,
    host: &Host,
    session: &mut Session<'_>,
    argument: &Argument,
) -> Result<(), Box<End>> {
    rx.begin_poll();
    let looked = match quick(rx, &mut parts, host, session, argument) {
        // No frame is left, and nothing is owed.
        Ok(true) => {
            rx.settle();
            Ok(())
        }
        Ok(false) => turn(rx, &mut parts, host, session, argument),
        Err(end) => Err(end),
    };
    rx.end_poll(parts.share.done);
    looked
}

/// Deals with what has arrived, until the share is used up.
fn turn<R: Rx>(
    rx: &mut R,
    parts: &mut Parts<'_>,
    host: &Host,
    session: &mut Session<'_>,
    argument: &Argument,
) -> Result<(), Box<End>> {
    let Parts {
        replies,
        order,
        state,
        stalled,
        share,
    } = parts;
    while !share.is_used_up() {
        if let Some(parked) = order.parked() {
            let header = Header::parse(parked.words).map_err(broke)?;
            if !replies.admit(header.token)? {
                **stalled = true;
                break;
            }
            let sequence = order.next();
            if header.kind == Kind::Batch {
                // It stays where it is until it is through.
                let arrived = parked.arrived(sequence);
                let look = state.batch(replies, host, session, argument, header, &arrived, share)?;
                if look != Look::Through {
                    **stalled = look == Look::Stalled;
                    break;
                }
                order.take_next();
                order.advance();
            } else if let Some(parked) = order.take_next() {
                order.advance();
                let arrived = parked.arrived(sequence);
                share.take_frame(header, arrived.body.len(), &state.assembly);
                state.late_frame(replies, host, session, argument, header, &arrived)?;
            }
            continue;
        }
        let Some(arrived) = rx.peek()? else { break };
        match order.turn(arrived.sequence) {
            Turn::Now => {
                let header = Header::parse(arrived.words).map_err(broke)?;
                if !replies.admit(header.token)? {
                    **stalled = true;
                    break;
                }
                if header.kind == Kind::Batch {
                    let look = state.batch(replies, host, session, argument, header, &arrived, share)?;
                    if look != Look::Through {
                        **stalled = look == Look::Stalled;
                        break;
                    }
                    order.advance();
                } else {
                    // Before it runs: whatever happens then, it is not run twice.
                    order.advance();
                    share.take_frame(header, arrived.body.len(), &state.assembly);
                    state.frame(replies, host, session, argument, header, &arrived)?;
                }
            }
            Turn::Later => order
                .park(&arrived)
                .map_err(|_| broke("more frames ahead of their turn than there are credits"))?,
            Turn::Past => {}
        }
        rx.release();
    }
    // Nobody may send another frame for it to go before.
    if replies.owes() && !**stalled {
        **stalled = !replies.flush()?;
    }
    if !share.is_used_up() {
        rx.settle();
    }
    Ok(())
}

/// What a connection has used of its turn.
struct Share {
    /// In frames.
    used: usize,
    /// Frames and entries of batches that were dealt with.
    done: usize,
    /// Invocations that travelled by themselves.
    runs: usize,
    most_runs: usize,
}

impl Share {
    fn of(most_runs: usize) -> Self {
        Self {
            used: 0,
            done: 0,
            runs: 0,
            most_runs,
        }
    }

    /// For an entry of a batch, or a small frame.
    #[inline]
    fn take(&mut self, bytes: usize) {
        self.used += 1 + bytes / (SHARE_BYTES / SHARE);
        self.done += 1;
    }

    /// How many invocations of the usual kind it has left.
    #[inline]
    fn left(&self) -> usize {
        SHARE
            .saturating_sub(self.used)
            .min(self.most_runs.saturating_sub(self.runs))
    }

    /// For an invocation of the usual kind.
    #[inline]
    fn take_run(&mut self) {
        self.used += 1;
        self.done += 1;
        self.runs += 1;
    }

    /// For a frame that is no batch.
    #[inline]
    fn take_frame(&mut self, header: Header, bytes: usize, assembly: &Assembly) {
        self.take(bytes);
        if header.kind == Kind::Exec {
            self.runs += 1;
        } else {
            self.take_more(header, assembly);
        }
    }

    #[cold]
    fn take_more(&mut self, header: Header, assembly: &Assembly) {
        match header.kind {
            Kind::Install => {
                self.used += INSTALL - 1;
                if header.flags.contains(FrameFlags::ASSEMBLED) {
                    // Hashed, judged and copied as a whole.
                    self.used += assembly.len() / (SHARE_BYTES / SHARE);
                }
            }
            // Everything is added up, of all sources.
            Kind::Stats => self.used += SHARE - 1,
            _ => {}
        }
    }

    #[inline]
    fn is_used_up(&self) -> bool {
        self.used >= SHARE || self.runs >= self.most_runs
    }
}

fn broke(error: impl std::fmt::Display) -> Box<End> {
    Box::new(End::Broke(error.to_string()))
}
