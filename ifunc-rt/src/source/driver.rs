//! Polling for futures in an event loop of the application's.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::Source;
use super::connection::Connection;
use crate::driver::background;
use crate::driver::backoff::{RETRY, after};
use crate::driver::driven::Driven;
use crate::driver::state::State;
use crate::driver::wake::Wakes;
use crate::os::{Epoll, EventFd, EventFlags};
use crate::transport::Waiter;

/// Receives for a source's futures in an event loop of the application's, instead of on a thread of the source's own:
/// see [`Source::driver`].
///
/// The loop is: call [`progress`](Self::progress); call [`arm`](Self::arm); if it returns `true`, wait until the
/// descriptor is readable or [`deadline`](Self::deadline) has come; repeat. These calls block only to reconnect after
/// the target went away, and then for at most 20 ms.
///
/// ```no_run
/// # fn wait_for(fd: std::os::fd::BorrowedFd<'_>, until: Option<std::time::Instant>) {}
/// use std::os::fd::AsFd;
/// let source = ifunc_rt::Source::connect("shm:counter")?;
/// let driver = source.driver()?;
/// loop {
///     driver.progress();
///     if driver.arm() {
///         wait_for(driver.as_fd(), driver.deadline());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver {
    source: Source,
    epoll: Epoll,
    /// Wakes the event loop from within the process.
    local: Arc<EventFd>,
    /// Of the link whose doorbell the epoll instance watches.
    watched: Mutex<Option<Arc<dyn Waiter>>>,
}

impl Driver {
    pub(super) fn new(source: &Source) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let local = Arc::new(EventFd::new()?);
        epoll.add(&*local, 0, EventFlags::IN)?;
        let waker = Waker::from(Arc::clone(&local));
        let mut state = source.shared.lock();
        if state.event_loop.is_some() {
            let why = "this source has a driver; help: drop that one first, or share it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        state.woken.push(waker.clone());
        state.event_loop = Some(waker);
        drop(state);
        Ok(Self {
            source: source.clone(),
            epoll,
            local,
            watched: Mutex::new(None),
        })
    }

    /// Watches the doorbell of the link that there is now.
    fn watch(&self, state: &State<Connection>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.connection.own_waiter();
        if watched.as_ref().map(Arc::as_ptr) == now.as_ref().map(Arc::as_ptr) {
            return;
        }
        if let Some(old) = &*watched {
            self.epoll.remove(old.doorbell());
        }
        let events = EventFlags::IN | EventFlags::RDHUP;
        if let Some(new) = &now
            && let Err(error) = self.epoll.add(new.doorbell(), 1, events)
        {
            tracing::error!(%error, "an event loop cannot watch the connection");
        }
        *watched = now;
    }

    /// Receives what has arrived and wakes the futures that wait for it; sends what waits for credit; ends waits
    /// whose deadline has passed. Returns whether anything arrived.
    pub fn progress(&self) -> bool {
        self.local.clear();
        let shared = &self.source.shared;
        let mut state = shared.lock();
        if disarm(&mut state)
            && let Some(waiter) = state.connection.own_waiter()
        {
            waiter.clear_doorbell();
        }
        let before = state.received();
        state.connection.try_drain();
        state.tend();
        self.watch(&state);
        let has_received = state.received() != before;
        if state.needs_link() {
            let window = shared.config.reconnect;
            let since = *state.reconnecting_since.get_or_insert_with(Instant::now);
            drop(state);
            shared.try_reconnect();
            let mut state = shared.lock();
            if state.needs_link() && since.elapsed() >= window {
                state.give_up(format!("it was not there again for {window:?}"));
            }
        }
        has_received
    }

    /// Arms the descriptor before the caller waits for it. `false`: an event arrived meanwhile, or a future was
    /// woken; call [`progress`](Self::progress) instead of waiting.
    pub fn arm(&self) -> bool {
        let mut state = self.source.shared.lock();
        if state.leader.event_loop_sleeps() {
            return true;
        }
        if !state.leader.sleep_in_event_loop(Arc::clone(&self.local).into()) {
            // A thread sleeps on the doorbell, and receives for all. It hands over when it leaves.
            return true;
        }
        let before = state.received();
        self.watch(&state);
        state.connection.arm();
        // What came before the announcement does not ring.
        state.connection.try_drain();
        state.tend();
        let is_idle = state.received() == before && !state.connection.has_more() && !state.wakes();
        if !is_idle {
            disarm(&mut state);
        }
        is_idle
    }

    /// The latest time for the next [`progress`](Self::progress), even if the descriptor stays unreadable.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let mut state = self.source.shared.lock();
        if state.needs_link() {
            return Some(after(RETRY));
        }
        let waiter = state.connection.own_waiter().filter(|_| state.needs_polls());
        let interval = waiter.and_then(|waiter| waiter.poll_interval());
        let batch = state.batch_due();
        let future = state.futures.next_deadline();
        future.into_iter().chain(interval.map(after)).chain(batch).min()
    }
}

/// The event loop sleeps and follows no more. Returns whether it slept.
fn disarm(state: &mut State<Connection>) -> bool {
    let slept = state.leader.event_loop_sleeps();
    if slept {
        state.connection.disarm();
        state.leader.wake_up();
    }
    state.leader.leave_event_loop();
    slept
}

/// Readable when there may be something to do, after [`arm`](Driver::arm).
impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// Without it, a thread polls for futures.
impl Drop for Driver {
    fn drop(&mut self) {
        let shared = &self.source.shared;
        let mut state = shared.lock();
        disarm(&mut state);
        state.event_loop = None;
        let starts = state.needs_polls() && state.call_background();
        state.hand_over();
        drop(state);
        if starts && let Err(error) = background::start(shared) {
            shared.lock().background_failed();
            tracing::error!(%error, "cannot start the thread that polls for futures");
        }
    }
}
