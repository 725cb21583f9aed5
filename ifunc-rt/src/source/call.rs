//! A call under way.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::status::Status;
use ifunc_proto::completion::Completion;

use super::completion::explain;
use super::connection::Connection;
use super::error::Error;
use super::handle::Handle;
use super::shared;
use crate::driver::backoff::after;
use crate::driver::future::Task;
use crate::driver::state::Want;

/// A call under way. Dropping it drops the answer; the invocation runs all the same.
///
/// Its answer is waited for in one of three ways: [`wait`](Self::wait) blocks, [`try_wait`](Self::try_wait) looks, and as a future
/// it is awaited under any executor. Who receives for futures, see [`Source::driver`](super::Source::driver).
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
#[must_use = "a call that nobody waits for is better a `send`"]
pub struct Call<A> {
    handle: Handle,
    /// 0 when the completion was taken.
    token: u64,
    decode: fn(&[u8]) -> Result<A, DecodeError>,
    /// Made when it has to wait as a future: most calls never do, and a call is moved about.
    task: Option<Box<Task>>,
}

impl<A> Call<A> {
    pub(super) fn new(handle: Handle, token: u64, decode: fn(&[u8]) -> Result<A, DecodeError>) -> Self {
        Self {
            handle,
            token,
            decode,
            task: None,
        }
    }

    /// The same call, which [`wait`](Self::wait) and `.await` wait for no longer than `timeout` from when they begin.
    ///
    /// Without it they wait as long as [`Registered::with_timeout`](super::Registered::with_timeout) says, or
    /// [`SourceOptions::timeout`](super::SourceOptions::timeout). A deadline ends the wait, not the invocation.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.leave();
        self.handle.set_timeout(timeout);
        self
    }

    /// Waits for the answer, as long as [`with_timeout`](Self::with_timeout) says.
    ///
    /// # Errors
    /// Everything that can become of an invocation but an answer: see [`Error`].
    pub fn wait(mut self) -> Result<A, Error> {
        self.wait_for(None)
    }

    /// Waits for the answer for `timeout`. After [`Error::Timeout`] it may be waited for again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// When the result was taken already.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<A, Error> {
        self.wait_for(Some(timeout))
    }

    fn wait_for(&mut self, timeout: Option<Duration>) -> Result<A, Error> {
        assert!(self.token != 0, "the result of this call was taken already");
        self.leave();
        // The clock is only looked at when there is something to wait for.
        let first = self.handle.try_take(self.token);
        let completion = match first {
            Some(result) => {
                self.token = 0;
                result?
            }
            None => self.wait_longer(timeout)?,
        };
        self.finish(completion)
    }

    #[inline(never)]
    fn wait_longer(&mut self, timeout: Option<Duration>) -> Result<Completion, Error> {
        let deadline = timeout.map_or_else(|| self.handle.deadline(), after);
        let shared = self.handle.source().shared();
        let result = shared.complete(self.token, deadline, self.handle.name());
        if !matches!(result, Err(Error::Timeout { .. })) {
            self.token = 0;
        }
        result
    }

    /// Waits for the answer and returns its bytes undecoded: for what an ifunc that returns nothing gave to
    /// `ctx.answer(..)`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_bytes(self) -> Result<Vec<u8>, Error> {
        self.undecoded().wait()
    }

    /// The same call, whose answer is its bytes.
    pub(crate) fn undecoded(self) -> Call<Vec<u8>> {
        // The same call with another way to decode; the token moves over. As a future it waits no more.
        let mut this = std::mem::ManuallyDrop::new(self);
        this.leave();
        let token = std::mem::take(&mut this.token);
        // SAFETY: `this` is never used again and never dropped, so the handle is moved out once.
        let handle = unsafe { std::ptr::read(&raw const this.handle) };
        Call {
            handle,
            token,
            decode: |bytes| Ok(bytes.to_vec()),
            task: None,
        }
    }

    /// The result, if it is there. Does not wait for it; when the link was lost and the call may be sent again, it spends
    /// a moment on that.
    ///
    /// # Panics
    /// When the result was taken already.
    pub fn try_wait(&mut self) -> Option<Result<A, Error>> {
        assert!(self.token != 0, "the result of this call was taken already");
        let source = self.handle.source();
        let mut result = self.handle.try_take(self.token);
        if result.is_none() {
            source.shared().try_reconnect();
            result = self.handle.try_take(self.token);
        }
        let result = result?;
        self.leave();
        self.token = 0;
        Some(result.and_then(|completion| self.finish(completion)))
    }

    fn finish(&self, completion: Completion) -> Result<A, Error> {
        if completion.status != Status::Executed {
            return Err(explain(self.handle.library(), &completion));
        }
        (self.decode)(completion.bytes()).map_err(|error| Error::Answer {
            ifunc: self.handle.name().to_owned(),
            error,
        })
    }
}

impl<A> Call<A> {
    /// Waits no more as a future.
    #[inline]
    fn leave(&mut self) {
        if let Some(mut task) = self.task.take()
            && task.is_parked()
        {
            task.leave(&mut self.handle.source().lock());
        }
    }
}

// Nothing in it is pinned.
impl<A> Unpin for Call<A> {}

/// Ready with the answer, or when what [`with_timeout`](Call::with_timeout) says has passed since the first poll; after
/// [`Error::Timeout`] it may be polled again. Errors are those of [`wait`](Call::wait), and [`Error::NoThread`].
///
/// # Panics
/// When the result was taken already.
impl<A> Future for Call<A> {
    type Output = Result<A, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let token = this.token;
        assert!(token != 0, "the result of this call was taken already");
        if this.task.is_none() {
            let first = this.handle.try_take(token);
            if let Some(result) = first {
                this.token = 0;
                return Poll::Ready(result.and_then(|completion| this.finish(completion)));
            }
        }
        let (shared, what) = (this.handle.source().shared(), this.handle.name());
        let task = this
            .task
            .get_or_insert_with(|| Box::new(Task::new(this.handle.timeout())));
        let take = &mut |connection: &mut Connection| connection.try_take(token, what).transpose();
        let result = ready!(task.poll(shared, context, Want::Completion(token), take));
        let result = result.map_err(|ended| shared::explain(ended, what));
        match &result {
            Err(Error::Timeout { .. } | Error::NoThread { .. }) => task.restart(),
            _ => this.token = 0,
        }
        Poll::Ready(result.and_then(|completion| this.finish(completion)))
    }
}

impl<A> Drop for Call<A> {
    fn drop(&mut self) {
        if self.token != 0 {
            let mut state = self.handle.source().lock();
            if let Some(task) = &mut self.task {
                task.leave(&mut state);
            }
            state.connection.abandon(self.token);
        }
    }
}

impl<A> fmt::Debug for Call<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("ifunc", &self.handle.name())
            .field("token", &self.token)
            .finish()
    }
}
