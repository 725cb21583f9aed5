//! The serving half of a connection: handles that the peer bound to images, and the requests that use them.

use ifunc_abi::Counted;
use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{CompanionHead, FrameFlags, Header, InstallHead, Kind, Limits, MAX_COMPANIONS};
use ifunc_abi::rare::outlined;
use ifunc_abi::signature::Signature;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::{ReplyHead, TravelHead};
use zerocopy::{FromZeros, IntoBytes};

use crate::assembly::Assembly;
use crate::closed::Closed;
use crate::gathered::MAX_ANSWERS;
use crate::host::{Event, Failed, Host, Invocation, Payload, Refusal, ReplyTo, Run, report_failed};
use crate::link::{Body, Frame, Outbound};
use crate::order::{MAX_TOGETHER, Order, Quantum};
use crate::replies::Replies;

mod bindings;
mod install;
#[cfg(test)]
mod tests;
mod travel;

use bindings::{Binding, Bindings};

/// What an `Install` has beside the bytes of images: heads and signatures.
pub(crate) const INSTALL_HEADS: usize =
    InstallHead::SIZE + 1024 + MAX_COMPANIONS * (CompanionHead::SIZE + Signature::SIZE);

/// Most bytes of a frame between nodes that carries neither a payload nor an answer.
pub(crate) const MAX_NODE_FRAME: usize = 32 << 10;

/// How a node serves a connection.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// What it accepts.
    pub limits: Limits,
    /// Handles that the peer may bind.
    pub max_handles: usize,
    /// Whether answers are written to private memory first, because the peer is not trusted with half-written ones.
    pub has_private_answers: bool,
}

/// The images that the peer installed.
#[derive(Debug)]
pub(crate) struct Images<B> {
    bindings: Bindings<B>,
    config: ServerConfig,
    /// The body that comes in fragments.
    assembly: Assembly,
    /// Length of the longest answer.
    longest_answer: usize,
    /// Most bytes of a frame between nodes; 0: the peer is no node.
    max_node_frame: usize,
    /// A copy of the image, or of the frame from a node, that is processed.
    copy: Vec<u8>,
}

/// Why an invocation has no answer.
pub(crate) enum Unanswered {
    Failed(Box<Failed>),
    /// The peer broke the protocol.
    Closed(Box<Closed>),
    /// The host took it, and answers later.
    Taken,
}

impl Unanswered {
    /// Counts an invocation that failed, with a payload of `payload` bytes. `None`: the host took it.
    #[cold]
    pub(crate) fn failed(
        self,
        host: &mut impl Host,
        payload: usize,
    ) -> Result<Option<Box<Failed>>, Box<Closed>> {
        match self {
            Self::Closed(closed) => Err(closed),
            Self::Failed(failed) => {
                report_failed(&failed, host, payload);
                Ok(Some(failed))
            }
            Self::Taken => Ok(None),
        }
    }
}

impl From<Box<Failed>> for Unanswered {
    fn from(failed: Box<Failed>) -> Self {
        Self::Failed(failed)
    }
}

impl From<Box<Closed>> for Unanswered {
    fn from(closed: Box<Closed>) -> Self {
        Self::Closed(closed)
    }
}

/// The serving half.
#[derive(Debug)]
pub(crate) struct Server<B> {
    pub(crate) images: Images<B>,
    pub(crate) replies: Replies,
    /// How far the current batch was processed.
    batch: BatchPosition,
}

/// How far a batch was processed.
#[derive(Clone, Copy, Debug, Default)]
struct BatchPosition {
    /// Offset of the next run; of the first one if no batch was begun.
    at: usize,
    /// The run before it, if not all of its entries were processed.
    run: Option<CurrentRun>,
}

/// A run of a batch. Its head was copied once; validated and used is the copy.
#[derive(Clone, Copy, Debug)]
struct CurrentRun {
    head: RunHead,
    /// Offset of its first entry.
    at: usize,
    /// Entries that were started.
    started: u32,
}

impl CurrentRun {
    fn left(&self) -> u32 {
        self.head.count.get() - self.started
    }
}

/// How far a request was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Completely.
    Done,
    /// Completely, and replies wait to be sent.
    Owing,
    /// The quantum is used up.
    Exhausted,
    /// The send window is closed for its reply.
    Blocked,
}

