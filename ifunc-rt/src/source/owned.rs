//! A lock for something that one thread uses nearly always.
//!
//! A mutex costs two atomic read-modify-writes per use. Each of them waits until the processor's pending stores have
//! reached the cache, and the last of those is the frame that was just written for another core to read: a lock per send
//! costs not its own 15 ns but the whole way of a cache line, some 70 ns. So the thread that uses the value most *owns*
//! it: it goes in and out with plain stores, and whoever else wants in pays for both, with `membarrier`.
//!
//! The owner announces that it is inside and then looks whether others wait; others announce that they wait and then look
//! whether the owner is inside. Between the two the owner has a compiler fence and the others have a barrier on every
//! thread of the process: one of the two sees the other. The last other thread that was inside owns the value from then
//! on. After [`MAX_OWNERS`] changes it is clear that the value is really shared; then nobody owns it any more, and it is an ordinary
//! mutex: an owner that might still be on its way in sees that it is none, or that others wait, without another barrier. A
//! *guest* is another thread that does not become the owner: one that comes seldom, and for the owner's sake.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(loom))]
use rustix::thread::{MembarrierCommand, membarrier};

/// Changes of ownership after which nobody owns the value any more.
const MAX_OWNERS: usize = if cfg!(loom) { 2 } else { 64 };

/// What is said to who would otherwise wait for itself.
const TWICE: &str = "a payload uses the source that it is being sent over";

/// A thread that owns the value, and whether it is inside.
#[derive(Debug)]
struct Owner {
    thread: usize,
    inside: AtomicBool,
}

/// The lock.
pub(super) struct Owned<T> {
    /// Null: nobody.
    owner: AtomicPtr<Owner>,
    /// Other threads that are inside or want to be.
    others: AtomicU32,
    /// Every owner there was: a thread that is about to go in may still look at its own. One of the others at a time
    /// holds it while inside.
    owners: Mutex<Owners>,
    /// The one of the others that is inside; 0: none.
    holder: AtomicUsize,
    /// Nobody owns it any more, and nobody will.
    retired: AtomicBool,
    /// `membarrier` works in this process.
    asymmetric: bool,
    value: UnsafeCell<T>,
}

/// The owners there were, each made by `Box::into_raw`.
struct Owners(Vec<*mut Owner>);

// SAFETY: owners are atomics and a number; the pointers are this list's own.
unsafe impl Send for Owners {}

impl Drop for Owners {
    fn drop(&mut self) {
        for owner in self.0.drain(..) {
            // SAFETY: made by `Box::into_raw`, freed here only; the lock is gone, so nobody looks at it.
            drop(unsafe { Box::from_raw(owner) });
        }
    }
}

// SAFETY: the value is handed out to one thread at a time.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Owned<T> {}

/// What tells this thread from all others that live. (A later thread may have the same; then it owns what the dead one
/// owned, and that is right.)
#[cfg(not(loom))]
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Loom's threads are one thread of the system.
#[cfg(loom)]
fn this_thread() -> usize {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(loom::thread::current().id()) as usize
}

