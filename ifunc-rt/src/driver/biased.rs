//! A mutex for a value that one thread uses nearly always.
//!
//! A mutex costs two atomic read-modify-writes per use. Each of them waits until the processor's pending stores have
//! reached the cache, and the last of those is the frame that was just written for another core to read: a mutex per send
//! costs not its own 15 ns but a cache line's way from core to core, some 70 ns. So the lock is *biased* towards the thread that
//! uses it most: that thread locks and unlocks with plain stores, and a contender pays for both with `membarrier`.
//!
//! The biased thread announces that it holds the lock and then looks for contenders; a contender announces itself and
//! then looks whether the biased thread holds the lock. Between the two steps the biased thread has a compiler fence, and the
//! contender has a barrier on every thread of the process: one of the two sees the other. The last contender becomes the
//! biased thread. After [`MAX_BIASES`] changes the value is evidently shared, and the lock becomes an ordinary mutex for good: a
//! thread that was biased and is about to lock sees, without another barrier, that it is not biased any more, or that there are
//! contenders. Where the kernel has no `membarrier` it is an ordinary mutex from the beginning.
//! [`lock_unbiased`](BiasedMutex::lock_unbiased) contends without becoming the biased thread: for a thread that comes seldom.

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

/// Changes of the biased thread after which there is none any more.
const MAX_BIASES: usize = if cfg!(loom) { 2 } else { 64 };

/// The panic of a thread that would wait for itself.
const RECURSIVE: &str = "a payload uses the source that it is being sent over";

/// A thread that the lock is, or was, biased towards.
struct Bias {
    /// 0: none.
    thread: AtomicUsize,
    /// That thread holds the lock.
    holds: AtomicBool,
}

/// The lock.
pub(crate) struct BiasedMutex<T> {
    /// An element of `biases`. The way in follows this pointer: an index would take five instructions more.
    bias: AtomicPtr<Bias>,
    /// The first stands for no thread. Then come every bias there was, and those to come: a thread that is about to lock may
    /// still read its own. The elements stay where they are for as long as the lock lives.
    biases: Vec<Bias>,
    /// Contenders: they hold the lock or wait for it.
    contenders: AtomicU32,
    /// How many elements of `biases` were in use. A contender holds this mutex while it holds the lock.
    used: Mutex<usize>,
    /// The contender that holds the lock; 0: none.
    contender: AtomicUsize,
    /// The lock is biased towards no thread for good.
    retired: AtomicBool,
    /// `membarrier` works in this process. Without it the lock is biased towards no thread.
    asymmetric: bool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lends the value to one thread at a time.
unsafe impl<T: Send> Send for BiasedMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// A number that no other living thread has. (A later thread may have the same, and then has the dead one's bias, which is
/// right.)
///
/// The address of the thread's control block, which the ABI keeps in a register's first word: in a shared library, to find a variable of
/// the thread is a call of the loader.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri))))]
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    let block: usize;
    // SAFETY: reads a word that every thread has, and that does not change.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) block, options(pure, nomem, nostack, preserves_flags));
    }
    block
}

/// The same, where the ABI keeps the address of the thread's control block in a register.
#[cfg(all(target_arch = "aarch64", target_os = "linux", not(any(loom, miri))))]
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    let block: usize;
    // SAFETY: reads a register that does not change while the thread lives.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) block, options(pure, nomem, nostack, preserves_flags));
    }
    block
}

/// The same, elsewhere: the address of a variable of the thread.
#[cfg(not(any(
    all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_os = "linux",
        not(miri)
    ),
    loom
)))]
#[inline]
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Loom's threads are one thread of the system.
#[cfg(loom)]
pub(crate) fn this_thread() -> usize {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(loom::thread::current().id()) as usize
}

