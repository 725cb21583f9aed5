//! Where frames lie, by the count of both sides.
//!
//! A frame's header lies in its slot, and so does a body of at most [`SHORT`] bytes. Another body lies in a ring of lines. One that does not fit
//! before the ring ends begins at the ring's beginning, and the lines between are left out: they count as taken.
//! No message says where a body lies: both sides compute it from the length.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use ifunc_abi::frame::split_commit_word;

use super::layout::{Layout, SHORT, View, body_at};
use crate::transport::prefetch;
use crate::transport::ucx::credits::{UnderWay, units};
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};

/// Where a body lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In its slot.
    Slot,
    /// In the ring.
    Lines(Lines),
}

/// Lines of the ring that a body takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The first.
    pub(crate) begin: u32,
    /// How many, those left out among them.
    taken: u32,
    /// The line that the next body begins in, if it fits.
    next: u32,
}

impl Place {
    /// The place of a body of `len` bytes where line `at` of `lines` is the next one.
    fn new(at: u32, lines: u32, len: usize) -> Self {
        match len <= SHORT {
            true => Self::Slot,
            false => Self::Lines(Lines::new(at, lines, len)),
        }
    }

    /// Lines that it takes.
    fn taken(&self) -> u64 {
        match self {
            Self::Slot => 0,
            Self::Lines(lines) => lines.taken.into(),
        }
    }

    /// The next line behind it, where `at` is the next one before it.
    fn next(&self, at: u32) -> u32 {
        match self {
            Self::Slot => at,
            Self::Lines(lines) => lines.next,
        }
    }
}

impl Lines {
    fn new(at: u32, lines: u32, len: usize) -> Self {
        let (behind, units) = (lines - at, units(len) as u32);
        let (begin, left_out) = if units <= behind { (at, 0) } else { (0, behind) };
        Self {
            begin,
            taken: left_out + units,
            next: (begin + units) % lines,
        }
    }
}

/// The writing side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    layout: Layout,
    at: u32,
    window: SendWindow,
}

impl Producer {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            at: 0,
            window: SendWindow::new(layout.capacity()),
        }
    }

    pub(crate) fn max_body(&self) -> usize {
        self.layout.size().max_body()
    }

    /// How many frames were put.
    pub(crate) fn sent(&self) -> u64 {
        self.window.sent().frames
    }

    /// Whether a frame with a body of `len` bytes may be put where so much is under way. A shorter one may then be, too.
    pub(crate) fn has_room(&self, len: usize, under_way: UnderWay) -> bool {
        let place = Place::new(self.at, self.layout.lines(), len);
        under_way.left(&self.window).covers(place.taken())
    }

    /// Takes the credits that the peer published.
    pub(crate) fn credit(&mut self, credits: Credits) -> Result<(), &'static str> {
        self.window
            .acknowledge_low(credits.frames as u32, credits.data as u32)
    }

    /// A frame is put; its number and place.
    pub(crate) fn send(&mut self, len: usize) -> (u32, Place) {
        let place = Place::new(self.at, self.layout.lines(), len);
        self.at = place.next(self.at);
        (self.window.send(place.taken()), place)
    }

    /// As [`SendWindow::is_unconsumed`].
    pub(crate) fn is_unconsumed(&self, sequence: u32) -> bool {
        self.window.is_unconsumed(sequence)
    }
}

/// A frame that has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    pub(crate) sequence: u32,
    pub(crate) words: [u64; 2],
    pub(crate) len: usize,
    /// Where the body begins in the memory.
    pub(crate) body: usize,
    pub(crate) place: Place,
}

/// The reading side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumer {
    layout: Layout,
    at: u32,
    window: ReceiveWindow,
    /// The frame that `poll` found, until it is released.
    held: Option<Landed>,
}

