//! Both rings of a connection, as the engine has them.

use ::ucx::RemoteMemory;

use super::layout::{Layout, View};
use super::sleeping::{Sleeping, Verdict};
use crate::transport::window::Credits;

/// Both rings of a connection: the one that this side receives in, and what it needs to write to the other.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) view: View,
    /// The peer's memory, once it has offered it.
    pub(crate) remote: Option<RemoteMemory>,
    /// Of the peer's ring.
    pub(crate) peer: Layout,
    /// Of the peer's checksums.
    pub(crate) nonce: u32,
    pub(crate) sleeping: Sleeping,
    /// The peer's last announcement that was answered.
    pub(crate) answered: u64,
    pub(crate) credits: Giving,
    /// Frames that have landed, as far as was polled.
    landed: u32,
}

/// Credits on their way to the peer: one put at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Giving {
    /// The last ones.
    given: Credits,
    under_way: bool,
    /// Newer ones are to be put when that has ended.
    owed: bool,
}

impl Giving {
    /// Credits to put now, unless others are on their way.
    pub(crate) fn give(&mut self, credits: Credits) -> Option<Credits> {
        self.given = credits;
        self.owed = self.under_way;
        (!std::mem::replace(&mut self.under_way, true)).then_some(credits)
    }

    /// Those under way have landed; others that are to follow.
    pub(crate) fn ended(&mut self) -> Option<Credits> {
        self.under_way = std::mem::take(&mut self.owed);
        self.under_way.then_some(self.given)
    }
}

impl Rings {
    pub(crate) fn new(view: View, peer: Layout) -> Self {
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

    /// Whether the peer has announced a sleep that was not answered. Call after a fence.
    #[inline]
    pub(crate) fn is_announced(&self) -> bool {
        self.view.announced() != self.answered
    }

    /// How many frames have landed.
    pub(crate) fn landed(&mut self) -> u32 {
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

    /// Whether anything that the peer has put is here.
    pub(crate) fn has_landed(&mut self) -> bool {
        self.landed() > 0 || self.view.credits() != Credits::default()
    }

    /// Whether all of the `sent` frames are here; an error if there are more.
    pub(crate) fn are_all(&mut self, sent: u32) -> Result<bool, &'static str> {
        let landed = self.landed();
        if (sent.wrapping_sub(landed) as i32) < 0 {
            return Err("it closed the connection with fewer frames sent than have come");
        }
        Ok(landed == sent)
    }

    /// Whether this side may sleep.
    pub(crate) fn verdict(&mut self) -> Verdict {
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
        assert_eq!(giving.give(credits(1)), Some(credits(1)));
        assert_eq!(giving.give(credits(2)), None);
        assert_eq!(giving.give(credits(3)), None);
        assert_eq!(giving.ended(), Some(credits(3)));
        assert_eq!(giving.give(credits(4)), None);
        assert_eq!(giving.ended(), Some(credits(4)));
        assert_eq!(giving.ended(), None);
        assert_eq!(giving.give(credits(5)), Some(credits(5)));
    }
}
