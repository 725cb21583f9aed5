//! What a target sleeps on: its listener's bell and its stop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use rustix::event::{EventfdFlags, Timespec, epoll};

#[derive(Debug)]
pub(super) struct Bells {
    epoll: OwnedFd,
    stop: Arc<Stop>,
    /// By which threads of this process wake the one that sleeps.
    kick: OwnedFd,
}

#[derive(Debug)]
struct Stop {
    flag: AtomicBool,
    bell: OwnedFd,
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
pub(super) struct Enlisted(Arc<Stop>);

impl Drop for Enlisted {
    fn drop(&mut self) {
        let here = thread::current().id();
        let mut threads = self.0.threads();
        if let Some(at) = threads.iter().position(|&thread| thread == here) {
            threads.swap_remove(at);
        }
    }
}

/// Ends [`Target::serve`](super::Target::serve), from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Stop>);

impl StopHandle {
    /// Makes `serve` return soon, now and in every later call.
    pub fn stop(&self) {
        self.0.flag.store(true, Ordering::Release);
        // Fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
    }

    /// Makes the calling thread one of those that serve.
    pub(super) fn enlist(&self) -> Enlisted {
        self.0.threads().push(thread::current().id());
        Enlisted(self.0.clone())
    }

    /// Whether the calling thread is one of those that serve.
    pub(super) fn is_served_here(&self) -> bool {
        self.0.threads().contains(&thread::current().id())
    }
}

impl Bells {
    pub(super) fn new(listener: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let kick = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for (fd, data) in [(listener, 0), (bell.as_fd(), 1), (kick.as_fd(), 2)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            kick,
            epoll,
            stop: Arc::new(Stop {
                flag: AtomicBool::new(false),
                bell,
                threads: Mutex::default(),
            }),
        })
    }

    /// Wakes who sleeps, or who sleeps next.
    pub(super) fn kick(&self) {
        // Fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
    }

    /// Takes kicks back.
    pub(super) fn calm(&self) {
        let _ = rustix::io::read(&self.kick, &mut [0u8; 8]);
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.flag.load(Ordering::Acquire)
    }

    pub(super) fn stop_handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// As [`StopHandle::enlist`].
    pub(super) fn enlist(&self) -> Enlisted {
        self.stop_handle().enlist()
    }

    /// Sleeps until a bell rings, or for `timeout`.
    pub(super) fn sleep(&self, timeout: Option<&Timespec>) -> rustix::io::Result<()> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        match epoll::wait(&self.epoll, &mut events[..], timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Bells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