impl<T> BiasedMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        let unused = || Bias {
            thread: AtomicUsize::new(0),
            holds: AtomicBool::new(false),
        };
        let biases: Vec<_> = std::iter::repeat_with(unused).take(1 + MAX_BIASES).collect();
        Self {
            bias: AtomicPtr::new(biases.as_ptr().cast_mut()),
            biases,
            contenders: AtomicU32::new(0),
            used: Mutex::new(1),
            contender: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            asymmetric: can_be_asymmetric(),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks.
    ///
    /// # Panics
    /// If this thread holds the lock: a payload uses the source that it is being sent over, while it is encoded.
    #[inline(always)]
    pub(crate) fn lock(&self) -> BiasedGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => BiasedGuard::Biased(guard),
            None => self.contend(true),
        }
    }

    /// Locks as a contender that does not become the biased thread.
    pub(crate) fn lock_unbiased(&self) -> BiasedGuard<'_, T> {
        self.contend(false)
    }

    /// Locks if the lock is biased towards this thread and there is no contender.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<FastGuard<'_, T>> {
        let bias = self.bias.load(Ordering::Acquire);
        // SAFETY: `new` and `change_bias` store pointers to elements of `biases` only, which are neither moved nor dropped while
        // `self` is borrowed, and are never borrowed mutably.
        let mine = unsafe { &*bias };
        if mine.thread.load(Ordering::Relaxed) != this_thread() {
            return None;
        }
        assert!(!mine.holds.load(Ordering::Relaxed), "{RECURSIVE}");
        mine.holds.store(true, Ordering::Relaxed);
        self.light_fence();
        if self.contenders.load(Ordering::Acquire) == 0 && self.bias.load(Ordering::Relaxed) == bias {
            return Some(FastGuard { mutex: self, mine });
        }
        mine.holds.store(false, Ordering::Release);
        None
    }

    #[cold]
    fn contend(&self, becomes_biased: bool) -> BiasedGuard<'_, T> {
        assert!(
            self.contender.load(Ordering::Relaxed) != this_thread(),
            "{RECURSIVE}"
        );
        // The thread that stored `retired` had made sure that the last biased thread did not hold the lock, and that it sees
        // on its next way in that there is no bias: before that contender unlocks, it sees a contender; afterwards, it sees the
        // store to `bias`.
        let announced = !self.retired.load(Ordering::Acquire);
        if announced {
            self.contenders.fetch_add(1, Ordering::SeqCst);
            self.heavy_fence();
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `try_lock`.
        let bias = unsafe { &*self.bias.load(Ordering::Relaxed) };
        let mut polls = 0u32;
        while bias.holds.load(Ordering::Acquire) {
            polls += 1;
            if polls.is_multiple_of(64) || cfg!(loom) {
                yield_now()
            } else {
                spin_loop()
            }
        }
        // The biased thread stays out from here on: it sees a contender, or that the lock is not biased towards it any more.
        // It may be this thread, which another contender kept out.
        let is_biased = bias.thread.load(Ordering::Relaxed) == this_thread();
        if !is_biased && becomes_biased {
            self.change_bias(&mut used);
        }
        self.contender.store(this_thread(), Ordering::Relaxed);
        BiasedGuard::Contended(Contender {
            mutex: self,
            used: Some(used),
            announced,
        })
    }

    /// Biases the lock towards this thread, or towards no thread for good.
    fn change_bias(&self, used: &mut usize) {
        let next = self.biases.get(*used);
        if let Some(next) = next.filter(|_| self.asymmetric || cfg!(loom)) {
            next.thread.store(this_thread(), Ordering::Relaxed);
            self.bias
                .store(std::ptr::from_ref(next).cast_mut(), Ordering::Release);
            *used += 1;
        } else {
            self.bias
                .store(self.biases.as_ptr().cast_mut(), Ordering::Release);
            self.retired.store(true, Ordering::Release);
        }
    }

    /// Of a thread that the lock is biased towards: contenders have `membarrier`, then.
    #[cfg(not(loom))]
    #[inline(always)]
    fn light_fence(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    #[cfg(not(loom))]
    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
        if self.asymmetric && membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            // It worked when the lock was made. Only a filter that was installed since leads here, and without the barrier
            // two threads would hold the lock.
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

/// The lock, held by the biased thread.
pub(crate) struct FastGuard<'a, T> {
    mutex: &'a BiasedMutex<T>,
    mine: &'a Bias,
}

impl<T> Deref for FastGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: one guard at a time: see `try_lock` and `contend`.
        self.mutex.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for FastGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: one guard at a time, and `&mut self`.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for FastGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.mine.holds.store(false, Ordering::Release);
    }
}

/// The lock, held.
pub(crate) enum BiasedGuard<'a, T> {
    Biased(FastGuard<'a, T>),
    Contended(Contender<'a, T>),
}

/// The lock, held by a thread that it is not biased towards.
pub(crate) struct Contender<'a, T> {
    mutex: &'a BiasedMutex<T>,
    /// `None` only while it is dropped.
    used: Option<MutexGuard<'a, usize>>,
    /// It is one of [`BiasedMutex::contenders`].
    announced: bool,
}

