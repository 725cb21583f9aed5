//! The calling half of a connection: how an invocation is sent, and what becomes of it.

use std::collections::VecDeque;
use std::sync::Arc;

use ifunc_abi::ImageId;
use ifunc_abi::frame::{Header, Kind, Limits};

use crate::attention::Attention;
use crate::batch::OpenBatch;
use crate::calls::{Calls, Completion, Lost, Outcome, Request, Retry, recorded};
use crate::connection::Connection;
use crate::link::{Inbound, Link, LinkError, Outbound};
use crate::replies::DUPLEX_CALLS;

mod aggregate;
mod backlog;
mod handles;

use handles::{Former, Handle};

/// Reports kept until the driver takes them. Later ones are dropped.
const MAX_REPORTS: usize = 64;

/// What is [lacking](Caller::lacking) while as many calls are under way as a link may have that carries invocations both ways.
pub(crate) const CALL_WINDOW: usize = usize::MAX;

/// An image that this side sends.
pub trait Image {
    /// BLAKE3 of the bytes.
    fn id(&self) -> &ImageId;
    /// The bytes.
    fn bytes(&self) -> &[u8];
    /// Whether an invocation may run twice, so that one that may have run is sent again over a new link.
    fn is_idempotent(&self) -> bool;
}

impl<T: Image + ?Sized> Image for Arc<T> {
    fn id(&self) -> &ImageId {
        T::id(self)
    }

    fn bytes(&self) -> &[u8] {
        T::bytes(self)
    }

    #[inline]
    fn is_idempotent(&self) -> bool {
        T::is_idempotent(self)
    }
}

/// How one invocation is sent.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// The handle of its image.
    pub handle: u32,
    /// Most bytes that its payload takes.
    pub bound: usize,
    /// Alignment of its payload, at most [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN).
    pub align: usize,
    /// Whether the caller awaits a completion.
    pub wants_completion: bool,
    /// Whether the image is sent ahead of it even if the peer has it.
    pub carries_code: bool,
}

/// An invocation that wanted no completion and did not end well.
#[derive(Debug)]
pub struct Report<I> {
    /// Its image.
    pub image: I,
    /// What the peer reported, or why nothing was reported.
    pub outcome: Outcome,
}

/// Why an invocation was not sent.
#[derive(Debug)]
pub enum SubmitError<I, E> {
    /// The payload does not encode.
    Encode(E),
    /// The peer does not accept the payload or the image.
    Lost(Lost),
    /// An earlier invocation that wanted no completion did not end well. This one was not sent.
    Earlier(Box<Report<I>>),
    /// It was accepted, with this token or 0, and something waits for the window: a driver's result, not the protocol's.
    Unfinished(u64),
    /// The link died. The connection handles it before the driver sees it.
    #[doc(hidden)]
    Link(LinkError),
}

/// Why a submission returned no token. Two registers hold it or the token: a large result, written to memory on the way of
/// every frame, would cost more than the frame.
#[derive(Debug)]
pub enum NotSent<I, E> {
    /// The send window is closed, or the link died.
    Blocked,
    /// It was not sent and will not be.
    Failed(Box<SubmitError<I, E>>),
}

