//! Receiving for futures in an event loop of the user's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use rustix::event::epoll;

use super::Source;
use super::bell::Handbell;
use super::helm::Ticket;
use super::patience::{Patience, after};
use super::receiver;
use super::waiting::{Shared, Waited};
use crate::transport::Waiter;

/// Receives for a source's futures, in an event loop of the user's instead of on a thread of the source's own: see
/// [`Source::driver`].
///
/// The loop is: [`progress`](Self::progress); [`arm`](Self::arm); if that says `true`, wait until the descriptor is
/// readable or [`deadline`](Self::deadline) has come; again. Nothing here blocks for longer than it takes to ask a target that went
/// away whether it is there again (20 ms at most, and only then).
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
#[derive(Debug)]
pub struct Driver {
    source: Source,
    outside: Arc<Outside>,
    ticket: Ticket,
}

/// What an event loop waits for: the link's bell, and the others' hand-over.
#[derive(Debug)]
pub(super) struct Outside {
    epoll: OwnedFd,
    bell: Handbell,
}

impl Driver {
    pub(super) fn new(source: &Source) -> io::Result<Self> {
        let outside = Arc::new(Outside::new()?);
        let Some(ticket) = source.shared().lock().take_out(&outside) else {
            let why = "this source has a driver; help: drop that one first, or share it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        };
        Ok(Self {
            source: source.clone(),
            outside,
            ticket,
        })
    }

    /// Takes in what has come and wakes those whose it is; sends on what waits for room; ends waits whose deadline has
    /// passed. Whether anything has come.
    pub fn progress(&self) -> bool {
        self.outside.bell.silence();
        let shared = self.source.shared();
        let mut state = shared.lock();
        if state.helm().sleeps_in_loop() {
            state.disarm();
            state.helm().wake_up();
            if let Some(bell) = state.bell() {
                bell.link.silence();
            }
        } else {
            state.helm().leave(self.ticket);
        }
        let before = state.received();
        state.try_drain();
        state.tend();
        let came = state.received() != before;
        if state.is_lost() {
            let window = state.window();
            let since = state.tried_since();
            drop(state);
            shared.nudge();
            let mut state = shared.lock();
            if state.is_lost() && since.elapsed() >= window {
                state.give_up(format!("it was not there again for {window:?}"));
            }
        }
        came
    }

    /// Announces that the caller is about to wait for the descriptor. `false`: something has come meanwhile, or somebody was
    /// woken; look for it instead of waiting.
    pub fn arm(&self) -> bool {
        let mut state = self.source.shared().lock();
        if state.helm().sleeps_in_loop() {
            return true;
        }
        let waker = Waker::from(Arc::clone(&self.outside));
        if !state.helm().sleep_in_loop(self.ticket, waker) {
            // A thread sleeps on the bell, and receives for all. When it leaves, this is rung.
            return true;
        }
        let before = state.received();
        state.arm();
        // What came before the announcement rings nobody.
        state.try_drain();
        state.tend();
        if state.received() != before || !state.woken().is_empty() {
            state.disarm();
            state.helm().wake_up();
            return false;
        }
        true
    }

    /// When [`progress`](Self::progress) is to be called at the latest, whatever the descriptor says.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let mut state = self.source.shared().lock();
        if state.is_lost() {
            return Some(after(Patience::SLICE));
        }
        let often = state.attention().map(after);
        let batch = state.batch_due();
        state.earliest().into_iter().chain(often).chain(batch).min()
    }
}

/// Without it, a thread of the source's receives for its futures.
impl Drop for Driver {
    fn drop(&mut self) {
        let shared = self.source.shared();
        let mut state = shared.lock();
        if state.helm().sleeps_in_loop() {
            state.disarm();
            state.helm().wake_up();
        }
        state.helm().leave(self.ticket);
        let start = state.take_back();
        if let Some(next) = state.helm().pass_on() {
            state.woken().push(next);
        }
        drop(state);
        if start && let Err(error) = receiver::start(shared) {
            shared.lock().receiver_failed();
            tracing::error!(%error, "cannot start the thread that receives for futures");
        }
    }
}

/// Readable when there may be something to do, once it is [`arm`](Driver::arm)ed.
impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outside.epoll.as_fd()
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.outside.epoll.as_raw_fd()
    }
}

impl Outside {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Handbell::new()?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { epoll, bell })
    }

    /// Another link, or none.
    pub(super) fn relink(&self, old: Option<&dyn Waiter>, new: Option<&dyn Waiter>) {
        if let Some(old) = old {
            let _ = epoll::delete(&self.epoll, old.bell());
        }
        if let Some(new) = new {
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            if let Err(error) = epoll::add(&self.epoll, new.bell(), epoll::EventData::new_u64(1), wanted) {
                tracing::error!(%error, "an event loop cannot watch the connection");
            }
        }
        self.ring();
    }

    pub(super) fn ring(&self) {
        self.bell.ring();
    }
}

impl Wake for Outside {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
