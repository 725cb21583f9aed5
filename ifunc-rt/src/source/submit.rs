//! A handle encodes an invocation and sends it.

use std::sync::Arc;

use ifunc_proto::caller::{self, Submission};

use super::call::Call;
use super::completion::{explain_not_sent, explain_wait};
use super::connection::{Connection, NotSent};
use super::encoding::Encoding;
use super::error::Error;
use super::handle::{Framing, Handle, Invoked, Submitter};
use super::library::Library;
use crate::driver::backoff::after;
use crate::driver::future::Task;
use crate::driver::state::Want;

/// Writes a payload into memory that may be longer than it asked for.
type Encode<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Error> + 'a;

impl<E: Encoding> Handle<E> {
    /// Sends the payload and returns a [`Call`] to wait for.
    ///
    /// Over UCX, a short call that is made while some of the answers that arrived last were not taken may share a message with later calls: it
    /// is sent with the first call that is made after these are taken, when a thread waits, or otherwise, as a rule, within 4 ms.
    ///
    /// # Errors
    /// The reason why it was not sent, see [`Error`].
    pub fn call(&self, payload: &E::Payload<'_>) -> Result<Call<E::Answer>, Error> {
        // The clone comes first: an atomic addition waits for all stores before it, and after the store of a frame that wait
        // lasts until the frame's cache line has reached the other core.
        let binding = Arc::clone(&self.submitter.binding);
        let token = self.submit(payload, true, true).map_err(|error| *error)?;
        let timeout = self.submitter.timeout;
        Ok(Call::new(Invoked { binding, timeout }, token, E::decode))
    }

    /// As [`call`](Self::call), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `call`.
    pub fn try_call(&self, payload: &E::Payload<'_>) -> Result<Call<E::Answer>, Error> {
        let invoked = self.submitter.invoked();
        let token = self.submit(payload, true, false).map_err(|error| *error)?;
        Ok(Call::new(invoked, token, E::decode))
    }

    /// Sends the payload as soon as there is credit, and waits for the answer, as a future. If the future is dropped,
    /// either the payload is not sent or its answer is dropped.
    ///
    /// # Errors
    /// As [`call`](Self::call) and [`Call::wait`], and [`Error::NoThread`].
    pub async fn call_async(&self, payload: &E::Payload<'_>) -> Result<E::Answer, Error> {
        self.submit_async(payload, true).await?.await
    }

    /// Sends the payload without waiting for an outcome. If it fails, [`Source::flush`](super::Source::flush) or a later `send` returns the
    /// error: over shared memory, one of the 16 sends after the target's report has arrived.
    ///
    /// # Errors
    /// The reason why it was not sent; [`Error::Earlier`] for an earlier send, and then this one was not sent.
    #[inline]
    pub fn send(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        match self.publish_at_once(payload) {
            Some(false) => Ok(()),
            Some(true) => self.wake_peer(),
            None => self.send_later(payload),
        }
    }

    /// As [`send`](Self::send), with all that it may have to do.
    #[inline(never)]
    fn send_later(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        match self.submit(payload, false, true) {
            Ok(_) => Ok(()),
            Err(error) => Err(*error),
        }
    }

    /// Wakes the target after a payload was sent.
    #[cold]
    #[inline(never)]
    fn wake_peer(&self) -> Result<(), Error> {
        self.submitter.shared().lock().connection.wake_peer();
        Ok(())
    }

    /// Sends a payload over a ring if that is all there is to do. `None`: that is not so, and nothing happened. `Some(true)`: its target
    /// sleeps.
    ///
    /// This function is not inlined, and calls none that is not: so it saves no register in memory. A store waits for those before it, and
    /// so for the slot's cache line to come from the other core: the number of stores, not of instructions, limits a stream.
    #[inline(never)]
    fn publish_at_once(&self, payload: &E::Payload<'_>) -> Option<bool> {
        let (submitter, library) = (&self.submitter, self.library());
        if submitter.framing != Framing::Own {
            return None;
        }
        let mut state = submitter.shared().state.try_lock()?;
        let layout @ (bound, _) = E::layout(library, payload);
        let submission = submitter.submission(layout, false);
        let mut encode = Encoder::<E> {
            library,
            payload,
            bound,
        };
        state.connection.publish_at_once(&submission, &mut encode)
    }

