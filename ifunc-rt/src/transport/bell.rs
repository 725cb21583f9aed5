//! Something to sleep on within a process: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};

/// An eventfd that only this process holds.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub(super) fn ring(&self) {
        // It can only fail when it rings already.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until the next `ring`.
    pub(super) fn silence(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until `fd` is readable or `until`; whether it is readable. A signal ends the sleep too.
pub(super) fn sleep_on(fd: BorrowedFd<'_>, until: Instant) -> bool {
    sleep_on_either(fd, None, until)
}

/// Sleeps until `fd` or `other` is readable or `until`; whether `fd` is. A signal ends the sleep too.
pub(super) fn sleep_on_either(fd: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>, until: Instant) -> bool {
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
