//! State shared by the clones of a source, its handles and its calls: the connection and its waiters.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ifunc_proto::calls::Completion;

use super::completion::explain_wait;
use super::connection::Connection;
use super::error::Error;
use crate::driver::backoff::after;
use crate::driver::driven::Driven as _;
use crate::driver::future::Task;
use crate::driver::state::{Shared, Want};

pub(crate) type SharedConnection = Shared<Connection>;

/// Abandons a request when it is dropped. A request that ended is unknown by then.
struct Abandon<'a>(&'a SharedConnection, u64);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.lock().connection.protocol.caller.abandon(self.1);
    }
}

impl SharedConnection {
    pub(super) fn deadline(&self) -> Instant {
        after(self.config.timeout)
    }

    /// Attempts until one succeeds or fails, or until `deadline`.
    pub(super) fn retry<R>(
        &self,
        deadline: Instant,
        what: &str,
        want: Want,
        attempt: impl FnMut(&mut Connection) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        self.wait(deadline, want, attempt)
            .map_err(|ended| explain_wait(ended, what))
    }

    /// Sends a request of the source's own, and waits for its completion.
    pub(super) fn request(
        &self,
        deadline: Instant,
        what: &str,
        mut send: impl FnMut(&mut Connection) -> Option<u64>,
    ) -> Result<Completion, Error> {
        let token = self.retry(deadline, what, Want::Credit, |connection| Ok(send(connection)))?;
        let _abandon = Abandon(self, token);
        self.retry(deadline, what, Want::Completion(token), |connection| {
            connection.try_complete(token, what)
        })
    }

    /// As [`request`](Self::request), as a future.
    pub(super) async fn request_async(
        self: &std::sync::Arc<Self>,
        what: &str,
        mut send: impl FnMut(&mut Connection) -> Option<u64>,
    ) -> Result<Completion, Error> {
        let mut task = Task::new(self, self.config.timeout);
        let send = |connection: &mut Connection| Ok(send(connection));
        let token = task.wait(Want::Credit, send).await;
        let token = token.map_err(|ended| explain_wait(ended, what))?;
        let _abandon = Abandon(self, token);
        let take = |connection: &mut Connection| connection.try_complete(token, what);
        let done = task.wait(Want::Completion(token), take).await;
        done.map_err(|ended| explain_wait(ended, what))
    }

    /// Ends the source after the last user dropped it: sends the open batch and remaining fragments, in a bounded
    /// time.
    pub(super) fn end(&self) {
        const LIMIT: Duration = Duration::from_secs(1);
        let _ = self.wait::<(), Infallible>(after(LIMIT), Want::Credit, |connection| {
            connection.try_push();
            Ok((connection.try_drain() || !connection.protocol.caller.has_unsent()).then_some(()))
        });
        self.lock().close();
    }
}
