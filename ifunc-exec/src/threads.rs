//! Which threads run invocations, for changes to what invocations use.
//!
//! Each thread counts how often it passes its call gate, in either direction: the count is odd while an invocation runs. The
//! thread counts with plain stores. Who changes something passes a barrier for all threads of the process (`membarrier`) after
//! the change and then reads the counts: an invocation whose thread shows an even count, or shows another count later, has
//! ended, and any that begins afterwards sees the change. So invocations pay nothing for changes.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use ifunc_abi::context::Batch;

use crate::contain::number;

/// What a thread reports of the invocations that it runs. A part of its gate.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    /// Times that the gate was passed; odd while an invocation runs.
    count: AtomicU64,
    /// The invocation that runs changes exports: another change must not wait for its end.
    is_changing: AtomicBool,
    /// The count at which an invocation was seen to run for too long.
    overdue: AtomicU64,
    /// The count at which the thread found itself overdue.
    found: AtomicU64,
    /// The kernel's number of the thread that invocations run on, as far as is known.
    thread: AtomicI32,
    /// Milliseconds that the invocation may run, if it has a limit of its own; 0: it has none.
    run_time: AtomicU32,
    /// The run whose invocations run, or ran last.
    run: CurrentRun,
}

/// What `X_batch` is given. It stays at one address, where the watchdog sees how far the run is.
#[derive(Debug)]
struct CurrentRun(UnsafeCell<Batch>);

// SAFETY: only the thread that owns the gate uses it, and what that calls. Others read `started` alone, as an atomic.
unsafe impl Sync for CurrentRun {}
// SAFETY: its pointers are not followed after the run.
unsafe impl Send for CurrentRun {}

impl Default for CurrentRun {
    fn default() -> Self {
        Self(UnsafeCell::new(Batch {
            version: 0,
            size: 0,
            payloads: std::ptr::null(),
            payload_size: 0,
            stride: 0,
            count: 0,
            started: 0,
            answers: std::ptr::null_mut(),
            answers_capacity: 0,
            max_answer: 0,
            answer_lens: std::ptr::null_mut(),
            answer_lens_stride: 0,
        }))
    }
}

impl Passages {
    /// Describes the run that begins, and returns where.
    ///
    /// # Safety
    /// The caller is the thread that owns the gate, and no invocation runs on it.
    pub(crate) unsafe fn begin_run(&self, described: &Batch) -> *mut Batch {
        let (from, to) = (std::ptr::from_ref(described).cast::<u8>(), self.run.0.get());
        let (at, after) = (offset_of!(Batch, started), offset_of!(Batch, answers));
        // SAFETY: both pointers are to a `Batch`, and the bytes before `at` and from `after` on are fields of it. No other thread reads or
        // writes those of this gate, by `CurrentRun`, and no invocation runs on it, as the caller promises.
        unsafe {
            from.copy_to_nonoverlapping(to.cast(), at);
            from.add(after)
                .copy_to_nonoverlapping(to.cast::<u8>().add(after), size_of::<Batch>() - after);
        }
        // The watchdog may read this one now.
        self.started_word().store(described.started, Ordering::Relaxed);
        to
    }

    /// How many invocations of the run were begun.
    pub(crate) fn started(&self) -> u32 {
        self.started_word().load(Ordering::Relaxed)
    }

    fn started_word(&self) -> &AtomicU32 {
        // SAFETY: a word of this value, aligned, which this process uses as an atomic only. Injected code writes it by one instruction.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.run.0.get()).started) }
    }

