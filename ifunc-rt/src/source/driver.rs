//! Polling for futures in an event loop of the application's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use super::Source;
use super::connection::Connection;
use crate::driver::event_loop::EventLoop;

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
#[derive(Debug)]
pub struct Driver {
    event_loop: EventLoop<Connection>,
    _source: Source,
}

impl Driver {
    pub(super) fn new(source: &Source) -> io::Result<Self> {
        Ok(Self {
            event_loop: EventLoop::new(&source.shared)?,
            _source: source.clone(),
        })
    }

    /// Receives what has arrived and wakes the futures that wait for it; sends what waits for credit; ends waits
    /// whose deadline has passed. Returns whether anything arrived.
    pub fn progress(&self) -> bool {
        self.event_loop.progress()
    }

    /// Arms the descriptor before the caller waits for it. `false`: an event arrived meanwhile, or a future was
    /// woken; call [`progress`](Self::progress) instead of waiting.
    pub fn arm(&self) -> bool {
        self.event_loop.arm()
    }

    /// The latest time for the next [`progress`](Self::progress), even if the descriptor stays unreadable.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.event_loop.deadline()
    }
}

/// Readable when there may be something to do, after [`arm`](Driver::arm).
impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_loop.as_fd()
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.event_loop.as_fd().as_raw_fd()
    }
}
