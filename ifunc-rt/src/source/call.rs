//! An outstanding call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::status::Status;
use ifunc_proto::completion::Completion;

use super::completion::{explain, explain_wait};
use super::connection::Connection;
use super::error::Error;
use super::handle::Submitter;
use crate::driver::backoff::after;
use crate::driver::future::Task;
use crate::driver::state::Want;

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
        self.wait_timeout(self.submitter.timeout)
    }

    /// Waits at most `timeout` for the answer. After [`Error::Timeout`] the caller may wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If the result was already taken.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<A, Error> {
        self.task = None;
        // The clock is read only if the call has to wait.
        let result = match self.try_take() {
            Some(result) => result,
            None => self.wait_longer(timeout),
        };
        self.ended(result)
    }

    #[inline(never)]
    fn wait_longer(&self, timeout: Duration) -> Result<Completion, Error> {
        let shared = self.submitter.shared();
        shared.complete(self.token, after(timeout), self.submitter.name())
    }

    /// The completion, if it has arrived.
    #[inline]
    fn try_take(&self) -> Option<Result<Completion, Error>> {
        assert!(self.token != 0, "the result of this call was taken already");
        let connection = &mut self.submitter.shared().lock().connection;
        connection.try_take(self.token, self.submitter.name())
    }

    /// The result of a wait. After an error of the wait itself the call still has its token.
    #[inline]
    fn ended(&mut self, result: Result<Completion, Error>) -> Result<A, Error> {
        let completion = match result {
            Err(error @ (Error::Timeout { .. } | Error::NoThread { .. })) => return Err(error),
            result => {
                self.token = 0;
                result?
            }
        };
        let library = &self.submitter.binding.library;
        if completion.status != Status::Executed {
            return Err(explain(library, &completion));
        }
        (self.decode)(completion.bytes()).map_err(|error| Error::Answer {
            ifunc: library.name.clone(),
            error,
        })
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
        let result = first.or_else(|| {
            self.submitter.shared().try_reconnect();
            self.try_take()
        })?;
        self.task = None;
        Some(self.ended(result))
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
            && let Some(result) = this.try_take()
        {
            return Poll::Ready(this.ended(result));
        }
        let (token, what) = (this.token, this.submitter.name());
        assert!(token != 0, "the result of this call was taken already");
        let new = || Box::new(Task::new(this.submitter.shared(), this.submitter.timeout));
        let task = this.task.get_or_insert_with(new);
        let take = &mut |connection: &mut Connection| connection.try_take(token, what).transpose();
        let result = ready!(task.poll(context, Want::Completion(token), take));
        this.task = None;
        let result = result.map_err(|ended| explain_wait(ended, what));
        Poll::Ready(this.ended(result))
    }
}

impl<A> Drop for Call<A> {
    fn drop(&mut self) {
        if self.token != 0 {
            self.task = None;
            let connection = &mut self.submitter.shared().lock().connection;
            connection.protocol.abandon(self.token);
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
