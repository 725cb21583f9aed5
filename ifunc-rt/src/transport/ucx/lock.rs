//! The lock of an engine.
//!
//! It is taken several times for every frame, nearly always by the only thread that uses the engine, and released right after
//! a store into memory that a peer polls. So the release is a plain store: an exchange, by which the usual locks learn whether
//! a thread sleeps on them, would wait until the peer's cache has given that memory up. A thread that finds the lock taken polls it, soon at
//! first and then with pauses: most threads hold it for less than a microsecond; those that hold it for long connect or close.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// As `std::sync::Mutex`, and not poisoned.
#[derive(Default)]
pub(super) struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value: see `Held`.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Exclusive access to the value, until it is dropped.
pub(super) struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// Polls without a pause, polls after a yield; then it pauses between polls.
    const LOOKS: u32 = 64;
    const YIELDS: u32 = 64;
    const PAUSE: Duration = Duration::from_micros(50);

    pub(super) fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Held<'_, T> {
        if !self.try_take() {
            self.wait();
        }
        Held { lock: self }
    }

    /// `None`: it is taken.
    pub(super) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.try_take().then(|| Held { lock: self })
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0;
        while self.taken.load(Ordering::Relaxed) || !self.try_take() {
            looks += 1;
            if looks < Self::LOOKS {
                std::hint::spin_loop();
            } else if looks < Self::LOOKS + Self::YIELDS {
                thread::yield_now();
            } else {
                thread::sleep(Self::PAUSE);
                looks = Self::LOOKS + Self::YIELDS;
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `taken` is set, by `lock` for this guard alone, until the guard is dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; and of the guard there is no other reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_all_in_the_end() {
        const ROUNDS: u64 = 20_000;
        let lock = Lock::new((0u64, 0u64));
        thread::scope(|scope| {
            for n in 0..3 {
                let lock = &lock;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut held = lock.lock();
                        assert_eq!(held.0, held.1);
                        held.0 += 1;
                        if n == 0 && round % 1000 == 0 {
                            // So long that the others pause.
                            thread::sleep(Duration::from_millis(1));
                        }
                        held.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (3 * ROUNDS, 3 * ROUNDS));
    }

    #[test]
    fn a_panic_gives_it_back() {
        let lock = Lock::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock.lock() += 1;
            let _held = lock.lock();
            panic!("while it is held");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 2);
    }
}
