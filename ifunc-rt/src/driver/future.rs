//! How a future waits: it attempts when it is polled, and is woken by whichever thread receives.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::backoff::after;
use super::driven::Driven;
use super::queue::Ticket;
use super::state::{Shared, State, Want};
use super::wait::Ended;

/// One future's wait. Dropped, it waits no more.
#[derive(Debug)]
pub(crate) struct Task<C: Driven> {
    shared: Arc<Shared<C>>,
    timeout: Duration,
    /// When it was polled first: its deadline counts from then.
    first: Option<Instant>,
    parked: Option<Parked>,
    bridge: Option<Arc<Bridge>>,
}

/// It was polled, and waits.
#[derive(Clone, Copy, Debug)]
struct Parked {
    ticket: Ticket,
    want: Want,
    given_up: u64,
}

/// Leads from the connection to the future's waker. That waker is an executor's code: to clone or to drop it may use the
/// source, so neither is done under the connection's lock. This is cloned and dropped there instead. The future keeps one,
/// so that the last is never dropped there.
#[derive(Debug, Default)]
struct Bridge(Mutex<Option<Waker>>);

impl Bridge {
    fn swap(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }

    /// Leads to `waker` from now on. Call without the connection's lock.
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
        // Once: the next poll leads here again.
        if let Some(waker) = self.swap(None) {
            waker.wake();
        }
    }
}

impl<C: Driven> Task<C> {
    pub(crate) fn new(shared: &Arc<Shared<C>>, timeout: Duration) -> Self {
        Self {
            shared: Arc::clone(shared),
            timeout,
            first: None,
            parked: None,
            bridge: None,
        }
    }

    /// Waits for `want`, with the deadline of this task.
    pub(crate) async fn wait<R, E>(
        &mut self,
        want: Want,
        mut attempt: impl FnMut(&mut C) -> Result<Option<R>, E>,
    ) -> Result<R, Ended<E>> {
        poll_fn(|context| self.poll(context, want, &mut attempt)).await
    }

    /// Attempts. After an attempt in vain the future is woken when `want` may be there.
    pub(crate) fn poll<R, E>(
        &mut self,
        context: &Context<'_>,
        want: Want,
        attempt: &mut impl FnMut(&mut C) -> Result<Option<R>, E>,
    ) -> Poll<Result<R, Ended<E>>> {
        let waker = context.waker();
        let (state, bridge) = loop {
            if let Some(bridge) = &self.bridge {
                bridge.lead_to(waker);
            }
            let mut state = self.shared.lock();
            let ticket = self.parked.map_or(0, |parked| parked.ticket);
            if let Some(result) = state.attempt(ticket, &mut *attempt).transpose() {
                leave(&mut self.parked, &mut state);
                return Poll::Ready(result.map_err(Ended::Failed));
            }
            if let Some(bridge) = &self.bridge {
                break (state, bridge);
            }
            drop(state);
            self.bridge = Some(Arc::default());
        };
        let mut state = state;
        let parked = *self.parked.get_or_insert_with(|| Parked {
            ticket: state.leader.ticket(),
            want,
            given_up: state.given_up,
        });
        let now = Instant::now();
        let waited = now - *self.first.get_or_insert(now);
        let ended = match state.gone_since(parked.given_up) {
            Some(why) => Some(Ended::Gone(why)),
            None => (waited >= self.timeout).then_some(Ended::TimedOut(waited)),
        };
        if let Some(ended) = ended {
            leave(&mut self.parked, &mut state);
            return Poll::Ready(Err(ended));
        }
        let deadline = after(self.timeout - waited);
        if state.park_future(parked.ticket, want, deadline, Arc::clone(bridge).into()) {
            drop(state);
            if let Err(error) = super::background::start(&self.shared) {
                let mut state = self.shared.lock();
                state.background_failed();
                leave(&mut self.parked, &mut state);
                return Poll::Ready(Err(Ended::NoThread(error)));
            }
        }
        Poll::Pending
    }
}

/// Waits no more.
fn leave<C: Driven>(parked: &mut Option<Parked>, state: &mut State<C>) {
    if let Some(parked) = parked.take() {
        state.leave(parked.ticket, parked.want);
    }
}

impl<C: Driven> Drop for Task<C> {
    fn drop(&mut self) {
        if self.parked.is_some() {
            leave(&mut self.parked, &mut self.shared.lock());
        }
    }
}
