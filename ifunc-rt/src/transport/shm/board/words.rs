//! The protocol of the board, over atomics wherever they lie: the mapping's, or those that loom watches.
//!
//! A source that finds its target's flag at *resting* sets its bit, and looks whether the target sleeps. A target that is
//! about to sleep says so, and looks whether bits are set. Each stores and then looks; a full barrier lies between the
//! two, on both sides, so that at least one of them sees what the other stored. Both are rare: fences cost nothing that
//! counts.

#[cfg(loom)]
pub(in super::super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(in super::super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bits of a word.
pub(in super::super) const BITS: usize = u64::BITS as usize;

/// Sets a bit; whether the target sleeps and is to be rung, which only one is told.
pub(in super::super) fn mark(words: &[AtomicU64], asleep: &AtomicU32, bit: usize) -> bool {
    let Some(word) = words.get(bit / BITS) else {
        return false;
    };
    word.fetch_or(1 << (bit % BITS), Ordering::AcqRel);
    fence(Ordering::SeqCst);
    asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::AcqRel) != 0
}

/// Takes the bits that are set. What was stored before one was set is visible to whoever takes it.
pub(in super::super) fn take(words: &[AtomicU64], mut each: impl FnMut(usize)) {
    for (at, word) in words.iter().enumerate() {
        if word.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let mut bits = word.swap(0, Ordering::AcqRel);
        while bits != 0 {
            each(at * BITS + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Says that the target is about to sleep. Bits that were set without a ring are visible behind it.
pub(in super::super) fn announce(asleep: &AtomicU32) {
    asleep.swap(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
}

/// Says that it does not.
pub(in super::super) fn withdraw(asleep: &AtomicU32) {
    asleep.swap(0, Ordering::AcqRel);
}