    /// As [`send`](Self::send), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `send`.
    pub fn try_send(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.submit(payload, false, false)
            .map(drop)
            .map_err(|error| *error)
    }

    /// As [`send`](Self::send), as a future: ready after the payload was sent. A future that is dropped before has
    /// sent nothing, unless the payload travels in fragments and the first was sent.
    ///
    /// # Errors
    /// As `send`, and [`Error::NoThread`].
    pub async fn send_async(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.submit_async(payload, false).await.map(drop)
    }

    /// Sends a payload, and waits for credit if `block`. Returns the token if a completion is wanted, otherwise 0. The error is
    /// boxed, so that two registers hold the result.
    #[inline(always)]
    pub(super) fn submit(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
        block: bool,
    ) -> Result<u64, Box<Error>> {
        let framing = self.submitter.framing;
        let sent = if framing == Framing::Own {
            // Returns by itself: what it would have in common with the others costs instructions.
            match self.submit_at_once(payload, wants_completion) {
                Some(Ok(token)) => return Ok(token),
                sent => sent,
            }
        } else if framing == Framing::Batched {
            self.append_at_once(payload, wants_completion)
        } else {
            None
        };
        match sent {
            Some(Ok(token)) => Ok(token),
            sent => self.submit_later(payload, wants_completion, block, sent.and_then(Result::err)),
        }
    }

    /// Sends a payload in a frame of its own if that is all there is to do. `None`: that is not so, and nothing happened.
    #[inline(always)]
    fn submit_at_once(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
    ) -> Option<Result<u64, NotSent>> {
        let (submitter, library) = (&self.submitter, self.library());
        let mut state = submitter.shared().state.try_lock()?;
        let layout @ (bound, _) = E::layout(library, payload);
        let submission = submitter.submission(layout, wants_completion);
        let mut encode = Encoder::<E> {
            library,
            payload,
            bound,
        };
        state.connection.submit_at_once(&submission, &mut encode)
    }

    /// Adds a payload to the open batch if that is all there is to do. `None`: that is not so, and nothing happened.
    #[inline(always)]
    fn append_at_once(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
    ) -> Option<Result<u64, NotSent>> {
        let (submitter, library) = (&self.submitter, self.library());
        let mut state = submitter.shared().state.try_lock()?;
        let layout = E::layout(library, payload);
        let submission = submitter.submission(layout, wants_completion);
        let mut encode = |room: &mut [u8]| E::encode(library, payload, layout.0, room);
        state.connection.append_alike(&submission, &mut encode)
    }

    /// As [`submit`](Self::submit), after the `first` attempt.
    #[cold]
    #[inline(never)]
    fn submit_later(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
        block: bool,
        first: Option<NotSent>,
    ) -> Result<u64, Box<Error>> {
        let (submitter, library) = (&self.submitter, self.library());
        let layout = E::layout(library, payload);
        let mut encode = move |room: &mut [u8]| E::encode(library, payload, layout.0, room);
        submitter.submit_late(layout, wants_completion, block, first, &mut encode)
    }

    /// Sends when there is credit, and is ready after all of it was sent; what it returns awaits the completion, if one is
    /// wanted. If dropped before, it has sent nothing, or a body in fragments that continues without an answer.
    async fn submit_async(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
    ) -> Result<Call<E::Answer>, Error> {
        let (submitter, library, name) = (&self.submitter, self.library(), self.name());
        let layout = E::layout(library, payload);
        let mut encode = move |room: &mut [u8]| E::encode(library, payload, layout.0, room);
        let mut task = Task::new(submitter.shared(), submitter.timeout);
        let attempt = |connection: &mut Connection| {
            submitter.sent(submitter.attempt(connection, layout, wants_completion, &mut encode))
        };
        let token = task.wait(Want::Credit, attempt).await;
        let token = token.map_err(|ended| explain_wait(ended, name))?;
        let call = Call::new(submitter.invoked(), token, E::decode);
        if submitter.framing != Framing::Batched {
            let drained = task.wait(Want::Credit, Connection::drained).await;
            drained.map_err(|ended| explain_wait(ended, name))?;
        }
        Ok(call)
    }
}

