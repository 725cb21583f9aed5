//! What a thread sleeps on that receives: the link's bell, and one that the others of its process ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::waiting::Bell;
use crate::transport::Waiter;

/// A bell of this process's: an eventfd.
#[derive(Debug)]
pub(super) struct Handbell(OwnedFd);

impl Handbell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn ring(&self) {
        // It can only fail when it rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Handbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Handbell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// Both. One thread at a time sleeps on them.
pub(super) struct Bells {
    pub(super) link: Arc<dyn Waiter>,
    pub(super) hand: Arc<Handbell>,
}

impl Bell for Bells {
    fn sleep(&self, until: Instant) {
        self.link.sleep(until, Some(self.hand.as_fd()));
        self.hand.silence();
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.hand).into()
    }
}
