//! Sending what a handle encodes: at once, with a wait for credit, and as a future.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc::payload::DecodeError;
use ifunc_proto::caller::Submission;

use super::Source;
use super::call::Call;
use super::completion::{explain_not_sent, explain_wait};
use super::connection::{Connection, NotSent};
use super::encoding::Write;
use super::error::Error;
use super::library::Library;
use super::shared::SharedConnection;
use crate::driver::backoff::after;
use crate::driver::future::Task;
use crate::driver::state::Want;

/// An image that is bound to a handle of the connection, and how its invocations are sent.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) binding: Arc<Binding>,
    /// How long its sends and calls wait; `None`: the timeout of the source's options.
    pub(super) timeout: Option<Duration>,
    /// In batches.
    pub(super) is_aggregated: bool,
    /// In a frame each, after the image.
    pub(super) carries_code: bool,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) source: Source,
    pub(super) library: Arc<Library>,
    pub(super) handle: u32,
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.source.shared.lock().connection.unbind(self.handle);
    }
}

impl Sender {
    pub(super) fn new(source: &Source, library: Library) -> Self {
        let library = Arc::new(library);
        let handle = source
            .shared
            .lock()
            .connection
            .protocol
            .bind(Arc::clone(&library));
        let source = source.clone();
        Self {
            binding: Arc::new(Binding {
                source,
                library,
                handle,
            }),
            timeout: None,
            is_aggregated: false,
            carries_code: false,
        }
    }

    #[inline]
    pub(super) fn shared(&self) -> &Arc<SharedConnection> {
        &self.binding.source.shared
    }

    pub(super) fn name(&self) -> &str {
        &self.binding.library.name
    }

    pub(super) fn deadline(&self) -> Instant {
        self.timeout.map_or_else(|| self.shared().deadline(), after)
    }

    /// An invocation with a payload of this layout.
    #[inline(always)]
    fn submission(&self, (bound, align): (usize, usize), wants_completion: bool) -> Submission {
        Submission {
            handle: self.binding.handle,
            bound,
            align,
            wants_completion,
            carries_code: self.carries_code,
        }
    }

    /// One attempt to send. With a completion the result is its token, otherwise 0.
    fn attempt(
        &self,
        connection: &mut Connection,
        layout: (usize, usize),
        wants_completion: bool,
        mut encode: &mut dyn Write,
    ) -> Result<u64, NotSent> {
        let submission = self.submission(layout, wants_completion);
        if self.is_aggregated {
            connection.append(submission, encode)
        } else {
            connection.submit(submission, &mut encode)
        }
    }

    /// The outcome of an attempt. `None`: there is no credit now, or no link.
    fn sent(&self, result: Result<u64, NotSent>) -> Result<Option<u64>, Error> {
        match result {
            Ok(token) => Ok(Some(token)),
            Err(NotSent::Blocked) => Ok(None),
            Err(NotSent::Failed(error)) => Err(explain_not_sent(self.name(), *error)),
        }
    }

    /// Sends a payload of this layout, and waits for credit if `block`. Returns the token if a completion is wanted.
    #[inline(always)]
    pub(super) fn submit(
        &self,
        layout: (usize, usize),
        wants_completion: bool,
        block: bool,
        encode: &mut impl Write,
    ) -> Result<u64, Error> {
        if !self.is_aggregated {
            let submission = self.submission(layout, wants_completion);
            let done = self.shared().try_with(|connection| {
                let result = connection.submit(submission, encode);
                (result, connection.is_idle())
            });
            match done {
                Some((Ok(token), true)) => return Ok(token),
                Some((first, _)) => return self.submit_late(layout, wants_completion, block, first, encode),
                None => {}
            }
        }
        self.submit_locked(layout, wants_completion, block, encode)
    }

    #[cold]
    fn submit_locked(
        &self,
        layout: (usize, usize),
        wants_completion: bool,
        block: bool,
        encode: &mut dyn Write,
    ) -> Result<u64, Error> {
        let mut state = self.shared().lock();
        let first = self.attempt(&mut state.connection, layout, wants_completion, encode);
        if let Ok(token) = first
            && (state.connection.is_idle() || self.is_aggregated)
        {
            return Ok(token);
        }
        drop(state);
        self.submit_late(layout, wants_completion, block, first, encode)
    }

    /// Continues after the `first` attempt: sends if that did not, and waits until all fragments are sent.
    #[cold]
    #[inline(never)]
    fn submit_late(
        &self,
        layout: (usize, usize),
        wants_completion: bool,
        block: bool,
        first: Result<u64, NotSent>,
        encode: &mut dyn Write,
    ) -> Result<u64, Error> {
        let (shared, name) = (self.shared(), self.name());
        let mut attempt = |connection: &mut Connection| {
            self.sent(self.attempt(connection, layout, wants_completion, encode))
        };
        let token = match self.sent(first)? {
            Some(token) => token,
            None if !block => {
                shared.try_reconnect();
                let second = attempt(&mut shared.lock().connection)?;
                return second.ok_or_else(|| Error::WouldBlock { what: name.into() });
            }
            None => {
                failpoint!("source.no_room");
                shared.retry(self.deadline(), name, Want::Credit, attempt)?
            }
        };
        if block && !self.is_aggregated {
            let drained = shared.retry(self.deadline(), name, Want::Credit, Connection::drained);
            if let Err(error) = drained {
                shared.lock().connection.protocol.abandon(token);
                return Err(error);
            }
        }
        Ok(token)
    }

    /// Sends when there is credit, and is ready after all of it was sent; what it returns awaits the completion, if one is
    /// wanted. If dropped before, it has sent nothing, or a body in fragments that continues without an answer.
    pub(super) async fn submit_async<A>(
        &self,
        layout: (usize, usize),
        wants_completion: bool,
        decode: fn(&[u8]) -> Result<A, DecodeError>,
        mut encode: impl Write,
    ) -> Result<Call<A>, Error> {
        let (shared, name) = (self.shared(), self.name());
        let mut task = Task::new(shared, self.timeout);
        let attempt = |connection: &mut Connection| {
            self.sent(self.attempt(connection, layout, wants_completion, &mut encode))
        };
        let token = task.wait(Want::Credit, attempt).await;
        let token = token.map_err(|ended| explain_wait(ended, name))?;
        let call = Call::new(self.clone(), token, decode);
        if !self.is_aggregated {
            let drained = task.wait(Want::Credit, Connection::drained).await;
            drained.map_err(|ended| explain_wait(ended, name))?;
        }
        Ok(call)
    }
}
