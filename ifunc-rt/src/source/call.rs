//! A call under way, and what came back.

use std::fmt;
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::about::About;
use ifunc_abi::frame::INLINE;
use ifunc_abi::status::{Failure, PanicDetail, Rejection, Status};

use super::error::Error;
use super::handle::Handle;
use super::patience::after;
use crate::transports::Body;

/// What a target reported of a request.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) status: Status,
    body: Bytes,
}

/// Answers are small most of the time.
enum Bytes {
    Inline(u8, [u8; INLINE]),
    Heap(Vec<u8>),
}

impl Completion {
    pub(super) fn new(status: Status, body: &Body<'_>) -> Self {
        let body = if body.len() <= INLINE {
            let mut bytes = [0; INLINE];
            body.copy_to_slice(&mut bytes[..body.len()]);
            Bytes::Inline(body.len() as u8, bytes)
        } else {
            let mut bytes = Vec::new();
            body.copy_to(&mut bytes);
            Bytes::Heap(bytes)
        };
        Self { status, body }
    }

    pub(super) fn executed() -> Self {
        Self {
            status: Status::Executed,
            body: Bytes::Inline(0, [0; INLINE]),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.body {
            Bytes::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }

    /// The handle that a report is about, and the report as a completion.
    pub(super) fn split_report(&self) -> (u32, Self) {
        let (handle, detail) = self.bytes().split_first_chunk().unwrap_or((&[0xff; 4], &[]));
        (
            u32::from_le_bytes(*handle),
            Self {
                status: self.status,
                body: Bytes::Heap(detail.to_vec()),
            },
        )
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(len, _) => write!(f, "{len} bytes"),
            Self::Heap(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// What a completion that is not `Executed` means, in words.
pub(super) fn explain(ifunc: &str, about: Option<&About<'_>>, completion: &Completion) -> Error {
    let ifunc = ifunc.to_owned();
    let detail = || String::from_utf8_lossy(completion.bytes()).into_owned();
    match completion.status {
        Status::Failed(Failure::Panic) => match PanicDetail::parse(completion.bytes()) {
            Some(panic) => Error::Panic {
                ifunc,
                message: panic.message.to_owned(),
                file: panic.file.to_owned(),
                line: panic.line,
                column: panic.column,
            },
            None => Error::Failed {
                ifunc,
                why: Failure::Panic,
                detail: detail(),
            },
        },
        Status::Failed(why) => Error::Failed {
            ifunc,
            why,
            detail: detail(),
        },
        Status::Rejected(why @ Rejection::TargetType) => {
            let ours = about.and_then(About::target).unwrap_or("(not stated)");
            Error::Rejected {
                ifunc,
                why,
                detail: format!("\n  the image:  {ours}\n  the target: {}", detail()),
            }
        }
        Status::Rejected(why @ Rejection::ImportSignature) => {
            let mut text = String::new();
            for line in detail().lines() {
                let (symbol, theirs) = line.split_once(' ').unwrap_or((line, ""));
                let ours = about
                    .and_then(|about| about.import(symbol))
                    .unwrap_or("(not stated)");
                text.push_str(&format!(
                    "\n  `{symbol}`\n    the image:  {ours}\n    the target: {theirs}"
                ));
            }
            Error::Rejected {
                ifunc,
                why,
                detail: text,
            }
        }
        Status::Rejected(why @ Rejection::MissingImport) => {
            let symbols: Vec<_> = detail().lines().map(|symbol| format!("`{symbol}`")).collect();
            let help =
                "help: `#[ifunc::export]` it on the target, or `Target::builder().allow(name, pointer)`";
            Error::Rejected {
                ifunc,
                why,
                detail: format!("{}; {help}", symbols.join(", ")),
            }
        }
        Status::Rejected(why) => Error::Rejected {
            ifunc,
            why,
            detail: detail(),
        },
        // Callers ask only for what did not end well.
        Status::Executed => Error::Answer {
            ifunc,
            error: DecodeError::Invalid,
        },
    }
}

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
        // The same call with another way to decode; the token moves over.
        let mut this = std::mem::ManuallyDrop::new(self);
        let token = std::mem::take(&mut this.token);
        // SAFETY: `this` is never used again and never dropped, so the handle is moved out once.
        let handle = unsafe { std::ptr::read(&raw const this.handle) };
        Call::new(handle, token, |bytes| Ok(bytes.to_vec())).wait()
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
            let about = self.handle.library().about();
            return Err(explain(self.handle.name(), Some(&about), &completion));
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
