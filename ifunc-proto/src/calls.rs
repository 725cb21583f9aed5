//! Requests under way, by token, and how they end.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use ifunc_abi::frame::INLINE;
use ifunc_abi::status::Status;

pub use crate::completion::Completion;
use crate::completion::{Answer, AnswerMemory, Small};
use crate::link::{Body, LinkError};
use crate::partly::PartlyReceived;

#[cfg(test)]
mod tests;

/// What a completion answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A `Sync`: everything sent before it.
    Flush,
    /// A page of the target's statistics.
    Stats,
    /// The end of a scope.
    Finish,
    /// An invocation of the image that is bound to this handle.
    Invocation(u32),
    /// The same of one that may travel on.
    Traveling(u32),
}

/// An invocation that may be sent again over another link.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) handle: u32,
    pub(crate) payload: Vec<u8>,
}

impl Retry {
    #[cold]
    pub(crate) fn new(handle: u32, payload: &[u8]) -> Box<Self> {
        Box::new(Self {
            handle,
            payload: payload.to_vec(),
        })
    }
}

/// Sequence number and handle of a send, in one word: it is stored for every send, and in a stream each store counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastSend(u64);

impl LastSend {
    /// That of no send.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// `handle` is the index of one of the caller's handles, and less than [`u32::MAX`].
    #[inline(always)]
    pub(crate) fn new(sequence: u32, handle: u32) -> Self {
        Self(u64::from(handle) << 32 | u64::from(sequence))
    }

    /// The send, and none from now on.
    pub(crate) fn take(&mut self) -> Option<(u32, u32)> {
        std::mem::replace(self, Self::NONE).get()
    }

    #[inline]
    pub(crate) fn get(self) -> Option<(u32, u32)> {
        (self != Self::NONE).then_some((self.0 as u32, (self.0 >> 32) as u32))
    }
}

/// The table of calls. Tokens are consecutive numbers: a late completion never reaches another call, and calls that are begun
/// one after another share a head in a batch. `U` is what the driver keeps with a call, such as a waker.
#[derive(Debug)]
pub struct Calls<U> {
    /// A power of two of slots. The call with token `t` has slot `t` modulo their number.
    slots: Vec<Slot<U>>,
    /// The last token that was issued.
    issued: u64,
    /// Number of slots that are not free.
    in_use: usize,
    /// Calls that a completion may still arrive for.
    in_flight: u32,
    /// Ended calls that were not taken, before the last answers were received.
    left_before: usize,
    /// The last invocation that wants no completion and may not have been consumed.
    pub(crate) last_send: LastSend,
    /// The driver's data of calls that ended since the driver last took it.
    pub(crate) ended: Vec<U>,
    /// Partial answers that were not taken, by token.
    partials: BTreeMap<u64, VecDeque<Answer>>,
    answers: AnswerMemory,
    /// The answer that arrives in fragments.
    partly: Option<PartlyReceived>,
}

/// What ending a call and taking its small answer touch comes first.
#[derive(Debug)]
#[repr(C)]
struct Slot<U> {
    /// The call that has the slot, or the last one that had it.
    token: u64,
    /// The invocation lies in the open batch and was not sent.
    in_batch: bool,
    /// Length of the answer of a call that is [`Answered`](State::Answered), and the answer.
    len: u8,
    small: Small,
    state: State,
    user: Option<U>,
}

/// A token whose request is being sent, and its slot.
#[derive(Debug)]
pub(crate) struct Issued<'a, U> {
    pub(crate) token: u64,
    slot: &'a mut Slot<U>,
}

impl<U> Issued<'_, U> {
    /// Its request was sent. `sequence` is the [`recorded`] number of the frame, or 0. Returns the token.
    #[inline(always)]
    pub(crate) fn begin(self, request: Request, retry: Option<Box<Retry>>, sequence: u32) -> u64 {
        let pending = State::Pending {
            request,
            sequence,
            retry,
        };
        replace_plain(self.slot, pending);
        self.token
    }
}

/// Answers of one length, at equal distances.
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    /// Of an answer.
    pub(crate) len: usize,
    /// From the beginning of an answer to that of the next one.
    pub(crate) stride: usize,
}

impl Run<'_> {
    #[inline(always)]
    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.stride * index..][..self.len]
    }
}

