//! The calling half of a connection: how an invocation is sent, and what becomes of it.

use std::collections::VecDeque;

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{FrameFlags, Header, INLINE, Kind, Limits};
use ifunc_abi::machine::Machine;
use ifunc_abi::rare::outlined;
use ifunc_abi::status::Status;
use zerocopy::{FromZeros, IntoBytes};

use crate::attention::Attention;
use crate::batch::OpenBatch;
use crate::calls::{Calls, LastSend, Lost, Request, Retry, Run, recorded};
use crate::connection::{Connection, TOO_FAR_AHEAD};
use crate::link::{Body, Frame, Inbound, Link, LinkError, Outbound};
use crate::order::Turn;
use crate::replies::DUPLEX_CALLS;

mod aggregate;
mod backlog;
mod handles;
mod submission;
#[cfg(test)]
mod tests;
mod travel;

use handles::{Former, Handle};
pub use submission::{Encode, Image, ImageBytes, NotSent, Report, Submission, SubmitError};
pub use travel::Accepted;

/// Reports kept until the driver takes them. Later ones are dropped.
const MAX_REPORTS: usize = 64;

/// What is [lacking](Caller::lacking) while as many calls are under way as a link may have that carries invocations both ways.
pub(crate) const CALL_WINDOW: usize = usize::MAX;

/// Frames that one [`receive`](Connection::receive) processes at most: a peer that sends without end keeps no thread from reading
/// its clock. What one frame costs is bounded, too: bodies that no call waits for are not copied.
const MAX_RECEIVED: usize = 256;
/// Bytes that are kept of a report: 64 of them may wait for the driver.
const MAX_REPORT: usize = 64 << 10;

