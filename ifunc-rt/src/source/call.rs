//! An invocation from its payload to its answer: how it is encoded and sent, and the call that waits for the answer.

use std::fmt;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ifunc::payload::{DecodeError, Ifunc};
use ifunc_abi::status::Status;
use ifunc_proto::caller::{self, Submission};
use ifunc_proto::calls::{Lost, Outcome};

use super::completion::{explain, explain_lost_invocation, explain_not_sent, explain_wait};
use super::connection::{Connection, NotSent};
use super::error::Error;
use super::handle::{Binding, Framing, Handle, Invoked, Submitter};
use super::library::Library;
use crate::driver::backoff::after;
use crate::driver::driven::Driven as _;
use crate::driver::future::Task;
use crate::driver::state::Want;
use crate::driver::wait::Ended;
use crate::driver::wake::WakeGuard;

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

    /// Sends the payload without waiting for an outcome. The next `send` or [`Source::flush`](super::Source::flush)
    /// returns an error that this one ends with later.
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

/// An outstanding call. Dropping it drops the answer; the target still runs the invocation. If it was forwarded to other nodes of a
/// [group](crate::group), it still runs there, and the source cancels it at the first target, which gives back what it holds for it.
///
/// There are three ways to get its answer: [`wait`](Self::wait) blocks, [`try_wait`](Self::try_wait) polls, and as a
/// future it can be awaited under any executor. [`Source::driver`](super::Source::driver) explains which thread
/// receives for futures.
///
/// ```no_run
/// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let source = ifunc_rt::Source::connect("shm:counter")?;
/// let add = source.register::<hello::add>()?;
/// let (one, two) = (add.call(&1)?, add.call(&2)?);
/// println!("{} {}", one.await?, two.await?);
/// println!("{}", add.call_async(&3).await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "to ignore the answer, use `send`"]
pub struct Call<A> {
    invoked: Invoked,
    /// 0 after the completion was taken.
    token: u64,
    decode: fn(&[u8]) -> Result<A, DecodeError>,
    task: Waiting,
}

/// The link of a call was lost.
struct LinkLost;

/// Created when the call waits as a future: most calls never do, and a small call is cheap to move.
///
/// Dropped by hand: the compiler drops a task in a function that it calls even where there is none.
struct Waiting(ManuallyDrop<Option<Box<Task<Connection>>>>);

impl Waiting {
    const NONE: Self = Self(ManuallyDrop::new(None));

    #[inline(always)]
    fn clear(&mut self) {
        if self.0.is_some() {
            self.drop_task();
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_task(&mut self) {
        *self.0 = None;
    }
}

impl Drop for Waiting {
    #[inline(always)]
    fn drop(&mut self) {
        self.clear();
    }
}

impl<A> Call<A> {
    pub(super) fn new(invoked: Invoked, token: u64, decode: fn(&[u8]) -> Result<A, DecodeError>) -> Self {
        Self {
            invoked,
            token,
            decode,
            task: Waiting::NONE,
        }
    }

    /// What it invokes, and its token.
    pub(super) fn into_parts(mut self) -> (Invoked, u64) {
        let token = std::mem::take(&mut self.token);
        (self.invoked.clone(), token)
    }

    /// The same call with its own deadline: [`wait`](Self::wait) and `.await` wait at most `timeout`, from when they
    /// begin.
    ///
    /// The default is the timeout of [`Handle::with_timeout`](super::Handle::with_timeout), or else of
    /// [`SourceOptions::timeout`](super::SourceOptions::timeout). A deadline ends the wait, not the invocation.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.task.clear();
        self.invoked.timeout = timeout;
        self
    }

    /// Waits for the answer, up to the timeout of [`with_timeout`](Self::with_timeout).
    ///
    /// # Errors
    /// Every outcome of an invocation other than an answer: see [`Error`].
    pub fn wait(mut self) -> Result<A, Error> {
        self.wait_timeout(self.invoked.timeout)
    }

    /// Waits at most `timeout` for the answer. After [`Error::Timeout`] the caller may wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If the result was already taken.
    #[inline]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<A, Error> {
        // The clock is read only if the call has to wait.
        let mut taken = self.try_take();
        if taken.is_none() {
            std::mem::forget(taken);
            return self.wait_longer(timeout);
        }
        let answer = self.finish(&mut taken);
        // It was taken out: to drop nothing is a call.
        std::mem::forget(taken);
        answer
    }

