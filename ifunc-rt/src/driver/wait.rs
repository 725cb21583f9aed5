//! How a thread waits.
//!
//! A thread first attempts, under the lock, to take what it waits for. What the attempt receives may be any waiter's: the others
//! are woken when the lock is released. A thread that has to wait takes the lead (it spins, then sleeps on the doorbell) or
//! follows ([`Leader`](super::leader::Leader)). No wake-up is lost: a thread publishes its waker under the lock, after an attempt
//! in vain, and what comes later is received under the lock.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::backoff::{Backoff, Next, RETRY, after};
use super::driven::Driven;
use super::parker::Parker;
use super::queue::Ticket;
use super::state::{Locked, Shared, State, Want};
use super::wake::Wakes;

/// The shortest attempt to replace a lost link: a target of this host that is there answers in less than a millisecond.
const MOMENT: Duration = Duration::from_millis(20);

/// How a wait ended that did not succeed.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    /// The attempt failed.
    Failed(E),
    /// The deadline passed, after this time.
    TimedOut(Duration),
    /// The link was lost and could not be replaced.
    Gone(String),
    /// A future needs a thread that polls, which cannot be started.
    NoThread(io::Error),
    /// This thread polls the link for a target: it would wait for itself.
    PolledHere,
    /// [`Want::Progress`], and no future waits any more.
    Idle,
}

impl<C: Driven> Shared<C> {
    /// Attempts until an attempt succeeds or fails, or until `deadline`. In between, others use the connection; and a link that
    /// was lost is replaced.
    pub(crate) fn wait<R, E>(
        &self,
        deadline: Instant,
        want: Want,
        mut attempt: impl FnMut(&mut C) -> Result<Option<R>, E>,
    ) -> Result<R, Ended<E>> {
        let mut state = self.lock();
        if let Some(result) = state.attempt(0, &mut attempt).map_err(Ended::Failed)? {
            return Ok(result);
        }
        if state.connection.is_polled_here() {
            return Err(Ended::PolledHere);
        }
        let mut wait = Wait {
            shared: self,
            want,
            deadline,
            ticket: state.leader.ticket(),
            given_up: state.given_up,
            lead: Lead::None,
            has_left: false,
            parker: None,
        };
        state.watch(wait.ticket, want, true, false);
        wait.run(state, attempt)
    }

    /// One short attempt to replace a lost link, for callers that do not wait.
    pub(crate) fn try_reconnect(&self) {
        if self.lock().connection.is_connected() {
            return;
        }
        let until = Instant::now() + MOMENT;
        // Otherwise those that wait for the link give it up, when its window ends.
        if let Err(why) = C::reconnect(self, until, until)
            && self.config.reconnect.is_zero()
        {
            self.lock().give_up(why);
        }
    }
}

/// One wait of one thread.
struct Wait<'a, C: Driven> {
    shared: &'a Shared<C>,
    want: Want,
    deadline: Instant,
    ticket: Ticket,
    /// See [`State::given_up`], when it began.
    given_up: u64,
    lead: Lead,
    has_left: bool,
    parker: Option<Arc<Parker>>,
}

/// What this thread is for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    None,
    Spinner,
    Sleeper,
}

impl<'a, C: Driven> Wait<'a, C> {
    fn run<R, E>(
        &mut self,
        mut state: Locked<'a, C>,
        mut attempt: impl FnMut(&mut C) -> Result<Option<R>, E>,
    ) -> Result<R, Ended<E>> {
        let mut backoff = Backoff::until(self.deadline, self.shared.config.spin);
        let mut window = None;
        let mut received = state.received();
        loop {
            let due = state.tend();
            if state.received() != received {
                received = state.received();
                backoff.reset();
            }
            if state.wakes() {
                // Wakers may wait here themselves: no leader calls them.
                self.resign(&mut state);
                state = self.relock(state);
                // What came meanwhile woke no thread: this one was not parked.
                if let Some(result) = state.attempt(self.ticket, &mut attempt).transpose() {
                    return self.ended(&mut state, result.map_err(Ended::Failed));
                }
            }
            let may_lead = self.lead == Lead::None && !state.connection.is_polled_elsewhere();
            if may_lead && state.leader.try_spin(self.ticket) {
                self.lead = Lead::Spinner;
            }
            let next = if self.lead == Lead::Spinner && state.connection.is_connected() {
                window = None;
                backoff.next()
            } else {
                // Others do not give up because this thread's deadline has passed.
                backoff.timed_out().map_or(Next::Park, Next::TimedOut)
            };
            match next {
                Next::TimedOut(waited) => return self.ended(&mut state, Err(Ended::TimedOut(waited))),
                Next::Poll => state = self.relock(state),
                Next::Park if self.is_idle(&state) => return self.ended(&mut state, Err(Ended::Idle)),
                Next::Park if self.lead == Lead::None => state = self.follow(state, due),
                Next::Park if !state.connection.is_connected() => {
                    let window = *window.get_or_insert_with(|| after(self.shared.config.reconnect));
                    state = self.reconnect(state, window.min(self.until(due)), window);
                }
                Next::Park => {
                    self.resign(&mut state);
                    let sleep = state
                        .connection
                        .doorbell()
                        .and_then(|(waker, sleep)| state.leader.sleep(self.ticket, waker).then_some(sleep));
                    match sleep {
                        None => state = self.follow(state, due),
                        Some(sleep) => {
                            self.lead = Lead::Sleeper;
                            state.connection.arm();
                            // What came between the last poll and the announcement does not ring.
                            if let Some(result) = state.attempt(self.ticket, &mut attempt).transpose() {
                                return self.ended(&mut state, result.map_err(Ended::Failed));
                            }
                            state = if state.connection.has_more() {
                                self.resign(&mut state);
                                self.relock(state)
                            } else {
                                self.sleep(state, sleep)
                            };
                        }
                    }
                }
            }
            if let Some(result) = state.attempt(self.ticket, &mut attempt).transpose() {
                return self.ended(&mut state, result.map_err(Ended::Failed));
            }
            if let Some(why) = state.gone_since(self.given_up) {
                return self.ended(&mut state, Err(Ended::Gone(why)));
            }
        }
    }

