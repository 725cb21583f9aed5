//! How a worker of UCX waits, and how the source waits for several calls: they poll for a while, then sleep until something happens. The
//! ifunc runtime does the same, for the same time ([`Spin`]), so that the ways of chasing differ in nothing else.

use std::io;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use example_servers::Failure;
use ifunc_rt::{Driver, Source};
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
                sleep(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&SLEEP))?;
            }
            return Ok(worker.progress());
        }
    }
}

/// Waits for futures of several sources on the thread that needs them.
#[derive(Debug)]
pub struct EventLoop {
    drivers: Vec<Driver>,
    spin: Duration,
}

impl EventLoop {
    /// Polls for so long before it sleeps: [`Spin`].
    ///
    /// # Errors
    /// Too many files are open.
    pub fn new(sources: &[Source], spin: Duration) -> io::Result<Self> {
        let drivers = sources.iter().map(Source::driver);
        Ok(Self {
            drivers: drivers.collect::<Result<_, _>>()?,
            spin,
        })
    }

    /// Waits until `future` is ready.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn wait<T>(&self, mut future: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Result<T, Failure> {
        // This thread polls the future whenever anything has arrived, and needs no waker for that.
        let context = &mut Context::from_waker(Waker::noop());
        let mut idle_since = None;
        loop {
            if let Poll::Ready(ready) = future(context) {
                return Ok(ready);
            }
            let arrived = self.drivers.iter().filter(|driver| driver.progress()).count();
            if arrived > 0 {
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() >= self.spin
                && self.drivers.iter().all(Driver::arm)
            {
                idle_since = None;
                self.sleep()?;
            }
        }
    }

    /// Sleeps until a source has something to do.
    fn sleep(&self) -> Result<(), Failure> {
        let deadline = self.drivers.iter().filter_map(Driver::deadline).min();
        let limit = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = limit.map(Timespec::try_from).transpose()?;
        let fds = self.drivers.iter();
        let mut fds: Vec<_> = fds.map(|driver| PollFd::new(driver, PollFlags::IN)).collect();
        sleep(&mut fds, limit.as_ref())
    }
}

/// Sleeps until a descriptor is readable, or for so long.
fn sleep(fds: &mut [PollFd<'_>], limit: Option<&Timespec>) -> Result<(), Failure> {
    match poll(fds, limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(why) => Err(why.into()),
    }
}
