//! What a target sleeps on: its listener's bell and its stop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