    fn ended<R>(&mut self, state: &mut State<C>, result: R) -> R {
        self.leave(state);
        result
    }

    /// Whether it waits for others only, and there are none: no waiter would wake it for the next deadline.
    fn is_idle(&self, state: &State<C>) -> bool {
        matches!(self.want, Want::Progress) && state.progress_is_idle()
    }

    /// Lets others have the lock.
    fn relock(&self, state: Locked<'a, C>) -> Locked<'a, C> {
        drop(state);
        self.shared.lock()
    }

    /// Parks until another thread has received what this one waits for, or hands over the lead.
    fn follow(&mut self, mut state: Locked<'a, C>, due: Option<Instant>) -> Locked<'a, C> {
        let until = self.until(due);
        let parker = self.parker.get_or_insert_with(Parker::new);
        parker.clear();
        state.leader.follow(self.ticket, parker.waker());
        state.watch(self.ticket, self.want, true, true);
        drop(state);
        parker.park(until);
        self.shared.lock()
    }

    /// Sleeps on the doorbell, for all.
    fn sleep(&mut self, mut state: Locked<'a, C>, sleep: Box<dyn FnOnce(Instant)>) -> Locked<'a, C> {
        // Another thread may complete what this one waits for.
        state.watch(self.ticket, self.want, true, true);
        let until = state.tend().map_or(self.deadline, |due| due.min(self.deadline));
        if state.wakes() {
            self.resign(&mut state);
            state.watch(self.ticket, self.want, true, false);
            return self.relock(state);
        }
        drop(state);
        sleep(until);
        let mut state = self.shared.lock();
        state.watch(self.ticket, self.want, true, false);
        self.resign(&mut state);
        state
    }

    /// Replaces the lost link.
    fn reconnect(&mut self, state: Locked<'a, C>, until: Instant, window: Instant) -> Locked<'a, C> {
        drop(state);
        let connected = C::reconnect(self.shared, until.max(Instant::now() + MOMENT), window);
        if let Ok(false) = connected {
            thread::sleep(RETRY);
        }
        let mut state = self.shared.lock();
        if let Err(why) = connected {
            state.give_up(why);
        }
        state
    }

    /// How long it may be away: the thread that waits for others sees to their deadlines.
    fn until(&self, due: Option<Instant>) -> Instant {
        match (self.want, due) {
            (Want::Progress, Some(due)) => due.min(self.deadline),
            _ => self.deadline,
        }
    }

    /// Leads no more.
    fn resign(&mut self, state: &mut State<C>) {
        match std::mem::replace(&mut self.lead, Lead::None) {
            Lead::None => {}
            Lead::Spinner => state.leader.stop_spinning(),
            Lead::Sleeper => {
                state.connection.disarm();
                state.leader.wake_up();
            }
        }
    }

    /// Waits no more, and hands over the lead.
    fn leave(&mut self, state: &mut State<C>) {
        self.resign(state);
        self.has_left = true;
        state.leave(self.ticket, self.want);
        state.hand_over();
    }
}

impl<C: Driven> Drop for Wait<'_, C> {
    /// An attempt has panicked: the `encode` of a payload.
    fn drop(&mut self) {
        if !self.has_left {
            let mut state = self.shared.lock();
            self.leave(&mut state);
        }
    }
}
