//! What a leader sleeps on.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::os::EventFd;

/// What the sleeper of a connection sleeps on. One thread at a time does.
pub(crate) trait Doorbell {
    /// Sleeps until the peer rings, [`waker`](Self::waker) is woken, or `until`; may return early.
    fn sleep(&self, until: Instant);

    /// Wakes the sleeper from within this process.
    fn waker(&self) -> Waker;

    /// Readable when the peer rings, for event loops. `None`: it cannot be waited for so.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// How often the link must be polled, whatever the doorbell says.
    fn poll_interval(&self) -> Option<Duration>;

    /// Makes [`fd`](Self::fd) unreadable until the peer rings again.
    fn clear(&self);
}

/// A link's, and the one that threads of this process ring.
pub(crate) struct LinkDoorbell {
    pub(crate) link: Arc<dyn crate::transport::Waiter>,
    pub(crate) local: Arc<EventFd>,
}

impl Doorbell for LinkDoorbell {
    fn sleep(&self, until: Instant) {
        self.link.sleep(until, Some(self.local.as_fd()));
        self.local.clear();
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.local).into()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.doorbell())
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.link.poll_interval()
    }

    fn clear(&self) {
        self.link.clear_doorbell();
    }
}
