//! Frames whose head and trailer have arrived, and whose sums are wrong.
//!
//! What lies between head and trailer may still be under way: networks with several paths deliver a put in any order, and a lost packet
//! comes again much later. Or the frame was changed. Only time tells, so a thread remembers when it first saw such a frame.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::frame::Head;
use crate::slot::Slot;

/// For how long the sums may be wrong. Longer than networks take to send a lost packet again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most frames that a thread remembers. One that it has forgotten is new to it.
const MOST: usize = 64;

/// A frame, and when it was first seen.
struct Doubt {
    address: usize,
    head: Head,
    since: Instant,
}

/// What a thread remembers.
#[derive(Default)]
pub(crate) struct Doubts(RefCell<Vec<Doubt>>);

impl Doubts {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// The sums of the frame in `slot` are wrong. Returns whether they have been for too long.
    #[cold]
    pub(crate) fn is_too_old(&self, slot: Slot, head: &Head) -> bool {
        let address = slot.address(0).addr();
        let doubts = &mut *self.0.borrow_mut();
        if let Some(doubt) = doubts.iter().find(|doubt| doubt.address == address)
            && doubt.head == *head
        {
            return doubt.since.elapsed() >= PATIENCE;
        }
        doubts.retain(|doubt| doubt.address != address);
        if doubts.len() == MOST {
            doubts.remove(0);
        }
        doubts.push(Doubt {
            address,
            head: *head,
            since: Instant::now(),
        });
        false
    }

    /// The frame in `slot` was taken out.
    #[inline]
    pub(crate) fn forget(&self, slot: Slot) {
        let mut doubts = self.0.borrow_mut();
        if !doubts.is_empty() {
            let address = slot.address(0).addr();
            doubts.retain(|doubt| doubt.address != address);
        }
    }
}
