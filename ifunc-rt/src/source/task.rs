//! How a future waits: it looks when it is polled, and is woken by whoever receives.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::connection::Connection;
use super::error::Error;
use super::helm::Ticket;
use super::patience::after;
use super::receiver;
use super::shared::SharedConnection;
use super::waiting::{Shared, Waited, Want};

/// One future's wait.
#[derive(Debug, Default)]
pub(super) struct Task {
    /// When it was polled first: what its deadline counts from.
    first: Option<Instant>,
    began: Option<Began>,
}

/// It was polled, and waits.
#[derive(Clone, Copy, Debug)]
struct Began {
    ticket: Ticket,
    want: Want,
    given_up: u64,
}

impl Task {
    /// Attempts; if there is nothing, whoever receives wakes the future when there may be.
    pub(super) fn poll<R>(
        &mut self,
        shared: &Arc<SharedConnection>,
        context: &Context<'_>,
        what: &str,
        want: Want,
        attempt: impl FnOnce(&mut Connection) -> Result<Option<R>, Error>,
    ) -> Poll<Result<R, Error>> {
        let mut state = shared.lock();
        state.set_turn(self.began.map_or(0, |began| began.ticket));
        let result = attempt(&mut state);
        state.set_turn(0);
        if let Some(result) = result.transpose() {
            self.leave(&mut state);
            return Poll::Ready(result);
        }
        let began = *self.began.get_or_insert_with(|| Began {
            ticket: state.helm().ticket(),
            want,
            given_up: state.given_up(),
        });
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        if let Some(why) = state.gone_since(began.given_up) {
            self.leave(&mut state);
            let what = what.into();
            return Poll::Ready(Err(Error::PeerGone { what, why }));
        }
        let timeout = state.options().timeout;
        if now - first >= timeout {
            self.leave(&mut state);
            let (what, waited) = (what.into(), now - first);
            return Poll::Ready(Err(Error::Timeout { what, waited }));
        }
        let deadline = after(timeout - (now - first));
        if state.watch_task(began.ticket, want, deadline, context.waker()) {
            drop(state);
            if let Err(error) = receiver::start(shared) {
                let mut state = shared.lock();
                state.receiver_failed();
                self.leave(&mut state);
                let what = what.into();
                return Poll::Ready(Err(Error::NoThread { what, error }));
            }
        }
        Poll::Pending
    }

    /// Waits no more.
    pub(super) fn leave(&mut self, state: &mut Connection) {
        // It may have panicked in `encode` of a payload.
        state.set_turn(0);
        if let Some(began) = self.began.take() {
            state.unwatch_task(began.ticket, began.want);
        }
    }

    /// Waits anew, with a new deadline.
    pub(super) fn restart(&mut self) {
        self.first = None;
    }

    /// Whether it waits.
    pub(super) fn waits(&self) -> bool {
        self.began.is_some()
    }
}
