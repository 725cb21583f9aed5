//! The memory orders of what both sides of a ring load and store: for the mapping, and for the model, whose atomics are loom's.
//!
//! Nothing else in the ring chooses an order.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::super::barrier::Barriers;

/// An atomic variable.
pub(in super::super) trait Word<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
}

macro_rules! words {
    ($($ty:ty: $value:ty),+ $(,)?) => {$(
        impl Word<$value> for $ty {
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
        }
    )+};
}

words!(AtomicBool: bool, AtomicU32: u32, AtomicU64: u64);
#[cfg(all(test, loom))]
words!(
    loom::sync::atomic::AtomicBool: bool,
    loom::sync::atomic::AtomicU32: u32,
    loom::sync::atomic::AtomicU64: u64,
);

/// Loads a commit word. What the producer stored before it is visible then.
#[inline(always)]
pub(in super::super) fn load_commit(commit: &impl Word<u64>) -> u64 {
    commit.load(Ordering::Acquire)
}

/// Stores a commit word, after what belongs to its frame.
#[inline(always)]
pub(in super::super) fn store_commit(commit: &impl Word<u64>, value: u64) {
    commit.store(value, Ordering::Release);
}

/// Loads the words of a slot whose commit word was loaded.
#[inline(always)]
pub(in super::super) fn load_words<W: Word<u64>>([one, two]: &[W; 2]) -> [u64; 2] {
    [one.load(Ordering::Relaxed), two.load(Ordering::Relaxed)]
}

/// Stores the words of a slot whose commit word is stored afterwards.
#[inline(always)]
pub(in super::super) fn store_words<W: Word<u64>>(words: &[W; 2], values: [u64; 2]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Stores word 2 of a slot whose commit word was loaded, before its release is published.
#[inline(always)]
pub(in super::super) fn store_second_word<W: Word<u64>>([_, two]: &[W; 2], value: u64) {
    two.store(value, Ordering::Relaxed);
}

/// Loads what the consumer released. Its last use of that came before.
#[inline(always)]
pub(in super::super) fn load_credits<W: Word<u64>>([frames, bytes]: &[W; 2]) -> [u64; 2] {
    [frames.load(Ordering::Acquire), bytes.load(Ordering::Acquire)]
}

/// Publishes what was released, after its last use.
#[inline(always)]
pub(in super::super) fn store_credits<W: Word<u64>>(credits: &[W; 2], values: [u64; 2]) {
    for (word, value) in credits.iter().zip(values) {
        word.store(value, Ordering::Release);
    }
}

/// After something was published: whether the peer announced that it does not poll.
#[inline(always)]
pub(in super::super) fn is_peer_asleep(barriers: Barriers, asleep: &impl Word<u32>) -> bool {
    barriers.after_publishing();
    asleep.load(Ordering::Relaxed) != 0
}

/// Takes the announcement of the peer: what it was.
///
/// All changes of the flag are swaps: the two sides' are ordered, for loom as for the processor.
#[inline(always)]
pub(in super::super) fn take_announcement(asleep: &impl Word<u32>) -> u32 {
    asleep.swap(0, Ordering::AcqRel)
}

/// Announces how a side receives. If it sleeps, what the peer published before it found no announcement is visible afterwards.
#[inline(always)]
pub(in super::super) fn announce(barriers: Barriers, asleep: &impl Word<u32>, state: u32, sleeps: bool) {
    asleep.swap(state, Ordering::AcqRel);
    if sleeps {
        barriers.after_announcing();
    }
}

/// States that a side has stored the last of what it ever stores.
#[inline(always)]
pub(in super::super) fn store_closed(closed: &impl Word<u32>) {
    closed.store(1, Ordering::Release);
}

/// Whether the peer stated that, or it is known from elsewhere (`gone`). If so, all that it ever stored is visible. A peer that takes its
/// statement back stays gone.
#[inline(always)]
pub(in super::super) fn is_gone(closed: &impl Word<u32>, gone: &impl Word<bool>) -> bool {
    if closed.load(Ordering::Acquire) != 0 {
        set_gone(gone);
    }
    gone.load(Ordering::Acquire)
}

/// Notes that the peer is gone.
#[inline(always)]
pub(in super::super) fn set_gone(gone: &impl Word<bool>) {
    gone.store(true, Ordering::Release);
}
