//! State shared by the clones of a source, its handles and its calls: the connection and its waiters.

use std::time::{Duration, Instant};

use ifunc_proto::completion::Completion;

use super::connection::Connection;
use super::error::Error;
use crate::driver::backoff::after;
use crate::driver::state::{Shared, Want};
use crate::driver::wait::Ended;

pub(super) type SharedConnection = Shared<Connection>;

impl SharedConnection {
    pub(super) fn deadline(&self) -> Instant {
        after(self.lock().connection.options().timeout)
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
            .map_err(|ended| explain(ended, what))
    }

    /// Waits for a completion.
    pub(super) fn complete(&self, token: u64, deadline: Instant, what: &str) -> Result<Completion, Error> {
        self.retry(deadline, what, Want::Completion(token), |connection| {
            connection.try_take(token, what).transpose()
        })
    }

    /// Ends the source after the last user dropped it: sends the open batch and remaining fragments, in a bounded
    /// time.
    pub(super) fn end(&self) {
        const LIMIT: Duration = Duration::from_secs(1);
        let _ = self.wait::<(), std::convert::Infallible>(after(LIMIT), Want::Credit, |connection| {
            connection.try_push();
            Ok((connection.try_drain() || !connection.has_unsent()).then_some(()))
        });
        self.lock().close();
    }
}

/// The error of a wait for `what`.
pub(super) fn explain(ended: Ended<Error>, what: &str) -> Error {
    let what = what.into();
    match ended {
        Ended::Failed(error) => error,
        Ended::TimedOut(waited) => Error::Timeout { what, waited },
        Ended::Gone(why) => Error::PeerGone { what, why },
        Ended::NoThread(error) => Error::NoThread { what, error },
        Ended::Idle => unreachable!("only a wait for progress is idle"),
    }
}
