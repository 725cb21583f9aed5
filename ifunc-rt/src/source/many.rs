//! Many invocations of one handle at once: one lock for all that join the open batch, and answers in order.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::ops::Range;
use std::{fmt, vec};

use ifunc::payload::DecodeError;

use super::call::{Call, decoded};
use super::connection::Connection;
use super::encoding::Encoding;
use super::error::Error;
use super::handle::{Framing, Handle, Submitter};
use super::shared::SharedConnection;

/// Payloads that are taken from the caller's iterator before the lock is taken, and outcomes that are taken under one lock.
/// The allocator keeps a vector of so many words at hand; it searches for a longer one.
const CHUNK: usize = 128;

impl<E: Encoding> Handle<E> {
    /// As [`send`](Self::send) for each payload, in order. Meant for an [aggregated](Self::aggregated) handle, where an
    /// invocation that joins others of the same handle and length costs little more than the copy of its payload: on the
    /// source, on the wire, and on the target.
    ///
    /// ```no_run
    /// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
    /// let source = ifunc_rt::Source::connect("ucx://10.0.0.1:7000")?;
    /// let add = source.register::<hello::add>()?.aggregated();
    /// add.send_many(0..1_000_000)?;
    /// source.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of the first payload that was not sent, and how many were sent before it. None after it was sent.
    pub fn send_many<'p, P>(&self, payloads: impl IntoIterator<Item = P>) -> Result<(), NotAllSent>
    where
        P: Borrow<E::Payload<'p>>,
    {
        let mut sent = 0;
        self.submit_many(payloads, false, |_, count| sent += count)
            .map_err(|error| NotAllSent { sent, error })
    }

    /// As [`call`](Self::call) for each payload, in order. Meant for an [aggregated](Self::aggregated) handle: see
    /// [`send_many`](Self::send_many). The answers come in the order of the payloads.
    ///
    /// ```no_run
    /// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
    /// let source = ifunc_rt::Source::connect("ucx://10.0.0.1:7000")?;
    /// let add = source.register::<hello::add>()?.aggregated();
    /// for now in add.call_many(0..1000) {
    ///     println!("{}", now?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A payload that is not sent has its error in the place of its answer, and no payload after it is sent.
    pub fn call_many<'p, P>(&self, payloads: impl IntoIterator<Item = P>) -> Answers<E::Answer>
    where
        P: Borrow<E::Payload<'p>>,
    {
        let mut answers = Answers {
            submitter: self.submitter.clone(),
            tokens: VecDeque::new(),
            taken: Vec::new().into_iter(),
            not_sent: None,
            decode: E::decode,
            take: take_answers::<E>,
        };
        let tokens = &mut answers.tokens;
        let submitted = self.submit_many(payloads, true, |first, count| {
            let end = first + count as u64;
            match tokens.back_mut() {
                Some(last) if last.end == first => last.end = end,
                _ => tokens.push_back(first..end),
            }
        });
        answers.not_sent = submitted.err();
        answers
    }

    fn submit_many<'p, P: Borrow<E::Payload<'p>>>(
        &self,
        payloads: impl IntoIterator<Item = P>,
        wants_completion: bool,
        mut sent: impl FnMut(u64, usize),
    ) -> Result<(), Error> {
        let mut payloads = payloads.into_iter();
        let mut chunk = Vec::with_capacity(payloads.size_hint().0.clamp(1, CHUNK));
        loop {
            // Not under the lock: the iterator may use the source.
            chunk.clear();
            chunk.extend(payloads.by_ref().take(CHUNK));
            let mut left = chunk.as_slice();
            if left.is_empty() {
                return Ok(());
            }
            let is_alone = left.len() == 1 || self.submitter.framing == Framing::Batched;
            let _held = (!is_alone).then(|| Held::new(self.submitter.shared()));
            while !left.is_empty() {
                let joined = self.append_alike(left, wants_completion, &mut sent);
                left = &left[joined..];
                if let Some((first, rest)) = left.split_first() {
                    let token = self.submit(first.borrow(), wants_completion, true);
                    sent(token.map_err(|error| *error)?, 1);
                    left = rest;
                }
            }
        }
    }

    /// Adds the first payloads to the open batch, under one lock, as long as nothing else is to be done. Returns how many.
    fn append_alike<'p, P: Borrow<E::Payload<'p>>>(
        &self,
        payloads: &[P],
        wants_completion: bool,
        sent: &mut impl FnMut(u64, usize),
    ) -> usize {
        let (submitter, library) = (&self.submitter, self.library());
        if submitter.framing != Framing::Batched {
            return 0;
        }
        let mut append = |connection: &mut Connection| {
            let mut joined = 0;
            loop {
                joined += connection.append_run(
                    (submitter.binding.handle, wants_completion),
                    &payloads[joined..],
                    |payload| E::layout(library, payload.borrow()),
                    |payload, room| {
                        let payload = payload.borrow();
                        E::encode(library, payload, room.len(), room)
                    },
                    &mut *sent,
                );
                let Some(payload) = payloads.get(joined) else {
                    return joined;
                };
                let payload = payload.borrow();
                let layout = E::layout(library, payload);
                let submission = submitter.submission(layout, wants_completion);
                let mut encode = |room: &mut [u8]| E::encode(library, payload, layout.0, room);
                // One that does not encode fails again, with its error, outside of this loop.
                let Some(Ok(token)) = connection.append_alike(&submission, &mut encode) else {
                    return joined;
                };
                sent(token, 1);
                joined += 1;
            }
        };
        match submitter.shared().state.try_lock() {
            Some(mut state) => append(&mut state.connection),
            None => append(&mut submitter.shared().lock().connection),
        }
    }
}

