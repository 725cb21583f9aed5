//! What a thread sleeps on while another one receives for it.

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

#[cfg(loom)]
use loom::{
    sync::atomic::{AtomicU32, Ordering},
    sync::{Condvar, Mutex},
};
#[cfg(not(loom))]
use std::{
    sync::atomic::{AtomicU32, Ordering},
    sync::{Condvar, Mutex},
};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const WOKEN: u32 = 2;

/// Looks before it sleeps: whoever receives is often about to wake it, and then neither of the two makes a system call.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 200 };

/// One thread's. It is not the one of `std::thread::park`, which the thread's executor may use as well: a wake-up of the
/// one must not be taken for the other's.
pub(super) struct Parker {
    state: AtomicU32,
    /// Held between the decision to sleep and the sleep.
    lock: Mutex<()>,
    bell: Condvar,
}

impl Parker {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(AWAKE),
            lock: Mutex::new(()),
            bell: Condvar::new(),
        })
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }

    /// Forgets wake-ups that came too late for the wait that they were meant for. Before who may wake is told.
    pub(super) fn reset(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps until it is woken, or until `deadline`. A wake-up that came since `reset` counts.
    pub(super) fn park(&self, deadline: Instant) {
        for _ in 0..LOOKS {
            if self.state.load(Ordering::Acquire) == WOKEN {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::Acquire, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        while self.state.load(Ordering::Acquire) == ASLEEP {
            match left(deadline) {
                None => {
                    self.state.swap(AWAKE, Ordering::Acquire);
                    return;
                }
                #[cfg(not(loom))]
                Some(left) => {
                    guard = self
                        .bell
                        .wait_timeout(guard, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                #[cfg(loom)]
                Some(_) => guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP {
            // It holds the lock until it really sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.bell.notify_one();
        }
    }
}

/// The time to `deadline`; `None` when it has passed. Time stands still in the model.
fn left(deadline: Instant) -> Option<std::time::Duration> {
    if cfg!(loom) {
        return Some(std::time::Duration::ZERO);
    }
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// This thread's parker, for one wait. A wait inside of another one has its own: a waker is somebody else's code, and may
/// wait.
pub(super) struct Own {
    /// `None` only while it is dropped.
    parker: Option<(Arc<Parker>, Waker)>,
}

#[cfg(not(loom))]
thread_local! {
    /// The one that is not in use.
    static SPARE: std::cell::Cell<Option<(Arc<Parker>, Waker)>> = const { std::cell::Cell::new(None) };
}

impl Own {
    pub(super) fn take() -> Self {
        // A thread that waits while its thread-locals are dropped gets one for the occasion.
        #[cfg(not(loom))]
        let spare = SPARE.try_with(std::cell::Cell::take).ok().flatten();
        #[cfg(loom)]
        let spare = None;
        let parker = spare.unwrap_or_else(|| {
            let parker = Parker::new();
            let waker = parker.waker();
            (parker, waker)
        });
        Self { parker: Some(parker) }
    }

    pub(super) fn get(&self) -> (&Parker, &Waker) {
        let (parker, waker) = self.parker.as_ref().expect("it is not being dropped");
        (parker, waker)
    }
}

#[cfg(not(loom))]
impl Drop for Own {
    fn drop(&mut self) {
        let parker = self.parker.take();
        let _ = SPARE.try_with(|spare| spare.set(parker));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Own, Parker};

    #[test]
    fn a_wait_inside_of_another_one_has_its_own() {
        let outer = Own::take();
        let inner = Own::take();
        outer.get().1.wake_by_ref();
        inner.get().0.reset();
        drop(inner);
        // It was not woken for the other, and would sleep.
        outer.get().0.park(Instant::now() + Duration::from_secs(60));
    }

    #[test]
    fn a_wake_up_that_came_first_counts_and_a_late_one_does_not() {
        let parker = Parker::new();
        let far = Instant::now() + Duration::from_secs(60);
        parker.reset();
        parker.waker().wake();
        parker.park(far);
        parker.waker().wake_by_ref();
        parker.reset();
        let soon = Instant::now() + Duration::from_millis(20);
        parker.park(soon);
        assert!(Instant::now() >= soon);
        // After a deadline it is as new.
        parker.reset();
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
    fn a_wake_up_behind_the_reset_is_never_lost() {
        loom::model(|| {
            let parker = Parker::new();
            for _ in 0..2 {
                parker.reset();
                let other = Arc::clone(&parker);
                let wakes = loom::thread::spawn(move || other.waker().wake());
                parker.park(Instant::now());
                wakes.join().unwrap();
            }
        });
    }
}
