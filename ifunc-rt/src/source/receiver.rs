//! The thread that receives for futures, where the user has no event loop for it. It is started by the first future that
//! has to wait, sleeps while none does, and ends with its source.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::parker::Parker;
use super::patience::after;
use super::shared::SharedConnection;
use super::waiting::{Ended, Shared, Want, wait};

/// It calls wakers, which are the executor's code.
const STACK: usize = 512 << 10;

/// Starts it. The connection says already that there is one.
pub(super) fn start(shared: &Arc<SharedConnection>) -> io::Result<()> {
    let waiter = shared.lock().waiter();
    if waiter.is_some_and(|waiter| !waiter.serves_any_thread()) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the source is of a UCX worker that one thread alone may use; help: receive for its futures by `Source::driver` on that thread",
        ));
    }
    let shared = Arc::clone(shared);
    thread::Builder::new()
        .name("ifunc-receive".into())
        .stack_size(STACK)
        .spawn(move || run(&shared))
        .map(drop)
}

/// Should the thread die of a panic, the next future that is polled starts another.
struct Alive<'a>(&'a SharedConnection);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().receiver_failed();
        }
    }
}

fn run(shared: &SharedConnection) {
    let _alive = Alive(shared);
    let far = after(Duration::MAX);
    let parker = Parker::new();
    let waker = parker.waker();
    loop {
        let received = wait::<_, (), std::convert::Infallible>(shared, far, Want::Others, |connection| {
            connection.try_drain();
            Ok((connection.is_taken() || connection.is_closed()).then_some(()))
        });
        if let Err(Ended::Gone(why)) = received {
            tracing::debug!(why, "nothing to receive from");
        }
        parker.reset();
        let mut state = shared.lock();
        if state.is_closed() {
            return;
        }
        let rests = state.rest(&waker);
        drop(state);
        if rests {
            parker.park(far);
        }
    }
}