/// The calling half of a connection. Its methods need no link.
#[derive(Debug)]
pub struct Caller<I, U> {
    /// Counts links. What was installed over one link is not installed over the next.
    generation: u64,
    limits: Limits,
    /// The peer of this link.
    machine: Machine,
    handles: Vec<Handle<I>>,
    /// Which of the first handles are [at hand](Self::is_at_hand), but for what needs attention: a bit for each.
    at_hand: u64,
    /// Oldest first.
    former: VecDeque<Former<I>>,
    /// Why the next submission cannot take the fast path.
    pub(crate) attention: Attention,
    /// Requests under way.
    pub calls: Calls<U>,
    pub(crate) reports: VecDeque<Report<I>>,
    /// Bytes for which the window was closed at the last attempt.
    pub(crate) lacking: usize,
    pub(crate) batch: OpenBatch,
    /// Bytes that a batch may have.
    batch_size: usize,
    /// A body that is sent in fragments. No other request is sent before its last fragment.
    outgoing: Option<Outgoing>,
    /// Number of bodies that were sent in fragments.
    bodies: u32,
    /// Calls that are sent again over this link.
    resend: VecDeque<u64>,
    unbind: Vec<u32>,
    /// Calls that travel, and were dropped.
    cancel: VecDeque<u64>,
    /// Sequence number of the last frame whose body was sent in fragments.
    last_fragmented: u32,
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
                Ok(()) => {}
                Err(error) => return Err(self.not_sent(link, error)),
            }
        }
        let token = if bound > tx.max_body() {
            caller.submit_fragmented(tx, handle, bound, wants_completion, encode)?
        } else {
            match tx.reserve(bound, align).map(|memory| memory.is_some()) {
                Ok(true) => {}
                Ok(false) => {
                    caller.lacking = bound;
                    return Err(NotSent::Blocked);
                }
                Err(error) => return Err(self.not_sent(link, error.into())),
            }
            let sent = caller.send_whole(tx, &submission, caller.limits.max_payload, encode);
            if !wants_completion {
                tx.wake();
            }
            sent.unwrap_or(Err(NotSent::Blocked))?
        };
        caller.note_at_hand(handle);
        if carries_code {
            caller.resend_image(handle);
        }
        Ok(token)
    }

    /// Sends an invocation if that is all there is to do. `None`: that is not so, and nothing happened. Does not poll for replies:
    /// the caller does, before it sends without completion. After such a send the caller [wakes](Outbound::wake) the peer.
    #[inline(always)]
    pub fn submit_at_once<L: Link, E: Encode>(
        &mut self,
        link: &mut L,
        submission: &Submission,
        encode: &mut E,
    ) -> Option<Result<u64, NotSent<I, E::Error>>> {
        let (tx, _) = link.split();
        let caller = &mut self.caller;
        if submission.carries_code
            || !caller.is_at_hand(submission.handle, submission.wants_completion)
            || submission.bound > tx.max_body()
        {
            return None;
        }
        // What is at hand, the peer accepts with any short payload.
        let max_payload = match submission.bound {
            ..=INLINE => u64::MAX,
            _ => caller.limits.max_payload,
        };
        caller.send_whole(tx, submission, max_payload, encode)
    }

    /// Receives completions and reports, until none is left, that of `token` arrived, or there were so many that the caller has to
    /// look after other things ([`has_more`](Self::has_more)). `true`: that of `token` arrived. For a connection that does not
    /// serve; one that serves receives them in [`poll`](Self::poll), in order with requests.
    #[inline(always)]
    pub fn receive<L: Link>(&mut self, link: &mut L, token: u64) -> bool {
        if self.server.is_some() || !self.is_linked {
            return false;
        }
        let (_, rx) = link.split();
        let mut left = MAX_RECEIVED;
        let error = loop {
            if self.order.is_next_parked() {
                match self.receive_parked() {
                    Ok(_) if left > 1 => {
                        left -= 1;
                        continue;
                    }
                    Ok(_) => {
                        self.has_more = true;
                        return false;
                    }
                    Err(error) => break error,
                }
            }
            let (plain, frame) = match rx.peek_plain(Kind::Completion) {
                Some((header, frame)) => (Some(header), frame),
                None => match rx.peek() {
                    Ok(Some(frame)) => (Header::parse_plain(frame.words, Kind::Completion), frame),
                    Ok(None) => {
                        // While a frame is missing its successors keep their credits, so that no more are parked than there
                        // are.
                        if !self.order.has_parked() {
                            rx.settle();
                        }
                        self.has_more = false;
                        return false;
                    }
                    Err(error) => break error,
                },
            };
            let turn = if L::Rx::IN_ORDER {
                Turn::Now
            } else {
                self.order.turn(frame.sequence)
            };
            let completed = match turn {
                Turn::Now => {
                    self.order.advance();
                    self.reply(plain, frame)
                }
                Turn::Early => self.order.park(&frame).map_err(|_| TOO_FAR_AHEAD).map(|()| 0),
                Turn::Duplicate => Ok(0),
            };
            match completed {
                Ok(completed) => {
                    rx.release();
                    // Nothing else is here without another look; or, over a ring, a look takes the next slot's line from the peer.
                    let ends = rx.first_quantum() == 1 || rx.is_drained() && !self.order.is_next_parked();
                    if ends && completed == token && token != 0 {
                        return true;
                    }
                    left -= 1;
                    if left == 0 {
                        self.has_more = true;
                        return false;
                    }
                }
                Err(error) => break error,
            }
        };
        // Other exits have released their frame; this one gives it up.
        link.split().1.end_poll(false, false);
        self.lose_received(link, &error.to_string());
        false
    }

    #[inline(never)]
    pub(crate) fn receive_all<L: Link>(&mut self, link: &mut L) {
        self.receive(link, 0);
    }

    #[cold]
    fn receive_parked(&mut self) -> Result<u64, LinkError> {
        let Some((sequence, words, body)) = self.order.take_parked() else {
            return Ok(0);
        };
        let body = &body[..];
        let frame = Frame {
            sequence,
            words,
            body,
        };
        self.reply(None, frame)
    }

    /// Processes a frame of the replying direction, whose header is `plain` if it is a plain completion. Returns the token of a
    /// completion, otherwise 0.
    #[inline(always)]
    pub(crate) fn reply(&mut self, plain: Option<Header>, frame: Frame<impl Body>) -> Result<u64, LinkError> {
        let header = match plain {
            Some(header) if self.caller.is_served() => header,
            _ => {
                let this = &mut *self;
                match outlined(move || this.reply_unusual(frame))? {
                    Some(header) => header,
                    None => return Ok(0),
                }
            }
        };
        self.end_call(header.token, status(header.handle)?, frame.body);
        Ok(header.token)
    }

    /// Processes a reply that is no completion of one request, or returns the header of one that is.
    fn reply_unusual(&mut self, frame: Frame<impl Body>) -> Result<Option<Header>, LinkError> {
        let header = Header::parse(frame.words).map_err(|_| NO_HEADER)?;
        match header.kind {
            _ if !self.caller.is_served() => Err(LinkError::Malformed(
                "a completion from a peer that does not serve",
            )),
            Kind::Completion if header.flags.contains(FrameFlags::RELAYED) => {
                self.relayed(header, frame.body)?;
                Ok(None)
            }
            Kind::Completion if header.flags.contains(FrameFlags::ASSEMBLED) => {
                let status = status(header.handle)?;
                self.received += 1;
                let calls = &mut self.caller.calls;
                if calls.end_assembled(header.token, status, frame.body)? {
                    self.caller.set_attention();
                }
                Ok(None)
            }
            Kind::AnswerFragment => {
                self.received += 1;
                let (token, len) = (header.token, header.handle as usize);
                self.caller.calls.answer_fragment(token, len, frame.body)?;
                Ok(None)
            }
            Kind::Completion => Ok(Some(header)),
            Kind::Partial => {
                self.received += 1;
                if self.caller.calls.partial(header.token, header.handle, frame.body) {
                    self.caller.set_attention();
                }
                Ok(None)
            }
            Kind::Report => {
                let status = status(header.handle)?;
                self.received += 1;
                self.caller.reported(header.token as u32, status, frame.body);
                Ok(None)
            }
            Kind::Completions => self.read_completions(frame.body).map(|()| None),
            _ => Err(LinkError::Malformed("a request from a peer that does not invoke")),
        }
    }

    /// A call failed on another node than the one that it was sent to.
    #[cold]
    fn relayed(&mut self, header: Header, body: impl Body) -> Result<(), LinkError> {
        let status = status(header.handle)?;
        let mut bytes = Vec::new();
        let kept = body.slice(0, body.len().min(MAX_REPORT)).ok_or(CUT_OFF)?;
        kept.append_to(&mut bytes);
        let (node, detail) = bytes.split_first_chunk().ok_or(CUT_OFF)?;
        self.received += 1;
        let lost = Lost::AtNode {
            node: u32::from_le_bytes(*node),
            status,
            detail: detail.to_vec(),
        };
        if self.caller.calls.end_lost(header.token, Box::new(lost)) {
            self.caller.set_attention();
        }
        Ok(())
    }

    /// Reads and processes a `Completions` frame.
    fn read_completions(&mut self, body: impl Body) -> Result<(), LinkError> {
        // Calls that are under way at the same time have different places in the table.
        let mut left = self.caller.calls.places();
        let mut at = 0;
        while at < body.len() {
            let mut head = RunHead::new_zeroed();
            let bytes = body.slice(at, RunHead::SIZE).ok_or(CUT_OFF)?;
            bytes.copy_to(head.as_mut_bytes());
            let size = head.run_len().ok_or(CUT_OFF)?;
            // A body ends after the padding of its last run.
            let run = body.slice(at, size).ok_or(CUT_OFF)?;
            let (status, count) = (status(head.code.get())?, head.count.get());
            left = left.checked_sub(count as usize).ok_or(TOO_MANY)?;
            let (len, stride) = (head.len.get() as usize, head.stride.get() as usize);
            let first = head.token.get();
            if len <= INLINE {
                let entries = run.slice(RunHead::SIZE, stride * count as usize).ok_or(CUT_OFF)?;
                self.end_small_calls(first, status, entries, (len, stride), count as usize)?;
            } else {
                for index in 0..count {
                    let answer = run
                        .slice(RunHead::SIZE + stride * index as usize, len)
                        .ok_or(CUT_OFF)?;
                    self.end_call(first.wrapping_add(index.into()), status, answer);
                }
            }
            at += size;
        }
        Ok(())
    }

    /// The completions of calls with consecutive tokens arrived, whose answers are small and of one length. They are copied out of
    /// the frame many at a time.
    fn end_small_calls(
        &mut self,
        first: u64,
        status: Status,
        entries: impl Body,
        (len, stride): (usize, usize),
        count: usize,
    ) -> Result<(), LinkError> {
        let mut block = [0; 1024];
        let at_a_time = block.len() / stride.max(1);
        let mut done = 0;
        while done < count {
            let some = at_a_time.min(count - done);
            let bytes = &mut block[..stride * some];
            let some_entries = entries.slice(stride * done, bytes.len());
            some_entries.ok_or(CUT_OFF)?.copy_to(bytes);
            let answers = Run { bytes, len, stride };
            let first = first.wrapping_add(done as u64);
            if self.caller.calls.end_run(first, status, &answers, some) {
                self.caller.set_attention();
            }
            done += some;
        }
        self.received += count as u64;
        Ok(())
    }

    /// The completion of a call arrived.
    #[inline(always)]
    fn end_call(&mut self, token: u64, status: Status, body: impl Body) {
        self.received += 1;
        let has_ended = if body.len() <= INLINE {
            self.caller.calls.end_small(token, status, body)
        } else {
            self.caller.calls.end_long(token, status, body)
        };
        if has_ended {
            self.caller.set_attention();
        }
    }
}

