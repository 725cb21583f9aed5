//! What the engine knows of a connection's rings.

use ::ucx::RemoteMemory;

use super::layout::{Layout, View};
use super::sleeping::{Sleeping, Verdict};
use crate::transport::window::Credits;

/// Both rings of a connection: the one that this side receives in, and what it needs to write to the other.
#[derive(Debug)]
pub(in super::super) struct Rings {
    pub(in super::super) view: View,
    /// The peer's memory, once it has offered it.
    pub(in super::super) remote: Option<RemoteMemory>,
    /// Of the peer's ring.
    pub(in super::super) peer: Layout,
    /// Of the peer's commit words.
    pub(in super::super) nonce: u32,
    pub(in super::super) sleeping: Sleeping,
    /// The peer's last announcement that was answered.
    pub(in super::super) answered: u64,
    pub(in super::super) credits: Giving,
    /// Frames that have landed, as far as was polled.
    landed: u32,
}

/// Credits on their way to the peer: one put at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Giving {
    /// The last ones.
    given: Credits,
    under_way: bool,
    /// Newer ones are to be put when that has ended.
    owed: bool,
}

impl Giving {
    /// Credits to be given now, if none are on their way.
    pub(in super::super) fn give(&mut self, credits: Credits) -> bool {
        self.given = credits;
        self.owed = self.under_way;
        !std::mem::replace(&mut self.under_way, true)
    }

    /// Those under way have landed; others that are to follow.
    pub(in super::super) fn ended(&mut self) -> Option<Credits> {
        self.under_way = std::mem::take(&mut self.owed);
        self.under_way.then_some(self.given)
    }
}

impl Rings {
    pub(in super::super) fn new(view: View, peer: Layout) -> Self {
        Self {
            view,
            remote: None,
            peer,
            nonce: 0,
            sleeping: Sleeping::default(),
            answered: 0,
            credits: Giving::default(),
            landed: 0,
        }
    }

    /// How many frames have landed.
    pub(in super::super) fn landed(&mut self) -> u32 {
        // What was released may have been written over by a later lap.
        let released = self.credits.given.frames as u32;
        if (released.wrapping_sub(self.landed) as i32) > 0 {
            self.landed = released;
        }
        let slots = self.view.layout().size().slots;
        while self.landed.wrapping_sub(released) < slots && self.view.has_landed(self.landed.wrapping_add(1))
        {
            self.landed = self.landed.wrapping_add(1);
        }
        self.landed
    }

    /// Whether all of the `sent` frames are here; an error if there are more.
    pub(in super::super) fn are_all(&mut self, sent: u32) -> Result<bool, &'static str> {
        let landed = self.landed();
        if (sent.wrapping_sub(landed) as i32) < 0 {
            return Err("it closed the connection with fewer frames sent than have come");
        }
        Ok(landed == sent)
    }

    /// Whether this side may sleep.
    pub(in super::super) fn verdict(&mut self) -> Verdict {
        let landed = self.landed();
        self.sleeping.verdict(landed, self.view.credits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_go_one_put_at_a_time_and_the_last_ones_always_go() {
        let credits = |frames| Credits { frames, data: 0 };
        let mut giving = Giving::default();
        assert!(giving.give(credits(1)));
        assert!(!giving.give(credits(2)));
        assert!(!giving.give(credits(3)));
        assert_eq!(giving.ended(), Some(credits(3)));
        assert!(!giving.give(credits(4)));
        assert_eq!(giving.ended(), Some(credits(4)));
        assert_eq!(giving.ended(), None);
        assert!(giving.give(credits(5)));
    }
}
