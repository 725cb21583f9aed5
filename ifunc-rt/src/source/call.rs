//! An outstanding call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::status::Status;
use ifunc_proto::calls::Outcome;

use super::completion::{explain, explain_lost, explain_wait};
use super::connection::Connection;
use super::error::Error;
use super::handle::Submitter;
use crate::driver::backoff::after;
use crate::driver::future::Task;
use crate::driver::state::Want;
use crate::driver::wait::Ended;
use crate::driver::wake::Wakes as _;

/// An outstanding call. Dropping it drops the answer; the target still runs the invocation.
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
    submitter: Submitter,
    /// 0 after the completion was taken.
    token: u64,
    decode: fn(&[u8]) -> Result<A, DecodeError>,
    /// Created when the call waits as a future: most calls never do, and a small call is cheap to move.
    task: Option<Box<Task<Connection>>>,
}

impl<A> Call<A> {
    pub(super) fn new(submitter: Submitter, token: u64, decode: fn(&[u8]) -> Result<A, DecodeError>) -> Self {
        Self {
            submitter,
            token,
            decode,
            task: None,
        }
    }

    /// The same call with its own deadline: [`wait`](Self::wait) and `.await` wait at most `timeout`, from when they
    /// begin.
    ///
    /// The default is the timeout of [`Handle::with_timeout`](super::Handle::with_timeout), or else of
    /// [`SourceOptions::timeout`](super::SourceOptions::timeout). A deadline ends the wait, not the invocation.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.task = None;
        self.submitter.timeout = timeout;
        self
    }

    /// Waits for the answer, up to the timeout of [`with_timeout`](Self::with_timeout).
    ///
    /// # Errors
    /// Every outcome of an invocation other than an answer: see [`Error`].
    pub fn wait(mut self) -> Result<A, Error> {
        match self.try_take() {
            Some(outcome) => self.finish(outcome),
            None => self.wait_longer(self.submitter.timeout),
        }
    }

    /// Waits at most `timeout` for the answer. After [`Error::Timeout`] the caller may wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If the result was already taken.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<A, Error> {
        // The clock is read only if the call has to wait.
        match self.try_take() {
            Some(outcome) => self.finish(outcome),
            None => self.wait_longer(timeout),
        }
    }

    #[inline(never)]
    fn wait_longer(&mut self, timeout: Duration) -> Result<A, Error> {
        self.task = None;
        let (token, shared) = (self.token, self.submitter.shared());
        let waited = shared.wait(after(timeout), Want::Completion(token), |connection| {
            Ok(connection.receive(token))
        });
        self.waited(waited)
    }

    /// The outcome, if the call ended.
    #[inline(always)]
    fn try_take(&self) -> Option<Outcome> {
        assert!(self.token != 0, "the result of this call was taken already");
        let shared = self.submitter.shared();
        let Some(mut state) = shared.state.try_lock() else {
            return self.try_take_locked();
        };
        let outcome = state.connection.receive(self.token);
        if state.wakes() {
            drop(state);
            shared.wake();
        }
        outcome
    }

    #[cold]
    #[inline(never)]
    fn try_take_locked(&self) -> Option<Outcome> {
        let connection = &mut self.submitter.shared().lock().connection;
        connection.receive(self.token)
    }

    /// The result of a wait. After some errors of the wait itself the call still has its token.
    fn waited(&mut self, waited: Result<Outcome, Ended<Error>>) -> Result<A, Error> {
        match waited {
            Ok(outcome) => self.finish(outcome),
            Err(ended) => {
                if !matches!(ended, Ended::TimedOut(_) | Ended::NoThread(_)) {
                    self.token = 0;
                }
                Err(explain_wait(ended, self.submitter.name()))
            }
        }
    }

    /// The result of a call that ended.
    #[inline(always)]
    fn finish(&mut self, outcome: Outcome) -> Result<A, Error> {
        self.token = 0;
        // To drop a task is a call, even where there is none.
        if self.task.is_some() {
            self.task = None;
        }
        let library = &self.submitter.binding.library;
        match outcome {
            Ok(completion) if completion.status == Status::Executed => (self.decode)(completion.bytes())
                .map_err(|error| Error::Answer {
                    ifunc: library.name.clone(),
                    error,
                }),
            Ok(completion) => Err(explain(library, &completion)),
            Err(lost) => Err(explain_lost(&library.name, *lost)),
        }
    }

    #[cold]
    #[inline(never)]
    fn abandon(&mut self) {
        self.task = None;
        let connection = &mut self.submitter.shared().lock().connection;
        connection.protocol.caller.abandon(self.token);
    }

    /// Waits for the answer and returns its bytes undecoded: for an ifunc that returns nothing and passes bytes to
    /// `ctx.answer(..)`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_bytes(self) -> Result<Vec<u8>, Error> {
        self.undecoded().wait()
    }

    /// The same call with an undecoded answer.
    pub(crate) fn undecoded(mut self) -> Call<Vec<u8>> {
        self.task = None;
        let token = std::mem::take(&mut self.token);
        Call::new(self.submitter.clone(), token, |bytes| Ok(bytes.to_vec()))
    }

    /// The result, if it has arrived. Does not wait for it. If the link was lost and the call may be sent again, it
    /// spends a moment on an attempt to reconnect.
    ///
    /// # Panics
    /// If the result was already taken.
    pub fn try_wait(&mut self) -> Option<Result<A, Error>> {
        let first = self.try_take();
        let outcome = first.or_else(|| {
            self.submitter.shared().try_reconnect();
            self.try_take()
        })?;
        Some(self.finish(outcome))
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
        if this.task.is_none()
            && let Some(outcome) = this.try_take()
        {
            return Poll::Ready(this.finish(outcome));
        }
        let token = this.token;
        assert!(token != 0, "the result of this call was taken already");
        let new = || Box::new(Task::new(this.submitter.shared(), this.submitter.timeout));
        let task = this.task.get_or_insert_with(new);
        let take = &mut |connection: &mut Connection| Ok(connection.receive(token));
        let waited = ready!(task.poll(context, Want::Completion(token), take));
        this.task = None;
        Poll::Ready(this.waited(waited))
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
            .field("ifunc", &self.submitter.name())
            .field("token", &self.token)
            .finish()
    }
}
