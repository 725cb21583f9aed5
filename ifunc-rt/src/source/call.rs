//! The call that waits for an answer.

use std::fmt;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::status::Status;
use ifunc_proto::calls::{Lost, Outcome};

use super::completion::{explain, explain_lost_invocation, explain_wait};
use super::connection::Connection;
use super::error::Error;
use super::handle::{Binding, Invoked};
use super::library::Library;
use crate::driver::backoff::after;
use crate::driver::driven::Driven as _;
use crate::driver::future::Task;
use crate::driver::state::Want;
use crate::driver::wait::Ended;
use crate::driver::wake::WakeGuard;

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
