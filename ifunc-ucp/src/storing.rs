//! Frames that are being stored: their stripes are added as they come.
//!
//! A source that stores a long frame says after each part how far it is. The poll function of the target adds the part, which fetches it
//! into the caches of its processor, while the source stores the next one.

use std::cell::Cell;
use std::hint::spin_loop;

use crate::frame::{Head, Seen};
use crate::slot::Slot;
use crate::sum::{STRIPE, Stripes};

/// How often a poll looks for the next part of a frame, which takes less time than this, before it returns.
const LOOKS: usize = 32;

/// What a thread has added of a frame.
#[derive(Clone, Copy)]
struct Added {
    address: usize,
    stripes: Stripes,
}

/// The frame of which a thread added stripes last.
#[derive(Default)]
pub(crate) struct Storing(Cell<Option<Added>>);

impl Storing {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// There are so many stripes of the frame in `slot`. Adds them, and those that the source stores meanwhile. Returns what lies there then.
    pub(crate) fn follow(&self, slot: Slot, mut count: usize) -> Seen {
        loop {
            self.add(slot, count);
            let mut looks = 0;
            count = loop {
                match Head::read(slot) {
                    Seen::Storing(now) if now > count && now * STRIPE <= slot.len() => break now,
                    Seen::Storing(now) if now == count && looks < LOOKS => looks += 1,
                    seen => return seen,
                }
                spin_loop();
            };
        }
    }

    /// There are so many stripes of the frame in `slot`.
    fn add(&self, slot: Slot, count: usize) {
        let address = slot.address(0).addr();
        let before = self.0.get().filter(|added| added.address == address);
        let mut stripes = match before {
            Some(Added { stripes, .. }) if stripes.count() <= count => stripes,
            // Another frame has begun there.
            _ => Stripes::new(),
        };
        slot.add_to(&mut stripes, count);
        self.0.set(Some(Added { address, stripes }));
    }

    /// The sum of the first stripes of the frame in `slot`, if there is one. They may be those of an earlier frame there.
    pub(crate) fn take(&self, slot: Slot) -> Option<Stripes> {
        let added = self.0.take()?;
        (added.address == slot.address(0).addr()).then_some(added.stripes)
    }
}