impl Consumer {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            at: 0,
            window: ReceiveWindow::new(layout.capacity()),
            held: None,
        }
    }

    /// The number of the next frame.
    pub(crate) fn expected(&self) -> u32 {
        (self.window.released().frames as u32).wrapping_add(1)
    }

    /// The frame that was not released, or the next one, if it has landed: its header is read once, and validated. Inlined where it is
    /// used: in memory, the result would be read by loads that wait for the stores.
    #[inline(always)]
    pub(crate) fn poll<M: Deref<Target: AsRef<[AtomicU64]>>>(
        &mut self,
        view: &View<M>,
    ) -> Result<Option<Landed>, &'static str> {
        if self.held.is_some() {
            return Ok(self.held);
        }
        let sequence = self.expected();
        let Some([first, second, third]) = view.landed(sequence) else {
            return Ok(None);
        };
        let len = split_commit_word(first).1 as usize;
        if len > self.layout.size().max_body() {
            return Err("a body larger than a frame can have");
        }
        let place = Place::new(self.at, self.layout.lines(), len);
        let body = match place {
            Place::Slot => self.layout.slot(sequence) + body_at(len),
            Place::Lines(lines) => {
                let at = self.layout.line(lines.begin);
                prefetch::body(view.body(at), len);
                at
            }
        };
        let landed = Landed {
            sequence,
            words: [second, third],
            len,
            body,
            place,
        };
        self.held = Some(landed);
        Ok(Some(landed))
    }

    /// Whether no frame is held, and the number of the next one is not in its slot.
    #[inline]
    pub(crate) fn is_empty<M: Deref<Target: AsRef<[AtomicU64]>>>(&self, view: &View<M>) -> bool {
        self.held.is_none() && !view.begins(self.expected())
    }

    /// Releases the frame that is held. `true`: publish the credits.
    pub(crate) fn release(&mut self) -> bool {
        let Some(Landed { place, .. }) = self.held.take() else {
            return false;
        };
        self.release_place(place)
    }

    fn release_place(&mut self, place: Place) -> bool {
        self.at = place.next(self.at);
        self.window.release(place.taken())
    }

    /// Whether the peer does not know of lines that are free.
    pub(crate) fn owes_lines(&self) -> bool {
        self.window.owes_data()
    }

    /// Credits to publish; `None`: the peer knows them.
    pub(crate) fn publish(&mut self) -> Option<Credits> {
        self.window.publish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use ifunc_abi::frame::commit_word as first_word;
    use proptest::prelude::*;

    use super::super::layout::{HEADER_AT, InSlot, trailer};
    use super::*;
    use crate::transport::RingSize;

    const SMALL: RingSize = RingSize {
        slots: 2,
        data: RingSize::MIN_DATA,
    };

    fn lines_of(place: Place, len: usize) -> Vec<u32> {
        let Place::Lines(lines) = place else {
            return Vec::new();
        };
        (lines.begin..lines.begin + units(len) as u32).collect()
    }

    #[test]
    fn the_largest_body_fits_wherever_it_may_begin_once_the_ring_is_free() {
        let layout = Layout::new(SMALL);
        for at in 0..layout.lines() {
            let place = Place::new(at, layout.lines(), SMALL.max_body());
            assert!(place.taken() <= layout.lines().into(), "{at}: {place:?}");
            let lines = lines_of(place, SMALL.max_body());
            assert_eq!(lines.len() as u64, units(SMALL.max_body()));
            assert!(lines.iter().all(|&line| line < layout.lines()));
        }
    }

    #[test]
    fn a_body_lies_together_or_begins_the_ring_again() {
        let lines = Layout::new(SMALL).lines();
        for (at, len, begin) in [
            (3, SHORT + 1, 3),
            (lines - 2, 128, lines - 2),
            (lines - 2, 129, 0),
        ] {
            let place = Lines::new(at, lines, len);
            assert_eq!(place.begin, begin, "{place:?}");
        }
        assert_eq!(Place::new(3, lines, SHORT), Place::Slot);
        assert_eq!((Place::Slot.taken(), Place::Slot.next(3)), (0, 3));
    }

    #[test]
    fn a_shorter_body_takes_no_more_lines() {
        let lines = Layout::new(SMALL).lines();
        for at in 0..lines {
            let taken = (0..=SMALL.max_body())
                .step_by(8)
                .map(|len| Place::new(at, lines, len).taken());
            assert!(taken.is_sorted(), "at line {at}");
        }
    }

    /// What the consumer, whose next line is `at`, says of a slot that says so of the first frame.
    fn polled(sequence: u32, len: usize, at: u32) -> Result<Option<Landed>, &'static str> {
        let layout = Layout::new(SMALL);
        let memory: Vec<_> = (0..layout.len() / 8).map(|_| AtomicU64::new(0)).collect();
        let body = InSlot::of(len, |_| 0);
        let words = trailer(7, [first_word(sequence, len as u32), 5, 6], body);
        for (word_at, word) in (layout.slot(1) + HEADER_AT..).step_by(8).zip(words) {
            memory[word_at / 8].store(word, Ordering::Relaxed);
        }
        let mut consumer = Consumer {
            at,
            ..Consumer::new(layout)
        };
        let view = View::new(Arc::new(memory), layout, 7);
        let polled = consumer.poll(&view);
        assert_eq!(consumer.poll(&view), polled, "it stays until it is released");
        polled
    }

    #[test]
    fn a_body_lies_where_its_length_says() {
        let layout = Layout::new(SMALL);
        let [slot, line] = [layout.slot(1), layout.line(0)];
        for (len, body) in [
            (0, Some(slot + 64)),
            (32, Some(slot + 64)),
            (33, Some(slot)),
            (SHORT, Some(slot)),
            (SHORT + 1, Some(line)),
            (SMALL.max_body(), Some(line)),
            (SMALL.max_body() + 1, None),
            (u32::MAX as usize, None),
        ] {
            let landed = polled(1, len, 0);
            assert_eq!(landed.is_err(), body.is_none(), "{len}");
            assert_eq!(landed.ok().flatten().map(|landed| landed.body), body, "{len}");
            assert_eq!(polled(2, len, 0), Ok(None));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Whatever length a peer states.
        #[test]
        fn a_body_lies_within_the_memory(len in prop_oneof![0..=u32::MAX, 0..=2 * SMALL.data], at in 0..SMALL.data / 64) {
            if let Ok(landed) = polled(1, len as usize, at) {
                let landed = landed.expect("its number and checksum are right");
                prop_assert_eq!(landed.len, len as usize);
                prop_assert!(landed.body + landed.len <= Layout::new(SMALL).len());
            } else {
                prop_assert!(len as usize > SMALL.max_body());
            }
        }

        /// Frames of any lengths, held for any time: what is held is never written over, both sides agree where
        /// everything is, and no side is stuck while everything that came is released.
        #[test]
        fn both_sides_agree_lap_after_lap(
            lens in proptest::collection::vec((0..=SMALL.max_body(), 0..4usize), 1..200),
            slots in prop_oneof![Just(2u32), Just(16)],
            wrap in any::<bool>(),
        ) {
            let layout = Layout::new(RingSize { slots, ..SMALL });
            let (mut out, mut incoming) = (Producer::new(layout), Consumer::new(layout));
            if wrap {
                let start = Credits { frames: u64::from(u32::MAX - 20), data: u64::from(u32::MAX - 2000) };
                out.window.skip_to(start);
                incoming.window.skip_to(start);
            }
            let mut held = std::collections::VecDeque::new();
            for (len, most) in lens {
                // Short ones are as likely as long ones.
                let len = if len % 3 == 0 { len % 200 } else { len };
                while !out.has_room(len, UnderWay::default()) {
                    let Some((_, _, place)) = held.pop_front() else {
                        // Nothing more has arrived: the rest is published, too.
                        let credits = incoming.publish();
                        prop_assert!(credits.is_some(), "stuck at {len} bytes");
                        out.credit(credits.unwrap()).unwrap();
                        continue;
                    };
                    if incoming.release_place(place) {
                        out.credit(incoming.publish().unwrap()).unwrap();
                    }
                }
                let (sequence, place) = out.send(len);
                let lines = lines_of(place, len);
                for (_, theirs, _) in &held {
                    let theirs: &Vec<u32> = theirs;
                    prop_assert!(lines.iter().all(|line| !theirs.contains(line)));
                }
                let expected = incoming.expected().wrapping_add(held.len() as u32);
                prop_assert_eq!(sequence, expected);
                held.push_back((sequence, lines, place));
                while held.len() > most {
                    let (_, _, place) = held.pop_front().unwrap();
                    if let Place::Lines(lines) = place {
                        prop_assert!(lines.begin == incoming.at || lines.begin == 0);
                    }
                    incoming.release_place(place);
                }
            }
        }
    }

    #[test]
    fn credits_for_what_was_never_sent_are_refused() {
        let credits = |frames, data| Credits { frames, data };
        for wrong in [credits(2, 1), credits(1, 3)] {
            let mut out = Producer::new(Layout::new(SMALL));
            assert!(out.is_unconsumed(1));
            out.send(100);
            assert!(out.credit(wrong).is_err());
        }
        let mut out = Producer::new(Layout::new(SMALL));
        out.send(100);
        assert_eq!(out.credit(credits(1, 2)), Ok(()));
        assert!(!out.is_unconsumed(1));
    }
}