impl<B> Server<B> {
    /// `max_answer`: of the peer's.
    pub(crate) fn new(
        config: ServerConfig,
        max_body: usize,
        max_answer: u64,
        is_duplex: bool,
        is_node: bool,
    ) -> Self {
        let longest = config.limits.max_answer.min(max_answer).min(u32::MAX.into()) as usize;
        Self {
            images: Images {
                bindings: Bindings::new(),
                config,
                assembly: Assembly::default(),
                longest_answer: longest,
                max_node_frame: if is_node { MAX_NODE_FRAME } else { 0 },
                copy: Vec::new(),
            },
            replies: Replies::new(max_body, longest, config.has_private_answers, is_duplex),
            batch: BatchPosition::default(),
        }
    }

    /// Runs an invocation that came in a frame of its own.
    #[inline(always)]
    pub(crate) fn exec<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        order: &mut Order,
        quantum: &mut Quantum,
        header: Header,
        frame: Frame<P>,
    ) -> Result<Progress, Unanswered> {
        let Header {
            handle, token, flags, ..
        } = header;
        let is_assembled = flags.contains(FrameFlags::ASSEMBLED);
        let Self { images, replies, .. } = self;
        let Some(answer) = replies.usual_answer(tx, token) else {
            // A quantum that is passed by its address would lie in memory on the usual path, too.
            let mut charged = *quantum;
            let (progress, charged) = outlined(move || {
                let progress = self.exec_unusual(tx, host, order, &mut charged, header, frame);
                (progress, charged)
            });
            *quantum = charged;
            return progress;
        };
        let own = Some((order, quantum));
        let len = images.invoke(host, own, (handle, token), is_assembled, frame, Some(answer))?;
        replies.send_usual(tx, token, len);
        Ok(Progress::Done)
    }

    /// As [`exec`](Self::exec), where the answer is not written to the frame that carries it, or replies are owed.
    fn exec_unusual<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        order: &mut Order,
        quantum: &mut Quantum,
        header: Header,
        frame: Frame<P>,
    ) -> Result<Progress, Unanswered> {
        let Self { images, replies, .. } = self;
        let Some((destination, answer)) = replies.begin_answer(tx, header.token)? else {
            return Ok(Progress::Blocked);
        };
        let Header {
            handle, token, flags, ..
        } = header;
        let is_assembled = flags.contains(FrameFlags::ASSEMBLED);
        let own = Some((order, quantum));
        let len = images.invoke(host, own, (handle, token), is_assembled, frame, answer)?;
        replies.send_answer(tx, destination, token, len)?;
        Ok(if replies.owes() {
            Progress::Owing
        } else {
            Progress::Done
        })
    }

    /// Replies to an invocation without an answer, which came in a frame of its own.
    #[cold]
    pub(crate) fn conclude<P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut impl Host,
        frame: Frame<P>,
        unanswered: Unanswered,
    ) -> Result<(), Box<Closed>> {
        let Some(failed) = unanswered.failed(host, frame.body.len())? else {
            return Ok(());
        };
        if matches!(failed.status, Status::Rejected(_)) {
            host.observe(Event::Frame);
        }
        let Header { handle, token, .. } = Header::parse(frame.words).map_err(Closed::broke)?;
        if let Some(answer) = failed.answer {
            return self.replies.complete_long(tx, token, answer);
        }
        self.replies
            .conclude(tx, frame.sequence, (handle, token), failed.status, &failed.detail)
    }

    /// Answers an invocation that the host took.
    pub(crate) fn answer<H: Host<Image = B>>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        reply_to: &ReplyTo,
        outcome: Result<&[u8], Box<Failed>>,
    ) -> Result<(), Box<Closed>> {
        let &ReplyTo {
            call,
            sequence,
            is_batched,
            payload,
            ..
        } = reply_to;
        failpoint!("target.answer");
        let outcome = match outcome {
            Err(mut failed) => match failed.answer.take() {
                Some(answer) => return self.replies.complete_long(tx, call.1, answer),
                None => Err(failed),
            },
            outcome => outcome,
        };
        let (status, body) = match &outcome {
            Ok(answer) => (Status::Executed, *answer),
            Err(failed) => (failed.status, &failed.detail[..]),
        };
        if let Err(failed) = &outcome {
            report_failed(failed, host, payload);
            if !is_batched && matches!(status, Status::Rejected(_)) {
                host.observe(Event::Frame);
            }
        }
        if reply_to.is_late {
            return self.conclude_late(tx, reply_to, None, status, body);
        }
        if is_batched {
            return self.replies.conclude_entry(tx, sequence, call, status, body);
        }
        self.replies.conclude(tx, sequence, call, status, body)
    }

    /// Runs the entries of a batch from the first one that was not processed. The frame stays where it is until the last.
    #[inline(never)]
    pub(crate) fn batch<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        header: Header,
        frame: &Frame<P>,
        quantum: &mut Quantum,
    ) -> Result<Progress, Box<Closed>> {
        if header.flags.contains(FrameFlags::ASSEMBLED) || header.handle != 0 || header.token != 0 {
            return Err(Closed::broke("a batch whose header states more than its kind"));
        }
        loop {
            if self.batch.run.is_none() && self.batch.at == frame.body.len() {
                break;
            }
            if quantum.is_exhausted() {
                return Ok(Progress::Exhausted);
            }
            if !self.replies.admits_entry(tx)? {
                return Ok(Progress::Blocked);
            }
            let run = match self.batch.run {
                Some(run) => run,
                None => {
                    let Some((head, next)) = run_at(frame.body, self.batch.at) else {
                        // The peer still learns how the entries before it ended.
                        host.observe(Event::Frame);
                        self.replies.flush(tx)?;
                        return Err(Closed::broke("a batch with a run that is malformed or cut off"));
                    };
                    let at = self.batch.at + RunHead::SIZE;
                    self.batch.at = next;
                    CurrentRun { head, at, started: 0 }
                }
            };
            if run.at != RunHead::SIZE || run.started != 0 {
                failpoint!("target.batch");
            }
            self.batch_entries(tx, host, frame, quantum, run)?;
        }
        self.batch = BatchPosition::default();
        host.observe(Event::Frame);
        quantum.charge(0);
        Ok(Progress::Done)
    }

    /// Runs entries of a run, at least one.
    fn batch_entries<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        frame: &Frame<P>,
        quantum: &mut Quantum,
        mut run: CurrentRun,
    ) -> Result<(), Box<Closed>> {
        let RunHead {
            code,
            len,
            token,
            stride,
            ..
        } = run.head;
        let (handle, len, stride) = (code.get(), len.get() as usize, stride.get() as usize);
        let token = match token.get() {
            0 => 0,
            first => first + u64::from(run.started),
        };
        let first = run.at + stride * run.started as usize;
        let most = if token == 0 { MAX_TOGETHER } else { MAX_ANSWERS };
        let count = (run.left().min(quantum.entries_left(len)) as usize).min(most);
        let image = match self.images.runs(handle, len) {
            Some(image) if !H::TAKES && count > 1 => image,
            _ => {
                let Some(payload) = frame.body.slice(first, len) else {
                    return Err(Closed::broke("a batch that became shorter"));
                };
                // Recorded before the entry runs: an entry never runs twice.
                run.started += 1;
                self.batch.run = Some(run).filter(|run| run.left() > 0);
                quantum.charge(len);
                let frame = Frame {
                    sequence: frame.sequence,
                    words: frame.words,
                    body: payload,
                };
                self.batch_entry(tx, host, (handle, token), frame)?;
                if H::TAKES {
                    quantum.exhaust();
                }
                return Ok(());
            }
        };
        let Some(payloads) = frame.body.slice(first, stride * count) else {
            return Err(Closed::broke("a batch that became shorter"));
        };
        // Recorded before they run: if the host unwinds, none of them runs twice.
        let before = run.started;
        run.started += count as u32;
        self.batch.run = Some(run).filter(|run| run.left() > 0);
        let entries = Run {
            sequence: frame.sequence,
            is_batched: true,
            payloads,
            len,
            stride,
            count,
        };
        let end = host.invoke_run(image, entries, self.replies.run_answers(token));
        failpoint!("target.answer");
        let started = end.executed + usize::from(end.failed.is_some());
        assert!(
            (1..=count).contains(&started),
            "a host runs at least one entry of a run"
        );
        run.started = before + started as u32;
        self.batch.run = Some(run).filter(|run| run.left() > 0);
        quantum.charge_entries(started as u32, len);
        let gathered = self.replies.gather_run(tx, token, end.executed);
        let Some(failed) = end.failed else {
            gathered?;
            if started < count {
                quantum.exhaust();
            }
            return Ok(());
        };
        // It has failed, even if the peer is gone.
        report_failed(&failed, host, len);
        gathered?;
        let token = match token {
            0 => 0,
            first => first + end.executed as u64,
        };
        if let Some(answer) = failed.answer {
            return self.replies.complete_long(tx, token, answer);
        }
        let call = (handle, token);
        self.replies
            .conclude_entry(tx, frame.sequence, call, failed.status, &failed.detail)
    }

    #[inline(always)]
    fn batch_entry<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        (handle, token): (u32, u64),
        frame: Frame<P>,
    ) -> Result<(), Box<Closed>> {
        let Self { images, replies, .. } = self;
        let answer = replies.entry_answer(token);
        match images.invoke(host, None, (handle, token), false, frame, answer) {
            Ok(len) => replies.gather_answer(tx, token, len),
            Err(unanswered) => {
                let Some(failed) = unanswered.failed(host, frame.body.len())? else {
                    return Ok(());
                };
                if let Some(answer) = failed.answer {
                    return replies.complete_long(tx, token, answer);
                }
                let call = (handle, token);
                replies.conclude_entry(tx, frame.sequence, call, failed.status, &failed.detail)
            }
        }
    }

    /// Processes an admitted request that is no invocation.
    #[cold]
    #[inline(never)]
    pub(crate) fn request<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        header: Header,
        frame: &Frame<P>,
    ) -> Result<(), Box<Closed>> {
        host.observe(Event::Frame);
        match header.kind {
            Kind::Install => {
                let result = self.images.install(host, header, frame)?;
                // Without a token the frames that use the image are told.
                if header.token == 0 {
                    return Ok(());
                }
                let (status, detail) = match &result {
                    Ok(()) => (Status::Executed, ""),
                    Err(refusal) => (Status::Rejected(refusal.reason), &*refusal.detail),
                };
                host.observe(Event::ReplyBytes(detail.len()));
                self.replies.complete(tx, header.token, status, detail.as_bytes())
            }
            Kind::Unbind => {
                self.images.bindings.release(header.handle as usize);
                Ok(())
            }
            Kind::Fragment => {
                let limits = self.images.config.limits;
                let install = limits.max_image.saturating_add(INSTALL_HEADS as u64);
                let travel = limits.max_payload.saturating_add(TravelHead::SIZE as u64);
                let reply = limits.max_answer.saturating_add(ReplyHead::SIZE as u64);
                let limit = usize::try_from(travel.max(reply).max(install)).unwrap_or(usize::MAX);
                let limit = limit.max(self.images.max_node_frame);
                self.images
                    .assembly
                    .fragment(host, header.handle, header.token, frame.body, limit)
                    .map_err(Closed::broke)?;
                failpoint!("target.fragment");
                Ok(())
            }
            Kind::Sync if header.token == 0 => Ok(()),
            Kind::Sync => self.replies.complete(tx, header.token, Status::Executed, b""),
            Kind::Stats if header.token == 0 => Err(Closed::broke("a `Stats` request without a token")),
            Kind::Stats => {
                let (status, page) = host.stats(header.handle, self.replies.max_reply());
                host.observe(Event::ReplyBytes(page.len()));
                self.replies.complete(tx, header.token, status, &page)
            }
            Kind::Grant => {
                host.grant(header.token, header.handle);
                Ok(())
            }
            Kind::Cancel => {
                host.cancel(header.token);
                Ok(())
            }
            Kind::Finish if header.token == 0 => Err(Closed::broke("a `Finish` without a token")),
            Kind::Finish => self.finish(tx, host, header, frame.sequence),
            kind => Err(Closed::broke(format!("{kind:?} is no request"))),
        }
    }

    /// As [`Connection::review_images`](crate::Connection::review_images).
    pub(crate) fn review_images(&mut self, keeps: impl FnMut(&mut B) -> Result<(), Refusal>) {
        self.images.bindings.review(keeps);
    }

    /// Bytes that came in fragments of a body that is not complete.
    pub(crate) fn assembled(&self) -> usize {
        self.images.assembly.len()
    }

    /// As [`Connection::unfinished`](crate::Connection::unfinished).
    pub(crate) fn unfinished(&self) -> Option<u64> {
        let (body, answer) = (self.images.assembly.unfinished(), self.replies.unsent());
        // Each only grows: the sum differs after progress of either.
        (body.is_some() || answer.is_some()).then(|| body.unwrap_or(0).wrapping_add(answer.unwrap_or(0)))
    }

    /// As [`Connection::refuse_unfinished`](crate::Connection::refuse_unfinished).
    pub(crate) fn refuse_unfinished(&mut self, refusal: Refusal) {
        self.replies.refuse_unsent(&refusal.detail);
        if self.images.assembly.unfinished().is_some() {
            self.images.assembly.refuse(refusal);
        }
    }
}

