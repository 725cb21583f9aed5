//! The protocol of the ready bitmap, over the atomics of the mapping or of loom.
//!
//! A source that finds its link parked sets its bit, and then reads whether the target sleeps. A target that is about to
//! sleep announces it, and then reads the bits. Each stores and then loads, with a full barrier between the two on both
//! sides, so that at least one of them sees what the other stored. Both are rare, so fences are cheap enough.

#[cfg(loom)]
pub(in super::super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(in super::super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bits of a word.
pub(in super::super) const BITS: usize = u64::BITS as usize;

/// Sets a bit. Returns whether the target sleeps and the caller must wake it: `true` for one caller only.
pub(in super::super) fn set(words: &[AtomicU64], asleep: &AtomicU32, bit: usize) -> bool {
    let Some(word) = words.get(bit / BITS) else {
        return false;
    };
    word.fetch_or(1 << (bit % BITS), Ordering::AcqRel);
    fence(Ordering::SeqCst);
    asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::AcqRel) != 0
}

/// Sets a bit of the target's own. The event that led here has woken the target already.
pub(in super::super) fn mark(words: &[AtomicU64], bit: usize) {
    if let Some(word) = words.get(bit / BITS) {
        word.fetch_or(1 << (bit % BITS), Ordering::AcqRel);
    }
}

/// Takes the bits that are set. What was stored before a bit was set is visible after it was taken.
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

/// Announces that the target is about to sleep. Bits whose setters do not wake it are visible after this call.
pub(in super::super) fn announce(asleep: &AtomicU32) {
    asleep.swap(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
}

/// Withdraws the announcement.
pub(in super::super) fn withdraw(asleep: &AtomicU32) {
    asleep.swap(0, Ordering::AcqRel);
}
