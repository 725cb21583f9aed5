//! The barrier between "I published, does the peer sleep?" and "I sleep, did the peer publish?".
//!
//! Each side stores one word and then loads the other's; without a full barrier in between both loads could
//! be done before both stores, and the ring would be lost. Publishing happens for every frame and sleeping
//! rarely, so the sleeper pays for both: `membarrier(GLOBAL_EXPEDITED)` makes every running thread of the
//! processes that registered pass a full barrier. A fence per frame costs 20 ns, a compiler fence nothing.
//! Where the kernel refuses, both sides of the connection fall back to fences, which they agree on when it is
//! made.

use std::sync::atomic::{Ordering, compiler_fence, fence};

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
        // Asked for once too: a seccomp filter may pass the one and not the other.
        let works = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        if works { Self::Sleeper } else { Self::Fences }
    }

    /// What both sides can do.
    pub(super) fn agree(self, peer: Self) -> Self {
        if self == peer { self } else { Self::Fences }
    }

    /// Between a publication and the look whether the peer sleeps.
    #[inline]
    pub(super) fn after_publishing(self) {
        match self {
            Self::Sleeper => compiler_fence(Ordering::SeqCst),
            Self::Fences => fence(Ordering::SeqCst),
        }
    }

    /// Between announcements of sleep and the last look for publications, on connections of both kinds.
    pub(super) fn after_announcing(self) {
        fence(Ordering::SeqCst);
        if self == Self::Sleeper && membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            // `register` saw it work; a filter that was installed since is the one way here. The peer looks
            // again at its next publication, and sleeps of the layers above have deadlines.
            tracing::warn!("membarrier is refused since the connection was made: the peer may ring late");
        }
    }
}
