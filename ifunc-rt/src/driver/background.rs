//! The thread that polls for futures, where the application has no event loop for it. The first future that has to wait starts
//! it; it sleeps while none does, and ends with its source.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::backoff::after;
use super::driven::Driven;
use super::parker::Parker;
use super::state::{Background, Shared, Want};
use super::wait::Ended;

/// The threads call wakers, which are an executor's code.
const STACK: usize = 512 << 10;

/// Starts a thread that ends with its source.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(run).map(drop)
}

/// Starts the thread that polls for futures. The state says already that it runs.
pub(crate) fn start<C: Driven>(shared: &Arc<Shared<C>>) -> io::Result<()> {
    if let Some(why) = shared.config.no_thread {
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let shared = Arc::clone(shared);
    spawn("ifunc-poll", move || {
        // The next future that is polled starts another thread.
        if catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() {
            shared.lock().background_failed();
        }
    })
}

fn run<C: Driven>(shared: &Shared<C>) {
    let far = after(Duration::MAX);
    let parker = Parker::new();
    loop {
        let polled = shared.wait::<(), std::convert::Infallible>(far, Want::Progress, |connection| {
            connection.try_drain();
            Ok(None)
        });
        if let Err(Ended::Gone(why)) = polled {
            tracing::debug!(why, "no link to poll");
        }
        let mut state = shared.lock();
        if state.is_closed {
            return;
        }
        let idles = state.progress_is_idle();
        if idles {
            state.background = Background::Idle(parker.waker());
        }
        drop(state);
        if idles {
            parker.park(far);
        }
    }
}