impl<I, E> From<SubmitError<I, E>> for NotSent<I, E> {
    #[cold]
    fn from(error: SubmitError<I, E>) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl<I, E> From<LinkError> for NotSent<I, E> {
    #[cold]
    fn from(error: LinkError) -> Self {
        SubmitError::Link(error).into()
    }
}

impl<I, E> From<Lost> for NotSent<I, E> {
    #[cold]
    fn from(lost: Lost) -> Self {
        SubmitError::Lost(lost).into()
    }
}

/// The calling half of a connection. Its methods need no link.
#[derive(Debug)]
pub struct Caller<I, U> {
    /// Counts links. What was installed over one link is not installed over the next.
    generation: u64,
    limits: Limits,
    handles: Vec<Handle<I>>,
    /// Oldest first.
    former: VecDeque<Former<I>>,
    /// Why the next submission cannot take the fast path.
    pub(crate) attention: Attention,
    /// Requests under way.
    pub calls: Calls<U>,
    /// The last invocation that wants no completion: sequence number and handle.
    last_send: Option<(u32, u32)>,
    reports: VecDeque<Report<I>>,
    /// Bytes for which the window was closed at the last attempt.
    pub(crate) lacking: usize,
    batch: OpenBatch,
    /// Bytes that a batch may have.
    batch_size: usize,
    /// A body that is sent in fragments. No other request is sent before its last fragment.
    outgoing: Option<Outgoing>,
    /// Number of bodies that were sent in fragments.
    bodies: u32,
    /// Calls that are sent again over this link.
    resend: VecDeque<u64>,
    unbind: Vec<u32>,
}

/// A body that is sent in fragments.
#[derive(Debug)]
struct Outgoing {
    header: Header,
    body: Vec<u8>,
    sent: usize,
    number: u32,
}

impl<I: Image + Clone, U, B> Connection<I, U, B> {
    /// Sends an invocation. With a completion the result is its token, otherwise 0.
    ///
    /// # Errors
    /// The send window is closed or the link died; or the invocation will not be sent.
    #[inline(always)]
    pub fn submit<L: Link, E>(
        &mut self,
        link: &mut L,
        submission: Submission,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<u64, NotSent<I, E>> {
        let Submission {
            handle,
            bound,
            align,
            wants_completion,
            carries_code,
        } = submission;
        let (_, rx) = link.split();
        // A call learns nothing of earlier invocations: what arrived can wait.
        if !wants_completion && !rx.is_empty() {
            self.receive_all(link);
        }
        let (tx, _) = link.split();
        let caller = &mut self.caller;
        let is_ready =
            caller.attention.is_none() && caller.handles[handle as usize].installed == caller.generation;
        if !is_ready {
            match caller.prepare(tx, handle, wants_completion, carries_code) {
                Ok(true) => {}
                Ok(false) => return Err(NotSent::Blocked),
                Err(error) => return Err(self.not_sent(link, error)),
            }
        }
        let token = if bound > tx.max_body() {
            caller.submit_fragmented(tx, handle, bound, wants_completion, encode)?
        } else {
            let memory = match tx.reserve(bound, align) {
                Ok(Some(memory)) => memory,
                Ok(None) => {
                    caller.lacking = bound;
                    return Err(NotSent::Blocked);
                }
                Err(error) => return Err(self.not_sent(link, error.into())),
            };
            let len = match encode(memory) {
                Ok(len) => len,
                Err(error) => return Err(SubmitError::Encode(error).into()),
            };
            assert!(len <= bound, "a payload is longer than its bound");
            if len as u64 > caller.limits.max_payload {
                return Err(caller.payload_too_large(len).into());
            }
            if wants_completion {
                let is_idempotent = caller.handles[handle as usize].image.is_idempotent();
                let retry = is_idempotent.then(|| Retry::new(handle, &memory[..len]));
                let send = |token| recorded(tx.commit(Header::new(Kind::Exec, handle, token), len));
                caller.calls.begin_sent(Request::Invocation(handle), retry, send)
            } else {
                let sequence = tx.commit(Header::new(Kind::Exec, handle, 0), len);
                caller.last_send = Some((sequence, handle));
                0
            }
        };
        if carries_code {
            caller.resend_image(handle);
        }
        Ok(token)
    }
}

impl<I: Image + Clone, U> Caller<I, U> {
    pub(crate) fn new(batch_size: usize) -> Self {
        Self {
            generation: 0,
            limits: Limits {
                max_payload: 0,
                max_image: 0,
                max_answer: 0,
            },
            handles: Vec::new(),
            former: VecDeque::new(),
            attention: Attention::UNLINKED,
            calls: Calls::default(),
            last_send: None,
            reports: VecDeque::new(),
            lacking: 0,
            batch: OpenBatch::default(),
            batch_size,
            outgoing: None,
            bodies: 0,
            resend: VecDeque::new(),
            unbind: Vec::new(),
        }
    }

