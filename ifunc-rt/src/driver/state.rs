//! A connection and everything that waits on it, under one lock.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::biased::{BiasedGuard, BiasedMutex};
use super::credit::CreditQueue;
use super::driven::{Config, Driven, Signals};
use super::leader::Leader;
use super::queue::{Ticket, WaitQueue};
use super::timer::Timer;
use super::wake::{WakeGuard, Wakes};

/// What the users of one connection share.
#[derive(Debug)]
pub(crate) struct Shared<C: Driven> {
    pub(crate) state: BiasedMutex<State<C>>,
    pub(crate) config: Config,
}

/// The lock of a connection, held.
pub(crate) type Locked<'a, C> = WakeGuard<BiasedGuard<'a, State<C>>>;

impl<C: Driven> Shared<C> {
    pub(crate) fn new(connection: C, config: Config) -> Self {
        Self {
            state: BiasedMutex::new(State::new(connection, config.always)),
            config,
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Locked<'_, C> {
        WakeGuard::new(self.state.lock())
    }

    /// For a thread that comes seldom, and leaves the lock's bias to the one that has it.
    pub(crate) fn lock_unbiased(&self) -> Locked<'_, C> {
        WakeGuard::new(self.state.lock_unbiased())
    }
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    /// The completion of this token.
    Completion(u64),
    /// Credit to send.
    Credit,
    /// Nothing of its own: the thread that polls for futures.
    Progress,
}

/// A connection, and its waiters.
#[derive(Debug)]
pub(crate) struct State<C: Driven> {
    pub(crate) connection: C,
    /// A thread polls all the time, not only while futures wait.
    always: bool,
    pub(crate) leader: Leader,
    pub(super) credit: CreditQueue,
    /// Parked futures.
    pub(crate) futures: WaitQueue,
    /// The thread that polls for futures.
    pub(crate) background: Background,
    /// That thread's ticket while it waits; 0: it does not.
    progress: Ticket,
    /// The application's event loop polls instead of that thread; this wakes it.
    pub(crate) event_loop: Option<Waker>,
    /// Since when an event loop tries to replace the lost link.
    pub(crate) reconnecting_since: Option<Instant>,
    /// Sends the open batch in time.
    pub(super) timer: Option<Arc<Timer>>,
    /// How often a lost link was given up, and why it was last.
    pub(crate) given_up: u64,
    why: String,
    /// The last user has left.
    pub(crate) is_closed: bool,
    /// Called when the lock is released.
    pub(crate) woken: Vec<Waker>,
}

/// The thread that polls for futures.
#[derive(Debug, Default)]
pub(crate) enum Background {
    #[default]
    Absent,
    Runs,
    /// It sleeps until this wakes it.
    Idle(Waker),
}

impl<C: Driven> Wakes for State<C> {
    #[inline(always)]
    fn wakes(&mut self) -> bool {
        self.connection.signals().is_raised() || !self.woken.is_empty()
    }

    fn take_woken(&mut self) -> Vec<Waker> {
        self.settle();
        std::mem::take(&mut self.woken)
    }
}

impl<C: Driven> State<C> {
    fn new(connection: C, always: bool) -> Self {
        Self {
            connection,
            always,
            leader: Leader::default(),
            credit: CreditQueue::default(),
            futures: WaitQueue::default(),
            background: Background::default(),
            progress: 0,
            event_loop: None,
            reconnecting_since: None,
            timer: None,
            given_up: 0,
            why: String::new(),
            is_closed: false,
            woken: Vec::new(),
        }
    }

    /// Completions and reports received.
    pub(crate) fn received(&mut self) -> u64 {
        self.connection.signals().received
    }

    /// Turns what the connection reported into wake-ups.
    pub(crate) fn settle(&mut self) {
        let (events, completed) = self.connection.signals().take();
        if events == 0 {
            return;
        }
        for ticket in completed {
            self.wake(ticket);
        }
        if events & Signals::OVERTOOK != 0 {
            self.credit.took(0);
        }
        if events & Signals::UNBLOCKED != 0 {
            self.wake_credit();
        }
        if events & Signals::LINK_CHANGED != 0 {
            self.link_changed();
        }
        if events & Signals::DUE_CHANGED != 0
            && let Some(timer) = &self.timer
        {
            self.woken.extend(timer.set(self.connection.batch_due()));
        }
        self.admit(0);
    }

    /// The next attempt is this waiter's (0: a caller's that has not waited).
    fn admit(&mut self, ticket: Ticket) {
        let is_crowded = !self.credit.is_empty();
        let is_refused = is_crowded && !self.credit.admits(ticket);
        self.connection.signals().crowd(is_crowded, is_refused);
    }

    /// One attempt of this waiter.
    pub(crate) fn attempt<R>(&mut self, ticket: Ticket, attempt: impl FnOnce(&mut C) -> R) -> R {
        if self.credit.is_empty() {
            return attempt(&mut self.connection);
        }
        self.admit(ticket);
        let result = attempt(&mut self.connection);
        if self.connection.signals().take_overtook() {
            self.credit.took(ticket);
        }
        self.admit(0);
        result
    }

    /// Wakes this waiter, if it is parked.
    fn wake(&mut self, ticket: Ticket) {
        let waker = self.futures.take(ticket).or_else(|| self.leader.waker(ticket));
        self.woken.extend(waker);
    }

    /// Wakes the first waiter for credit.
    fn wake_credit(&mut self) {
        if let Some(first) = self.credit.wake_first() {
            self.wake(first);
        }
    }