/// With a tag of its own, which is compared many times.
#[derive(Debug)]
#[repr(u8)]
enum State {
    Free,
    Pending {
        request: Request,
        /// Sequence number of its frame; 0: it was never sent.
        sequence: u32,
        /// Boxed: it is rare, and the state is moved.
        retry: Option<Box<Retry>>,
    },
    /// Ended with an answer, or a detail, that its slot has.
    Answered(Status),
    /// Ended with a longer one.
    Long(Status, Answer),
    /// Ended without a completion.
    Lost(Box<Lost>),
    /// The caller dropped the call; its completion may still arrive.
    Abandoned,
}

impl<U> Calls<U> {
    /// No calls yet. Their answers take at most `max_answers` bytes.
    pub(crate) fn new(max_answers: usize) -> Self {
        Self {
            slots: free_slots(FIRST_SLOTS),
            issued: 0,
            in_use: 0,
            in_flight: 0,
            left_before: 0,
            last_send: LastSend::NONE,
            ended: Vec::new(),
            partials: BTreeMap::new(),
            answers: AnswerMemory::new(max_answers),
            partly: None,
        }
    }

    /// Issues a token, never 0, for a request that is sent later.
    #[inline]
    pub(crate) fn begin(&mut self, request: Request, retry: Option<Box<Retry>>) -> u64 {
        self.begin_sent(request, retry, |_| 0)
    }

    /// Issues a token, never 0, for an invocation that lies in the open batch.
    #[inline]
    pub(crate) fn begin_in_batch(&mut self, request: Request, retry: Option<Box<Retry>>) -> u64 {
        let token = self.begin(request, retry);
        let index = self.index_of(token);
        self.slots[index].in_batch = true;
        token
    }

    /// Issues consecutive tokens, of which `first` is the first, for invocations that lie in the open batch and are not sent
    /// again. Returns how many, at most `count`.
    #[inline]
    pub(crate) fn begin_together(&mut self, request: Request, first: u64, count: usize) -> usize {
        if first != self.issued + 1 {
            return 0;
        }
        let mut begun = 0;
        while begun < count {
            let token = self.issued + 1;
            let index = self.index_of(token);
            let slot = &mut self.slots[index];
            if !matches!(slot.state, State::Free) {
                break;
            }
            let pending = State::Pending {
                request,
                sequence: 0,
                retry: None,
            };
            replace_plain(slot, pending);
            (slot.token, slot.in_batch) = (token, true);
            self.issued = token;
            begun += 1;
        }
        self.in_use += begun;
        self.in_flight += begun as u32;
        begun
    }

    /// Issues a token, never 0, for a request that `send` sends. That returns the [`recorded`] number of its frame, or 0.
    #[inline(always)]
    pub(crate) fn begin_sent(
        &mut self,
        request: Request,
        retry: Option<Box<Retry>>,
        send: impl FnOnce(u64) -> u32,
    ) -> u64 {
        let issued = self.issue();
        let sequence = send(issued.token);
        issued.begin(request, retry, sequence)
    }

