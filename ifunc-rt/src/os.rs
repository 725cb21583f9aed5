//! File descriptors that a thread sleeps on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

pub(crate) use rustix::event::epoll::EventFlags;
use rustix::event::{self, EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

thread_local! {
    static HERE: ThreadId = thread::current().id();
}

/// The calling thread. `std::thread::current` counts a reference to the thread's handle: two atomic read-modify-writes.
#[inline]
pub(crate) fn this_thread() -> ThreadId {
    HERE.with(|here| *here)
}

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
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until the next [`wake`](Self::wake).
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        EventFd::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        EventFd::wake(self);
    }
}

/// An epoll instance. A token says which of its descriptors has an event.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// Events taken at a time.
    const BATCH: usize = 64;

    pub(crate) fn new() -> rustix::io::Result<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Self)
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, events: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.0, fd, epoll::EventData::new_u64(token), events)
    }

    /// Waits for other events of a descriptor. Those that hold already count as happening.
    pub(crate) fn modify(&self, fd: impl AsFd, token: u64, events: EventFlags) -> rustix::io::Result<()> {
        epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), events)
    }

    /// Undoes [`add`](Self::add), if it was called.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits for events, and calls `each` with their tokens: one batch of them. A signal ends the wait too.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        mut each: impl FnMut(u64),
    ) -> rustix::io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); Self::BATCH];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match epoll::wait(&self.0, &mut buffer, timeout.as_ref()) {
            Ok((events, _)) => events.iter().for_each(|event| each(event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `fd` is readable or the deadline has passed. Returns whether it is readable. A signal ends the wait too.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, until: Instant) -> bool {
    wait_readable_either(fd, None, until)
}

/// Waits until `fd` or `other` is readable or the deadline has passed. Returns whether `fd` is readable. A signal ends the
/// wait too.
pub(crate) fn wait_readable_either(
    fd: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    until: Instant,
) -> bool {
    let mut fds = [fd, other.unwrap_or(fd)].map(wanted);
    let count = 1 + usize::from(other.is_some());
    wait_for(&mut fds[..count], until) && !fds[0].revents().is_empty()
}

/// Waits until one of them is readable or the deadline has passed. A signal ends the wait too.
#[cfg(feature = "ucx")]
pub(crate) fn wait_readable_any<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>, until: Instant) {
    wait_for(&mut Vec::from_iter(fds.map(wanted)), until);
}

fn wanted(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::RDHUP)
}

/// Waits until one of them has what it waits for or the deadline has passed. Returns whether one has. A signal ends the wait too.
pub(crate) fn wait_for(fds: &mut [PollFd<'_>], until: Instant) -> bool {
    let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
    matches!(event::poll(fds, timeout.as_ref()), Ok(1..))
}

/// Whether the peer of a connected socket has closed it, whatever it wrote before.
pub(crate) fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    wait_for(
        &mut [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)],
        Instant::now(),
    )
}

/// Whether the process that has this number here, or its main thread, has begun to end. `false` where there is none.
#[cfg(any(test, feature = "ucx"))]
pub(crate) fn is_ending(process: u32) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u32 = 4;
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // The second field is the name, which may have anything in it; the ninth has the flags.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let flags = after_name.split_ascii_whitespace().nth(6);
    flags.is_some_and(|flags| flags.parse::<u32>().is_ok_and(|flags| flags & EXITING != 0))
}

/// Raises the limit on descriptors when `last`, the descriptor that was made last, comes near to it: the kernel gives the
/// lowest number that is free.
///
/// Each connection takes some descriptors, and the *soft* limit that processes begin with, often 1024, is for programs that
/// use `select`. Any process may raise it up to the *hard* limit.
pub(crate) fn raise_descriptor_limit_near(last: BorrowedFd<'_>) {
    /// How many descriptors making a connection may take.
    const RESERVE: u64 = 16;
    let number = u64::try_from(last.as_raw_fd()).unwrap_or_default();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if !current.is_some_and(|now| number + RESERVE >= now && maximum.is_none_or(|most| now < most)) {
        return;
    }
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => tracing::info!(
            from = current,
            to = maximum,
            "the soft limit on descriptors is raised"
        ),
        Err(error) => {
            tracing::warn!(%error, limit = current, "the limit on descriptors is near, and cannot be raised")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_peer_is_seen_behind_what_it_wrote() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!is_hung_up(near.as_fd()));
        rustix::io::write(&far, &[1]).unwrap();
        assert!(!is_hung_up(near.as_fd()));
        drop(far);
        assert!(is_hung_up(near.as_fd()));
    }

    #[test]
    fn a_process_that_has_ended_and_was_not_waited_for_is_ending() {
        assert!(!is_ending(std::process::id()) && !is_ending(u32::MAX));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_ending(child.id()) {
            assert!(Instant::now() < deadline, "it does not end");
        }
        child.wait().unwrap();
        assert!(!is_ending(child.id()), "there is none any more");
    }
}
