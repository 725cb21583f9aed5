//! A call under way.

use std::fmt;
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::status::Status;

use super::completion::{Completion, explain};
use super::error::Error;
use super::handle::Handle;
use super::patience::after;

/// A call under way. Dropping it drops the answer; the invocation runs all the same.
#[must_use = "a call that nobody waits for is better a `send`"]
pub struct Call<A> {
    handle: Handle,
    /// 0 when the completion was taken.
    token: u64,
    decode: fn(&[u8]) -> Result<A, DecodeError>,
}

impl<A> Call<A> {
    pub(super) fn new(handle: Handle, token: u64, decode: fn(&[u8]) -> Result<A, DecodeError>) -> Self {
        Self {
            handle,
            token,
            decode,
        }
    }

    /// Waits for the answer, as long as [`SourceOptions::timeout`](super::SourceOptions::timeout) says.
    ///
    /// # Errors
    /// Everything that can become of an invocation but an answer: see [`Error`].
    pub fn wait(mut self) -> Result<A, Error> {
        let timeout = self.handle.source().lock().options().timeout;
        self.wait_timeout(timeout)
    }

    /// Waits for the answer for `timeout`. After [`Error::Timeout`] it may be waited for again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// When the result was taken already.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<A, Error> {
        assert!(self.token != 0, "the result of this call was taken already");
        let deadline = after(timeout);
        let result = self
            .handle
            .source()
            .wait(self.token, deadline, self.handle.name());
        if !matches!(result, Err(Error::Timeout { .. })) {
            self.token = 0;
        }
        self.finish(result?)
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
        // The same call with another way to decode; the token moves over.
        let mut this = std::mem::ManuallyDrop::new(self);
        let token = std::mem::take(&mut this.token);
        // SAFETY: `this` is never used again and never dropped, so the handle is moved out once.
        let handle = unsafe { std::ptr::read(&raw const this.handle) };
        Call::new(handle, token, |bytes| Ok(bytes.to_vec()))
    }

    /// The result, if it is there. Does not wait for it; when the link was lost and the call may be sent again, it spends
    /// a moment on that.
    ///
    /// # Panics
    /// When the result was taken already.
    pub fn poll(&mut self) -> Option<Result<A, Error>> {
        assert!(self.token != 0, "the result of this call was taken already");
        let source = self.handle.source();
        let mut result = source.lock().try_take(self.token);
        if result.is_none() {
            source.nudge();
            result = source.lock().try_take(self.token);
        }
        let result = result?;
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

impl<A> Drop for Call<A> {
    fn drop(&mut self) {
        if self.token != 0 {
            self.handle.source().lock().abandon(self.token);
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