    /// Continues over a new link: no image is installed over it. Without limits the peer does not serve, and everything
    /// waits for the next link.
    pub(crate) fn relink(&mut self, limits: Option<Limits>, max_body: usize, is_duplex: bool) {
        self.generation += 1;
        self.limits = limits.unwrap_or(self.limits);
        self.former.clear();
        self.unbind.clear();
        self.batch.set_limit(self.batch_size, max_body);
        self.attention.set(Attention::DUPLEX, is_duplex);
        self.attention.set(Attention::UNLINKED, limits.is_none());
        self.attention.set(Attention::BACKLOG, !self.resend.is_empty());
        self.close_batch_soon();
    }

    /// The number of the link, counted from 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Limits of the peer.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Bytes for which the window was closed at the last attempt to send.
    pub fn lacking(&self) -> usize {
        self.lacking
    }

    /// Whether a closed window or a dead link keeps something from being sent.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.attention.has(Attention::BACKLOG)
    }

    /// Whether an accepted request was not sent completely: a body in fragments, or a batch.
    pub fn has_unsent(&self) -> bool {
        self.outgoing.is_some() || !self.batch.is_empty()
    }

    /// Whether a body is being sent in fragments.
    pub fn has_outgoing(&self) -> bool {
        self.outgoing.is_some()
    }

    /// Whether nothing is under way: neither requests to be sent nor calls to be sent again.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.resend.is_empty() && !self.has_unsent()
    }

    /// Whether there is a link, and the peer serves: requests may be sent, and completions may arrive.
    #[inline]
    pub(crate) fn is_served(&self) -> bool {
        !self.attention.has(Attention::UNLINKED)
    }

    pub(crate) fn reports_len(&self) -> usize {
        self.reports.len()
    }

    pub(crate) fn batch_len(&self) -> usize {
        self.batch.len()
    }

    /// The oldest report that was not taken.
    pub fn take_report(&mut self) -> Option<Report<I>> {
        let first = self.reports.pop_front();
        self.attention.set(Attention::REPORTS, !self.reports.is_empty());
        first
    }

    /// All reports that were not taken, oldest first.
    pub fn take_reports(&mut self) -> VecDeque<Report<I>> {
        self.attention.set(Attention::REPORTS, false);
        std::mem::take(&mut self.reports)
    }

    /// Whether another call may be under way.
    #[inline]
    pub(crate) fn has_call_window(&self) -> bool {
        !self.attention.has(Attention::DUPLEX) || self.calls.in_flight() < DUPLEX_CALLS
    }

    /// Sends what must precede an invocation. `false`: the window is closed. One that wants no completion is refused while there
    /// are reports.
    #[cold]
    #[inline(never)]
    fn prepare<E>(
        &mut self,
        tx: &mut impl Outbound,
        handle: u32,
        wants_completion: bool,
        carries_code: bool,
    ) -> Result<bool, NotSent<I, E>> {
        if !wants_completion {
            self.refuse_after_report()?;
        }
        if !self.is_served() {
            return Ok(false);
        }
        if wants_completion && !self.has_call_window() {
            self.close_batch(tx)?;
            self.lacking = CALL_WINDOW;
            return Ok(false);
        }
        self.close_batch_soon();
        Ok(self.drive(tx)? && self.install(tx, handle, carries_code)?? && self.drive(tx)?)
    }

