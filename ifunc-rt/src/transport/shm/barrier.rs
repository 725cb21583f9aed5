//! The barrier between publishing and reading whether the peer sleeps, and between announcing sleep and reading what the peer
//! published.
//!
//! Each side stores one word and then loads the other's. Without a full barrier between the two, both loads could happen
//! before both stores, and a wake-up would be lost. A side publishes with every frame and sleeps rarely, so the sleeper pays for
//! both: `membarrier(GLOBAL_EXPEDITED)` makes every running thread of the registered processes pass a full barrier. A fence per
//! frame costs 20 ns, a compiler fence nothing. Where the kernel refuses, both sides of the connection use fences, on which
//! they agree in the handshake.

#[cfg(all(test, loom))]
use loom::sync::atomic::fence;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::fence;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Which barriers a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barriers {
    /// The sleeper's `membarrier` serves both sides. Both processes are registered.
    Sleeper,
    /// A fence on each side.
    Fences,
}

impl Barriers {
    /// In the flags of a handshake: the process cannot use `membarrier`.
    const FENCES: u32 = 1;

    pub(super) fn flags(self) -> u32 {
        if self == Self::Fences { Self::FENCES } else { 0 }
    }

    pub(super) fn from_flags(flags: u32) -> Self {
        if flags & Self::FENCES == 0 {
            Self::Sleeper
        } else {
            Self::Fences
        }
    }

    /// What this process can do: registers it with the kernel.
    pub(super) fn register() -> Self {
        // Both commands are tried: a seccomp filter may allow one and not the other.
        let works = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        if works { Self::Sleeper } else { Self::Fences }
    }

    /// What both sides can do.
    pub(super) fn agree(self, peer: Self) -> Self {
        if self == peer { self } else { Self::Fences }
    }

    /// Between publishing and reading whether the peer sleeps.
    #[inline]
    pub(super) fn after_publishing(self) {
        match self {
            Self::Sleeper => compiler_fence(Ordering::SeqCst),
            Self::Fences => fence(Ordering::SeqCst),
        }
    }

    /// Between announcing sleep, on connections of both kinds, and reading what their peers published.
    pub(super) fn after_announcing(self) {
        fence(Ordering::SeqCst);
        if self == Self::Sleeper && membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            // It worked in `register`, so a filter was installed since. The peer reads the announcement again at its next
            // publication, and the layers above sleep with deadlines.
            tracing::warn!(
                "membarrier is refused since the connection was made: the peer may wake this side late"
            );
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tests::logs::Log;
    use crate::tests::refuse::refuse;

    #[test]
    fn sides_agree_on_what_both_can_do() {
        use Barriers::{Fences, Sleeper};

        for (one, other, both) in [
            (Sleeper, Sleeper, Sleeper),
            (Sleeper, Fences, Fences),
            (Fences, Sleeper, Fences),
            (Fences, Fences, Fences),
        ] {
            assert_eq!(one.agree(other), both);
            assert_eq!(Barriers::from_flags(one.flags()), one);
            // Bits that a later version sets are none of this one's.
            assert_eq!(Barriers::from_flags(one.flags() | 6), one);
        }
    }

    /// The kernel refuses the barrier to this thread, which is how the test learns that it is asked for.
    #[test]
    fn a_sleeper_passes_the_barrier_of_both_sides_and_nobody_else_does() {
        let alone = std::thread::spawn(|| {
            if Barriers::register() == Barriers::Fences {
                eprintln!("SKIPPED: this kernel has no such barrier");
                return;
            }
            if !refuse(libc::SYS_membarrier) {
                return;
            }
            assert_eq!(Barriers::register(), Barriers::Fences);
            for (barriers, lines) in [(Barriers::Sleeper, 1), (Barriers::Fences, 0)] {
                let log = Log::new(tracing::Level::WARN);
                tracing::subscriber::with_default(log.clone(), || {
                    barriers.after_publishing();
                    assert!(log.lines().is_empty());
                    barriers.after_announcing();
                });
                assert_eq!(log.lines().len(), lines, "{barriers:?}");
            }
        });
        alone.join().unwrap();
    }
}
