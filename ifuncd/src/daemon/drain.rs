//! How the daemon stops.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::served::Event;
use super::{Daemon, flush};
use crate::notify::tell;

/// Without frames and invocations for so long, a daemon that stops has run what was sent to it.
const QUIET: Duration = Duration::from_millis(200);

impl Daemon {
    /// Runs what was sent, until there is nothing more or the time is over, and stops.
    pub(super) fn drain(self) {
        tell("STOPPING=1");
        let now = Instant::now();
        let deadline = now.checked_add(self.config.listen.drain).unwrap_or(now);
        self.counters.is_draining.store(true, Ordering::Relaxed);
        for target in &self.targets {
            target.policy.close_to_new_sources(true);
        }
        tracing::info!(within = ?self.config.listen.drain, "stopping");
        self.await_quiet(deadline);
        for target in &self.targets {
            target.stop.stop();
        }
        let mut running = self.targets.len();
        while running > 0 {
            match self
                .events
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(Event::Ended(..)) => running -= 1,
                // It stops already.
                Ok(Event::Signal(_)) => {}
                Err(_) => break,
            }
        }
        flush(&self.data);
        match running {
            0 => tracing::info!("stopped"),
            _ => tracing::warn!(running, "stopped with invocations that did not end in time"),
        }
    }

    /// Waits until no frame has arrived for a while and nothing runs.
    fn await_quiet(&self, deadline: Instant) {
        let frames = || -> u64 {
            self.targets
                .iter()
                .map(|target| target.stats.read().total.frames)
                .sum()
        };
        let in_flight = || -> usize {
            self.data
                .peers
                .all()
                .iter()
                .map(|peer| peer.allowance().in_flight())
                .sum()
        };
        let (mut seen, mut since) = (frames(), Instant::now());
        while Instant::now() < deadline && since.elapsed() < QUIET {
            thread::sleep(QUIET / 10);
            let now = frames();
            if now != seen || in_flight() > 0 {
                (seen, since) = (now, Instant::now());
            }
        }
    }
}