    /// Issues a token, never 0, for a request that is about to be sent. [`Issued::begin`] follows.
    #[inline(always)]
    pub(crate) fn issue(&mut self) -> Issued<'_, U> {
        let mut token = self.issued + 1;
        let index = self.index_of(token);
        let slot = match &self.slots[index].state {
            // The slot once more: one that is borrowed here is borrowed where the table grows.
            State::Free => &mut self.slots[index],
            _ => {
                token = self.find_free();
                let index = self.index_of(token);
                &mut self.slots[index]
            }
        };
        self.issued = token;
        self.in_use += 1;
        self.in_flight += 1;
        slot.token = token;
        slot.in_batch = false;
        Issued { token, slot }
    }

    #[inline]
    fn index_of(&self, token: u64) -> usize {
        token as usize & (self.slots.len() - 1)
    }

    /// The next token whose slot is free. A table that is half full grows first: calls that are begun together then end
    /// together, and a few that last do not separate the others.
    #[cold]
    #[inline(never)]
    fn find_free(&mut self) -> u64 {
        if 2 * self.in_use >= self.slots.len() {
            let former = std::mem::take(&mut self.slots);
            self.slots = free_slots(2 * former.len());
            for slot in former {
                if !matches!(slot.state, State::Free) {
                    let index = self.index_of(slot.token);
                    self.slots[index] = slot;
                }
            }
        }
        let mut token = self.issued + 1;
        while !matches!(self.slots[self.index_of(token)].state, State::Free) {
            token += 1;
        }
        token
    }

    /// Records the sequence number of the call's frame.
    #[inline]
    pub(crate) fn sent(&mut self, token: u64, number: u32) {
        if let Some(State::Pending { sequence, .. }) = self.state(token) {
            *sequence = recorded(number);
        }
    }

    /// Whether the call's frame was sent, over whatever link.
    pub(crate) fn was_sent(&mut self, token: u64) -> bool {
        matches!(self.state(token), Some(State::Pending { sequence: 1.., .. }))
    }

    /// Records that the calls with these tokens were sent in a batch.
    pub(crate) fn sent_in_batch(&mut self, first: u64, count: u32, number: u32) {
        let number = recorded(number);
        for token in first..first + u64::from(count) {
            let Some(slot) = find(&mut self.slots, token) else {
                continue;
            };
            slot.in_batch = false;
            if let State::Pending { sequence, .. } = &mut slot.state {
                *sequence = number;
            }
        }
    }

    /// Records whether the invocation lies in the open batch.
    #[inline]
    pub(crate) fn set_in_batch(&mut self, token: u64, in_batch: bool) {
        if let Some(slot) = find(&mut self.slots, token) {
            slot.in_batch = in_batch;
        }
    }

    /// Whether the invocation lies in the open batch.
    pub(crate) fn is_in_batch(&mut self, token: u64) -> bool {
        find(&mut self.slots, token).is_some_and(|slot| slot.in_batch)
    }

    /// Ends a call without a completion. `true`: the driver kept something with a call that ended, and has not taken it.
    pub(crate) fn end_lost(&mut self, token: u64, lost: Box<Lost>) -> bool {
        self.end(token, false, |slot| replace_plain(slot, State::Lost(lost)));
        !self.ended.is_empty()
    }

    /// Ends a call with a completion that fits into a slot, as [`end_lost`](Self::end_lost) does.
    #[inline(always)]
    pub(crate) fn end_small(&mut self, token: u64, status: Status, body: impl Body) -> bool {
        self.end(token, true, |slot| {
            slot.len = slot.small.set(body);
            replace_plain(slot, State::Answered(status));
        });
        !self.ended.is_empty()
    }

    /// Ends a call; `end` then replaces the pending state of its slot, which owns nothing. `is_completed`: the peer answered it.
    #[inline(always)]
    fn end(&mut self, token: u64, is_completed: bool, end: impl FnOnce(&mut Slot<U>)) {
        let Some(slot) = find(&mut self.slots, token) else {
            return;
        };
        let State::Pending { sequence, retry, .. } = &mut slot.state else {
            return self.end_abandoned(token);
        };
        // The peer processes frames in order: it has consumed what was sent before this request.
        if is_completed
            && let Some((last, _)) = self.last_send.get()
            && (sequence.wrapping_sub(last) as i32) > 0
        {
            self.last_send = LastSend::NONE;
        }
        if retry.is_some() {
            drop_retry(retry);
        }
        end(slot);
        self.in_flight -= 1;
        if slot.user.is_some() {
            self.ended.extend(slot.user.take());
        }
    }

    /// As [`end_small`](Self::end_small) for `count` calls with consecutive tokens, whose answers lie in a run.
    #[inline]
    pub(crate) fn end_run(&mut self, first: u64, status: Status, answers: &Run<'_>, count: usize) -> bool {
        for index in 0..count {
            self.end_small(first.wrapping_add(index as u64), status, answers.get(index));
        }
        !self.ended.is_empty()
    }

    /// As [`end_small`](Self::end_small), with a completion that does not fit into a slot. An answer that no call waits for is not copied.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_long(&mut self, token: u64, status: Status, body: impl Body) -> bool {
        // The peer gave the answer up that it had begun to send.
        self.partly.take_if(|partly| partly.token() == token);
        if self.pending(token).is_none() {
            return self.end_small(token, status, &[][..]);
        }
        let answer = self.answers.copy(body);
        self.end_copied(token, status, answer, body.len())
    }

    /// Ends a call with an answer of `len` bytes, unless there was no memory for it.
    fn end_copied(&mut self, token: u64, status: Status, answer: Option<Answer>, len: usize) -> bool {
        let Some(answer) = answer else {
            return self.end_lost(token, self.no_memory_for(len));
        };
        self.end(token, true, |slot| {
            replace_plain(slot, State::Long(status, answer))
        });
        !self.ended.is_empty()
    }

    /// A part of the answer of a call arrived, which has `len` bytes. A part of another answer replaces what arrived before.
    #[cold]
    pub(crate) fn answer_fragment(
        &mut self,
        token: u64,
        len: usize,
        part: impl Body,
    ) -> Result<(), LinkError> {
        if self
            .partly
            .as_ref()
            .is_none_or(|partly| !partly.is_of(token, len))
        {
            let is_awaited = self.pending(token).is_some();
            self.partly = Some(PartlyReceived::new(token, len, is_awaited, &self.answers));
        }
        match &mut self.partly {
            Some(partly) => partly.append(part, &self.answers),
            None => Ok(()),
        }
    }

    /// As [`end_small`](Self::end_small), with the last part of an answer.
    #[cold]
    pub(crate) fn end_assembled(
        &mut self,
        token: u64,
        status: Status,
        part: impl Body,
    ) -> Result<bool, LinkError> {
        const MISSING: LinkError = LinkError::Malformed("the last part of an answer without a first");
        let partly = self.partly.take_if(|partly| partly.token() == token);
        let mut partly = partly.ok_or(MISSING)?;
        partly.append(part, &self.answers)?;
        let len = partly.len();
        let answer = partly.finish()?;
        Ok(self.end_copied(token, status, answer, len))
    }

    /// Bytes of an answer in fragments whose last one has not arrived.
    pub(crate) fn assembled(&self) -> usize {
        self.partly.as_ref().map_or(0, PartlyReceived::kept)
    }

    /// A report of this status, without its detail if there is no memory for it.
    pub(crate) fn report(&self, status: Status, detail: impl Body) -> Completion {
        if detail.len() <= INLINE {
            return Completion::small(status, detail);
        }
        match self.answers.copy(detail) {
            Some(detail) => Completion::long(status, detail),
            None => Completion::small(status, &[][..]),
        }
    }

    fn no_memory_for(&self, len: usize) -> Box<Lost> {
        let (len, limit) = (len as u64, self.answers.max() as u64);
        Box::new(Lost::AnswersTooLarge { len, limit })
    }

    /// The completion of a call whose caller dropped it arrived: its token may be used again.
    #[cold]
    fn end_abandoned(&mut self, token: u64) {
        if let Some(State::Abandoned) = self.state(token) {
            self.in_flight -= 1;
            self.release(token);
        }
    }

    /// A partial answer of a call arrived, in the order of their numbers. `true`: the driver kept something with a call that
    /// ended or has a partial answer, and has not taken it.
    #[cold]
    pub(crate) fn partial(&mut self, token: u64, _number: u32, body: impl Body) -> bool {
        let Some(slot) = find(&mut self.slots, token) else {
            return false;
        };
        if !matches!(slot.state, State::Pending { .. }) {
            return false;
        }
        self.ended.extend(slot.user.take());
        match self.answers.copy(body) {
            Some(answer) => self.partials.entry(token).or_default().push_back(answer),
            None => {
                let lost = self.no_memory_for(body.len());
                self.end_lost(token, lost);
            }
        }
        !self.ended.is_empty()
    }

    /// Takes the oldest partial answer of a call, also of one that ended. The driver then
    /// [grants](crate::Connection::grant) the peer another one.
    pub fn take_partial(&mut self, token: u64) -> Option<Vec<u8>> {
        let waiting = self.partials.get_mut(&token)?;
        let first = waiting.pop_front().map(Answer::into_bytes);
        if waiting.is_empty() {
            self.partials.remove(&token);
        }
        first
    }

    /// Drops the partial answers of a call that were not taken.
    pub fn drop_partials(&mut self, token: u64) {
        self.partials.remove(&token);
    }

    /// Replaces what the driver keeps with a call. When the call ends, [`ended`](crate::caller::Caller::ended) returns it.
    pub fn set_user(&mut self, token: u64, user: Option<U>) {
        if let Some(slot) = find(&mut self.slots, token) {
            slot.user = user;
        }
    }

    /// What a pending call requests.
    pub fn pending(&mut self, token: u64) -> Option<Request> {
        match self.state(token)? {
            State::Pending { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// Calls that ended and were not taken.
    #[inline]
    #[must_use]
    pub fn untaken(&self) -> usize {
        self.in_use - self.in_flight as usize
    }

    /// Whether an answer that was received last was not taken. Older ones do not count: the caller may never take them.
    #[inline]
    pub(crate) fn has_new_untaken(&self) -> bool {
        self.untaken() > self.left_before
    }

    /// The driver has received answers. Before, so many calls had ended and [were not taken](Self::untaken).
    #[inline]
    pub fn note_received(&mut self, left_before: usize) {
        self.left_before = left_before;
    }

    /// Whether a call that may be sent again invokes this handle.
    #[cold]
    pub(crate) fn has_retry_of(&self, handle: u32) -> bool {
        self.slots.iter().any(|slot| match &slot.state {
            State::Pending {
                retry: Some(retry), ..
            } => retry.handle == handle,
            _ => false,
        })
    }

    /// Takes what may be sent again. A call is sent again once.
    pub(crate) fn take_retry(&mut self, token: u64) -> Option<Box<Retry>> {
        match self.state(token)? {
            State::Pending { retry, .. } => retry.take(),
            _ => None,
        }
    }

    /// Takes the outcome of a call that ended and frees the token.
    #[inline]
    pub fn take(&mut self, token: u64) -> Option<Outcome> {
        let slot = find(&mut self.slots, token)?;
        let State::Answered(status) = slot.state else {
            return self.take_unusual(token);
        };
        replace_plain(slot, State::Free);
        slot.user = None;
        self.in_use -= 1;
        Some(Ok(Completion::of_slot(status, slot.len, &slot.small)))
    }

    /// As [`take`](Self::take), of a call whose answer is not in its slot.
    #[cold]
    #[inline(never)]
    fn take_unusual(&mut self, token: u64) -> Option<Outcome> {
        let slot = find(&mut self.slots, token)?;
        if !matches!(slot.state, State::Long(..) | State::Lost(_)) {
            return None;
        }
        let outcome = match std::mem::replace(&mut slot.state, State::Free) {
            State::Long(status, answer) => Ok(Completion::long(status, answer)),
            State::Lost(lost) => Err(lost),
            _ => return None,
        };
        slot.user = None;
        self.in_use -= 1;
        Some(outcome)
    }

    /// Takes the answers of the first of these calls and frees their tokens, as far as they ended well and `decode` returns what
    /// their answers mean; no more than `answers` has room for.
    #[inline]
    pub fn take_answers<A>(
        &mut self,
        tokens: &mut Range<u64>,
        decode: impl Fn(&[u8]) -> Option<A>,
        answers: &mut Vec<A>,
    ) {
        for _ in answers.len()..answers.capacity() {
            if tokens.is_empty() {
                return;
            }
            let Some(slot) = find(&mut self.slots, tokens.start) else {
                return;
            };
            match &slot.state {
                State::Answered(Status::Executed) => {
                    let Some(answer) = decode(slot.small.get(slot.len)) else {
                        return;
                    };
                    answers.push(answer);
                    replace_plain(slot, State::Free);
                }
                State::Long(Status::Executed, long) => {
                    let Some(answer) = decode(long.bytes()) else {
                        return;
                    };
                    answers.push(answer);
                    slot.state = State::Free;
                }
                _ => return,
            }
            if slot.user.is_some() {
                slot.user = None;
            }
            tokens.start += 1;
            self.in_use -= 1;
        }
    }

    /// The caller dropped the call. `may_complete`: a completion may still arrive, so the token stays in use. Returns whether the
    /// peer may await the answer of another node for it.
    pub(crate) fn abandon(&mut self, token: u64, may_complete: bool) -> bool {
        self.set_user(token, None);
        self.partials.remove(&token);
        if let Some(partly) = &mut self.partly
            && partly.token() == token
        {
            partly.drop_kept();
        }
        match self.state(token) {
            Some(state @ State::Pending { .. }) if may_complete => {
                let is_traveling = matches!(
                    state,
                    State::Pending {
                        request: Request::Traveling(_),
                        ..
                    }
                );
                *state = State::Abandoned;
                return is_traveling;
            }
            Some(State::Pending { .. }) => {
                self.in_flight -= 1;
                self.release(token);
            }
            Some(State::Answered(_) | State::Long(..) | State::Lost(_)) => self.release(token),
            _ => {}
        }
        false
    }

    /// Whether the caller dropped the call, and its completion has not arrived.
    pub(crate) fn is_abandoned(&mut self, token: u64) -> bool {
        matches!(self.state(token), Some(State::Abandoned))
    }

    /// The link died: no completion of what was sent will arrive. Returns the calls that may be sent again, in the order in
    /// which they were submitted; every other call that is not in the open batch ends.
    pub(crate) fn lose(&mut self, why: &str) -> Vec<u64> {
        self.partly = None;
        let mut retries = Vec::new();
        for slot in &mut self.slots {
            if slot.in_batch {
                continue;
            }
            match &slot.state {
                State::Pending { retry: Some(_), .. } => retries.push(slot.token),
                &State::Pending {
                    retry: None,
                    sequence,
                    ..
                } => {
                    let lost = Lost::of_dead_link(sequence != 0, why);
                    slot.state = State::Lost(Box::new(lost));
                    self.in_flight -= 1;
                    self.ended.extend(slot.user.take());
                }
                State::Abandoned => {
                    slot.state = State::Free;
                    self.in_flight -= 1;
                    self.in_use -= 1;
                }
                State::Free | State::Answered(_) | State::Long(..) | State::Lost(_) => {}
            }
        }
        retries.sort_unstable();
        retries
    }

    /// Number of calls that a completion may still arrive for.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight as usize
    }

    /// Number of tokens in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Places in the table.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    fn release(&mut self, token: u64) {
        if let Some(slot) = find(&mut self.slots, token) {
            slot.state = State::Free;
            slot.user = None;
            self.in_use -= 1;
        }
    }

    #[inline]
    fn state(&mut self, token: u64) -> Option<&mut State> {
        find(&mut self.slots, token).map(|slot| &mut slot.state)
    }
}