    /// Of an invocation that runs.
    pub(crate) fn within(&self) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        (count % 2 == 1).then_some(count)
    }

    /// Times that the gate was passed.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The invocation that runs at this count is overdue.
    pub(crate) fn set_overdue(&self, count: u64) {
        self.overdue.store(count, Ordering::Release);
    }

    /// Whether the invocation that runs, on this thread, is overdue. For the handler of a signal.
    pub(crate) fn is_overdue_here(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let is_overdue = count % 2 == 1 && self.overdue.load(Ordering::Acquire) == count;
        if is_overdue {
            self.set_thread(number());
            self.found.store(count, Ordering::Release);
        }
        is_overdue
    }

    /// Whether the thread that is overdue at this count was found.
    pub(crate) fn was_found(&self, count: u64) -> bool {
        self.found.load(Ordering::Acquire) == count
    }

    /// The kernel's number of the thread that invocations run on, as far as is known.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Invocations run on the thread of this number.
    pub(crate) fn set_thread(&self, thread: i32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// How long the invocation may run by a limit of its own.
    pub(crate) fn run_time(&self) -> Option<Duration> {
        match self.run_time.load(Ordering::Relaxed) {
            0 => None,
            milliseconds => Some(Duration::from_millis(milliseconds.into())),
        }
    }

    /// Limits the invocations that begin on this thread from now on, to a millisecond at least; `None`: no longer. Only the thread that
    /// owns the gate calls it.
    pub(crate) fn set_run_time(&self, limit: Option<Duration>) {
        let milliseconds = limit.map_or(0, in_milliseconds);
        // Who reads the count of an invocation reads its limit: `pass` stores later, with an order.
        self.run_time.store(milliseconds, Ordering::Relaxed);
    }

    /// An invocation begins or ends. Only the thread that owns the gate calls it.
    #[inline(always)]
    pub(crate) fn pass(&self) {
        // One instruction that adds to memory: no other thread stores.
        let count = self.count.load(Ordering::Relaxed).wrapping_add(1);
        self.count.store(count, Ordering::Release);
    }

    /// Whether an invocation runs.
    #[inline]
    pub(crate) fn is_within(&self) -> bool {
        self.count.load(Ordering::Relaxed) % 2 == 1
    }

    /// Sets whether the invocation that runs changes exports. Returns the old value.
    pub(crate) fn set_changing(&self, is_changing: bool) -> bool {
        self.is_changing.swap(is_changing, Ordering::AcqRel)
    }
}