/// What is kept of an invocation that may be sent again. It is encoded once more: the peer may be able to write to the memory
/// that it was sent from.
#[cold]
#[inline(never)]
fn encode_retry<I, E: Encode>(
    handle: u32,
    bound: usize,
    encode: &mut E,
) -> Result<Box<Retry>, NotSent<I, E::Error>> {
    let mut payload = vec![0; bound];
    let len = encode.encode(&mut payload).map_err(SubmitError::Encode)?;
    assert!(len <= bound, "a payload is longer than its bound");
    Ok(Retry::new(handle, &payload[..len]))
}

const NO_HEADER: LinkError = LinkError::Malformed("words that are no header");
const TOO_MANY: LinkError = LinkError::Malformed("more completions than calls");
const CUT_OFF: LinkError = LinkError::Malformed("completions that are cut off");

#[inline(always)]
fn status(code: u32) -> Result<Status, LinkError> {
    if code == Status::Executed.code() {
        return Ok(Status::Executed);
    }
    status_unusual(code)
}

#[cold]
fn status_unusual(code: u32) -> Result<Status, LinkError> {
    Status::from_code(code).ok_or(LinkError::Malformed("an unknown status"))
}

impl<I: Image + Clone, U> Caller<I, U> {
    pub(crate) fn new(batch_size: usize, max_answers: usize) -> Self {
        Self {
            generation: 0,
            limits: Limits {
                max_payload: 0,
                max_image: 0,
                max_answer: 0,
            },
            machine: Machine::default(),
            handles: Vec::new(),
            at_hand: 0,
            former: VecDeque::new(),
            attention: Attention::UNLINKED,
            calls: Calls::new(max_answers),
            reports: VecDeque::new(),
            lacking: 0,
            batch: OpenBatch::default(),
            batch_size,
            outgoing: None,
            bodies: 0,
            resend: VecDeque::new(),
            unbind: Vec::new(),
            cancel: VecDeque::new(),
            last_fragmented: 0,
        }
    }