/// Frames that follow each other at once. They are sent when it is dropped, and before the thread waits for anything.
struct Held<'a>(&'a SharedConnection);

impl<'a> Held<'a> {
    fn new(shared: &'a SharedConnection) -> Self {
        shared.lock().connection.hold();
        Self(shared)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock().connection.flush_held();
    }
}

/// Why [`Handle::send_many`] did not send all payloads.
#[derive(Debug, thiserror::Error)]
#[error("not sent after {sent} {}: {error}", if *sent == 1 { "other" } else { "others" })]
pub struct NotAllSent {
    /// How many payloads were sent before.
    pub sent: usize,
    /// Why the next one was not sent. The message has it: it is no source, which a report would print once more.
    pub error: Error,
}

impl From<NotAllSent> for Error {
    fn from(error: NotAllSent) -> Self {
        error.error
    }
}

/// The answers of [`Handle::call_many`], in the order of the payloads. `next` waits for the next one, as
/// [`Call::wait`] does. Dropping it drops the answers that are left; the target still runs the invocations.
#[must_use = "to ignore the answers, use `send_many`"]
pub struct Answers<A> {
    submitter: Submitter,
    /// Calls whose outcomes were not taken. No range is empty.
    tokens: VecDeque<Range<u64>>,
    /// Answers of the calls before them.
    taken: vec::IntoIter<A>,
    /// Why the payload after them was not sent.
    not_sent: Option<Error>,
    decode: fn(&[u8]) -> Result<A, DecodeError>,
    /// [`take_answers`] with this decoder.
    take: TakeAnswers<A>,
}

type TakeAnswers<A> = fn(&mut VecDeque<Range<u64>>, &mut Vec<A>, &mut Connection);

impl<A> Answers<A> {
    /// Takes the result of the next call, if that ended, and the answers of the calls after it, as far as they ended well, under one
    /// lock.
    fn take_ended(&mut self) -> Option<Result<A, Error>> {
        let Self {
            submitter,
            tokens,
            taken,
            decode,
            take,
            ..
        } = self;
        let unanswered = tokens.front().map_or(0, |range| range.end - range.start);
        let mut answers = Vec::with_capacity(unanswered.min(CHUNK as u64) as usize);
        let mut take_some = |connection: &mut Connection| {
            take(tokens, &mut answers, connection);
            if !answers.is_empty() {
                return Some(None);
            }
            let outcome = connection.receive(tokens.front()?.start)?;
            take_first(tokens);
            take(tokens, &mut answers, connection);
            Some(Some(outcome))
        };
        let outcome = take_some(&mut submitter.shared().lock().connection)?;
        *taken = answers.into_iter();
        match outcome {
            Some(outcome) => Some(decoded(&submitter.binding, *decode, &mut Some(outcome))),
            None => taken.next().map(Ok),
        }
    }
}

/// The answers of the next calls, as far as they ended well and as many as there is room for. An answer that does not decode is left,
/// and so is a failure: they are taken with their errors.
fn take_answers<E: Encoding>(
    tokens: &mut VecDeque<Range<u64>>,
    answers: &mut Vec<E::Answer>,
    connection: &mut Connection,
) {
    let calls = &mut connection.protocol.caller.calls;
    while let Some(range) = tokens.front_mut() {
        calls.take_answers(range, |bytes| E::decode(bytes).ok(), answers);
        if !range.is_empty() {
            return;
        }
        tokens.pop_front();
    }
}

/// Removes the token of the next call.
fn take_first(tokens: &mut VecDeque<Range<u64>>) -> Option<u64> {
    let first = tokens.front_mut()?;
    let token = first.next();
    if first.is_empty() {
        tokens.pop_front();
    }
    token
}

impl<A> Iterator for Answers<A> {
    type Item = Result<A, Error>;

    #[inline]
    fn next(&mut self) -> Option<Result<A, Error>> {
        if let Some(answer) = self.taken.next() {
            return Some(Ok(answer));
        }
        if let Some(result) = self.take_ended() {
            return Some(result);
        }
        match take_first(&mut self.tokens) {
            Some(token) => Some(Call::new(self.submitter.invoked(), token, self.decode).wait()),
            None => self.not_sent.take().map(Err),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let unanswered: u64 = self.tokens.iter().map(|range| range.end - range.start).sum();
        let left = self.taken.len() + unanswered as usize + usize::from(self.not_sent.is_some());
        (left, Some(left))
    }
}

impl<A> ExactSizeIterator for Answers<A> {}

impl<A> Drop for Answers<A> {
    fn drop(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        let connection = &mut self.submitter.shared().lock().connection;
        connection.abandon_all(self.tokens.drain(..).flatten());
    }
}

impl<A> fmt::Debug for Answers<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("ifunc", &self.submitter.name())
            .field("left", &self.len())
            .finish()
    }
}
