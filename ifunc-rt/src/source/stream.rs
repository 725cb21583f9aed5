//! Calls that are answered in parts.

use std::fmt;
use std::time::Duration;

use ifunc::payload::DecodeError;
use ifunc_abi::status::Status;
use ifunc_proto::calls::Outcome;

use super::call::decoded;
use super::completion::explain_wait;
use super::connection::Connection;
use super::encoding::Encoding;
use super::error::Error;
use super::handle::{Handle, Invoked};
use crate::driver::backoff::after;
use crate::driver::state::Want;

/// Parts that may be on their way, and wait at the source, at the same time.
const WINDOW: u32 = 64;
/// Parts that are taken before the target is told.
pub(super) const GRANT: u32 = WINDOW / 2;

impl<E: Encoding> Handle<E> {
    /// Calls an ifunc that answers in [parts](ifunc::Context::reply): an iterator of them, in their order. The answer with
    /// which the call ends is the last item, unless it is empty.
    ///
    /// ```no_run
    /// # mod scans { use ifunc::prelude::*; use ifunc::Onward; #[ifunc] pub fn above(least: u64, values: &mut [u64; 64], ctx: &mut Context) -> Onward<u64> {
    /// #     for value in values.iter().filter(|&&value| value >= least) { if ctx.reply(value).is_err() { break; } } Onward::Replied } }
    /// let source = ifunc_rt::Source::connect("shm:values")?;
    /// let above = source.register::<scans::above>()?;
    /// for value in above.call_stream(&1000)? {
    ///     println!("{}", value?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Bounded.** Up to 64 parts are sent ahead of the iterator. An ifunc that has sent as many gets
    /// [`TravelError::Window`](ifunc::TravelError::Window), and may [forward](ifunc::Context::forward) itself to its own node: it goes
    /// on there when the iterator has taken some.
    ///
    /// **The deadline** of the handle holds for the whole call at the target, and for the wait for each part here. A dropped
    /// stream drops the parts that it has not returned, and cancels the call: an invocation that waits for the window ends.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_stream(&self, payload: &E::Payload<'_>) -> Result<Stream<E::Answer>, Error> {
        let mut handle = self.clone();
        handle.submitter.travels.window = WINDOW;
        let (invoked, token) = handle.call(payload)?.into_parts();
        Ok(Stream {
            invoked,
            token,
            decode: E::decode,
            ungranted: 0,
        })
    }
}

/// The parts of an answer: see [`Handle::call_stream`].
#[must_use = "parts are received by iterating"]
pub struct Stream<A> {
    invoked: Invoked,
    /// 0 after the call ended.
    token: u64,
    decode: fn(&[u8]) -> Result<A, DecodeError>,
    /// Parts that were taken, and of which the target does not know.
    ungranted: u32,
}

/// What arrives next of a call.
pub(super) enum Part {
    Partial(Vec<u8>),
    End(Outcome),
}

impl<A> Stream<A> {
    /// Waits at most so long for each part, instead of the handle's deadline.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.invoked.timeout = timeout;
        self
    }

    fn decoded(&self, bytes: &[u8]) -> Result<A, Error> {
        (self.decode)(bytes).map_err(|error| Error::Answer {
            ifunc: self.invoked.name().to_owned(),
            error,
        })
    }
}

impl<A> Iterator for Stream<A> {
    type Item = Result<A, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.token == 0 {
            return None;
        }
        let (token, ungranted) = (self.token, &mut self.ungranted);
        let waited = self.invoked.shared().wait(
            after(self.invoked.timeout),
            Want::Completion(token),
            |connection: &mut Connection| Ok::<_, Error>(connection.next_part(token, ungranted)),
        );
        match waited {
            Ok(Part::Partial(bytes)) => Some(self.decoded(&bytes)),
            Ok(Part::End(outcome)) => {
                self.token = 0;
                let is_empty = |completion: &ifunc_proto::calls::Completion| {
                    completion.status == Status::Executed && completion.bytes().is_empty()
                };
                if outcome.as_ref().is_ok_and(is_empty) {
                    return None;
                }
                Some(decoded(&self.invoked.binding, self.decode, &mut Some(outcome)))
            }
            Err(ended) => Some(Err(explain_wait(ended, self.invoked.name()))),
        }
    }
}

impl<A> Drop for Stream<A> {
    fn drop(&mut self) {
        if self.token != 0 {
            self.invoked.shared().lock().connection.abandon(self.token);
        }
    }
}

impl<A> fmt::Debug for Stream<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("ifunc", &self.invoked.name())
            .finish_non_exhaustive()
    }
}