/// Replaces a state that owns nothing, so that nothing is to be dropped.
#[inline(always)]
fn replace_plain<U>(slot: &mut Slot<U>, state: State) {
    std::mem::forget(std::mem::replace(&mut slot.state, state));
}

#[cold]
fn drop_retry(retry: &mut Option<Box<Retry>>) {
    *retry = None;
}

/// A frame's sequence number, as a call records it. 0 follows the largest number, and 0 is that of a call that was never sent.
/// The numbers compared with it are those of other frames: 1 stands for it.
#[inline]
pub(crate) fn recorded(sequence: u32) -> u32 {
    sequence.max(1)
}

#[inline]
fn find<U>(slots: &mut [Slot<U>], token: u64) -> Option<&mut Slot<U>> {
    let index = token as usize & (slots.len() - 1);
    let slot = slots.get_mut(index)?;
    (slot.token == token).then_some(slot)
}

/// Slots of a new table.
const FIRST_SLOTS: usize = 16;

fn free_slots<U>(count: usize) -> Vec<Slot<U>> {
    let free = || Slot {
        token: 0,
        in_batch: false,
        len: 0,
        small: Small::EMPTY,
        state: State::Free,
        user: None,
    };
    std::iter::repeat_with(free).take(count).collect()
}

/// Why a request has no completion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The link died before the request was sent: it did not run.
    #[error("not sent: {why}")]
    NotSent {
        /// Why the link died or cannot be replaced.
        why: String,
    },
    /// The link died after the request was sent: it may or may not have run.
    #[error("sent, then the link died")]
    Indeterminate,
    /// The payload exceeds the limit of the target that is connected now.
    #[error("a payload of {len} bytes, the limit is {limit}")]
    PayloadTooLarge {
        /// Length in bytes.
        len: u64,
        /// The target's limit.
        limit: u64,
    },
    /// The invocation ended, and there is no memory for its answer beside those that were not dropped yet.
    #[error("an answer of {len} bytes, with which there would be more than {limit} bytes of answers")]
    AnswersTooLarge {
        /// Length in bytes.
        len: u64,
        /// The limit of all answers.
        limit: u64,
    },
    /// The image exceeds the limit of the target that is connected now.
    #[error("an image of {len} bytes, the limit is {limit}")]
    ImageTooLarge {
        /// Length in bytes.
        len: u64,
        /// The target's limit.
        limit: u64,
    },
    /// The image has slices, and none for the machine that is connected now.
    #[error("{why}")]
    NoSlice {
        /// What the machine is, which slices there are, and what to build.
        why: String,
    },
    /// The invocation traveled, and another node than the one that it was sent to reported how it ended.
    #[error("on node {node}: {status}")]
    AtNode {
        /// The node.
        node: u32,
        /// What it reported.
        status: Status,
        /// As [`status`](ifunc_abi::status) defines it for the status.
        detail: Vec<u8>,
    },
}

impl Lost {
    /// How a request ends whose link died and that is not sent again.
    pub(crate) fn of_dead_link(was_sent: bool, why: &str) -> Self {
        if was_sent {
            Self::Indeterminate
        } else {
            Self::NotSent { why: why.to_owned() }
        }
    }
}

/// How a request ended. The error is boxed because it is rare and outcomes are moved.
pub type Outcome = Result<Completion, Box<Lost>>;
