//! Sending and flushing as futures.

use super::connection::Connection;
use super::error::Error;
use super::handle::Handle;
use super::shared::{SharedConnection, explain};
use super::{FLUSH, Source};
use crate::driver::future::Task;
use crate::driver::state::Want;

/// A token; dropping it abandons the completion.
struct Token<'a> {
    shared: &'a SharedConnection,
    token: u64,
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if self.token != 0 {
            self.shared.lock().connection.abandon(self.token);
        }
    }
}

impl Token<'_> {
    /// Releases the token to another waiter.
    fn keep(mut self) -> u64 {
        std::mem::take(&mut self.token)
    }
}

/// Sends when there is credit, and is ready with the token (if one is wanted) after all of it was sent. If dropped
/// before, it has sent nothing, or a body in fragments that continues without an answer.
pub(super) async fn submit(
    handle: &Handle,
    bound: usize,
    wants: bool,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Error>,
) -> Result<u64, Error> {
    let shared = handle.source().shared();
    let mut task = Task::new(handle.timeout());
    let submit = |connection: &mut Connection| handle.try_submit(connection, bound, wants, &mut encode);
    let token = task.wait(shared, Want::Credit, submit).await;
    let token = token.map_err(|ended| explain(ended, handle.name()))?;
    if handle.is_aggregated() {
        return Ok(token);
    }
    let token = Token { shared, token };
    let drain = |connection: &mut Connection| Ok(connection.try_drain().then_some(()));
    let drained = task.wait(shared, Want::Credit, drain).await;
    drained.map_err(|ended| explain(ended, handle.name()))?;
    Ok(token.keep())
}

/// Ready after the target has consumed everything that was sent before.
pub(super) async fn flush(source: &Source) -> Result<(), Error> {
    let shared = source.shared();
    let mut task = Task::new(None);
    let submit = |connection: &mut Connection| Ok(connection.try_flush());
    let token = task.wait(shared, Want::Credit, submit).await;
    let token = token.map_err(|ended| explain(ended, FLUSH))?;
    let guard = Token { shared, token };
    let take = |connection: &mut Connection| connection.try_take(token, FLUSH).transpose();
    let done = task.wait(shared, Want::Completion(token), take).await;
    done.map_err(|ended| explain(ended, FLUSH))?;
    guard.keep();
    Ok(())
}
