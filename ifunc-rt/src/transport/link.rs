//! One side of a connection, over any transport.
//!
//! Over shared memory a whole frame costs some ten nanoseconds, of which calls through a vtable would be half. So code
//! that handles frames is compiled twice: for shared memory, and for all other transports, where a network or a lock lies
//! between the two sides and a call through a vtable is not noticed. The macro `with_link` chooses the copy.

use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc_abi::hello::Hello;
use ifunc_proto::link;

use super::boxed::Rx;
#[cfg(any(test, feature = "ucx", feature = "tls"))]
use super::boxed::Tx;
use super::{Inbound, Outbound, shm};
use crate::keys::PublicKey;
use crate::os;

/// One side of a connection. The two sides are alike: source and target are roles of the layers above.
pub(crate) struct Link {
    pub(crate) ends: Ends,
    pub(crate) waiter: Arc<dyn Waiter>,
    pub(crate) peer: Peer,
    /// Whether the transport lets the peer write the body of a frame while it is read here. (A peer that abuses UCX writes any memory:
    /// `SECURITY.md`.)
    pub(crate) shares_bodies: bool,
    /// What the peer stated about itself.
    pub(crate) hello: Hello,
    /// What the listener of this process's target names the link by. `None`: no listener does.
    pub(crate) key: Option<Key>,
}

/// The two directions of a link.
#[cfg_attr(
    any(test, feature = "ucx", feature = "tls"),
    expect(
        clippy::large_enum_variant,
        reason = "a link is moved once, and used with every frame"
    )
)]
pub(crate) enum Ends {
    Shm(Pair<shm::Outgoing, shm::Incoming>),
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    Other(Pair<Box<dyn Tx>, Box<dyn Rx>>),
}

/// The outgoing and the incoming direction of one transport.
pub(crate) struct Pair<T, R> {
    pub(crate) tx: T,
    pub(crate) rx: R,
}

impl<T: Outbound, R: Inbound> link::Link for Pair<T, R> {
    type Tx = T;
    type Rx = R;

    #[inline(always)]
    fn split(&mut self) -> (&mut T, &mut R) {
        (&mut self.tx, &mut self.rx)
    }
}

/// Evaluates an expression for the [`Pair`] of a [`Link`], compiled once for shared memory and once for all other
/// transports.
macro_rules! with_link {
    ($link:expr, $name:ident => $do:expr) => {
        match &mut $link.ends {
            $crate::transport::Ends::Shm($name) => $do,
            #[cfg(any(test, feature = "ucx", feature = "tls"))]
            $crate::transport::Ends::Other($name) => $do,
        }
    };
}

pub(crate) use with_link;

impl Link {
    /// The incoming direction.
    pub(crate) fn rx(&mut self) -> &mut dyn Rx {
        match &mut self.ends {
            Ends::Shm(pair) => &mut pair.rx,
            #[cfg(any(test, feature = "ucx", feature = "tls"))]
            Ends::Other(pair) => &mut *pair.rx,
        }
    }

    /// The outgoing direction.
    #[cfg(test)]
    pub(crate) fn tx(&mut self) -> &mut dyn Outbound {
        with_link!(self, pair => &mut pair.tx)
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("peer", &self.peer)
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

/// Waiting for a link without polling it.
pub(crate) trait Park {
    /// Announces that this side goes to sleep: from now until [`disarm`](Self::disarm) the peer wakes it for frames and for
    /// credits. `false` if a frame has arrived or the peer is gone: then do not sleep for frames. Before it sleeps for
    /// credits, the caller tries [`reserve`](Outbound::reserve) once more: credits may have arrived before the announcement.
    fn arm(&mut self) -> bool;

    /// Withdraws the announcement of [`arm`](Self::arm) and of [`park`](Self::park).
    fn disarm(&mut self);

    /// A target announces that it polls this link only after its listener [reports](super::Listener::ready) it, for frames,
    /// for credits and for the peer's end. The announcement holds after the listener's next
    /// [`fence`](super::Listener::fence); a link that is not [idle](Self::is_idle) then is polled again.
    fn park(&mut self);

    /// Whether no frame has arrived and the peer is not known to be gone. Call it after [`park`](Self::park) and the fence.
    fn is_idle(&mut self) -> bool;
}

/// Which link of its listener's. A number may be used again when its link is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(NonZeroU64);

impl Key {
    /// The key of this number, which is less than 2^63.
    pub(crate) const fn of(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }

    /// A key that no listener gives out, because it counts down from the end.
    pub(crate) const fn of_own(number: u64) -> Self {
        Self::of((u64::MAX - 1).saturating_sub(number))
    }
}

/// The peer's credentials, as the kernel or the transport reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// User id; `None` where the transport cannot know.
    pub(crate) uid: Option<u32>,
    /// Process id, for people.
    pub(crate) pid: Option<i32>,
    /// The key that it has proved to hold, where peers prove theirs.
    pub(crate) key: Option<PublicKey>,
    /// By what it is certified, and its name.
    pub(crate) certified: Option<Arc<Certified>>,
}

/// A certificate that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certified {
    /// The name by which the peer is known.
    pub(crate) name: Arc<str>,
    /// The certificate, and those that lead from it to its authority.
    #[cfg(feature = "tls")]
    pub(crate) chain: Vec<rustls::pki_types::CertificateDer<'static>>,
}

