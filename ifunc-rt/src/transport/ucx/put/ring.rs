//! Where frames lie in a ring, by the count of both sides.
//!
//! A frame has one line for its header, whose last [`WORDS`](ifunc_abi::frame::WORDS) bytes are the three words; the body begins in the next line, or, if it
//! is at most [`INLINE`] bytes, at the beginning of the same. A body that does not fit behind its header before the ring ends begins
//! at the ring's beginning, and the lines between are left out: they count as taken. Nothing of this is said anywhere: both
//! sides compute it from the length.

use ifunc_abi::frame::{BODY_ALIGN, INLINE};

use super::layout::{Layout, View};
use crate::transport::ucx::credits::{UnderWay, units};
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};

/// Offset of the words in a header's line.
pub(crate) const HEADER_AT: usize = INLINE;

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The header's line.
    pub(crate) head: u32,
    /// The line that the body begins in: the header's own if it is inline.
    pub(crate) body: u32,
    /// Lines taken, those left out among them.
    pub(crate) taken: u32,
    /// The line of the next header.
    next: u32,
}

impl Place {
    /// The place of a body of `len` bytes whose header lies in line `at` of `lines`.
    fn new(at: u32, lines: u32, len: usize) -> Self {
        let behind = at + 1;
        if len <= INLINE {
            return Self {
                head: at,
                body: at,
                taken: 1,
                next: behind % lines,
            };
        }
        let units = units(len) as u32;
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
    pub(crate) fn is_whole(&self) -> bool {
        self.body == self.head || self.body == self.head + 1
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
        let taken = Place::new(self.at, self.layout.lines(), len).taken;
        under_way.left(&self.window).covers(taken.into())
    }

    /// Takes the credits that the peer published.
    pub(crate) fn credit(&mut self, credits: Credits) -> Result<(), &'static str> {
        self.window
            .acknowledge_low(credits.frames as u32, credits.data as u32)
    }

    /// A frame is put; its number and place.
    pub(crate) fn send(&mut self, len: usize) -> (u32, Place) {
        let place = Place::new(self.at, self.layout.lines(), len);
        self.at = place.next;
        (self.window.send(place.taken.into()), place)
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
    pub(crate) fn poll(&self, view: &View) -> Result<Option<Landed>, &'static str> {
        let sequence = self.expected();
        if !view.has_landed(sequence) {
            return Ok(None);
        }
        let [first, second, third] = view.header(self.at, HEADER_AT);
        let (stated, len) = ifunc_abi::frame::split_commit_word(first);
        if stated != sequence {
            return Err("a frame of another number than was committed");
        }
        let len = len as usize;
        if len > self.layout.size().max_body() {
            return Err("a body larger than a frame can have");
        }
        Ok(Some(Landed {
            sequence,
            words: [second, third],
            len,
            place: Place::new(self.at, self.layout.lines(), len),
        }))
    }

    /// Releases the frame that `poll` found. `true`: publish the credits.
    pub(crate) fn release(&mut self, place: Place) -> bool {
        self.at = place.next;
        self.window.release(place.taken.into())
    }

    /// Credits to publish; `None`: the peer knows them.
    pub(crate) fn publish(&mut self) -> Option<Credits> {
        self.window.publish()
    }
}

/// Bytes of the put that carries a header and, if they lie together, the body behind it: of a packet whose first line is the
/// header's and whose body begins in the second.
pub(crate) fn record(place: Place, len: usize) -> std::ops::Range<usize> {
    if place.body == place.head {
        0..BODY_ALIGN
    } else if place.is_whole() {
        HEADER_AT..BODY_ALIGN + len
    } else {
        HEADER_AT..BODY_ALIGN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::RingSize;

    const SMALL: RingSize = RingSize {
        slots: 2,
        data: RingSize::MIN_DATA,
    };

    fn lines_of(place: Place, len: usize) -> Vec<u32> {
        let body = if len <= INLINE { 0 } else { units(len) as u32 };
        std::iter::once(place.head)
            .chain(place.body..place.body + body)
            .collect()
    }

    #[test]
    fn the_largest_body_fits_wherever_its_header_lies_once_the_ring_is_free() {
        let layout = Layout::new(SMALL);
        for at in 0..layout.lines() {
            let place = Place::new(at, layout.lines(), SMALL.max_body());
            assert!(place.taken <= layout.lines(), "{at}: {place:?}");
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
            (3, 0, true),
            (3, INLINE + 1, true),
            (lines - 2, 64, true),
            (lines - 2, 65, false),
        ] {
            let place = Place::new(at, lines, len);
            assert_eq!(place.is_whole(), is_whole, "{place:?}");
        }
    }

    #[test]
    fn a_shorter_body_takes_no_more_lines() {
        let lines = Layout::new(SMALL).lines();
        for at in 0..lines {
            let taken = (0..=SMALL.max_body())
                .step_by(8)
                .map(|len| Place::new(at, lines, len).taken);
            assert!(taken.is_sorted(), "at line {at}");
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
                    prop_assert_eq!(place.head, incoming.at);
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
