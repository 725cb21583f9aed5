//! Sending and flushing as futures.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::error::Error;
use super::handle::Handle;
use super::shared::SharedConnection;
use super::task::Task;
use super::waiting::{Shared, Want};
use super::{FLUSH, Source};

/// Sends when there is room, and is ready when all of it is on its way: with the token, if one is wanted. Dropped before,
/// it has sent nothing, or a body in fragments that goes on; nobody hears of it.
pub(super) struct Submit<'a, E> {
    handle: &'a Handle,
    bound: usize,
    wants: bool,
    encode: E,
    /// It was accepted.
    token: Option<u64>,
    task: Task,
}

impl<'a, E: FnMut(&mut [u8]) -> Result<usize, Error>> Submit<'a, E> {
    pub(super) fn new(handle: &'a Handle, bound: usize, wants: bool, encode: E) -> Self {
        Self {
            handle,
            bound,
            wants,
            encode,
            token: None,
            task: Task::with_timeout(handle.timeout()),
        }
    }
}

// Nothing in it is pinned: what encodes is only called.
impl<E> Unpin for Submit<'_, E> {}

impl<E: FnMut(&mut [u8]) -> Result<usize, Error>> Future for Submit<'_, E> {
    type Output = Result<u64, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (handle, shared) = (this.handle, this.handle.source().shared());
        let token = match this.token {
            Some(token) => token,
            None => {
                let mut submission = handle.submission(this.bound, this.wants, &mut this.encode);
                let token = ready!(this.task.poll(
                    shared,
                    context,
                    handle.name(),
                    Want::Room,
                    |connection| { connection.try_submit(&mut submission) }
                ))?;
                *this.token.insert(token)
            }
        };
        if handle.is_aggregated() {
            this.token = None;
            return Poll::Ready(Ok(token));
        }
        let drained = this
            .task
            .poll(shared, context, handle.name(), Want::Room, |connection| {
                Ok(connection.try_drain().then_some(()))
            });
        ready!(drained)?;
        this.token = None;
        Poll::Ready(Ok(token))
    }
}

impl<E> Drop for Submit<'_, E> {
    fn drop(&mut self) {
        if self.task.waits() || self.token.is_some() {
            let mut state = self.handle.source().shared().lock();
            self.task.leave(&mut state);
            if let Some(token) = self.token {
                state.abandon(token);
            }
        }
    }
}

/// Ready when the target has consumed everything that was sent before.
pub(super) struct Flush<'a> {
    shared: &'a Arc<SharedConnection>,
    token: Option<u64>,
    task: Task,
}

impl<'a> Flush<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Self {
            shared: source.shared(),
            token: None,
            task: Task::default(),
        }
    }
}

impl Future for Flush<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let token = match this.token {
            Some(token) => token,
            None => {
                let token = ready!(
                    this.task
                        .poll(this.shared, context, FLUSH, Want::Room, |connection| {
                            connection.try_sync()
                        })
                )?;
                *this.token.insert(token)
            }
        };
        let want = Want::Completion(token);
        let done = ready!(this.task.poll(this.shared, context, FLUSH, want, |connection| {
            connection.try_take(token).transpose().map_err(|error| *error)
        }));
        // What may still come is abandoned when this is dropped.
        if !matches!(done, Err(Error::Timeout { .. } | Error::NoThread { .. })) {
            this.token = None;
        }
        Poll::Ready(done.map(drop))
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        if self.task.waits() || self.token.is_some() {
            let mut state = self.shared.lock();
            self.task.leave(&mut state);
            if let Some(token) = self.token {
                state.abandon(token);
            }
        }
    }
}
