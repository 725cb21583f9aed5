//! What a thread is parked on while another one polls for it.

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

/// Polls before it sleeps: a thread that receives is often about to wake this one, and then neither makes a system call.
const POLLS: u32 = if cfg!(loom) { 0 } else { 100 };

/// One wait's. It is not that of `std::thread::park`, which the thread's executor may use as well: a wake-up of the one must not
/// be taken for the other's.
#[derive(Debug)]
pub(crate) struct Parker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awake,
    Parked,
    /// It was woken, and does not know it yet.
    Woken,
}

impl Parker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::Awake),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a wake-up that came too late for the wait that it was meant for. Call before the waker is published.
    pub(crate) fn clear(&self) {
        *self.lock() = State::Awake;
    }

    /// Parks until it is woken, or until `deadline`. A wake-up since [`clear`](Self::clear) or the last `park` counts.
    pub(crate) fn park(&self, deadline: Instant) {
        for _ in 0..POLLS {
            if self.state.try_lock().is_ok_and(|state| *state == State::Woken) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut state = self.lock();
        if *state == State::Awake {
            *state = State::Parked;
        }
        while *state == State::Parked {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && cfg!(not(loom)) {
                break;
            }
            // Time stands still in a model.
            #[cfg(loom)]
            let woken = self.changed.wait(state);
            #[cfg(not(loom))]
            let woken = self.changed.wait_timeout(state, left).map(|(state, _)| state);
            #[cfg(not(loom))]
            let woken = woken.map_err(|poisoned| PoisonError::new(poisoned.into_inner().0));
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        *state = State::Awake;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if std::mem::replace(&mut *self.lock(), State::Woken) == State::Parked {
            self.changed.notify_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::Parker;

    #[test]
    fn a_wake_up_that_came_first_counts_and_a_late_one_does_not() {
        let parker = Parker::new();
        let far = Instant::now() + Duration::from_secs(60);
        parker.waker().wake();
        parker.park(far);
        parker.waker().wake_by_ref();
        parker.clear();
        let soon = Instant::now() + Duration::from_millis(20);
        parker.park(soon);
        assert!(Instant::now() >= soon);
        // After a deadline it is as new.
        let waker = parker.waker();
        let other = std::thread::spawn(move || waker.wake());
        parker.park(far);
        other.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;
    use std::time::Instant;

    use super::Parker;

    /// A lost wake-up would be a deadlock.
    #[test]
    fn a_wake_up_after_the_clear_is_never_lost() {
        loom::model(|| {
            let parker = Parker::new();
            for _ in 0..2 {
                parker.clear();
                let other = Arc::clone(&parker);
                let wakes = loom::thread::spawn(move || other.waker().wake());
                parker.park(Instant::now());
                wakes.join().unwrap();
            }
        });
    }
}
