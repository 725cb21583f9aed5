//! Which of a target's connections something happened to while nobody looked.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;
use crate::transport::Key;
use crate::transport::bell::Bell;

/// A list of them.
pub(super) struct Stirred {
    keys: Mutex<Vec<Key>>,
    /// Length of `keys`.
    count: AtomicUsize,
    /// The target sleeps, and is to be rung.
    asleep: AtomicBool,
    pub(super) bell: Arc<Bell>,
    next: AtomicU64,
    /// Connections that the target has or is about to have.
    live: AtomicUsize,
}

impl Stirred {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        Self {
            keys: Mutex::default(),
            count: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            bell,
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

    /// Something happened to a connection that nobody looked at.
    pub(super) fn put(&self, key: Key) {
        let mut keys = lock(&self.keys);
        keys.push(key);
        self.count.store(keys.len(), Ordering::SeqCst);
        drop(keys);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    pub(super) fn take(&self, keys: &mut Vec<Key>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut stirred = lock(&self.keys);
            self.count.store(0, Ordering::SeqCst);
            keys.append(&mut stirred);
        }
    }

    pub(super) fn arm(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
    }
}