/// The milliseconds of a limit: at least one.
pub(crate) fn in_milliseconds(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Polls of one that waits before it sleeps.
const YIELDS: usize = 100;

/// Address of the passages of a thread that is registered.
#[derive(Clone, Copy, Debug)]
struct Address(*const Passages);

// SAFETY: passages are atomic, and registered as long as they live.
unsafe impl Send for Address {}

/// The threads that run invocations of an executor.
#[derive(Debug)]
pub(crate) struct Threads {
    /// By number: an address may be that of a later thread.
    threads: Mutex<BTreeMap<u64, Address>>,
    last: AtomicU64,
    /// Whether the kernel has the barrier.
    has_barrier: bool,
}

/// The number of a thread that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadNumber(u64);

/// Invocations that may have begun before a change.
#[derive(Clone, Debug)]
pub(crate) struct Running(Vec<(ThreadNumber, u64)>);

impl Running {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Threads {
    pub(crate) fn new() -> Self {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited);
        let works = registered.and_then(|()| membarrier(MembarrierCommand::PrivateExpedited));
        Self {
            threads: Mutex::default(),
            last: AtomicU64::new(0),
            has_barrier: works.is_ok(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Address>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a thread's passages.
    ///
    /// # Safety
    /// They stay where they are until [`remove`](Self::remove) is called with the number that this returns.
    pub(crate) unsafe fn add(&self, passages: *const Passages) -> ThreadNumber {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(number, Address(passages));
        ThreadNumber(number)
    }

    /// The thread runs no more invocations.
    pub(crate) fn remove(&self, number: ThreadNumber) {
        self.lock().remove(&number.0);
    }

    /// Calls `with` for each thread, under the lock.
    pub(crate) fn each(&self, mut with: impl FnMut(ThreadNumber, &Passages)) {
        for (number, passages) in &*self.lock() {
            // SAFETY: registered, so it lives while the lock is held.
            with(ThreadNumber(*number), unsafe { &*passages.0 });
        }
    }

    /// The invocations that may not have seen what this thread stored before. `None`: the kernel has no barrier.
    pub(crate) fn running(&self) -> Option<Running> {
        if !self.has_barrier || membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            return None;
        }
        let threads = self.lock();
        let running = threads.iter().filter_map(|(number, passages)| {
            // SAFETY: registered, so it lives while the lock is held.
            let count = unsafe { &*passages.0 }.count.load(Ordering::Acquire);
            (count % 2 == 1).then_some((ThreadNumber(*number), count))
        });
        Some(Running(running.collect()))
    }

    /// Removes those that have ended. Returns whether all that are left are invocations of this thread or change exports
    /// themselves, so that waiting for them would not end.
    pub(crate) fn remove_ended(&self, running: &mut Running) -> bool {
        let threads = self.lock();
        let mut only_changing = true;
        running.0.retain(|(number, count)| {
            let Some(passages) = threads.get(&number.0) else {
                return false;
            };
            // SAFETY: as in `running`.
            let passages = unsafe { &*passages.0 };
            let runs = passages.count.load(Ordering::Acquire) == *count;
            only_changing &= !runs || passages.is_changing.load(Ordering::Acquire);
            runs
        });
        only_changing
    }

    /// Waits until `running` has ended, except for invocations that change exports themselves. Returns whether it did before
    /// `deadline`.
    pub(crate) fn wait(&self, running: &mut Running, deadline: Instant) -> bool {
        for _ in 0..YIELDS {
            if self.remove_ended(running) {
                return true;
            }
            std::thread::yield_now();
        }
        let mut pause = Duration::from_micros(1);
        while !self.remove_ended(running) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[test]
    fn an_invocation_that_ran_is_waited_for_and_a_later_one_is_not() {
        let threads = Threads::new();
        assert!(threads.has_barrier);
        let passages = Passages::default();
        // SAFETY: removed below.
        let number = unsafe { threads.add(&raw const passages) };
        assert!(threads.running().unwrap().is_empty());
        passages.pass();
        assert!(passages.is_within());
        let mut running = threads.running().unwrap();
        assert!(!threads.wait(&mut running, soon()));
        passages.pass();
        passages.pass();
        assert!(threads.wait(&mut running, soon()) && running.is_empty());
        let mut running = threads.running().unwrap();
        passages.set_changing(true);
        assert!(threads.wait(&mut running, soon()) && !running.is_empty());
        threads.remove(number);
        assert!(threads.remove_ended(&mut running) && running.is_empty());
    }

    #[test]
    fn a_thread_learns_that_its_invocation_is_overdue_and_no_other() {
        let passages = Passages::default();
        assert_eq!((passages.within(), passages.thread()), (None, 0));
        passages.set_thread(4711);
        assert_eq!(passages.thread(), 4711);
        passages.pass();
        assert_eq!((passages.within(), passages.is_within()), (Some(1), true));
        assert!(!passages.is_overdue_here() && !passages.was_found(1));
        passages.set_overdue(1);
        assert!(passages.is_overdue_here() && passages.was_found(1));
        assert!(!passages.was_found(3));
        assert_eq!(passages.thread(), number());
        // It ended before the signal came, and the next one began.
        passages.pass();
        assert!(!passages.is_overdue_here() && !passages.is_within());
        passages.set_overdue(2);
        assert!(!passages.is_overdue_here(), "none runs");
        passages.pass();
        assert!(!passages.is_overdue_here() && !passages.was_found(3));
    }

    #[test]
    fn without_the_kernels_barrier_nothing_is_known_of_what_runs() {
        let mut threads = Threads::new();
        assert!(threads.running().is_some());
        threads.has_barrier = false;
        assert!(threads.running().is_none());
        std::thread::spawn(|| {
            let before = Threads::new();
            if !crate::tests::kernel::refuse(libc::SYS_membarrier) {
                return;
            }
            assert!(before.running().is_none());
            assert!(!Threads::new().has_barrier);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_a_thread_did_before_the_end_is_seen() {
        const ROUNDS: u64 = 2_000;
        let threads = Threads::new();
        let (passages, version, freed) = (Passages::default(), AtomicU64::new(0), AtomicU64::new(0));
        // SAFETY: removed below.
        let number = unsafe { threads.add(&raw const passages) };
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            let (passages, version, freed) = (&passages, &version, &freed);
            scope.spawn(move || {
                while stopped.try_recv().is_err() {
                    passages.pass();
                    let used = version.load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    assert!(freed.load(Ordering::Relaxed) <= used, "freed while it was used");
                    passages.pass();
                }
            });
            for round in 1..=ROUNDS {
                version.store(round, Ordering::Release);
                let mut running = threads.running().unwrap();
                assert!(threads.wait(&mut running, Instant::now() + Duration::from_secs(60)));
                freed.store(round, Ordering::Relaxed);
            }
            stop.send(()).unwrap();
        });
        threads.remove(number);
    }
}
