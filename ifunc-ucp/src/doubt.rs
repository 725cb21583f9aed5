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

thread_local! {
    static DOUBTS: RefCell<Vec<Doubt>> = const { RefCell::new(Vec::new()) };
}

/// The sums of the frame in `slot` are wrong. Returns whether they have been for too long.
#[cold]
pub(crate) fn is_too_old(slot: Slot, head: &Head) -> bool {
    let address = slot.address(0).addr();
    let remembered = DOUBTS.try_with(|doubts| {
        let doubts = &mut *doubts.borrow_mut();
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
    });
    remembered.unwrap_or(true)
}

/// The frame in `slot` was taken out.
#[inline]
pub(crate) fn forget(slot: Slot) {
    let address = slot.address(0).addr();
    // In a thread that ends there is nothing to forget.
    let _ = DOUBTS.try_with(|doubts| {
        let mut doubts = doubts.borrow_mut();
        if !doubts.is_empty() {
            doubts.retain(|doubt| doubt.address != address);
        }
    });
}
