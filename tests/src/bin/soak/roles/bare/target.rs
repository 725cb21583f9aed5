//! Bare UCX that receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ucx::Endpoint;

use super::super::{Result, say, wait_for_driver};
use super::worker::Worker;

/// Until standard input ends.
pub(crate) fn run() -> Result {
    let mut worker = Worker::new()?;
    let address = worker.0.address()?;
    let digits: String = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        wait_for_driver();
        stop.store(true, Ordering::Relaxed);
    });
    say(&format!("ready {digits}"));
    let mut peers: Vec<Endpoint> = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        let some = worker.progress();
        let sources = std::mem::take(&mut worker.0.handler().sources);
        for address in sources {
            // The peer may be dead by now.
            peers.extend(worker.connect(&address));
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
    for peer in peers {
        worker.close(peer, true);
    }
    say(&format!("stopped messages={}", worker.0.handler().messages));
    Ok(())
}
