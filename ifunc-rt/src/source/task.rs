//! How a future waits: it looks when it is polled, and is woken by whoever receives.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::error::Error;
use super::helm::Ticket;
use super::patience::after;
use super::receiver;
use super::shared::SharedConnection;
use super::waiting::{Inside, Shared, Waited, Want};

/// One future's wait.
#[derive(Debug, Default)]
pub(super) struct Task {
    /// How long it waits; `None`: as the source's options say.
    timeout: Option<Duration>,
    /// When it was polled first: what its deadline counts from.
    first: Option<Instant>,
    began: Option<Began>,
    /// What the connection wakes.
    bridge: Option<(Arc<Bridge>, Waker)>,
}

/// It was polled, and waits.
#[derive(Clone, Copy, Debug)]
struct Began {
    ticket: Ticket,
    want: Want,
    given_up: u64,
}

/// From what the connection keeps to the future's waker, which is somebody else's code: to clone it or to drop it may
/// use the source, so that this must not be done under the connection's lock. Those who hold the lock clone and drop this.
/// The future keeps one, so that the last is never dropped there.
#[derive(Debug)]
struct Bridge(Mutex<Option<Waker>>);

impl Bridge {
    fn new() -> (Arc<Self>, Waker) {
        let bridge = Arc::new(Self(Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&bridge));
        (bridge, waker)
    }

    fn swap(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }

    /// Leads to `waker` from now on. Not under the connection's lock.
    fn lead_to(&self, waker: &Waker) {
        let leads_there = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.as_ref().is_some_and(|known| known.will_wake(waker))
        };
        if !leads_there {
            drop(self.swap(Some(waker.clone())));
        }
    }
}

impl Wake for Bridge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Once: whoever is polled again leads here again.
        if let Some(waker) = self.swap(None) {
            waker.wake();
        }
    }
}

impl Task {
    /// Waits for `timeout` instead of what the source's options say.
    pub(super) fn with_timeout(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            ..Self::default()
        }
    }

    /// Attempts; if there is nothing, whoever receives wakes the future when there may be.
    pub(super) fn poll<R>(
        &mut self,
        shared: &Arc<SharedConnection>,
        context: &Context<'_>,
        what: &str,
        want: Want,
        mut attempt: impl FnMut(&mut Connection) -> Result<Option<R>, Error>,
    ) -> Poll<Result<R, Error>> {
        if let Some((bridge, _)) = &self.bridge {
            bridge.lead_to(context.waker());
        }
        let mut state = shared.lock();
        if let Some(result) = self.attempt(&mut state, &mut attempt) {
            return Poll::Ready(result);
        }
        if self.bridge.is_none() {
            drop(state);
            let (bridge, _) = self.bridge.insert(Bridge::new());
            bridge.lead_to(context.waker());
            state = shared.lock();
            if let Some(result) = self.attempt(&mut state, &mut attempt) {
                return Poll::Ready(result);
            }
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
        let timeout = self.timeout.unwrap_or(state.options().timeout);
        if now - first >= timeout {
            self.leave(&mut state);
            let (what, waited) = (what.into(), now - first);
            return Poll::Ready(Err(Error::Timeout { what, waited }));
        }
        let deadline = after(timeout - (now - first));
        let Some((_, waker)) = &self.bridge else {
            unreachable!("it was made above");
        };
        if state.watch_task(began.ticket, want, deadline, waker) {
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

    fn attempt<R>(
        &mut self,
        state: &mut Inside<'_, Connection>,
        attempt: &mut impl FnMut(&mut Connection) -> Result<Option<R>, Error>,
    ) -> Option<Result<R, Error>> {
        state.set_turn(self.began.map_or(0, |began| began.ticket));
        let result = attempt(state);
        state.set_turn(0);
        let result = result.transpose();
        if result.is_some() {
            self.leave(state);
        }
        result
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