    /// The first report that was not taken, as an error.
    pub(crate) fn refuse_after_report<E>(&mut self) -> Result<(), NotSent<I, E>> {
        match self.take_report() {
            Some(report) => Err(SubmitError::Earlier(Box::new(report)).into()),
            None => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn submit_fragmented<E>(
        &mut self,
        tx: &mut impl Outbound,
        handle: u32,
        bound: usize,
        wants_completion: bool,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<u64, NotSent<I, E>> {
        let mut body = Vec::new();
        body.try_reserve_exact(bound)
            .map_err(|_| self.payload_too_large(bound))?;
        body.resize(bound, 0);
        let len = encode(&mut body).map_err(SubmitError::Encode)?;
        assert!(len <= bound, "a payload is longer than its bound");
        body.truncate(len);
        if len as u64 > self.limits.max_payload {
            return Err(self.payload_too_large(len).into());
        }
        let token = if wants_completion {
            let is_idempotent = self.handles[handle as usize].image.is_idempotent();
            let retry = is_idempotent.then(|| Retry::new(handle, &body));
            self.calls.begin(Request::Invocation(handle), retry)
        } else {
            0
        };
        self.start(Header::new(Kind::Exec, handle, token), body);
        // The invocation is accepted. If the link is dead, the next attempt to use it finds that.
        let _ = self.drive(tx);
        Ok(token)
    }

    #[cold]
    fn payload_too_large(&self, len: usize) -> Lost {
        Lost::PayloadTooLarge {
            len: len as u64,
            limit: self.limits.max_payload,
        }
    }

    /// Begins to send a body in fragments.
    fn start(&mut self, header: Header, body: Vec<u8>) {
        self.bodies = self.bodies.wrapping_add(1);
        self.outgoing = Some(Outgoing {
            header,
            body,
            sent: 0,
            number: self.bodies,
        });
        self.attention.set(Attention::BACKLOG, true);
    }

    /// A completion arrived.
    #[inline(always)]
    pub(crate) fn completed(&mut self, token: u64, completion: Completion) {
        // The peer processes frames in order: it has consumed what was sent before this request.
        if let Some(sequence) = self.calls.end(token, Ok(completion))
            && self
                .last_send
                .is_some_and(|(last, _)| (sequence.wrapping_sub(last) as i32) > 0)
        {
            self.last_send = None;
        }
        if !self.calls.ended.is_empty() {
            self.attention.set(Attention::DRIVER, true);
        }
    }

    /// What the driver kept with calls that ended since it last took this.
    #[inline]
    pub fn ended(&mut self) -> std::vec::Drain<'_, U> {
        self.attention.set(Attention::DRIVER, false);
        self.calls.ended.drain(..)
    }

    /// Whether the next submission leaves the fast path, or the driver has something to do: calls ended, reports arrived,
    /// something waits to be sent, a batch is open, the link died.
    #[inline(always)]
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        !self.attention.is_none()
    }

    /// Makes [`needs_attention`](Self::needs_attention) true until the driver takes [`ended`](Self::ended).
    #[inline]
    pub fn set_attention(&mut self) {
        self.attention.set(Attention::DRIVER, true);
    }

    /// A report arrived.
    #[cold]
    pub(crate) fn reported(&mut self, sequence: u32, completion: &Completion) {
        let (handle, detail) = completion.split_report();
        self.report_sent(handle, sequence, Ok(detail));
    }

    /// Drops a call. Its completion is ignored when it arrives.
    pub fn abandon(&mut self, token: u64) {
        let is_resent = self.resend.contains(&token);
        self.resend.retain(|&other| other != token);
        // A completion arrives only over the link over which the frame was sent, or will be.
        let may_complete = self.is_served() && !is_resent || self.calls.is_in_batch(token);
        self.calls.abandon(token, may_complete);
    }

    /// The link died. Every request ends, or waits to be sent again. `is_unconsumed` tells whether the peer may not have
    /// consumed a frame.
    #[cold]
    pub(crate) fn lose(&mut self, why: &str, is_unconsumed: impl FnOnce(u32) -> bool) {
        if let Some((sequence, handle)) = self.last_send.take()
            && is_unconsumed(sequence)
        {
            self.report_sent(handle, sequence, Err(Box::new(Lost::Indeterminate)));
        }
        if let Some(Outgoing { header, .. }) = self.outgoing.take()
            && header.kind == Kind::Exec
            && header.token == 0
        {
            let why = why.to_owned();
            let outcome = Err(Box::new(Lost::NotSent { why }));
            self.report(header.handle, outcome, |until| until.is_none());
        }
        self.resend = self.calls.lose(why).into();
        self.attention.set(Attention::BACKLOG, true);
        self.attention.set(Attention::UNLINKED, true);
    }

    /// No other link will be made. What was sent once may have run; what is in the open batch was never sent.
    #[cold]
    pub fn give_up(&mut self, why: &str) {
        while let Some(token) = self.resend.pop_front() {
            let lost = Lost::of_dead_link(self.calls.was_sent(token), why);
            self.calls.fail(token, lost);
        }
        self.fail_batch(|_| Some(Lost::NotSent { why: why.to_owned() }));
    }
}
