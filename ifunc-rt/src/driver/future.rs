//! How a future waits: it attempts when it is polled, and is woken by whichever thread receives.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::backoff::after;
use super::driven::Driven;
use super::queue::Ticket;
use super::state::{Shared, State, Want};
use super::wait::Ended;

/// One future's wait.
#[derive(Debug)]
pub(crate) struct Task {
    /// `None`: as long as the connection says.
    timeout: Option<Duration>,
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

impl Task {
    /// Waits for `timeout`, or as long as the connection says.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            first: None,
            parked: None,
            bridge: None,
        }
    }

    /// Waits for `want`, with the deadline of this task.
    pub(crate) fn wait<'a, C: Driven, A>(
        &'a mut self,
        shared: &'a Arc<Shared<C>>,
        want: Want,
        attempt: A,
    ) -> Waiting<'a, C, A> {
        Waiting {
            task: self,
            shared,
            want,
            attempt,
        }
    }

    /// Attempts. After an attempt in vain the future is woken when `want` may be there.
    pub(crate) fn poll<C: Driven, R, E>(
        &mut self,
        shared: &Arc<Shared<C>>,
        context: &Context<'_>,
        want: Want,
        attempt: &mut impl FnMut(&mut C) -> Result<Option<R>, E>,
    ) -> Poll<Result<R, Ended<E>>> {
        if let Some(bridge) = &self.bridge {
            bridge.lead_to(context.waker());
        }
        let mut state = shared.lock();
        if let Some(result) = self.attempt(&mut state, attempt) {
            return Poll::Ready(result);
        }
        if self.bridge.is_none() {
            drop(state);
            self.bridge.insert(Arc::default()).lead_to(context.waker());
            state = shared.lock();
            if let Some(result) = self.attempt(&mut state, attempt) {
                return Poll::Ready(result);
            }
        }
        let parked = *self.parked.get_or_insert_with(|| Parked {
            ticket: state.ticket(),
            want,
            given_up: state.given_up(),
        });
        let now = Instant::now();
        let waited = now - *self.first.get_or_insert(now);
        let timeout = self.timeout.unwrap_or(shared.config.timeout);
        let ended = match state.gone_since(parked.given_up) {
            Some(why) => Some(Ended::Gone(why)),
            None => (waited >= timeout).then_some(Ended::TimedOut(waited)),
        };
        if let Some(ended) = ended {
            self.leave(&mut state);
            return Poll::Ready(Err(ended));
        }
        let waker = self
            .bridge
            .clone()
            .map_or_else(|| context.waker().clone(), Waker::from);
        if state.park_future(parked.ticket, want, after(timeout - waited), waker) {
            drop(state);
            if let Err(error) = super::background::start(shared) {
                let mut state = shared.lock();
                state.background_failed();
                self.leave(&mut state);
                return Poll::Ready(Err(Ended::NoThread(error)));
            }
        }
        Poll::Pending
    }

    fn attempt<C: Driven, R, E>(
        &mut self,
        state: &mut State<C>,
        attempt: &mut impl FnMut(&mut C) -> Result<Option<R>, E>,
    ) -> Option<Result<R, Ended<E>>> {
        let ticket = self.parked.map_or(0, |parked| parked.ticket);
        let result = state.attempt(ticket, attempt).transpose()?;
        self.leave(state);
        Some(result.map_err(Ended::Failed))
    }

    /// Waits no more.
    pub(crate) fn leave<C: Driven>(&mut self, state: &mut State<C>) {
        if let Some(parked) = self.parked.take() {
            state.leave_future(parked.ticket, parked.want);
        }
    }

    /// Waits anew, with a new deadline.
    pub(crate) fn restart(&mut self) {
        self.first = None;
    }

    /// Whether it waits.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.is_some()
    }
}

/// One wait of a task. Dropped, it waits no more.
pub(crate) struct Waiting<'a, C: Driven, A> {
    task: &'a mut Task,
    shared: &'a Arc<Shared<C>>,
    want: Want,
    attempt: A,
}

// Nothing in it is pinned: the attempt is only called.
impl<C: Driven, A> Unpin for Waiting<'_, C, A> {}

impl<C: Driven, A: FnMut(&mut C) -> Result<Option<R>, E>, R, E> Future for Waiting<'_, C, A> {
    type Output = Result<R, Ended<E>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.task.poll(this.shared, context, this.want, &mut this.attempt)
    }
}

impl<C: Driven, A> Drop for Waiting<'_, C, A> {
    fn drop(&mut self) {
        if self.task.is_parked() {
            self.task.leave(&mut self.shared.lock());
        }
    }
}
