//! How a thread waits for something that comes over a connection which other threads use too: by looking, by sleeping on
//! the connection's bell, or by following another thread that does ([`Helm`]).
//!
//! Whatever a thread waits for, it first looks itself (the *attempt*), under the lock. What it finds there belongs to
//! anybody: those whose it is are woken when the lock is given back ([`Inside`]). A wake-up cannot be lost: who follows
//! has said so under the lock, behind an attempt that found nothing, and what comes later is taken in under the lock.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::helm::{Helm, Ticket};
use super::owned::{Guard, Owned};
use super::parker::Own;
use super::patience::{Next, Patience, after};

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// This token's completion.
    Completion(u64),
    /// Room to send.
    Room,
    /// Nothing of its own: the thread that receives for futures.
    Others,
}

/// What a sleeper sleeps on.
pub(super) trait Bell {
    /// Sleeps until it rings or `until`; may wake for nothing.
    fn sleep(&self, until: Instant);

    /// Rings it from within this process.
    fn waker(&self) -> Waker;
}

/// What is waited on: a connection, or the model of one.
pub(super) trait Waited {
    type Bell: Bell;

    fn helm(&mut self) -> &mut Helm;

    /// Who makes the attempts that follow; 0: nobody who has waited.
    fn set_turn(&mut self, ticket: Ticket);

    /// Whoever waits for `want` is woken by this when it may be there.
    fn watch(&mut self, ticket: Ticket, want: Want, waker: Option<&Waker>);

    /// Undoes `watch`.
    fn unwatch(&mut self, ticket: Ticket, want: Want);

    /// Wakes those for whom there is room and those whose deadline has passed; the next such deadline.
    fn tend(&mut self) -> Option<Instant>;

    /// Whether anybody waits that cannot receive: futures.
    fn others_wait(&self) -> bool;

    /// How much was received so far.
    fn received(&self) -> u64;

    /// Announces sleep.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// `None`: there is no link to sleep on.
    fn bell(&self) -> Option<Self::Bell>;

    /// Whether there is a link.
    fn is_connected(&self) -> bool;

    /// How often it was given up to make a lost link again.
    fn given_up(&self) -> u64;

    /// Why it was given up since there were so many; `None`: it was not, or the link is there again.
    fn gone_since(&self, given_up: u64) -> Option<String>;

    /// How long it is tried to make a lost link again.
    fn window(&self) -> Duration;

    /// It is not tried any longer.
    fn give_up(&mut self, why: String);

    /// Those that are to be woken when the lock is given back.
    fn woken(&mut self) -> &mut Vec<Waker>;
}

/// The lock around it, and what is done without the lock.
pub(super) trait Shared {
    type State: Waited;

    fn state(&self) -> &Owned<Self::State>;

    /// One attempt to make a lost link again, until `until`. An error says why there is no point in another one before `window`
    /// ends.
    fn reconnect(&self, until: Instant, window: Instant) -> Result<(), String>;

    /// A panic inside comes from `encode` of a payload; the state is whole at every such point.
    #[inline]
    fn lock(&self) -> Inside<'_, Self::State> {
        Inside(ManuallyDrop::new(self.state().lock()))
    }

    /// For a thread that comes seldom, and leaves the lock's advantages to the one that has them.
    fn lock_as_guest(&self) -> Inside<'_, Self::State> {
        Inside(ManuallyDrop::new(self.state().lock_as_guest()))
    }
}

/// Inside; wakes whom it must on the way out, when it is out: a waker is somebody else's code, and may use the source.
pub(super) struct Inside<'a, S: Waited>(ManuallyDrop<Guard<'a, S>>);

impl<S: Waited> Drop for Inside<'_, S> {
    #[inline]
    fn drop(&mut self) {
        if !self.0.woken().is_empty() {
            return self.leave_and_wake();
        }
        // SAFETY: dropped here, once, and not looked at again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<S: Waited> Inside<'_, S> {
    #[cold]
    fn leave_and_wake(&mut self) {
        let woken = std::mem::take(self.0.woken());
        // SAFETY: as above: `drop` returns behind this call.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        woken.into_iter().for_each(wake);
    }
}

