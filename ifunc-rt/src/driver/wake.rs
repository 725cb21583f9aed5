//! Waking: wakers are collected under a lock and called after it is released.
//!
//! A waker is an executor's code. It may use the source, wait, or panic.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// A value under a lock whose unlock wakes others.
pub(crate) trait Wakes {
    /// Whether [`take_woken`](Self::take_woken) returns any waker. Asked at every unlock.
    fn wakes(&mut self) -> bool;

    /// The wakers to call.
    fn take_woken(&mut self) -> Vec<Waker>;
}

/// A lock, held by the guard `G`. When it is dropped, it unlocks, and then calls the wakers that were collected.
pub(crate) struct WakeGuard<G: DerefMut<Target: Wakes>>(ManuallyDrop<G>);

impl<G: DerefMut<Target: Wakes>> WakeGuard<G> {
    #[inline(always)]
    pub(crate) fn new(guard: G) -> Self {
        Self(ManuallyDrop::new(guard))
    }

    #[cold]
    fn unlock_and_wake(&mut self) {
        let woken = self.0.take_woken();
        // SAFETY: `drop`, the only caller, returns after this call, and the guard is not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        woken.into_iter().for_each(wake);
    }
}

impl<G: DerefMut<Target: Wakes>> Drop for WakeGuard<G> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.wakes() {
            return self.unlock_and_wake();
        }
        // SAFETY: dropped here, once, and not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<G: DerefMut<Target: Wakes>> Deref for WakeGuard<G> {
    type Target = G::Target;

    #[inline(always)]
    fn deref(&self) -> &G::Target {
        &self.0
    }
}

impl<G: DerefMut<Target: Wakes>> DerefMut for WakeGuard<G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.0
    }
}

/// Calls a waker. The next ones are called even if it panics.
fn wake(waker: Waker) {
    if cfg!(loom) {
        return waker.wake();
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        tracing::error!("the waker of a future panicked");
        // To drop the panic's payload runs the executor's code as well.
        std::mem::forget(panic);
    }
}
