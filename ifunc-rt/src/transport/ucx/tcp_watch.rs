//! TCP connections of UCX whose peer's host has vanished with something under way.
//!
//! The kernel sends its probes ([`settings`](super::settings)) where nothing is under way. What was sent and not acknowledged
//! it sends again, for a quarter of an hour by default, and UCX up to 1.21 has no setting for that. The kernel's
//! own bound (`TCP_USER_TIMEOUT`) would also end connections to a process that is merely stopped and whose window is full.
//! So this side asks the kernel how long no packet has arrived: the host of a stopped process still answers.
//!
//! UCX does not name its sockets, but the kernel does: they are in the epoll instance that the worker is slept on, or in one
//! that is in there.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

/// Checks of the sockets within the time after which a peer is given up.
const PART: u32 = 4;
/// The longest silence that is waited for: any longer is as good as for ever, and the clock must be able to count it.
const MOST: Duration = Duration::from_secs(1 << 30);
/// How deep epoll instances are in each other: the worker's, a transport's.
const DEPTH: u32 = 3;

/// The checks of the sockets.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    timeout: Duration,
    next: Option<Instant>,
    /// Sockets that retransmit, and since when no packet has arrived there.
    unanswered: BTreeMap<RawFd, Instant>,
}

impl Watch {
    /// `None`: not at all, because the environment has its own word on TCP's probes.
    pub(super) fn new(timeout: Duration) -> Option<Self> {
        let chosen = ["KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT"];
        let is_chosen = |name: &&str| std::env::var_os(format!("UCX_TCP_{name}")).is_some();
        (!chosen.iter().any(is_chosen)).then(|| Self {
            timeout: timeout.min(MOST),
            next: None,
            unanswered: BTreeMap::new(),
        })
    }

    /// Whether to check now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.next.is_none_or(|next| now >= next);
        if is_due {
            self.next = now.checked_add(self.timeout / PART);
        }
        is_due
    }

    /// Ends connections whose peer was silent for too long; how many.
    pub(super) fn shut_down_silent(&mut self, worker: BorrowedFd<'_>) -> usize {
        let mut fds = BTreeSet::new();
        collect(worker.as_raw_fd(), DEPTH, &mut fds);
        let now = Instant::now();
        let before = std::mem::take(&mut self.unanswered);
        // The silence may have begun right after the check before.
        let limit = self.timeout - self.timeout / PART;
        let mut ended = 0;
        for fd in fds {
            let Some(silence) = silence(fd) else { continue };
            let since = before.get(&fd).copied().filter(|&since| now - since <= silence);
            let since = *self.unanswered.entry(fd).or_insert(since.unwrap_or(now));
            if now - since >= limit {
                tracing::debug!(fd, "the peer of a TCP connection of UCX's is silent");
                // SAFETY: UCX's, which closes it under the engine's lock, which the caller has.
                let socket = unsafe { BorrowedFd::borrow_raw(fd) };
                // UCX sees the end of the connection.
                let _ = shutdown(socket, Shutdown::Both);
                ended += 1;
            }
        }
        ended
    }
}

/// Time since a packet arrived on a TCP socket that retransmits; `None` for any other descriptor.
fn silence(fd: RawFd) -> Option<Duration> {
    // SAFETY: zeroes are a valid value: integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: at most `len` bytes are written. What is no socket, or none of TCP, is refused.
    let status = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    (status == 0 && info.tcpi_unacked > 0 && info.tcpi_retransmits > 0)
        .then(|| Duration::from_millis(info.tcpi_last_ack_recv.into()))
}

/// Whether a socket of this process retransmits, such as to a host that does not answer. The
/// sockets by which UCX connects are in no epoll instance of the worker's.
pub(super) fn resends() -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return false;
    };
    open.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .any(|fd| silence(fd).is_some())
}

/// The descriptors in an epoll instance and in those that are in it.
fn collect(epoll: RawFd, depth: u32, found: &mut BTreeSet<RawFd>) {
    let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")) else {
        return;
    };
    for fd in members(&text) {
        if found.insert(fd) && depth > 0 {
            collect(fd, depth - 1, found);
        }
    }
}

