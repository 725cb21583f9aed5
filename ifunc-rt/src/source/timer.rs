//! The thread that sends an open batch in time, whatever the application does meanwhile.
//!
//! Whoever opens a batch writes down when it is due, and whoever sends it that none is open: plain stores, under the
//! connection's lock. The thread sleeps until then, without the lock, and takes it only if that time is still written there. While
//! no batch is open it sleeps for good: for that one time who opens the next has to wake it.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::parker::Parker;
use super::patience::after;
use super::shared::SharedConnection;
use super::waiting::{Ended, Shared, Want, wait};

const STACK: usize = 256 << 10;

/// What the thread and those who hold the lock tell each other.
pub(super) struct Timer {
    epoch: Instant,
    delay: Duration,
    /// When the open batch is due, in nanoseconds since `epoch`; [`NONE`]: none is open.
    due: AtomicU64,
    /// The thread sleeps, or is about to, until it is woken.
    asleep: AtomicBool,
    stopped: AtomicBool,
    parker: Arc<Parker>,
}

const NONE: u64 = u64::MAX;

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

impl Timer {
    pub(super) fn new(delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            epoch: Instant::now(),
            delay,
            due: AtomicU64::new(NONE),
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            parker: Parker::new(),
        })
    }

    /// A batch is open, which is due then. Under the connection's lock. What it returns must be woken.
    pub(super) fn opened(&self, due: Instant) -> Option<Waker> {
        let due = due.saturating_duration_since(self.epoch).as_nanos();
        self.due
            .store(u64::try_from(due).unwrap_or(NONE - 1), Ordering::Relaxed);
        // One of the two sees what the other has stored.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed).then(|| self.parker.waker())
    }

    /// None is open any more. Under the connection's lock.
    pub(super) fn sent(&self) {
        self.due.store(NONE, Ordering::Relaxed);
    }

    /// The thread is to end. What it returns must be woken.
    pub(super) fn stop(&self) -> Waker {
        self.stopped.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.parker.waker()
    }

    fn due(&self) -> Option<Instant> {
        match self.due.load(Ordering::Relaxed) {
            NONE => None,
            due => Some(self.epoch + Duration::from_nanos(due)),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Sleeps until a batch is open, or the thread is to end.
    fn rest(&self) {
        self.parker.reset();
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.due.load(Ordering::Relaxed) == NONE && !self.is_stopped() {
            self.parker.park(after(Duration::MAX));
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sleeps until then, or until the thread is to end.
    fn sleep_until(&self, then: Instant) {
        self.parker.reset();
        fence(Ordering::SeqCst);
        if !self.is_stopped() {
            self.parker.park(then);
        }
    }
}

/// Starts the thread. It ends with the source.
pub(super) fn start(shared: &Arc<SharedConnection>, timer: Arc<Timer>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name("ifunc-batches".into())
        .stack_size(STACK)
        .spawn(move || run(&shared, &timer))
        .map(drop)
}

fn run(shared: &SharedConnection, timer: &Timer) {
    // Where batches follow each other, nobody has to be woken for any of them.
    let mut lingers = true;
    while !timer.is_stopped() {
        match timer.due() {
            None if lingers => {
                lingers = false;
                timer.sleep_until(after(timer.delay));
            }
            None => {
                timer.rest();
                lingers = true;
            }
            Some(due) if Instant::now() < due => {
                lingers = true;
                timer.sleep_until(due);
            }
            Some(_) => {
                lingers = true;
                send(shared);
            }
        }
    }
}

/// Sends the batch that is due, when there is room, over another link if this one is lost.
fn send(shared: &SharedConnection) {
    {
        let mut connection = shared.lock_as_guest();
        if connection.is_closed() || connection.send_due() {
            return;
        }
    }
    let far = after(Duration::MAX);
    let sent = wait::<_, (), std::convert::Infallible>(shared, far, Want::Room, |connection| {
        Ok((connection.is_closed() || connection.send_due()).then_some(()))
    });
    if let Err(Ended::Gone(why)) = sent {
        tracing::debug!(why, "a batch could not be sent");
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::Timer;

    /// A batch that nobody is told of would be a deadlock: the thread sleeps for good.
    #[test]
    fn a_batch_that_is_opened_is_never_slept_through() {
        loom::model(|| {
            let timer = Timer::new(Duration::ZERO);
            let sender = {
                let timer = Arc::clone(&timer);
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        if let Some(waker) = timer.opened(Instant::now()) {
                            waker.wake();
                        }
                    }
                })
            };
            while timer.due().is_none() {
                timer.rest();
            }
            sender.join().unwrap();
        });
    }
}