/// Wakes somebody. Those behind are woken whatever this one's code does.
fn wake(waker: Waker) {
    if cfg!(loom) {
        return waker.wake();
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        tracing::error!("the waker of a future panicked");
        // What it panicked with is its code as well.
        std::mem::forget(panic);
    }
}

impl<S: Waited> Deref for Inside<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: Waited> DerefMut for Inside<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

/// How a wait ended that did not succeed.
#[derive(Debug)]
pub(super) enum Ended<E> {
    /// The attempt failed.
    Failed(E),
    /// The deadline passed; this is how long it was waited.
    Timeout(Duration),
    /// The link was lost and could not be made again.
    Gone(String),
    /// [`Want::Others`], and there are none any more.
    Idle,
}

/// Attempts until one succeeds or fails, or `deadline`. In between, others have the connection; and a link that was lost
/// is made again.
pub(super) fn wait<W: Shared, R, E>(
    shared: &W,
    deadline: Instant,
    want: Want,
    mut attempt: impl FnMut(&mut W::State) -> Result<Option<R>, E>,
) -> Result<R, Ended<E>> {
    let mut state = shared.lock();
    if let Some(result) = attempt(&mut state).map_err(Ended::Failed)? {
        return Ok(result);
    }
    let mut wait = Wait {
        shared,
        want,
        deadline,
        ticket: state.helm().ticket(),
        given_up: state.given_up(),
        place: Place::Follower,
        left: false,
        parker: None,
    };
    // From now on it has its turn.
    state.watch(wait.ticket, want, None);
    wait.run(state, attempt)
}

/// One wait of one thread.
struct Wait<'a, W: Shared> {
    shared: &'a W,
    want: Want,
    deadline: Instant,
    ticket: Ticket,
    /// See [`Waited::given_up`], when it began.
    given_up: u64,
    place: Place,
    left: bool,
    parker: Option<Own>,
}

/// See [`Helm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Follower,
    Looker,
    Sleeper,
}

impl<'a, W: Shared> Wait<'a, W> {
    fn run<R, E>(
        &mut self,
        mut state: Inside<'a, W::State>,
        mut attempt: impl FnMut(&mut W::State) -> Result<Option<R>, E>,
    ) -> Result<R, Ended<E>> {
        let mut patience = Patience::until(self.deadline);
        let mut reconnecting_until = None;
        let mut received = state.received();
        loop {
            let due = state.tend();
            if state.received() != received {
                // Where something came more may come.
                received = state.received();
                patience.restart();
            }
            if !state.woken().is_empty() {
                state = self.call_wakers(state);
            }
            if self.place == Place::Follower && state.helm().look() {
                self.place = Place::Looker;
                let ticket = self.ticket;
                state.helm().leave(ticket);
            }
            if self.place == Place::Follower {
                if self.is_idle(&state) {
                    self.leave(&mut state);
                    return Err(Ended::Idle);
                }
                if let Some(waited) = patience.is_over() {
                    self.leave(&mut state);
                    return Err(Ended::Timeout(waited));
                }
                state = self.follow(state, due);
            } else if !state.is_connected() {
                if self.is_idle(&state) {
                    self.leave(&mut state);
                    return Err(Ended::Idle);
                }
                // Its own deadline is no reason for the others to give up.
                if let Some(waited) = patience.is_over() {
                    self.leave(&mut state);
                    return Err(Ended::Timeout(waited));
                }
                let window = state.window();
                let window = *reconnecting_until.get_or_insert_with(|| after(window));
                drop(state);
                let result = self.shared.reconnect(window.min(self.until(due)), window);
                state = self.shared.lock();
                if let Err(why) = result {
                    state.give_up(why);
                }
            } else {
                reconnecting_until = None;
                match patience.next() {
                    Next::Look => {
                        drop(state);
                        state = self.shared.lock();
                    }
                    Next::Sleep if self.is_idle(&state) => {
                        self.leave(&mut state);
                        return Err(Ended::Idle);
                    }
                    Next::Sleep => {
                        state.helm().stop_looking();
                        self.place = Place::Follower;
                        if !state.helm().sleep() {
                            state = self.follow(state, due);
                        } else {
                            self.place = Place::Sleeper;
                            state.arm();
                            // What came between the look and the announcement rings nobody.
                            match self.attempt(&mut state, &mut attempt) {
                                Ok(None) => state = self.sleep(state),
                                done => return self.done(&mut state, done),
                            }
                        }
                    }
                    Next::GiveUp(waited) => {
                        self.leave(&mut state);
                        return Err(Ended::Timeout(waited));
                    }
                }
            }
            match self.attempt(&mut state, &mut attempt) {
                Ok(None) => {}
                done => return self.done(&mut state, done),
            }
            if let Some(why) = state.gone_since(self.given_up) {
                self.leave(&mut state);
                return Err(Ended::Gone(why));
            }
        }
    }

