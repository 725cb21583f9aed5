//! Connected TCP sockets.

use std::io;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::os::fd::AsRawFd as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
    set_tcp_user_timeout, socket_error,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getpeername, socket_with};

use crate::os::wait_for;

/// Probes that a silent peer leaves unanswered before it is given up.
const PROBES: u32 = 3;

/// Sets what both sides want of a connected socket: no delay, and an end if the peer's host is silent for `peer_timeout`.
pub(super) fn set_options(socket: BorrowedFd<'_>, peer_timeout: Duration) -> rustix::io::Result<()> {
    set_tcp_nodelay(socket, true)?;
    // Written data that is not acknowledged, and probes of an idle connection.
    let limit = peer_timeout.as_millis().clamp(1, u32::MAX.into()) as u32;
    set_tcp_user_timeout(socket, limit)?;
    let every = Duration::from_secs((peer_timeout.as_secs() / u64::from(PROBES + 1)).max(1));
    set_tcp_keepidle(socket, every)?;
    set_tcp_keepintvl(socket, every)?;
    set_tcp_keepcnt(socket, PROBES)?;
    set_socket_keepalive(socket, true)
}

/// Connects to `address`. Before it waits, it asks `next_wait` until when; `None`: not any more, and there is no connection.
pub(super) fn connect_while(
    address: SocketAddr,
    mut next_wait: impl FnMut() -> Option<Instant>,
) -> io::Result<Option<OwnedFd>> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) => return Ok(Some(socket)),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    loop {
        let Some(until) = next_wait() else {
            return Ok(None);
        };
        if wait(socket.as_fd(), PollFlags::OUT, until) {
            break;
        }
    }
    socket_error(&socket)??;
    Ok(Some(socket))
}

/// Connects to `address`. `None`: the deadline passed.
#[cfg(feature = "tls")]
pub(super) fn connect_until(address: SocketAddr, deadline: Instant) -> io::Result<Option<OwnedFd>> {
    let mut has_waited = false;
    connect_while(address, || {
        let is_over = std::mem::replace(&mut has_waited, true) && Instant::now() >= deadline;
        (!is_over).then_some(deadline)
    })
}

/// Waits for an event of the socket, or until the deadline. Returns whether it has one. A signal ends the wait too.
pub(super) fn wait(socket: BorrowedFd<'_>, events: PollFlags, until: Instant) -> bool {
    wait_for(&mut [PollFd::from_borrowed_fd(socket, events)], until)
}

/// Bytes that the peer's kernel has not acknowledged.
#[cfg(feature = "tls")]
pub(super) fn undelivered(socket: BorrowedFd<'_>) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: `TIOCOUTQ` of a socket stores one `int` at the address, which is that of `bytes`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { bytes } else { 0 }
}

/// Whether the peer is on this host, in the same network namespace.
#[cfg(feature = "ucx")]
pub(super) fn is_of_this_host(socket: BorrowedFd<'_>) -> bool {
    use rustix::net::{SocketAddrAny, getsockname};

    let ip = |address: SocketAddrAny| Some(SocketAddr::try_from(address).ok()?.ip());
    let here = getsockname(socket).ok().and_then(ip);
    let there = getpeername(socket).ok().flatten().and_then(ip);
    let (Some(here), Some(there)) = (here, there) else {
        return false;
    };
    // A loopback address reaches this host alone.
    here == there || here.is_loopback()
}

/// The address of the peer's host.
pub(super) fn peer_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let address = getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    Ok(SocketAddr::try_from(address)?)
}

#[cfg(all(test, not(loom), feature = "tls"))]
mod tests {
    use std::net::TcpListener;

    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::sockopt::{
        socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_nodelay, tcp_user_timeout,
    };

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn a_silent_peer_is_given_up_within_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connect_until(listener.local_addr().unwrap(), soon())
            .unwrap()
            .unwrap();
        assert!(fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
        assert_eq!(fcntl_getfd(&socket).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(
            peer_address(socket.as_fd()).unwrap(),
            listener.local_addr().unwrap()
        );
        for (seconds, every) in [(0, 1), (1, 1), (20, 5), (23, 5)] {
            set_options(socket.as_fd(), Duration::from_secs(seconds)).unwrap();
            let every = Duration::from_secs(every);
            assert_eq!(
                u64::from(tcp_user_timeout(&socket).unwrap()),
                (seconds * 1000).max(1)
            );
            assert_eq!(tcp_keepidle(&socket).unwrap(), every);
            assert_eq!(tcp_keepintvl(&socket).unwrap(), every);
            assert_eq!(tcp_keepcnt(&socket).unwrap(), PROBES);
            assert!(socket_keepalive(&socket).unwrap() && tcp_nodelay(&socket).unwrap());
        }
    }

    #[cfg(feature = "ucx")]
    #[test]
    fn all_addresses_of_the_loopback_device_are_this_host() {
        for at in ["127.0.0.1:0", "127.0.0.2:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let socket = connect_until(listener.local_addr().unwrap(), soon())
                .unwrap()
                .unwrap();
            assert!(is_of_this_host(socket.as_fd()), "{at}");
        }
        let (no_address, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!is_of_this_host(no_address.as_fd()));
    }

    /// A host that does not answer: one whose queue of new connections is full.
    #[test]
    fn an_attempt_ends_at_its_deadline() {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let at = TcpListener::from(socket);
        let address = at.local_addr().unwrap();
        let mut connected = Vec::new();
        let is_over = (0..10).any(|_| {
            let began = Instant::now();
            let made = connect_until(address, began + Duration::from_millis(30)).unwrap();
            let waited = began.elapsed() >= Duration::from_millis(30);
            let is_none = made.is_none();
            connected.extend(made);
            is_none && waited
        });
        assert!(is_over);
    }

    #[test]
    fn what_the_peer_has_not_acknowledged_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = connect_until(listener.local_addr().unwrap(), soon())
            .unwrap()
            .unwrap();
        let _peer = listener.accept().unwrap();
        assert_eq!(undelivered(socket.as_fd()), 0);
        assert!(!wait(socket.as_fd(), PollFlags::IN, Instant::now()));
        assert!(wait(socket.as_fd(), PollFlags::OUT, soon()));
        while rustix::io::write(&socket, &[0; 1 << 16]).is_ok() {}
        assert!(undelivered(socket.as_fd()) > 0);
    }
}