    /// Continues over a new link: no image is installed over it. Without limits the peer does not serve, and everything
    /// waits for the next link.
    pub(crate) fn relink(
        &mut self,
        limits: Option<Limits>,
        machine: Machine,
        max_body: usize,
        is_duplex: bool,
    ) {
        self.generation += 1;
        self.at_hand = 0;
        self.limits = limits.unwrap_or(self.limits);
        self.machine = machine;
        self.former.clear();
        self.unbind.clear();
        self.cancel.clear();
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

    /// Sends what must precede an invocation. One that wants no completion is refused while there are reports. Two registers hold the
    /// result, as that of [`NotSent`] alone.
    #[cold]
    #[inline(never)]
    fn prepare<E>(
        &mut self,
        tx: &mut impl Outbound,
        handle: u32,
        wants_completion: bool,
        carries_code: bool,
    ) -> Result<(), NotSent<I, E>> {
        if !wants_completion {
            self.refuse_after_report()?;
        }
        if !self.is_served() {
            return Err(NotSent::Blocked);
        }
        if wants_completion && !self.has_call_window() {
            self.close_batch(tx)?;
            self.lacking = CALL_WINDOW;
            return Err(NotSent::Blocked);
        }
        self.close_batch_soon();
        let is_ready = self.drive(tx)? && self.install(tx, handle, carries_code)?? && self.drive(tx)?;
        if is_ready { Ok(()) } else { Err(NotSent::Blocked) }
    }

    /// Sends an invocation whose image the peer has, in one frame. `None`: there is no credit, as far as is known. The peer of one without
    /// completion is not woken: the caller does that last.
    #[inline(always)]
    fn send_whole<E: Encode>(
        &mut self,
        tx: &mut impl Outbound,
        submission: &Submission,
        max_payload: u64,
        encode: &mut E,
    ) -> Option<Result<u64, NotSent<I, E::Error>>> {
        let &Submission {
            handle,
            bound,
            align,
            wants_completion,
            ..
        } = submission;
        let (reserved, memory) = tx.try_reserve(bound, align)?;
        let len = match encode.encode(memory) {
            Ok(len) => len,
            Err(error) => return Some(Err(SubmitError::Encode(error).into())),
        };
        assert!(len <= bound, "a payload is longer than its bound");
        if len as u64 > max_payload {
            return Some(Err(self.payload_too_large(len).into()));
        }
        if !wants_completion {
            let sequence = tx.commit_reserved(reserved, Header::new(Kind::Exec, handle, 0), len);
            self.calls.last_send = LastSend::new(sequence, handle);
            return Some(Ok(0));
        }
        let retry = match self.handles[handle as usize].image.is_idempotent() {
            true => match encode_retry(handle, bound, encode) {
                Ok(retry) => Some(retry),
                Err(not_sent) => return Some(Err(not_sent)),
            },
            false => None,
        };
        if self.calls.has_new_untaken() {
            tx.may_wait();
        }
        let issued = self.calls.issue();
        let header = Header::new(Kind::Exec, handle, issued.token);
        let sequence = tx.commit_reserved(reserved, header, len);
        tx.wake();
        let request = Request::Invocation(handle);
        Some(Ok(issued.begin(request, retry, recorded(sequence))))
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

    /// What the driver kept with calls that ended since it last took this.
    #[inline]
    pub fn ended(&mut self) -> std::vec::Drain<'_, U> {
        self.attention.set(Attention::DRIVER, false);
        self.calls.ended.drain(..)
    }

    /// Whether there is nothing for the driver: no call has ended, nothing waits to be sent, and no batch is open.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let busy = [Attention::BACKLOG, Attention::BATCH, Attention::DRIVER];
        self.calls.ended.is_empty() && !busy.into_iter().any(|reason| self.attention.has(reason))
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

    /// Ends a call without a completion.
    #[cold]
    fn fail(&mut self, token: u64, lost: Lost) {
        if self.calls.end_lost(token, Box::new(lost)) {
            self.set_attention();
        }
    }

    /// A report arrived.
    #[cold]
    pub(crate) fn reported(&mut self, sequence: u32, status: Status, body: impl Body) {
        let mut handle = [0; 4];
        let len = body.len().saturating_sub(handle.len()).min(MAX_REPORT);
        // A report that is too short is about no handle.
        let (Some(about), Some(detail)) = (body.slice(0, handle.len()), body.slice(handle.len(), len)) else {
            return;
        };
        about.copy_to(&mut handle);
        let completion = self.calls.report(status, detail);
        self.report_sent(u32::from_le_bytes(handle), sequence, Ok(completion));
    }

    /// Drops a call. Its completion is ignored when it arrives. If it travels, the next [`drive`](Connection::drive) cancels it:
    /// the peer gives its slot back, and ends it.
    pub fn abandon(&mut self, token: u64) {
        let is_resent = self.resend.contains(&token);
        self.resend.retain(|&other| other != token);
        // A completion arrives only over the link over which the frame was sent, or will be.
        let may_complete = self.is_served() && !is_resent || self.calls.is_in_batch(token);
        if self.calls.abandon(token, may_complete) {
            self.cancel.push_back(token);
            self.attention.set(Attention::BACKLOG, true);
        }
    }

    /// The link died. Every request ends, or waits to be sent again. `is_unconsumed` tells whether the peer may not have
    /// consumed a frame.
    #[cold]
    pub(crate) fn lose(&mut self, why: &str, is_unconsumed: impl FnOnce(u32) -> bool) {
        if let Some((sequence, handle)) = self.calls.last_send.take()
            && is_unconsumed(sequence)
        {
            self.report_sent(handle, sequence, Err(Box::new(Lost::Indeterminate)));
        }
        if let Some(Outgoing { header, .. }) = self.outgoing.take()
            && matches!(header.kind, Kind::Exec | Kind::Travel)
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
            self.fail(token, lost);
        }
        self.fail_batch(|_| Some(Lost::NotSent { why: why.to_owned() }));
    }
}