    /// Waits as [`wait`](Self::wait), and calls `with` for the bytes of the answer where they lie: they are not copied, and no memory is
    /// allocated for a short answer.
    ///
    /// ```no_run
    /// # fn print(everything: &ifunc_rt::Handle<ifunc_rt::ByName>) -> Result<(), ifunc_rt::Error> {
    /// let len = everything.call(&[])?.wait_with(<[u8]>::len)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline]
    pub fn wait_with<R>(mut self, with: impl FnOnce(&[u8]) -> R) -> Result<R, Error> {
        let with = |bytes: &[u8]| Ok(with(bytes));
        let mut taken = self.try_take();
        match taken {
            Some(_) => self.finish_with(with, &mut taken),
            None => self.wait_longer_with(self.invoked.timeout, with),
        }
    }

    #[inline(always)]
    fn wait_longer(&mut self, timeout: Duration) -> Result<A, Error> {
        self.wait_longer_with(timeout, self.decode)
    }

    #[inline(never)]
    fn wait_longer_with<R>(
        &mut self,
        timeout: Duration,
        with: impl FnOnce(&[u8]) -> Result<R, DecodeError>,
    ) -> Result<R, Error> {
        self.task.clear();
        let (token, shared) = (self.token, self.invoked.shared());
        let waited = shared.wait(after(timeout), Want::Completion(token), |connection| {
            Ok(connection.receive(token))
        });
        self.waited(waited, with)
    }

    /// The outcome, if the call ended.
    #[inline(always)]
    fn try_take(&self) -> Option<Outcome> {
        assert!(self.token != 0, "the result of this call was taken already");
        let Some(state) = self.invoked.shared().state.try_lock() else {
            return self.try_take_locked();
        };
        // Returned from here, an outcome is written once, to where the caller wants it.
        WakeGuard::new(state).connection.receive(self.token)
    }

    #[cold]
    #[inline(never)]
    fn try_take_locked(&self) -> Option<Outcome> {
        let connection = &mut self.invoked.shared().lock().connection;
        connection.receive(self.token)
    }

    /// As [`try_take`](Self::try_take). `Err`: the call has not ended, and its link was lost.
    fn try_take_connected(&self) -> Result<Option<Outcome>, LinkLost> {
        assert!(self.token != 0, "the result of this call was taken already");
        let connection = &mut self.invoked.shared().lock().connection;
        match connection.receive(self.token) {
            None if !connection.is_connected() => Err(LinkLost),
            None if connection.may_skip_poll() => Ok(connection.receive(self.token)),
            taken => Ok(taken),
        }
    }

    /// The link was lost: spends a moment on an attempt to reconnect. Returns the outcome, if the call ended.
    #[cold]
    #[inline(never)]
    fn try_reconnect(&self) -> Option<Outcome> {
        self.invoked.shared().try_reconnect();
        self.try_take()
    }

    /// The result of a wait. After some errors of the wait itself the call still has its token.
    fn waited<R>(
        &mut self,
        waited: Result<Outcome, Ended<Error>>,
        with: impl FnOnce(&[u8]) -> Result<R, DecodeError>,
    ) -> Result<R, Error> {
        match waited {
            Ok(outcome) => self.finish_with(with, &mut Some(outcome)),
            Err(ended) => {
                if !matches!(ended, Ended::TimedOut(_) | Ended::NoThread(_)) {
                    self.token = 0;
                }
                Err(explain_wait(ended, self.invoked.name()))
            }
        }
    }