impl<T> Drop for Contender<'_, T> {
    fn drop(&mut self) {
        self.mutex.contender.store(0, Ordering::Relaxed);
        drop(self.used.take());
        if self.announced {
            self.mutex.contenders.fetch_sub(1, Ordering::Release);
        }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match self {
            Self::Biased(guard) => guard,
            // SAFETY: as for `FastGuard`.
            Self::Contended(guard) => guard.mutex.value.with(|value| unsafe { &*value }),
        }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Biased(guard) => guard,
            // SAFETY: as for `FastGuard`.
            Self::Contended(guard) => guard.mutex.value.with_mut(|value| unsafe { &mut *value }),
        }
    }
}

impl<T> std::fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BiasedMutex").finish_non_exhaustive()
    }
}

/// The interface of loom's cell.
#[cfg(not(loom))]
trait With<T> {
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R;
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R;
}

#[cfg(not(loom))]
impl<T> With<T> for UnsafeCell<T> {
    #[inline(always)]
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.get())
    }

    #[inline(always)]
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.get())
    }
}

#[cfg(all(test, loom))]
mod model {
    //! Loom reports two threads that hold the lock at once as a race on the value. `cargo xtask loom` runs these models.

    use loom::sync::Arc;
    use loom::thread;

    use super::BiasedMutex;

    /// The thread that was biased last comes back when the lock is biased no more, and others lock without a barrier.
    #[test]
    fn one_at_a_time_when_it_is_biased_no_more() {
        loom::model(|| {
            let mutex = Arc::new(BiasedMutex::new(0));
            *mutex.lock() += 1;
            let others = [(); 2].map(|()| {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || *mutex.lock() += 1)
            });
            *mutex.lock() += 1;
            for other in others {
                other.join().unwrap();
            }
            *mutex.lock() += 1;
            assert_eq!(*mutex.lock(), 5);
        });
    }

    #[test]
    fn one_at_a_time_with_an_unbiased_contender() {
        loom::model(|| {
            let mutex = Arc::new(BiasedMutex::new(0));
            *mutex.lock() += 1;
            let other = {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || {
                    *mutex.lock_unbiased() += 1;
                    *mutex.lock_unbiased() += 1;
                })
            };
            *mutex.lock() += 1;
            *mutex.lock() += 1;
            other.join().unwrap();
            assert_eq!(*mutex.lock(), 5);
        });
    }

    #[test]
    fn one_at_a_time_whatever_the_bias() {
        loom::model(|| {
            let mutex = Arc::new(BiasedMutex::new(0));
            *mutex.lock() += 1;
            let other = {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || {
                    *mutex.lock() += 1;
                    *mutex.lock() += 1;
                })
            };
            *mutex.lock() += 1;
            *mutex.lock() += 1;
            other.join().unwrap();
            assert_eq!(*mutex.lock(), 5);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::{BiasedMutex, MAX_BIASES, Ordering};

    #[test]
    fn every_lock_counts() {
        let mutex = Arc::new(BiasedMutex::new(0u64));
        for _ in 0..3 * MAX_BIASES {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let mutex = Arc::clone(&mutex);
                    thread::spawn(move || (0..100).for_each(|_| *mutex.lock() += 1))
                })
                .collect();
            (0..100).for_each(|_| *mutex.lock() += 1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(*mutex.lock(), 3 * MAX_BIASES as u64 * 300);
    }

    #[test]
    fn an_unbiased_contender_leaves_the_bias() {
        let mutex = Arc::new(BiasedMutex::new(0u64));
        *mutex.lock() += 1;
        let bias = mutex.bias.load(Ordering::Relaxed);
        for _ in 0..2 * MAX_BIASES {
            let other = {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || (0..100).for_each(|_| *mutex.lock_unbiased() += 1))
            };
            (0..100).for_each(|_| *mutex.lock() += 1);
            other.join().unwrap();
        }
        assert_eq!(*mutex.lock(), 1 + 2 * MAX_BIASES as u64 * 200);
        assert_eq!(mutex.bias.load(Ordering::Relaxed), bias);
    }

    #[test]
    fn locking_twice_is_a_panic() {
        let mutex = BiasedMutex::new(());
        // As a contender, then as the biased thread.
        for _ in 0..2 {
            let held = mutex.lock();
            let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(mutex.lock())));
            assert!(twice.is_err());
            drop(held);
        }
        drop(mutex.lock());
    }
}
