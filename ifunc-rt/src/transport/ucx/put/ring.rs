//! Where frames lie, by the count of both sides.
//!
//! A frame with a body of at most [`SHORT`] bytes lies in its slot, as a whole. Another one lies in a ring of lines: one line for its
//! header, whose last [`WORDS`] bytes are the three words, and the body from the next line on. A body that does not fit
//! behind its header before the ring ends begins at the ring's beginning, and the lines between are left out: they count as taken.
//! No message says where a frame lies: both sides compute it from the length.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use ifunc_abi::frame::{BODY_ALIGN, WORDS};

use super::layout::{FrameForm, Layout, SHORT, View};
use crate::transport::ucx::credits::{UnderWay, units};
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};

/// Offset of the words in a header's line.
pub(crate) const HEADER_AT: usize = BODY_ALIGN - WORDS;

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In its slot.
    Slot,
    /// In the ring.
    Lines(Lines),
}

/// Lines of the ring that a frame takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The header's line.
    pub(crate) head: u32,
    /// The line that the body begins in.
    pub(crate) body: u32,
    /// Lines taken, those left out among them.
    taken: u32,
    /// The line of the next header.
    next: u32,
}

impl Place {
    /// The place of a body of `len` bytes whose header, unless it is short, lies in line `at` of `lines`.
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

    /// The line of the next header, where this one's would lie in line `at`.
    fn next(&self, at: u32) -> u32 {
        match self {
            Self::Slot => at,
            Self::Lines(lines) => lines.next,
        }
    }
}

impl Lines {
    fn new(at: u32, lines: u32, len: usize) -> Self {
        let (behind, units) = (at + 1, units(len) as u32);
        let (body, left_out) = if units <= lines - behind {
            (behind, 0)
        } else {
            (0, lines - behind)
        };
        Self {
            head: at,
            body,
            taken: 1 + left_out + units,
            next: (body + units) % lines,
        }
    }

    /// Whether header and body lie together.
    pub(crate) fn are_whole(&self) -> bool {
        self.body == self.head + 1
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
}

impl Consumer {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            at: 0,
            window: ReceiveWindow::new(layout.capacity()),
        }
    }

    /// The number of the next frame.
    pub(crate) fn expected(&self) -> u32 {
        (self.window.released().frames as u32).wrapping_add(1)
    }

    /// The next frame, if it has landed: its words are read once, and validated.
    pub(crate) fn poll<M: Deref<Target: AsRef<[AtomicU64]>>>(
        &self,
        view: &View<M>,
    ) -> Result<Option<Landed>, &'static str> {
        let sequence = self.expected();
        let Some(form) = view.landed(sequence) else {
            return Ok(None);
        };
        let slot = self.layout.slot(sequence);
        let header = match form {
            FrameForm::Short => slot + SHORT,
            FrameForm::Long => self.layout.line(self.at) + HEADER_AT,
        };
        let [first, second, third] = view.header(header);
        let (stated, len) = ifunc_abi::frame::split_commit_word(first);
        if stated != sequence {
            return Err("a frame of another number than was committed");
        }
        let len = len as usize;
        let place = Place::new(self.at, self.layout.lines(), len);
        let body = match (form, place) {
            (FrameForm::Short, Place::Slot) => slot,
            (FrameForm::Long, Place::Lines(lines)) if len <= self.layout.size().max_body() => {
                self.layout.line(lines.body)
            }
            (FrameForm::Long, Place::Lines(_)) => return Err("a body larger than a frame can have"),
            _ => return Err("a body that does not lie where its length says"),
        };
        Ok(Some(Landed {
            sequence,
            words: [second, third],
            len,
            body,
            place,
        }))
    }

    /// Releases the frame that `poll` found. `true`: publish the credits.
    pub(crate) fn release(&mut self, place: Place) -> bool {
        self.at = place.next(self.at);
        self.window.release(place.taken())
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

    use super::super::layout::commit_word;
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
        std::iter::once(lines.head)
            .chain(lines.body..lines.body + units(len) as u32)
            .collect()
    }

    #[test]
    fn the_largest_body_fits_wherever_its_header_lies_once_the_ring_is_free() {
        let layout = Layout::new(SMALL);
        for at in 0..layout.lines() {
            let place = Place::new(at, layout.lines(), SMALL.max_body());
            assert!(place.taken() <= layout.lines().into(), "{at}: {place:?}");
            let mut lines = lines_of(place, SMALL.max_body());
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len() as u32, 1 + units(SMALL.max_body()) as u32);
            assert!(lines.iter().all(|&line| line < layout.lines()));
        }
    }

    #[test]
    fn header_and_body_lie_together_unless_the_body_begins_the_ring_again() {
        let lines = Layout::new(SMALL).lines();
        for (at, len, is_whole) in [
            (3, SHORT + 1, true),
            (lines - 2, 64, true),
            (lines - 2, 65, false),
        ] {
            let place = Lines::new(at, lines, len);
            assert_eq!(place.are_whole(), is_whole, "{place:?}");
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

    /// What the consumer says of a first frame whose commit word is of this form, and whose header is where that says.
    fn polled(form: FrameForm, stated: u32, len: usize) -> Result<Option<Landed>, &'static str> {
        let layout = Layout::new(SMALL);
        let memory: Vec<_> = (0..layout.len() / 8).map(|_| AtomicU64::new(0)).collect();
        let header = match form {
            FrameForm::Short => layout.slot(1) + SHORT,
            FrameForm::Long => layout.line(0) + HEADER_AT,
        };
        let words = [first_word(stated, len as u32), 5, 6];
        for (at, word) in (header..).step_by(8).zip(words) {
            memory[at / 8].store(word, Ordering::Relaxed);
        }
        memory[layout.commit(1) / 8].store(commit_word(7, 1, form), Ordering::Relaxed);
        Consumer::new(layout).poll(&View::new(Arc::new(memory), layout, 7))
    }

    #[test]
    fn a_body_lies_where_its_length_says_and_nowhere_else() {
        let layout = Layout::new(SMALL);
        let [slot, line] = [layout.slot(1), layout.line(1)];
        for (form, len, body) in [
            (FrameForm::Short, 0, Some(slot)),
            (FrameForm::Short, SHORT, Some(slot)),
            (FrameForm::Short, SHORT + 1, None),
            (FrameForm::Long, SHORT, None),
            (FrameForm::Long, SHORT + 1, Some(line)),
            (FrameForm::Long, SMALL.max_body(), Some(line)),
            (FrameForm::Long, SMALL.max_body() + 1, None),
            (FrameForm::Long, u32::MAX as usize, None),
        ] {
            let landed = polled(form, 1, len);
            assert_eq!(
                landed.ok().flatten().map(|landed| landed.body),
                body,
                "{form:?}, {len}"
            );
            assert!(polled(form, 2, len).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

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
                    if incoming.release(place) {
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
                        prop_assert_eq!(lines.head, incoming.at);
                    }
                    incoming.release(place);
                }
            }
        }
    }

    #[test]
    fn credits_for_what_was_never_sent_are_refused() {
        let credits = |frames, data| Credits { frames, data };
        for wrong in [credits(2, 1), credits(1, 4)] {
            let mut out = Producer::new(Layout::new(SMALL));
            assert!(out.is_unconsumed(1));
            out.send(100);
            assert!(out.credit(wrong).is_err());
        }
        let mut out = Producer::new(Layout::new(SMALL));
        out.send(100);
        assert_eq!(out.credit(credits(1, 3)), Ok(()));
        assert!(!out.is_unconsumed(1));
    }
}
