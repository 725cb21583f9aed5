//! How a thread sleeps until something happens to a connection.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::Handle;
use crate::os::wait_readable;
use crate::transport::Waiter;
use crate::transport::ucx::attached::Attached;

impl Handle {
    /// Calls of progress that find out about a peer's end: UCX takes several steps.
    const STEPS: usize = 4;
    /// The longest sleep: UCX notices some things, a peer's end among them, only in progress.
    const SLICE: Duration = Duration::from_millis(5);

    /// The longest sleep. Tests lengthen it by `IFUNC_TEST_UCX_SLICE`, in milliseconds: a wake-up that is lost is then not
    /// hidden by the end of a slice.
    fn slice() -> Duration {
        #[cfg(any(test, feature = "failpoints"))]
        {
            static SLICE: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
            *SLICE.get_or_init(|| {
                let longer = std::env::var("IFUNC_TEST_UCX_SLICE").ok();
                longer
                    .and_then(|milliseconds| milliseconds.parse().ok())
                    .map_or(Self::SLICE, Duration::from_millis)
            })
        }
        #[cfg(not(any(test, feature = "failpoints")))]
        Self::SLICE
    }
}

impl Waiter for Handle {
    fn sleep(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        let engine = &self.engine;
        let backoff = engine
            .lock_here()
            .map_or(Duration::ZERO, |locked| locked.backoff());
        if backoff.is_zero() {
            return self.sleep_on_doorbell(until, woken);
        }
        // The descriptor is readable, for threads that wait for nothing else.
        let until = until.min(Instant::now() + backoff);
        match woken {
            Some(woken) => drop(wait_readable(woken, until)),
            None => std::thread::sleep(until.saturating_duration_since(Instant::now())),
        }
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(Self::slice())
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.engine.bell()
    }

    fn clear_doorbell(&self) {
        // Arming does: UCX owns what the descriptor stands for.
    }

    fn serves_any_thread(&self) -> bool {
        self.engine.attached().is_none_or(Attached::is_anywhere)
    }

    fn carried_by(&self) -> String {
        self.engine.lock().carried_by(self.id)
    }

    fn close(&self) {
        // A sleeping thread polls again after a slice.
    }

    fn is_peer_closed(&self) -> bool {
        self.signs.is_gone()
    }

    fn check_peer_closed(&self) -> bool {
        // A worker that was left is not used any more, and its connections are gone.
        if !self.signs.is_gone() {
            let mut locked = self.engine.lock();
            locked.leave_if_hung_up(self.id);
            for _ in 0..Self::STEPS {
                if self.signs.is_gone() || !locked.progress() {
                    break;
                }
            }
            locked.check_hung_up(self.id);
        }
        self.signs.is_gone()
    }
}
