//! How a worker of UCX waits: it polls for a while, then sleeps until something happens. The ifunc runtime does the same, for
//! the same time ([`Spin`]), so that the ways of chasing differ in nothing else.

use std::time::{Duration, Instant};

use example_servers::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucx::{Handler, Worker};

/// How long servers and source poll before they sleep, in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// A server.
    pub server: Duration,
    /// The source.
    pub source: Duration,
}

impl Default for Spin {
    /// As the runtime waits by default.
    fn default() -> Self {
        Self {
            server: Duration::from_micros(100),
            source: Duration::from_micros(60),
        }
    }
}

impl From<Duration> for Spin {
    fn from(spin: Duration) -> Self {
        Self {
            server: spin,
            source: spin,
        }
    }
}

/// Empty polls between two clock reads.
const PACE: u32 = 32;
/// Longest sleep: requests of other threads do not wake the worker.
const SLEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// When a worker sleeps.
#[derive(Debug)]
pub struct Waiting {
    spin: Duration,
    polls: u32,
    idle_since: Option<Instant>,
    last: Option<Instant>,
}

impl Waiting {
    /// Polls for so long before it sleeps: [`Spin`].
    #[must_use]
    pub fn new(spin: Duration) -> Self {
        Self {
            spin,
            polls: 0,
            idle_since: None,
            last: None,
        }
    }

    /// Progresses the worker until something happened (`true`), or it slept for a while.
    ///
    /// # Errors
    /// UCX or the kernel cannot wait.
    pub fn progress<H: Handler>(&mut self, worker: &mut Worker<H>) -> Result<bool, Failure> {
        loop {
            if worker.progress() {
                self.polls = 0;
                self.idle_since = None;
                self.last = None;
                return Ok(true);
            }
            self.polls += 1;
            if self.polls < PACE && !self.spin.is_zero() {
                continue;
            }
            self.polls = 0;
            let now = Instant::now();
            let last = self.last.replace(now).unwrap_or(now);
            let was_kept = now - last > self.spin / 2;
            if !was_kept && now - *self.idle_since.get_or_insert(now) < self.spin {
                continue;
            }
            self.idle_since = None;
            self.last = None;
            if worker.arm()? {
                let fd = worker.event_fd()?;
                match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&SLEEP)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(why) => return Err(why.into()),
                }
            }
            return Ok(worker.progress());
        }
    }
}