impl<T> Owned<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            owner: AtomicPtr::new(std::ptr::null_mut()),
            others: AtomicU32::new(0),
            owners: Mutex::new(Owners(Vec::new())),
            holder: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            asymmetric: can_be_asymmetric(),
            value: UnsafeCell::new(value),
        }
    }

    /// Goes inside.
    ///
    /// # Panics
    /// When this thread is inside already: a payload that uses the source it is being sent over, while it is encoded.
    #[inline(always)]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        match self.lock_as_owner() {
            Some(guard) => Guard {
                lock: self,
                way: Way::Owner(ManuallyDrop::new(guard).mine),
            },
            None => self.lock_as_other(true),
        }
    }

    /// Goes inside as a guest.
    pub(super) fn lock_as_guest(&self) -> Guard<'_, T> {
        self.lock_as_other(false)
    }

    /// Goes inside if this thread owns it and nobody waits: as [`lock`](Self::lock), with less to remember.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline(always)]
    pub(super) fn lock_as_owner(&self) -> Option<OwnerGuard<'_, T>> {
        let owner = self.owner.load(Ordering::Acquire);
        // SAFETY: null, or an element of `owners`, which live as long as `self`.
        let mine = unsafe { owner.as_ref() }.filter(|owner| owner.thread == this_thread())?;
        assert!(!mine.inside.load(Ordering::Relaxed), "{TWICE}");
        mine.inside.store(true, Ordering::Relaxed);
        self.light_fence();
        if self.others.load(Ordering::Acquire) == 0 && self.owner.load(Ordering::Relaxed) == owner {
            return Some(OwnerGuard { lock: self, mine });
        }
        mine.inside.store(false, Ordering::Release);
        None
    }

    #[cold]
    fn lock_as_other(&self, becomes_owner: bool) -> Guard<'_, T> {
        assert!(self.holder.load(Ordering::Relaxed) != this_thread(), "{TWICE}");
        // Whoever stored it had made sure that the last owner was outside, and that it sees on its next way in that it owns
        // nothing: before that one says that it is done, it sees that others wait; behind that, it sees the store of the owner.
        let announced = !self.retired.load(Ordering::Acquire);
        if announced {
            self.others.fetch_add(1, Ordering::SeqCst);
            self.heavy_fence();
        }
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = self.owner.load(Ordering::Relaxed);
        // SAFETY: as in `lock`.
        let owner = unsafe { owner.as_ref() };
        if let Some(owner) = owner {
            let mut looks = 0u32;
            while owner.inside.load(Ordering::Acquire) {
                looks += 1;
                if looks.is_multiple_of(64) || cfg!(loom) {
                    yield_now()
                } else {
                    spin_loop()
                }
            }
        }
        // The owner stays out now: it sees that others wait, or that it does not own any more.
        // It may be this thread, which a guest kept from going in as such.
        let is_owner = owner.is_some_and(|owner| owner.thread == this_thread());
        if is_owner || !becomes_owner {
            // It stays the owner.
        } else if owners.0.len() < MAX_OWNERS {
            let me = Box::into_raw(Box::new(Owner {
                thread: this_thread(),
                inside: AtomicBool::new(false),
            }));
            self.owner.store(me, Ordering::Release);
            owners.0.push(me);
        } else {
            self.owner.store(std::ptr::null_mut(), Ordering::Release);
            self.retired.store(true, Ordering::Release);
        }
        self.holder.store(this_thread(), Ordering::Relaxed);
        Guard {
            lock: self,
            way: Way::Other {
                owners: Some(owners),
                announced,
            },
        }
    }

    #[cfg(not(loom))]
    #[inline]
    fn light_fence(&self) {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst)
        } else {
            fence(Ordering::SeqCst)
        }
    }

    #[cfg(not(loom))]
    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
        if self.asymmetric && membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            // It worked when this was made. A filter that was installed since is the one way here, and without the
            // barrier nothing holds.
            eprintln!("ifunc: membarrier is refused since the source was made");
            std::process::abort();
        }
    }

    #[cfg(loom)]
    fn light_fence(&self) {
        debug_assert!(!self.asymmetric);
        fence(Ordering::SeqCst);
    }

    #[cfg(loom)]
    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(loom))]
fn can_be_asymmetric() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

#[cfg(loom)]
fn can_be_asymmetric() -> bool {
    false
}

enum Way<'a> {
    Owner(&'a Owner),
    Other {
        /// `None` only while it is dropped.
        owners: Option<MutexGuard<'a, Owners>>,
        /// It is one of [`Owned::others`].
        announced: bool,
    },
}

/// Inside.
pub(super) struct Guard<'a, T> {
    lock: &'a Owned<T>,
    way: Way<'a>,
}

/// Inside, as the owner.
pub(super) struct OwnerGuard<'a, T> {
    lock: &'a Owned<T>,
    mine: &'a Owner,
}

impl<T> OwnerGuard<'_, T> {
    /// The value.
    #[inline(always)]
    pub(super) fn with<R>(&mut self, use_it: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: one guard at a time: see `lock_as_owner` and `lock_as_other`; and `&mut self`.
        self.lock.value.with_mut(|value| use_it(unsafe { &mut *value }))
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.mine.inside.store(false, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: one guard at a time: see `lock` and `lock_as_other`.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: one guard at a time, and `&mut self`.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &mut self.way {
            Way::Owner(mine) => mine.inside.store(false, Ordering::Release),
            Way::Other { owners, announced } => {
                self.lock.holder.store(0, Ordering::Relaxed);
                drop(owners.take());
                if *announced {
                    self.lock.others.fetch_sub(1, Ordering::Release);
                }
            }
        }
    }
}