/// Sleeping on a link's own doorbell, for a source. A target sleeps on its listener's.
pub(crate) trait Waiter: Send + Sync {
    /// Sleeps until the peer sends a wake-up or is gone, `woken` is readable, or the deadline passes. Spurious wake-ups happen.
    /// The caller has armed the link.
    fn sleep(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        self.sleep_on_doorbell(until, woken);
    }

    /// The default [`sleep`](Self::sleep).
    fn sleep_on_doorbell(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        if self.is_peer_closed() {
            return;
        }
        let until = self
            .poll_interval()
            .map_or(until, |interval| until.min(Instant::now() + interval));
        if os::wait_readable_either(self.doorbell(), woken, until) {
            self.clear_doorbell();
        }
    }

    /// Longest time between two polls, where the transport detects some events, such as a peer's end, only in polls. `None`:
    /// the doorbell reports every event.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Readable when `sleep` would return for the peer's sake. For event loops.
    fn doorbell(&self) -> BorrowedFd<'_>;

    /// Makes `doorbell` unreadable until the peer's next wake-up.
    fn clear_doorbell(&self);

    /// Closes this side of the link and wakes all threads that sleep on it.
    fn close(&self);

    /// Whether any thread may use the link, or only the thread that made it.
    fn serves_any_thread(&self) -> bool {
        true
    }

    /// What carries the connection, as the transport describes it, for people. May cost microseconds.
    fn carried_by(&self) -> String;

    /// Whether the peer is known to be gone. Costs one load; the transport detects it in the background.
    fn is_peer_closed(&self) -> bool;

    /// Whether the peer is gone, checked now: on a busy machine the background thread may be late. May cost a system call.
    fn check_peer_closed(&self) -> bool {
        self.is_peer_closed()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::os::EventFd;

    /// A waiter with what every waiter has by default.
    struct Defaults {
        event_fd: EventFd,
        interval: Option<Duration>,
        cleared: AtomicU32,
        closed: AtomicBool,
    }

    impl Waiter for Defaults {
        fn poll_interval(&self) -> Option<Duration> {
            self.interval
        }

        fn doorbell(&self) -> BorrowedFd<'_> {
            self.event_fd.as_fd()
        }

        fn clear_doorbell(&self) {
            self.event_fd.clear();
            self.cleared.fetch_add(1, Ordering::Relaxed);
        }

        fn close(&self) {}

        fn carried_by(&self) -> String {
            String::new()
        }

        fn is_peer_closed(&self) -> bool {
            self.closed.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_sleep_ends_by_the_doorbell_the_interval_the_deadline_or_the_end() {
        const SHORT: Duration = Duration::from_millis(20);
        const LONG: Duration = Duration::from_secs(100);
        let mut waiter = Defaults {
            event_fd: EventFd::new().unwrap(),
            interval: None,
            cleared: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        };
        let slept = |waiter: &Defaults, timeout| {
            let began = Instant::now();
            waiter.sleep(began + timeout, None);
            let slept = began.elapsed();
            (slept >= SHORT, slept < LONG)
        };
        // By its deadline, and by its interval.
        assert_eq!(slept(&waiter, SHORT), (true, true));
        waiter.interval = Some(SHORT);
        assert_eq!(slept(&waiter, LONG), (true, true));
        assert!(slept(&waiter, Duration::ZERO).1);
        assert_eq!(waiter.cleared.load(Ordering::Relaxed), 0);
        // By the doorbell, which is cleared.
        waiter.interval = None;
        waiter.event_fd.wake();
        assert!(slept(&waiter, LONG).1);
        assert_eq!(waiter.cleared.load(Ordering::Relaxed), 1);
        // Not at all after the end.
        assert!(!waiter.check_peer_closed());
        waiter.closed.store(true, Ordering::Relaxed);
        assert!(slept(&waiter, LONG).1);
        assert!(waiter.check_peer_closed() && waiter.serves_any_thread());
    }

    #[test]
    fn keys_of_a_listener_are_none_of_this_side() {
        let keys = [Key::of(0), Key::of(1), Key::of((1 << 63) - 1)];
        let own = [Key::of_own(0), Key::of_own(1), Key::of_own(1 << 62)];
        assert!(keys.is_sorted_by(|a, b| a < b) && own.is_sorted_by(|a, b| a > b));
        assert!(keys[2] < own[2]);
    }
}
