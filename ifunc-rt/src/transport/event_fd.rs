//! Waking a thread of this process that waits for a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};

/// An eventfd that only this process holds.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full: then it is readable.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until the next [`wake`](Self::wake).
    pub(crate) fn clear(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `fd` is readable or the deadline has passed. Returns whether it is readable. A signal ends the wait too.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, until: Instant) -> bool {
    wait_readable_either(fd, None, until)
}

/// Waits until `fd` or `other` is readable or the deadline has passed. Returns whether `fd` is readable. A signal ends the
/// wait too.
pub(super) fn wait_readable_either(
    fd: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    until: Instant,
) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let wanted = PollFlags::IN | PollFlags::RDHUP;
    let mut fds = [
        PollFd::from_borrowed_fd(fd, wanted),
        PollFd::from_borrowed_fd(other.unwrap_or(fd), wanted),
    ];
    let count = 1 + usize::from(other.is_some());
    matches!(poll(&mut fds[..count], Some(&timeout)), Ok(1..)) && !fds[0].revents().is_empty()
}
