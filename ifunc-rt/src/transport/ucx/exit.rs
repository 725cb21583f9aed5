//! The end of the process.
//!
//! A process may end while another of its threads uses UCX: a target that serves in the background, or a connection that closes. UCX's
//! libraries take their state down then, and that thread crashes, or UCX aborts the process. So an exit handler, which runs before theirs,
//! waits for engines that begin or end, takes the lock of each other one, and keeps it: a thread that needs it waits for the end of the
//! process.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::engine::{CLOSING, Engine, LINGER};

/// How long a thread that has an engine's lock may keep the process.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(100);

/// Those that the exit handler takes.
static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());
/// How many engines begin or end.
static BUSY: AtomicUsize = AtomicUsize::new(0);
/// No engine may use UCX any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Whether the process ends, and nothing is to be waited for.
pub(super) fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

/// An engine that begins or ends, which the process waits for.
#[derive(Debug)]
pub(super) struct Busy(());

impl Busy {
    /// `None`: the process does not wait any more, and UCX is not used.
    pub(super) fn begin() -> Option<Self> {
        BUSY.fetch_add(1, Ordering::SeqCst);
        let busy = Self(());
        (!IS_OVER.load(Ordering::SeqCst)).then_some(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Takes the lock of an engine when the process ends.
pub(super) fn register(engine: &Arc<Engine>) {
    /// The process whose handler it is. A forked child has the handler, and none of the other threads.
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    static HANDLER: Once = Once::new();
    extern "C" fn handler() {
        if PROCESS.load(Ordering::Relaxed) == std::process::id() {
            stop();
        }
    }
    HANDLER.call_once(|| {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the handler does not unwind, and lives as long as this code. UCX was loaded before, so its own handlers run later.
        if unsafe { libc::atexit(handler) } != 0 {
            tracing::warn!("the end of the process does not wait for threads that use UCX");
        }
    });
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|engine| engine.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

fn stop() {
    let is_none_busy = || BUSY.load(Ordering::SeqCst) == 0;
    wait(Instant::now() + LINGER + 2 * CLOSING, is_none_busy);
    IS_OVER.store(true, Ordering::SeqCst);
    let until = Instant::now() + PATIENCE;
    let engines = std::mem::take(&mut *ENGINES.lock().unwrap_or_else(PoisonError::into_inner));
    for engine in engines.iter().filter_map(Weak::upgrade) {
        wait(until, || match engine.try_lock() {
            Some(locked) => {
                std::mem::forget(locked);
                true
            }
            None => false,
        });
        // It does not end any more.
        std::mem::forget(engine);
    }
    wait(until, is_none_busy);
}

/// Waits until `is_done` says so, or until this time. It asks now and then: a thread that stops using UCX does not wake this one.
fn wait(until: Instant, mut is_done: impl FnMut() -> bool) {
    while !is_done() && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
}
