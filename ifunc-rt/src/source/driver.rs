//! Polling for futures in an event loop of the application's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use super::Source;
use super::connection::Connection;
use crate::driver::event_loop::EventLoop;

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
    event_loop: EventLoop<Connection>,
    _source: Source,
}

impl Driver {
    pub(super) fn new(source: &Source) -> io::Result<Self> {
        Ok(Self {
            event_loop: EventLoop::new(source.shared())?,
            _source: source.clone(),
        })
    }

    /// Takes in what has come and wakes the futures that wait for it; sends on what waits for credit; ends waits whose deadline
    /// has passed. Returns whether anything has come.
    pub fn progress(&self) -> bool {
        self.event_loop.progress()
    }

    /// Announces that the caller is about to wait for the descriptor. `false`: something has come meanwhile, or a future was
    /// woken; look for it instead of waiting.
    pub fn arm(&self) -> bool {
        self.event_loop.arm()
    }

    /// When [`progress`](Self::progress) is to be called at the latest, whatever the descriptor says.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.event_loop.deadline()
    }
}

/// Readable when there may be something to do, once it is [`arm`](Driver::arm)ed.
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
