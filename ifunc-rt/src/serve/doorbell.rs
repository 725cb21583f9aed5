//! What a target sleeps on: its listener's doorbell, and its stop.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::os::{Epoll, EventFd, EventFlags};

/// What the sleeper of a target sleeps on.
#[derive(Debug)]
pub(crate) struct TargetDoorbell {
    epoll: Epoll,
    stop: Arc<Stop>,
    /// Rung by other threads of this process.
    local: Arc<EventFd>,
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
        for fd in [listener, event.as_fd(), local.as_fd()] {
            epoll.add(fd, 0, EventFlags::IN)?;
        }
        let stop = Stop {
            is_stopped: AtomicBool::new(false),
            event,
            threads: Mutex::default(),
        };
        Ok(Self {
            epoll,
            stop: Arc::new(stop),
            local: Arc::new(local),
        })
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
        self.epoll.wait(None, |_| {})?;
        self.local.clear();
        Ok(())
    }
}

impl AsFd for TargetDoorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