    /// The result of a call that ended.
    #[inline(always)]
    fn finish(&mut self, taken: &mut Option<Outcome>) -> Result<A, Error> {
        self.finish_with(self.decode, taken)
    }

    /// The same, of which `with` makes another answer.
    #[inline(always)]
    fn finish_with<R>(
        &mut self,
        with: impl FnOnce(&[u8]) -> Result<R, DecodeError>,
        taken: &mut Option<Outcome>,
    ) -> Result<R, Error> {
        self.token = 0;
        self.task.clear();
        decoded(&self.invoked.binding, with, taken)
    }

    #[cold]
    #[inline(never)]
    fn abandon(&mut self) {
        self.task.clear();
        self.invoked.shared().lock().connection.abandon(self.token);
    }

    /// Waits for the answer and returns its bytes undecoded: for an ifunc that returns nothing and passes bytes to
    /// `ctx.answer(..)`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_bytes(self) -> Result<Vec<u8>, Error> {
        self.undecoded().wait()
    }

    /// The same call, whose answer is its bytes: what [`wait_bytes`](Self::wait_bytes) waits for, to be awaited or polled.
    ///
    /// ```no_run
    /// # async fn fetch(everything: ifunc_rt::Handle<ifunc_rt::ByName>) -> Result<(), ifunc_rt::Error> {
    /// let bytes: Vec<u8> = everything.call(&[])?.undecoded().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn undecoded(mut self) -> Call<Vec<u8>> {
        self.task.clear();
        let token = std::mem::take(&mut self.token);
        Call::new(self.invoked.clone(), token, |bytes| Ok(bytes.to_vec()))
    }

    /// The result, if it has arrived. Does not wait for it. If the link was lost and the call may be sent again, it
    /// spends a moment on an attempt to reconnect.
    ///
    /// # Panics
    /// If the result was already taken.
    pub fn try_wait(&mut self) -> Option<Result<A, Error>> {
        let taken = self.try_take_connected();
        let mut taken = taken.unwrap_or_else(|LinkLost| self.try_reconnect());
        taken.is_some().then(|| self.finish(&mut taken))
    }
}

/// The answer of a call that ended. Takes the outcome where it lies: it has several words, and is dropped in a function of its own.
#[inline(always)]
pub(super) fn decoded<A>(
    binding: &Binding,
    decode: impl FnOnce(&[u8]) -> Result<A, DecodeError>,
    taken: &mut Option<Outcome>,
) -> Result<A, Error> {
    let library = &binding.library;
    let (decoded, is_short) = match taken {
        Some(Ok(completion)) if completion.status == Status::Executed => {
            (decode(completion.bytes()), completion.is_short())
        }
        _ => return Err(explain_outcome(library, taken.take())),
    };
    if is_short {
        // It owns nothing.
        std::mem::forget(taken.take());
    } else {
        drop_outcome(taken);
    }
    decoded.map_err(|error| Error::Answer {
        ifunc: library.name.clone(),
        error,
    })
}

#[cold]
fn drop_outcome(taken: &mut Option<Outcome>) {
    *taken = None;
}

/// Why a call that ended has no answer.
#[cold]
fn explain_outcome(library: &Library, taken: Option<Outcome>) -> Error {
    match taken {
        Some(Ok(completion)) => explain(library, &completion),
        Some(Err(lost)) => explain_lost_invocation(library, *lost),
        None => explain_lost_invocation(library, Lost::Indeterminate),
    }
}

// Nothing in it is pinned.
impl<A> Unpin for Call<A> {}

