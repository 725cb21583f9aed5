//! The thread that sends an open batch in time, whatever the application does meanwhile.
//!
//! When a batch is opened, the time at which it is due is written down, and when it is sent, that none is: plain stores, under
//! the connection's lock. The thread sleeps until then, without the lock, and takes the lock only if that time still stands
//! there. While no batch is open it sleeps for good, and the thread that opens the next one wakes it.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::background::spawn;
use super::backoff::after;
use super::driven::Driven;
use super::parker::Parker;
use super::state::{Shared, Want};
use super::wait::Ended;

/// What the thread and those that hold the lock share.
#[derive(Debug)]
pub(super) struct Timer {
    epoch: Instant,
    /// When the open batch is due, in nanoseconds since `epoch`; [`NONE`]: none is open.
    due: AtomicU64,
    /// The thread sleeps, or is about to, until it is woken.
    asleep: AtomicBool,
    stopped: AtomicBool,
    parker: Arc<Parker>,
}

const NONE: u64 = u64::MAX;

impl Timer {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: Instant::now(),
            due: AtomicU64::new(NONE),
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            parker: Parker::new(),
        })
    }

    /// The open batch is due then, or none is open. Call under the connection's lock, and wake what it returns.
    pub(super) fn set(&self, due: Option<Instant>) -> Option<Waker> {
        let Some(due) = due else {
            self.due.store(NONE, Ordering::Relaxed);
            return None;
        };
        let due = due.saturating_duration_since(self.epoch).as_nanos();
        self.due
            .store(u64::try_from(due).unwrap_or(NONE - 1), Ordering::Relaxed);
        // Either this thread sees that the timer sleeps, or the timer sees the batch.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed).then(|| self.parker.waker())
    }

    /// The thread is to end. Wake what it returns.
    pub(super) fn stop(&self) -> Waker {
        self.stopped.store(true, Ordering::Relaxed);
        self.parker.waker()
    }

    fn due(&self) -> Option<Instant> {
        match self.due.load(Ordering::Relaxed) {
            NONE => None,
            due => Some(self.epoch + Duration::from_nanos(due)),
        }
    }

    /// Sleeps until a batch is open, or the thread is to end.
    fn idle(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.due.load(Ordering::Relaxed) == NONE {
            self.parker.park(after(Duration::MAX));
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    fn run<C: Driven>(&self, shared: &Shared<C>, delay: Duration) {
        // Where batches follow each other, no thread has to wake this one.
        let mut lingers = true;
        while !self.stopped.load(Ordering::Relaxed) {
            let due = self.due();
            match due {
                None if lingers => self.parker.park(after(delay)),
                None => self.idle(),
                Some(due) if Instant::now() < due => self.parker.park(due),
                Some(_) => send(shared),
            }
            lingers = due.is_some() || !lingers;
        }
    }
}

impl<C: Driven> Shared<C> {
    /// Sees to it that an open batch is sent in time: after `delay`.
    pub(crate) fn start_timer(self: &Arc<Self>, delay: Duration) {
        let mut state = self.lock();
        if state.timer.is_some() || delay == Duration::MAX || self.config.no_thread.is_some() {
            return;
        }
        let timer = Timer::new();
        state.timer = Some(Arc::clone(&timer));
        state.connection.signals().is_timed = true;
        let _ = timer.set(state.connection.batch_due());
        drop(state);
        let shared = Arc::clone(self);
        if let Err(error) = spawn("ifunc-batches", move || timer.run(&shared, delay)) {
            tracing::warn!(%error, "no thread can be started that sends batches in time: they are sent when the source is used");
            let mut state = self.lock();
            state.timer = None;
            state.connection.signals().is_timed = false;
        }
    }
}

/// Sends the batch that is due, when there is credit, over another link if this one is lost.
fn send<C: Driven>(shared: &Shared<C>) {
    {
        let mut state = shared.lock_unbiased();
        if state.is_closed || state.connection.send_due_batch() {
            return;
        }
    }
    let far = after(Duration::MAX);
    let sent = shared.wait::<(), std::convert::Infallible>(far, Want::Credit, |connection| {
        Ok(connection.send_due_batch().then_some(()))
    });
    if let Err(Ended::Gone(why)) = sent {
        tracing::debug!(why, "a batch could not be sent");
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;
    use std::time::Instant;

    use super::Timer;

    /// If the thread slept through a batch, that would be a deadlock.
    #[test]
    fn a_batch_that_is_opened_is_never_slept_through() {
        loom::model(|| {
            let timer = Timer::new();
            let sender = {
                let timer = Arc::clone(&timer);
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        if let Some(waker) = timer.set(Some(Instant::now())) {
                            waker.wake();
                        }
                    }
                })
            };
            while timer.due().is_none() {
                timer.idle();
            }
            sender.join().unwrap();
        });
    }
}