    fn attempt<R, E>(
        &self,
        state: &mut W::State,
        attempt: &mut impl FnMut(&mut W::State) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        state.set_turn(self.ticket);
        let result = attempt(state);
        state.set_turn(0);
        result
    }

    fn done<R, E>(&mut self, state: &mut W::State, result: Result<Option<R>, E>) -> Result<R, Ended<E>> {
        self.leave(state);
        match result {
            Ok(Some(result)) => Ok(result),
            Err(error) => Err(Ended::Failed(error)),
            Ok(None) => unreachable!("the caller looked"),
        }
    }

    /// Whether it waits for others only, and there are none: it does not sleep then, because nobody would wake it for the
    /// next one's deadline.
    fn is_idle(&self, state: &W::State) -> bool {
        matches!(self.want, Want::Others) && !state.others_wait()
    }

    /// Sleeps on something of its own until somebody has what it waits for, or leaves it a place.
    fn follow(&mut self, mut state: Inside<'a, W::State>, due: Option<Instant>) -> Inside<'a, W::State> {
        let until = self.until(due);
        let (parker, waker) = self.parker.get_or_insert_with(Own::take).get();
        parker.reset();
        state.helm().follow(self.ticket, waker);
        state.watch(self.ticket, self.want, Some(waker));
        drop(state);
        parker.park(until);
        self.shared.lock()
    }

    /// How long it may do something else: who waits for others sees to their deadlines.
    fn until(&self, due: Option<Instant>) -> Instant {
        match (self.want, due) {
            (Want::Others, Some(due)) => due.min(self.deadline),
            _ => self.deadline,
        }
    }

    /// Wakes whom it must. Wakers are somebody else's code, and may wait here themselves: nobody who has a place calls them.
    fn call_wakers(&mut self, mut state: Inside<'a, W::State>) -> Inside<'a, W::State> {
        match self.place {
            Place::Follower => {}
            Place::Looker => state.helm().stop_looking(),
            Place::Sleeper => {
                state.disarm();
                state.helm().wake_up();
            }
        }
        self.place = Place::Follower;
        drop(state);
        self.shared.lock()
    }

    /// Sleeps on the bell, for all.
    fn sleep(&mut self, mut state: Inside<'a, W::State>) -> Inside<'a, W::State> {
        let bell = state.bell();
        if let Some(bell) = &bell {
            // What it waits for may come by another way than the link.
            state.watch(self.ticket, self.want, Some(&bell.waker()));
        }
        let until = state.tend().map_or(self.deadline, |due| due.min(self.deadline));
        if !state.woken().is_empty() {
            state.watch(self.ticket, self.want, None);
            return self.call_wakers(state);
        }
        drop(state);
        if let Some(bell) = bell {
            bell.sleep(until);
        }
        let mut state = self.shared.lock();
        // What it takes in itself need not ring.
        state.watch(self.ticket, self.want, None);
        state.disarm();
        state.helm().wake_up();
        self.place = Place::Follower;
        state
    }

    /// Waits no more, and leaves the place to somebody who does.
    fn leave(&mut self, state: &mut W::State) {
        match self.place {
            Place::Follower => {}
            Place::Looker => state.helm().stop_looking(),
            Place::Sleeper => {
                state.disarm();
                state.helm().wake_up();
            }
        }
        self.left = true;
        let ticket = self.ticket;
        state.unwatch(ticket, self.want);
        state.helm().leave(ticket);
        if let Some(next) = state.helm().pass_on() {
            state.woken().push(next);
        }
    }
}

impl<W: Shared> Drop for Wait<'_, W> {
    /// An attempt has panicked: in `encode` of a payload.
    fn drop(&mut self) {
        if !self.left {
            let mut state = self.shared.lock();
            state.set_turn(0);
            self.leave(&mut state);
        }
    }
}