/// What `/proc/PID/fdinfo` says of an epoll instance: `tfd:        9 events: …`, a line each.
fn members(text: &str) -> impl Iterator<Item = RawFd> {
    text.lines()
        .filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use rustix::event::epoll;

    use super::*;

    #[test]
    fn descriptors_are_found_in_epoll_instances() {
        let instance = || epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (outer, inner) = (instance(), instance());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let add = |to: &std::os::fd::OwnedFd, fd: BorrowedFd<'_>| {
            epoll::add(to, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        };
        add(&outer, inner.as_fd());
        add(&inner, listener.as_fd());
        let mut found = BTreeSet::new();
        collect(outer.as_raw_fd(), DEPTH, &mut found);
        assert_eq!(found, [inner.as_raw_fd(), listener.as_raw_fd()].into());
        for (depth, found_at) in [(0, 1), (1, 2), (2, 2)] {
            found.clear();
            collect(outer.as_raw_fd(), depth, &mut found);
            assert_eq!(found.len(), found_at, "at depth {depth}");
        }
        // A listener below three instances is deeper than two.
        let outermost = instance();
        add(&outermost, outer.as_fd());
        for (depth, is_found) in [(1, false), (2, true)] {
            found.clear();
            collect(outermost.as_raw_fd(), depth, &mut found);
            assert_eq!(found.contains(&listener.as_raw_fd()), is_found);
        }
    }

    /// A watch with this timeout, whatever the environment says.
    fn watch(timeout: Duration) -> Watch {
        Watch {
            timeout,
            next: None,
            unanswered: BTreeMap::new(),
        }
    }

    /// Waits until what the kernel says of sockets is so: of that there is no event.
    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "waited in vain until {what}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A connection, in an epoll instance, to a peer whose host has vanished.
    struct Vanished {
        epoll: std::os::fd::OwnedFd,
        here: TcpStream,
        _there: TcpStream,
    }

    impl Vanished {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let there = listener.accept().unwrap().0;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            epoll::add(&epoll, &here, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
            // The filter of that socket drops each packet, so nothing is acknowledged: `return 0`.
            let mut instruction = libc::sock_filter {
                code: (libc::BPF_RET | libc::BPF_K) as u16,
                jt: 0,
                jf: 0,
                k: 0,
            };
            let filter = libc::sock_fprog {
                len: 1,
                filter: &raw mut instruction,
            };
            // SAFETY: the kernel reads the program, of one instruction, during the call.
            let status = unsafe {
                libc::setsockopt(
                    there.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_ATTACH_FILTER,
                    (&raw const filter).cast(),
                    size_of::<libc::sock_fprog>() as libc::socklen_t,
                )
            };
            assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
            Self {
                epoll,
                here,
                _there: there,
            }
        }
    }

    #[test]
    fn a_peer_that_has_nothing_to_acknowledge_is_not_silent() {
        let vanished = Vanished::new();
        assert_eq!(silence(vanished.here.as_raw_fd()), None);
        assert_eq!(watch(Duration::ZERO).shut_down_silent(vanished.epoll.as_fd()), 0);
    }

    #[test]
    fn a_connection_whose_peer_does_not_acknowledge_is_ended_after_the_timeout() {
        let mut vanished = Vanished::new();
        vanished.here.write_all(b"lost").unwrap();
        wait_until("it is sent again", || {
            silence(vanished.here.as_raw_fd()).is_some()
        });
        assert!(resends());
        // Silent already, but it may have begun right now: it is noted, and ended later.
        let timeout = Duration::from_millis(400);
        let mut watch = watch(timeout);
        let (began, mut checks) = (Instant::now(), 1);
        assert_eq!(watch.shut_down_silent(vanished.epoll.as_fd()), 0);
        while watch.shut_down_silent(vanished.epoll.as_fd()) == 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "it is not ended");
            std::thread::sleep(Duration::from_millis(5));
            checks += 1;
        }
        assert!(began.elapsed() >= timeout * 3 / 4, "{checks} checks");
        assert_eq!(vanished.here.read(&mut [0]).unwrap(), 0, "it is shut down");
        drop(vanished);
        // Other tests may have such sockets for a while.
        wait_until("no socket is left that resends", || !resends());
    }

    #[test]
    fn a_peer_that_answers_again_is_waited_for_from_the_beginning() {
        let mut vanished = Vanished::new();
        vanished.here.write_all(b"lost").unwrap();
        wait_until("it is sent again", || {
            silence(vanished.here.as_raw_fd()).is_some()
        });
        let mut watch = watch(Duration::from_secs(60));
        let fd = vanished.here.as_raw_fd();
        // It was silent since before its last packet arrived: that silence is over.
        let long_ago = Instant::now() - Duration::from_secs(3600);
        watch.unanswered.insert(fd, long_ago);
        assert_eq!(watch.shut_down_silent(vanished.epoll.as_fd()), 0);
        assert!(watch.unanswered[&fd] > long_ago);
        // The same silence goes on.
        let noted = watch.unanswered[&fd];
        assert_eq!(watch.shut_down_silent(vanished.epoll.as_fd()), 0);
        assert_eq!(watch.unanswered[&fd], noted);
    }

    #[test]
    fn sockets_are_checked_at_intervals_however_long_the_timeout_is() {
        for timeout in [Duration::from_secs(2), Duration::MAX] {
            let Some(mut watch) = Watch::new(timeout) else {
                return;
            };
            assert!(watch.is_due());
            assert!(!watch.is_due(), "{timeout:?}");
            let next = watch.next.unwrap() - Instant::now();
            assert!(next <= timeout / PART && next > timeout.min(MOST) / PART - Duration::from_secs(1) / 4);
        }
    }
}