/// Writes a payload. A closure that several functions share is not inlined there.
struct Encoder<'a, 'p, E: Encoding> {
    library: &'a Library,
    payload: &'a E::Payload<'p>,
    bound: usize,
}

impl<E: Encoding> caller::Encode for Encoder<'_, '_, E> {
    type Error = Error;

    #[inline(always)]
    fn encode(&mut self, room: &mut [u8]) -> Result<usize, Error> {
        E::encode(self.library, self.payload, self.bound, room)
    }
}

impl Submitter {
    /// An invocation with a payload of this layout.
    #[inline(always)]
    pub(super) fn submission(&self, (bound, align): (usize, usize), wants_completion: bool) -> Submission {
        Submission {
            handle: self.binding.handle,
            bound,
            align,
            wants_completion,
            carries_code: match self.framing {
                Framing::WithImage => true,
                Framing::Traveling => self.travels.carries_code,
                _ => false,
            },
        }
    }

    /// One attempt to send. With a completion the result is its token, otherwise 0.
    fn attempt(
        &self,
        connection: &mut Connection,
        layout: (usize, usize),
        wants_completion: bool,
        encode: &mut Encode,
    ) -> Result<u64, NotSent> {
        let submission = self.submission(layout, wants_completion);
        match self.framing {
            Framing::Batched => connection.append(submission, encode),
            Framing::Traveling => {
                connection.submit_travel(submission, &self.travels.head(self.timeout), encode)
            }
            Framing::Own | Framing::WithImage => connection.submit(submission, encode),
        }
    }

    /// The outcome of an attempt. `None`: there is no credit now, or no link.
    fn sent(&self, result: Result<u64, NotSent>) -> Result<Option<u64>, Error> {
        match result {
            Ok(token) => Ok(Some(token)),
            Err(NotSent::Blocked) => Ok(None),
            Err(NotSent::Failed(error)) => explain_not_sent(self.name(), *error).map(Some),
        }
    }

    /// Continues after the `first` attempt over the fast path of the lock: sends if that did not, and waits until all fragments
    /// are sent.
    fn submit_late(
        &self,
        layout: (usize, usize),
        wants_completion: bool,
        block: bool,
        first: Option<NotSent>,
        encode: &mut Encode,
    ) -> Result<u64, Box<Error>> {
        let (shared, name) = (self.shared(), self.name());
        // To unlock wakes the waiters whose completion the first attempt has received.
        let mut state = shared.lock();
        let first = match first {
            None => self.attempt(&mut state.connection, layout, wants_completion, encode),
            Some(not_sent) => Err(not_sent),
        };
        // Otherwise the lock was taken to wake waiters, and there is nothing to wait for.
        let has_backlog = state.connection.protocol.caller.has_backlog();
        drop(state);
        if let Ok(token) = first {
            return Ok(token);
        }
        let mut attempt = |connection: &mut Connection| {
            self.sent(self.attempt(connection, layout, wants_completion, encode))
        };
        let token = match self.sent(first)? {
            Some(token) if !has_backlog => return Ok(token),
            Some(token) => token,
            None if !block => {
                shared.try_reconnect();
                let second = attempt(&mut shared.lock().connection)?;
                return second.ok_or_else(|| Error::WouldBlock { what: name.into() }.into());
            }
            None => {
                failpoint!("source.no_room");
                shared.retry(after(self.timeout), name, Want::Credit, attempt)?
            }
        };
        if block && self.framing != Framing::Batched {
            let drained = shared.retry(after(self.timeout), name, Want::Credit, Connection::drained);
            // A thread that serves the link sends the rest in its next polls.
            if let Err(error) = drained
                && !matches!(error, Error::Serving { .. })
            {
                shared.lock().connection.abandon(token);
                return Err(error.into());
            }
        }
        Ok(token)
    }
}