impl<T> std::fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owned").finish_non_exhaustive()
    }
}

/// The interface of loom's cell.
#[cfg(not(loom))]
trait With<T> {
    fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R;
    fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R;
}

#[cfg(not(loom))]
impl<T> With<T> for UnsafeCell<T> {
    #[inline]
    fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.get())
    }

    #[inline]
    fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
        look(self.get())
    }
}

#[cfg(all(test, loom))]
mod model {
    //! `cargo xtask loom` runs it.

    use loom::sync::Arc;
    use loom::thread;

    use super::Owned;

    /// The last owner comes back while nobody owns it any more, and others go in without a barrier.
    #[test]
    fn one_at_a_time_when_nobody_owns_it_any_more() {
        loom::model(|| {
            let owned = Arc::new(Owned::new(0));
            *owned.lock() += 1;
            let others = [(); 2].map(|()| {
                let owned = Arc::clone(&owned);
                thread::spawn(move || *owned.lock() += 1)
            });
            *owned.lock() += 1;
            for other in others {
                other.join().unwrap();
            }
            *owned.lock() += 1;
            assert_eq!(*owned.lock(), 5);
        });
    }

    #[test]
    fn one_at_a_time_with_a_guest() {
        loom::model(|| {
            let owned = Arc::new(Owned::new(0));
            *owned.lock() += 1;
            let guest = {
                let owned = Arc::clone(&owned);
                thread::spawn(move || {
                    *owned.lock_as_guest() += 1;
                    *owned.lock_as_guest() += 1;
                })
            };
            *owned.lock() += 1;
            *owned.lock() += 1;
            guest.join().unwrap();
            assert_eq!(*owned.lock(), 5);
        });
    }

    /// Loom reports two threads inside at once as a race on the value.
    #[test]
    fn one_at_a_time_whoever_owns_it() {
        loom::model(|| {
            let owned = Arc::new(Owned::new(0));
            *owned.lock() += 1;
            let other = {
                let owned = Arc::clone(&owned);
                thread::spawn(move || {
                    *owned.lock() += 1;
                    *owned.lock() += 1;
                })
            };
            *owned.lock() += 1;
            *owned.lock() += 1;
            other.join().unwrap();
            assert_eq!(*owned.lock(), 5);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::{MAX_OWNERS, Ordering, Owned};

    #[test]
    fn counts_every_visit() {
        let owned = Arc::new(Owned::new(0u64));
        for _ in 0..3 * MAX_OWNERS {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let owned = Arc::clone(&owned);
                    thread::spawn(move || (0..100).for_each(|_| *owned.lock() += 1))
                })
                .collect();
            (0..100).for_each(|_| *owned.lock() += 1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(*owned.lock(), 3 * MAX_OWNERS as u64 * 300);
    }

    #[test]
    fn a_guest_takes_nothing_from_the_owner() {
        let owned = Arc::new(Owned::new(0u64));
        *owned.lock() += 1;
        let owner = owned.owner.load(Ordering::Relaxed);
        for _ in 0..2 * MAX_OWNERS {
            let guest = {
                let owned = Arc::clone(&owned);
                thread::spawn(move || (0..100).for_each(|_| *owned.lock_as_guest() += 1))
            };
            (0..100).for_each(|_| *owned.lock() += 1);
            guest.join().unwrap();
        }
        assert_eq!(*owned.lock(), 1 + 2 * MAX_OWNERS as u64 * 200);
        assert_eq!(owned.owner.load(Ordering::Relaxed), owner);
    }

    #[test]
    fn going_in_twice_is_a_panic() {
        let owned = Owned::new(());
        // As another thread than the owner, then as the owner.
        for _ in 0..2 {
            let inside = owned.lock();
            let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owned.lock())));
            assert!(twice.is_err());
            drop(inside);
        }
        drop(owned.lock());
    }
}
