//! A pool of threads that share work.
//!
//! An item of work (a connection) belongs to one thread while that thread polls it, so its frames keep their order. All threads
//! take items from one queue. A thread that takes an item does not poll the others until the work is done. So it first wakes
//! another thread, unless one spins, or all other items are parked and a thread sleeps on the doorbell ([`Leader`]).

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use crate::driver::backoff::{Backoff, Next, after};
use crate::driver::leader::Leader;
use crate::driver::parker::Parker;
use crate::driver::queue::Ticket;
use crate::driver::wake::{WakeGuard, Wakes};

/// Pauses between two polls of an empty queue, while others may want the lock: about a microsecond.
const PAUSES: usize = 32;

/// What the threads of a pool share, under the pool's lock.
pub(crate) trait Work {
    type Item;
    /// Why the pool ended.
    type End;

    /// The next item.
    fn take(&mut self) -> Taken<Self::Item>;

    /// Takes an item back, after all others.
    fn put_back(&mut self, item: Self::Item);

    /// Announces sleep: from now on the doorbell rings. `all`: parks all items first. Returns whether no item has work.
    fn arm(&mut self, all: bool) -> bool;

    /// Withdraws the announcement.
    fn disarm(&mut self);

    /// Whether all items are parked.
    fn is_idle(&self) -> bool;

    fn is_stopped(&self) -> bool;

    /// How a thread waits that finds nothing.
    fn backoff(&self) -> Backoff;

    /// Wakes the thread that sleeps on the doorbell.
    fn doorbell(&self) -> Waker;
}

/// What [`Work::take`] found.
pub(crate) enum Taken<I> {
    Item(I),
    /// An item without work. It was put back.
    Idle,
    /// No item.
    None,
}

/// How the work on an item ended.
pub(crate) enum Ran<I> {
    /// Something was processed.
    Done(I),
    /// Its work waits for credit.
    Blocked(I),
    /// The connection ended.
    Over,
}

/// The pool.
pub(crate) struct Pool<W: Work>(Mutex<State<W>>);

type Locked<'a, W> = WakeGuard<MutexGuard<'a, State<W>>>;

struct State<W: Work> {
    work: W,
    leader: Leader,
    end: Option<W::End>,
    has_ended: bool,
    /// Called when the lock is released.
    woken: Vec<Waker>,
}

impl<W: Work> Wakes for State<W> {
    fn wakes(&mut self) -> bool {
        !self.woken.is_empty()
    }

    fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }
}

impl<W: Work> State<W> {
    fn has_ended(&self) -> bool {
        self.has_ended || self.work.is_stopped()
    }

    /// This thread is about to work on an item: wakes another one that polls meanwhile.
    fn hand_over(&mut self) {
        self.leader.stop_spinning();
        let next = self.leader.successor(self.work.is_idle());
        self.woken.extend(next);
    }

    /// Ends the pool.
    fn end(&mut self) {
        self.has_ended = true;
        let parked = self.leader.take_all();
        self.woken.extend(parked);
    }
}

impl<W: Work> Pool<W> {
    pub(crate) fn new(work: W) -> Self {
        Self(Mutex::new(State {
            work,
            leader: Leader::default(),
            end: None,
            has_ended: false,
            woken: Vec::new(),
        }))
    }

    fn lock(&self) -> Locked<'_, W> {
        WakeGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the pool for all threads. The first reason counts.
    pub(crate) fn end(&self, why: W::End) {
        let mut state = self.lock();
        state.end.get_or_insert(why);
        state.end();
    }

    /// What the threads shared, and why the pool ended; `None`: it was stopped.
    pub(crate) fn into_inner(self) -> (W, Option<W::End>) {
        let state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state.work, state.end)
    }

    /// The loop of each thread, until the pool ends: `run` processes an item, `sleep` sleeps on the doorbell.
    pub(crate) fn work(
        &self,
        mut run: impl FnMut(W::Item) -> Ran<W::Item>,
        sleep: impl Fn() -> Result<(), W::End>,
    ) {
        let mut state = self.lock();
        let mut worker = Worker {
            pool: self,
            ticket: state.leader.ticket(),
            backoff: state.work.backoff(),
            parker: Parker::new(),
        };
        state.leader.spin(worker.ticket);
        while !state.has_ended() {
            let item = match state.work.take() {
                Taken::Item(item) => item,
                found => {
                    drop(state);
                    if let Taken::None = found {
                        (0..PAUSES).for_each(|_| std::hint::spin_loop());
                    }
                    state = worker.back_off(&sleep);
                    continue;
                }
            };
            state.hand_over();
            drop(state);
            let ran = run(item);
            state = self.lock();
            state.leader.spin(worker.ticket);
            match ran {
                Ran::Blocked(item) => {
                    state.work.put_back(item);
                    drop(state);
                    state = worker.back_off(&sleep);
                    continue;
                }
                Ran::Done(item) => state.work.put_back(item),
                Ran::Over => {}
            }
            worker.backoff.reset();
        }
        state.leader.stop_spinning();
        // The first thread that finds the pool stopped wakes the others.
        state.end();
    }
}

/// One thread of a pool.
struct Worker<'a, W: Work> {
    pool: &'a Pool<W>,
    ticket: Ticket,
    backoff: Backoff,
    parker: Arc<Parker>,
}

impl<'a, W: Work> Worker<'a, W> {
    /// Called after an empty poll. After many, the thread sleeps on the doorbell, or parks if another one sleeps there.
    fn back_off(&mut self, sleep: &impl Fn() -> Result<(), W::End>) -> Locked<'a, W> {
        let state = self.pool.lock();
        match self.backoff.next() {
            Next::Poll => state,
            Next::Park | Next::TimedOut(_) => {
                self.backoff.reset();
                self.park(state, sleep)
            }
        }
    }

    /// The last thread to be parked parks all items first.
    fn park(&self, mut state: Locked<'a, W>, sleep: &impl Fn() -> Result<(), W::End>) -> Locked<'a, W> {
        let is_last = state.leader.spinners() == 1;
        let has_sleeper = state.leader.has_sleeper();
        if is_last || !has_sleeper {
            let is_quiet = state.work.arm(is_last);
            if !is_quiet || state.has_ended() {
                if !has_sleeper {
                    state.work.disarm();
                }
                return state;
            }
        }
        state.leader.stop_spinning();
        let doorbell = state.work.doorbell();
        if state.leader.sleep(self.ticket, doorbell) {
            drop(state);
            if let Err(why) = sleep() {
                self.pool.end(why);
            }
            state = self.pool.lock();
            state.leader.wake_up();
            state.work.disarm();
        } else {
            self.parker.clear();
            state.leader.follow(self.ticket, self.parker.waker());
            drop(state);
            self.parker.park(after(Duration::MAX));
            state = self.pool.lock();
        }
        state.leader.spin(self.ticket);
        state
    }
}
