//! What a target sleeps on: its listener's doorbell, and its stop.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::os::{Epoll, EventFd, EventFlags};
use crate::transport::Waiter;

/// What the sleeper of a target sleeps on.
#[derive(Debug)]
pub(crate) struct TargetDoorbell {
    links: Arc<LinkDoorbells>,
    stop: Arc<Stop>,
    /// Rung by other threads of this process.
    local: Arc<EventFd>,
}

/// The doorbells that a target sleeps on. Links that it made itself have doorbells of their own.
#[derive(Debug)]
pub(crate) struct LinkDoorbells {
    epoll: Epoll,
    /// The shortest of all links so far, in nanoseconds.
    poll_interval: AtomicU64,
}

impl LinkDoorbells {
    /// Watches the doorbell of a link instead of that of an earlier one.
    pub(crate) fn watch(&self, watched: &mut Option<Arc<dyn Waiter>>, link: Option<Arc<dyn Waiter>>) {
        let is_same = match (&*watched, &link) {
            (Some(watched), Some(link)) => Arc::ptr_eq(watched, link),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        if let Some(old) = watched.take() {
            self.epoll.remove(old.doorbell());
        }
        if let Some(link) = &link {
            let events = EventFlags::IN | EventFlags::RDHUP;
            if let Err(error) = self.epoll.add(link.doorbell(), 0, events) {
                tracing::error!(%error, "a target cannot watch a link that it made");
            }
            if let Some(interval) = link.poll_interval() {
                let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
                self.poll_interval.fetch_min(interval, Ordering::Relaxed);
            }
        }
        *watched = link;
    }

    /// The longest time between two polls; `None`: the doorbells report every event.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        let interval = self.poll_interval.load(Ordering::Relaxed);
        (interval != u64::MAX).then(|| Duration::from_nanos(interval))
    }
}

#[derive(Debug)]
struct Stop {
    is_stopped: AtomicBool,
    /// Stays readable.
    event: EventFd,
    /// The threads that serve. One may be there twice.
    threads: Mutex<Vec<ThreadId>>,
}

impl Stop {
    fn threads(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, the thread that made it is one of those that serve.
#[derive(Debug)]
pub(crate) struct Enlisted(Arc<Stop>);

impl Drop for Enlisted {
    fn drop(&mut self) {
        let here = thread::current().id();
        let mut threads = self.0.threads();
        if let Some(at) = threads.iter().position(|&thread| thread == here) {
            threads.swap_remove(at);
        }
    }
}

/// Ends [`Target::serve`](crate::Target::serve), from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Stop>);

impl StopHandle {
    /// Makes `serve` return soon, now and in every later call.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
        self.0.event.wake();
    }

    /// Makes the calling thread one of those that serve.
    pub(crate) fn enlist(&self) -> Enlisted {
        self.0.threads().push(thread::current().id());
        Enlisted(self.0.clone())
    }

    /// Whether the calling thread is one of those that serve.
    pub(crate) fn is_served_here(&self) -> bool {
        self.0.threads().contains(&thread::current().id())
    }
}

impl TargetDoorbell {
    pub(crate) fn new(listener: BorrowedFd<'_>) -> std::io::Result<Self> {
        let epoll = Epoll::new()?;
        let (event, local) = (EventFd::new()?, EventFd::new()?);
        let links = LinkDoorbells {
            epoll,
            poll_interval: AtomicU64::new(u64::MAX),
        };
        for fd in [listener, event.as_fd(), local.as_fd()] {
            links.epoll.add(fd, 0, EventFlags::IN)?;
        }
        let stop = Stop {
            is_stopped: AtomicBool::new(false),
            event,
            threads: Mutex::default(),
        };
        Ok(Self {
            links: Arc::new(links),
            stop: Arc::new(stop),
            local: Arc::new(local),
        })
    }

    /// For the doorbells of links that the listener does not watch.
    pub(crate) fn links(&self) -> &Arc<LinkDoorbells> {
        &self.links
    }

    /// Rung by other threads of this process.
    pub(crate) fn local(&self) -> &Arc<EventFd> {
        &self.local
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_stopped.load(Ordering::Acquire)
    }

    pub(crate) fn stop_handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Sleeps until the listener's peers, another thread or the stop ring.
    pub(crate) fn sleep(&self) -> std::io::Result<()> {
        self.links.epoll.wait(self.links.poll_interval(), |_| {})?;
        self.local.clear();
        Ok(())
    }
}

impl AsFd for TargetDoorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.links.epoll.as_fd()
    }
}