/// Ready with the answer, or when the timeout of [`with_timeout`](Call::with_timeout) has passed since the first
/// poll. After [`Error::Timeout`] it may be polled again. Its errors are those of [`wait`](Call::wait), and
/// [`Error::NoThread`].
///
/// # Panics
/// If the result was already taken.
impl<A> Future for Call<A> {
    type Output = Result<A, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.task.0.is_none()
            && let mut taken @ Some(_) = this.try_take()
        {
            return Poll::Ready(this.finish(&mut taken));
        }
        let token = this.token;
        assert!(token != 0, "the result of this call was taken already");
        let new = || Box::new(Task::new(this.invoked.shared(), this.invoked.timeout));
        let task = this.task.0.get_or_insert_with(new);
        let take = &mut |connection: &mut Connection| Ok(connection.receive(token));
        let waited = ready!(task.poll(context, Want::Completion(token), take));
        this.task.clear();
        Poll::Ready(this.waited(waited, this.decode))
    }
}

impl<A> Drop for Call<A> {
    #[inline]
    fn drop(&mut self) {
        if self.token != 0 {
            self.abandon();
        }
    }
}

impl<A> fmt::Debug for Call<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("ifunc", &self.invoked.name())
            .field("token", &self.token)
            .finish()
    }
}

/// Writes a payload into memory that may be longer than it asked for.
type Encode<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Error> + 'a;

/// The encoding of a [`Handle`]'s payloads and answers. Every [`Ifunc`], the type that `#[ifunc]` makes, is one;
/// [`ByName`] is the other.
pub trait Encoding: 'static {
    /// The type that a call takes by reference.
    type Payload<'a>: ?Sized;
    /// The type that a call returns.
    type Answer;

    /// Upper bound of the payload's length, and its alignment.
    #[doc(hidden)]
    fn layout(library: &Library, payload: &Self::Payload<'_>) -> (usize, usize);

    /// Writes the payload, and returns its length. The memory may be longer than its `bound`.
    #[doc(hidden)]
    fn encode(
        library: &Library,
        payload: &Self::Payload<'_>,
        bound: usize,
        room: &mut [u8],
    ) -> Result<usize, Error>;

    /// Reads an answer.
    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Result<Self::Answer, DecodeError>;
}

impl<F: Ifunc> Encoding for F {
    type Payload<'a> = <F as Ifunc>::Payload<'a>;
    type Answer = <F as Ifunc>::Answer;

    #[inline(always)]
    fn layout(_: &Library, payload: &<F as Ifunc>::Payload<'_>) -> (usize, usize) {
        (F::bound(payload), F::ALIGN)
    }

    #[inline(always)]
    fn encode(
        _: &Library,
        payload: &<F as Ifunc>::Payload<'_>,
        _: usize,
        room: &mut [u8],
    ) -> Result<usize, Error> {
        F::encode(payload, room).map_err(|error| Error::Payload {
            ifunc: F::NAME.into(),
            error,
        })
    }

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Result<<F as Ifunc>::Answer, DecodeError> {
        F::decode_answer(bytes)
    }
}

/// The encoding of an ifunc by name, written in Rust or C: the `payload_init` of its library makes a payload of the source
/// arguments that a call takes. Where only an image was loaded ([`Source::load_bytes`](super::Source::load_bytes)), a call takes
/// the payload itself. The answer is bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByName {}

impl Encoding for ByName {
    type Payload<'a> = [u8];
    type Answer = Vec<u8>;

    #[inline]
    fn layout(library: &Library, source_args: &[u8]) -> (usize, usize) {
        let functions = library.source_functions.as_ref();
        let bound = functions.map_or(source_args.len(), |functions| functions.bound(source_args));
        (bound, library.payload_align)
    }

    #[inline]
    fn encode(library: &Library, source_args: &[u8], bound: usize, room: &mut [u8]) -> Result<usize, Error> {
        // The library sees the length that it asked for.
        let len = bound.min(room.len());
        let room = &mut room[..len];
        let Some(functions) = &library.source_functions else {
            room.copy_from_slice(source_args);
            return Ok(len);
        };
        functions.init(source_args, room)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
}