/// Runs an invocation, or lets the host take it. `call`: its handle and its token.
#[inline(always)]
fn invoke<H: Host, P: Body>(
    host: &mut H,
    image: &H::Image,
    call: (u32, u64),
    invocation: Invocation<'_, P>,
    answer: Option<&mut [u8]>,
) -> Result<usize, Unanswered> {
    if H::TAKES {
        let reply_to = ReplyTo::new(call, &invocation, answer);
        host.take(image, &invocation, reply_to);
        return Err(Unanswered::Taken);
    }
    Ok(host.invoke(image, invocation, answer)?)
}

impl<B> Images<B> {
    /// What a handle is bound to, if it runs and takes payloads of this length.
    pub(crate) fn runs(&self, handle: u32, payload: usize) -> Option<&B> {
        match self.bindings.get(handle) {
            Some(Binding::Bound(image)) if payload as u64 <= self.config.limits.max_payload => Some(image),
            _ => None,
        }
    }

    /// Runs an invocation and returns the length of its answer. `own`: it came in a frame of its own, which is processed then.
    /// `call`: its handle and its token.
    #[inline(always)]
    pub(crate) fn invoke<H: Host<Image = B>, P: Body>(
        &mut self,
        host: &mut H,
        own: Option<(&mut Order, &mut Quantum)>,
        call: (u32, u64),
        is_assembled: bool,
        frame: Frame<P>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Unanswered> {
        let is_batched = own.is_none();
        if let Some((order, quantum)) = own {
            // Before it runs: a frame never runs twice.
            order.advance();
            quantum.charge_invocation(frame.body.len());
            if H::TAKES {
                quantum.exhaust();
            }
        }
        let Frame { sequence, body, .. } = frame;
        let outcome = match self.bindings.get(call.0) {
            // The usual invocation has its payload in its frame.
            Some(Binding::Bound(image))
                if !is_assembled && body.len() as u64 <= self.config.limits.max_payload =>
            {
                let invocation = Invocation {
                    sequence,
                    is_batched,
                    payload: Payload::InPlace(body),
                };
                invoke(host, image, call, invocation, answer)
            }
            _ => self.invoke_unusual(host, call, is_assembled, sequence, body, answer),
        };
        failpoint!("target.answer");
        outcome
    }

    /// Runs an invocation whose payload came in fragments, and rejects one that cannot run.
    #[cold]
    #[inline(never)]
    fn invoke_unusual<H: Host<Image = B>, P: Body>(
        &mut self,
        host: &mut H,
        call: (u32, u64),
        is_assembled: bool,
        sequence: u32,
        body: P,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Unanswered> {
        let Self {
            bindings,
            config,
            assembly,
            ..
        } = self;
        let (handle, _) = call;
        let refusal = match bindings.get(handle) {
            Some(Binding::Bound(image)) => {
                let payload = if is_assembled {
                    match assembly.finish(host, body).map_err(Closed::broke)? {
                        Ok(whole) => Payload::Private(whole),
                        Err(refusal) => {
                            assembly.clear(host);
                            return Err(Unanswered::Failed(refusal.into()));
                        }
                    }
                } else {
                    Payload::InPlace(body)
                };
                let (size, limit) = (payload.len(), config.limits.max_payload);
                if size as u64 <= limit {
                    let invocation = Invocation {
                        sequence,
                        is_batched: false,
                        payload,
                    };
                    let outcome = invoke(host, image, call, invocation, answer);
                    if is_assembled {
                        assembly.clear(host);
                    }
                    return outcome;
                }
                let detail = format!("a payload of {size} bytes, the limit is {limit}");
                Refusal::new(Rejection::TooLarge, detail)
            }
            Some(Binding::Refused(refusal)) => refusal.clone(),
            None if handle as usize >= config.max_handles => too_many_handles(handle, config.max_handles),
            None | Some(Binding::Free) => Refusal::new(Rejection::Unbound, format!("handle {handle}")),
        };
        if is_assembled {
            assembly.clear(host);
        }
        Err(Unanswered::Failed(refusal.into()))
    }
}

#[cold]
fn too_many_handles(handle: u32, max: usize) -> Refusal {
    Refusal::new(
        Rejection::TooLarge,
        format!("handle {handle}, the limit is {}", Counted(max, "handle")),
    )
}

/// The run of a batch at an offset: its head, and the offset of the next run. Its entries are not looked at.
fn run_at<P: Body>(batch: P, at: usize) -> Option<(RunHead, usize)> {
    let mut head = RunHead::new_zeroed();
    batch.slice(at, RunHead::SIZE)?.copy_to(head.as_mut_bytes());
    let whole = batch.slice(at, head.run_len()?)?;
    Some((head, at + whole.len()))
}
