//! Which of a target's parked connections have an event.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;
use crate::os::EventFd;
use crate::transport::Key;

/// The list of ready connections.
pub(super) struct ReadyList {
    keys: Mutex<Vec<Key>>,
    /// Length of `keys`.
    count: AtomicUsize,
    /// The target sleeps and must be woken.
    asleep: AtomicBool,
    pub(super) event_fd: Arc<EventFd>,
    next: AtomicU64,
    /// Connections that the target has or is about to have.
    live: AtomicUsize,
}

impl ReadyList {
    pub(super) fn new(event_fd: Arc<EventFd>) -> Self {
        Self {
            keys: Mutex::default(),
            count: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            event_fd,
            next: AtomicU64::new(0),
            live: AtomicUsize::new(0),
        }
    }

    /// One more connection, if there are fewer than `most`.
    pub(super) fn enter(&self, most: usize) -> Option<Key> {
        let more = |live| (live < most).then_some(live + 1);
        self.live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Key(self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// One less.
    pub(super) fn leave(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a parked connection that has an event.
    pub(super) fn put(&self, key: Key) {
        let mut keys = lock(&self.keys);
        keys.push(key);
        self.count.store(keys.len(), Ordering::SeqCst);
        drop(keys);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.event_fd.wake();
        }
    }

    pub(super) fn take(&self, keys: &mut Vec<Key>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut ready = lock(&self.keys);
            self.count.store(0, Ordering::SeqCst);
            keys.append(&mut ready);
        }
    }

    pub(super) fn arm(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
    }
}
