//! Polling for futures in an event loop of the application's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::backoff::{RETRY, after};
use super::doorbell::Doorbell;
use super::driven::Driven;
use super::state::{Shared, State};
use super::wake::Wakes;
use crate::os::{Epoll, EventFd, EventFlags};

/// Polls for the futures of one connection, which has one event loop at a time.
pub(crate) struct EventLoop<C: Driven> {
    shared: Arc<Shared<C>>,
    epoll: Epoll,
    /// Wakes the event loop from within the process.
    local: Arc<EventFd>,
    watched: Mutex<Watched<C>>,
}

/// The doorbell that the epoll instance watches, and of which link it is.
struct Watched<C: Driven> {
    doorbell: Option<C::Doorbell>,
    link: Option<u64>,
}

impl<C: Driven> EventLoop<C> {
    pub(crate) fn new(shared: &Arc<Shared<C>>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let local = Arc::new(EventFd::new()?);
        epoll.add(&*local, 0, EventFlags::IN)?;
        let waker = Waker::from(Arc::clone(&local));
        let mut state = shared.lock();
        if state.event_loop.is_some() {
            let why = "this source has a driver; help: drop that one first, or share it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        state.woken.push(waker.clone());
        state.event_loop = Some(waker);
        drop(state);
        let watched = Watched {
            doorbell: None,
            link: None,
        };
        Ok(Self {
            shared: Arc::clone(shared),
            epoll,
            local,
            watched: Mutex::new(watched),
        })
    }

    /// Watches the doorbell of the link that there is now.
    fn watch(&self, state: &State<C>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.link.replace(state.link) == Some(state.link) {
            return;
        }
        if let Some(old) = watched.doorbell.as_ref().and_then(Doorbell::fd) {
            self.epoll.remove(old);
        }
        watched.doorbell = state.connection.doorbell();
        if let Some(new) = watched.doorbell.as_ref().and_then(Doorbell::fd) {
            if let Err(error) = self.epoll.add(new, 1, EventFlags::IN | EventFlags::RDHUP) {
                tracing::error!(%error, "an event loop cannot watch the connection");
            }
        }
    }

    /// Receives, wakes and ends waits. Returns whether anything has come.
    pub(crate) fn progress(&self) -> bool {
        self.local.clear();
        let mut state = self.shared.lock();
        if state.leader.event_loop_sleeps() {
            state.connection.disarm();
            state.leader.wake_up();
            if let Some(doorbell) = state.connection.doorbell() {
                doorbell.clear();
            }
        } else {
            state.leader.leave_event_loop();
        }
        let before = state.received();
        state.connection.poll();
        state.tend();
        self.watch(&state);
        let has_received = state.received() != before;
        if state.needs_link() {
            let window = self.shared.config.reconnect;
            let since = *state.reconnecting_since.get_or_insert_with(Instant::now);
            drop(state);
            self.shared.try_reconnect();
            let mut state = self.shared.lock();
            if state.needs_link() && since.elapsed() >= window {
                state.give_up(format!("it was not there again for {window:?}"));
            }
        }
        has_received
    }

    /// Announces that the caller is about to wait. `false`: something has come meanwhile, or a waiter was woken.
    pub(crate) fn arm(&self) -> bool {
        let mut state = self.shared.lock();
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
        state.connection.poll();
        state.tend();
        if state.received() != before || state.wakes() {
            state.connection.disarm();
            state.leader.wake_up();
            return false;
        }
        true
    }

    /// When the caller is to wake up at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut state = self.shared.lock();
        if state.needs_link() {
            return Some(after(RETRY));
        }
        let doorbell = state.connection.doorbell().filter(|_| state.needs_polls());
        let interval = doorbell.and_then(|doorbell| doorbell.poll_interval());
        let batch = state.batch_due();
        let future = state.futures.next_deadline();
        future.into_iter().chain(interval.map(after)).chain(batch).min()
    }
}

impl<C: Driven> std::fmt::Debug for EventLoop<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop").finish_non_exhaustive()
    }
}

impl<C: Driven> AsFd for EventLoop<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Without it, a thread polls for futures.
impl<C: Driven> Drop for EventLoop<C> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.leader.event_loop_sleeps() {
            state.connection.disarm();
            state.leader.wake_up();
        }
        state.leader.leave_event_loop();
        state.event_loop = None;
        let starts = state.needs_polls() && state.call_background();
        state.hand_over();
        drop(state);
        if starts && let Err(error) = super::background::start(&self.shared) {
            self.shared.lock().background_failed();
            tracing::error!(%error, "cannot start the thread that polls for futures");
        }
    }
}