    /// Waits for `want`: keeps its place in the queue for credit, and is woken if it is parked.
    pub(crate) fn watch(&mut self, ticket: Ticket, want: Want, is_thread: bool, is_parked: bool) {
        match want {
            Want::Completion(token) => self.connection.watch(token, if is_parked { ticket } else { 0 }),
            Want::Credit => {
                let need = self.connection.signals().lacking;
                self.credit.wait(ticket, need, is_thread, is_parked);
                self.admit(0);
            }
            Want::Progress => self.progress = ticket,
        }
    }

    /// Waits no more.
    pub(crate) fn leave(&mut self, ticket: Ticket, want: Want) {
        self.futures.take(ticket);
        self.leader.leave(ticket);
        match want {
            Want::Completion(token) => self.connection.watch(token, 0),
            Want::Credit => {
                if let Some(next) = self.credit.leave(ticket) {
                    self.wake(next);
                }
                self.admit(0);
            }
            Want::Progress => self.progress = 0,
        }
    }

    /// A thread that does not wait here polled the connection: wakes those that need not wait any more, and one that
    /// replaces a lost link.
    pub(crate) fn polled(&mut self) {
        // Nearly always nothing waits here, and the connection reports nothing.
        let is_quiet = self.credit.is_empty() && self.futures.is_empty();
        if !is_quiet || self.connection.signals().is_raised() {
            self.tend();
        }
        if !self.connection.is_connected() {
            self.hand_over();
        }
    }

    /// Wakes the next leader, if none is left.
    pub(crate) fn hand_over(&mut self) {
        if self.connection.is_polled_elsewhere() {
            return;
        }
        let next = self.leader.successor(true);
        self.woken.extend(next);
    }

    /// Wakes waiters for which there is credit, and those whose deadline has passed. Returns the next deadline.
    pub(crate) fn tend(&mut self) -> Option<Instant> {
        if let Some(need) = self.credit.wanted()
            && self.connection.has_credit(need)
        {
            self.wake_credit();
        }
        self.settle();
        let due = self.futures.expire(&mut self.woken);
        due.into_iter().chain(self.batch_due()).min()
    }

    /// When the open batch is to be sent, if no thread does it, and it is not being sent.
    pub(crate) fn batch_due(&self) -> Option<Instant> {
        let is_for_callers = self.timer.is_none() && !self.connection.is_sending();
        is_for_callers.then(|| self.connection.batch_due()).flatten()
    }

    /// Parks a future until `deadline`. `true`: a thread must be started that polls for it.
    #[must_use]
    pub(crate) fn park_future(
        &mut self,
        ticket: Ticket,
        want: Want,
        deadline: Instant,
        waker: Waker,
    ) -> bool {
        self.watch(ticket, want, false, true);
        let is_earliest = self.futures.park(ticket, waker, deadline);
        match &self.event_loop {
            // It waits until a later time, or for something to come over a link that is not there.
            Some(waker) if is_earliest || !self.connection.is_connected() => self.woken.push(waker.clone()),
            None if is_earliest => self.wake(self.progress),
            _ => {}
        }
        self.call_background()
    }

    /// Whether a thread or an event loop must poll for those that do not.
    pub(crate) fn needs_polls(&self) -> bool {
        !self.futures.is_empty()
            || (self.always || self.connection.is_sending()) && self.connection.is_connected()
    }

    /// Whether the thread that polls for futures has nothing to do.
    pub(crate) fn progress_is_idle(&self) -> bool {
        self.is_closed || self.event_loop.is_some() || !self.needs_polls()
    }

    /// Whether a future needs a link that is not there.
    pub(crate) fn needs_link(&self) -> bool {
        !self.connection.is_connected() && !self.futures.is_empty()
    }

    /// Sees to it that futures are polled for. `true`: a thread must be started that does.
    pub(crate) fn call_background(&mut self) -> bool {
        if self.event_loop.is_some() {
            self.hand_over();
            return false;
        }
        match std::mem::replace(&mut self.background, Background::Runs) {
            Background::Absent => true,
            Background::Runs => false,
            Background::Idle(waker) => {
                self.woken.push(waker);
                false
            }
        }
    }

    /// The thread could not be started, or has died: the next future that is polled starts another.
    pub(crate) fn background_failed(&mut self) {
        self.background = Background::Absent;
        self.woken.extend(self.futures.take_all());
    }

    /// There is another link, or none.
    fn link_changed(&mut self) {
        self.reconnecting_since = None;
        self.woken.extend(self.event_loop.clone());
        if self.connection.is_connected() {
            self.wake_credit();
            if self.needs_polls() && matches!(self.background, Background::Idle(_)) {
                let _ = self.call_background();
            }
        }
    }

    /// Why the lost link was given up since there were so many that were; `None`: it was not, or there is another link.
    pub(crate) fn gone_since(&self, given_up: u64) -> Option<String> {
        (self.given_up != given_up && !self.connection.is_connected()).then(|| self.why.clone())
    }

    /// The lost link is not replaced any longer.
    pub(crate) fn give_up(&mut self, why: String) {
        self.connection.give_up(&why);
        self.given_up += 1;
        self.why = why;
        self.reconnecting_since = None;
        self.settle();
        self.wake_all();
    }

    fn wake_all(&mut self) {
        let parked: Vec<_> = self.credit.wake_all().collect();
        for ticket in parked {
            self.wake(ticket);
        }
        self.woken.extend(self.futures.take_all());
    }

    /// The last user has left: ends the link, and the threads that poll it.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.connection.close();
        if let Background::Idle(waker) = std::mem::take(&mut self.background) {
            self.woken.push(waker);
        }
        self.wake(self.progress);
        self.settle();
        self.wake_all();
        self.woken.extend(self.timer.take().map(|timer| timer.stop()));
        // A thread may follow an event loop.
        self.hand_over();
    }

    /// Futures, waiters for credit, and threads that wait.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> [usize; 3] {
        [self.futures.len(), self.credit.len(), self.leader.len()]
    }
}
