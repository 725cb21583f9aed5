//! Bare UCX that listens and receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ucx::Endpoint;

use super::super::{Result, say, wait_for_driver};
use super::worker::Worker;

/// Until standard input ends.
pub(crate) fn run() -> Result {
    let mut worker = Worker::new()?;
    let listener = worker.0.listen(([127, 0, 0, 1], 0).into())?;
    let port = listener.address().port();
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        wait_for_driver();
        stop.store(true, Ordering::Relaxed);
    });
    say(&format!("ready {port}"));
    let mut peers: Vec<Endpoint> = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        let some = worker.progress();
        let requests = std::mem::take(&mut worker.0.handler().requests);
        for request in requests {
            // The peer may be dead by now.
            peers.extend(worker.accept(request));
        }
        let failed = std::mem::take(&mut worker.0.handler().failed);
        for id in failed {
            for peer in peers.extract_if(.., |peer| peer.id() == id) {
                worker.close(peer, true);
            }
        }
        if !some {
            worker.sleep(5);
        }
    }
    worker.0.close_listener(listener);
    for peer in peers {
        worker.close(peer, true);
    }
    say(&format!("stopped messages={}", worker.0.handler().messages));
    Ok(())
}
