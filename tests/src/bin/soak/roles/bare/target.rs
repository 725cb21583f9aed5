//! Bare UCX that listens and receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Result, say, wait_for_driver};
use super::worker::Worker;

/// Until standard input ends.
pub(crate) fn run() -> Result {
    let mut worker = Worker::new()?;
    let (listener, port) = worker.listen()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        wait_for_driver();
        stop.store(true, Ordering::Relaxed);
    });
    say(&format!("ready {port}"));
    let mut peers = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        let some = worker.progress()?;
        let knocks = std::mem::take(&mut *worker.happened().knocks.borrow_mut());
        for knock in knocks {
            // Who knocked may be dead by now.
            peers.extend(worker.accept(knock));
        }
        let failed = std::mem::take(&mut *worker.happened().failed.borrow_mut());
        for ep in failed {
            peers.retain(|peer| *peer != ep);
            worker.close(ep, true);
        }
        if !some {
            worker.sleep(5);
        }
    }
    worker.hush(listener);
    for ep in peers {
        worker.close(ep, true);
    }
    say(&format!("stopped messages={}", worker.happened().messages.get()));
    Ok(())
}
