//! The frames of a connection: what has arrived of the stream, and the credits of both directions.

use std::collections::VecDeque;

use ifunc_abi::frame::BODY_ALIGN;

use super::wire::{HEAD, Head, Released, units};
use crate::transport::RingSize;
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};

/// A line of memory for bodies.
#[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct Line([u8; BODY_ALIGN]);

/// Memory for a body, at a multiple of [`BODY_ALIGN`].
#[derive(Debug, Default)]
pub(super) struct Packet {
    lines: Vec<Line>,
    len: usize,
}

impl Packet {
    /// Memory for `capacity` bytes, of which none is there yet. `None`: the process has no memory.
    fn with_capacity(capacity: usize) -> Option<Self> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(capacity.div_ceil(BODY_ALIGN)).ok()?;
        Some(Self { lines, len: 0 })
    }

    /// Appends bytes. Memory is touched when it is filled.
    fn append(&mut self, bytes: &[u8]) {
        let to = self.len + bytes.len();
        self.resize(to);
        self.bytes_mut()[to - bytes.len()..].copy_from_slice(bytes);
    }

    /// Makes it `len` bytes long.
    pub(super) fn resize(&mut self, len: usize) {
        self.lines.resize(len.div_ceil(BODY_ALIGN), Line([0; BODY_ALIGN]));
        self.len = len;
    }

    /// How many bytes it has memory for.
    pub(super) fn capacity(&self) -> usize {
        self.lines.capacity() * BODY_ALIGN
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let bytes = zerocopy::IntoBytes::as_bytes(self.lines.as_slice());
        &bytes[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = zerocopy::IntoBytes::as_mut_bytes(self.lines.as_mut_slice());
        &mut bytes[..self.len]
    }
}

/// A frame that has arrived whole.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) head: Head,
    pub(super) body: Packet,
}

/// What of the stream has arrived, and the windows of both directions.
pub(super) struct Flow {
    /// The begun head, and how many bytes of it are there.
    head: ([u8; HEAD], usize),
    /// The begun frame, whose head is there.
    begun: Option<Arrived>,
    arrived: VecDeque<Arrived>,
    max_body: usize,
    outgoing: SendWindow,
    incoming: ReceiveWindow,
    received: Credits,
    /// Frames whose credits were published.
    published: u64,
    /// Credits are to be published as soon as the socket takes them.
    is_due: bool,
}

impl Flow {
    /// Of a new connection, by the sizes of what this side receives in and sends into.
    pub(super) fn new(incoming: RingSize, outgoing: RingSize) -> Self {
        Self {
            head: ([0; HEAD], 0),
            begun: None,
            arrived: VecDeque::new(),
            max_body: incoming.max_body(),
            outgoing: SendWindow::new(Credits::of(outgoing, BODY_ALIGN)),
            incoming: ReceiveWindow::new(Credits::of(incoming, BODY_ALIGN)),
            received: Credits::default(),
            published: 0,
            is_due: false,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// They are not what a peer that follows the protocol sends.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() || self.begun.as_ref().is_some_and(Arrived::is_whole) {
            if let Some(begun) = &mut self.begun {
                let missing = begun.head.len as usize - begun.body.len;
                let (next, rest) = bytes.split_at(missing.min(bytes.len()));
                begun.body.append(next);
                bytes = rest;
                if begun.is_whole() {
                    self.arrived.extend(self.begun.take());
                }
                continue;
            }
            let (head, len) = &mut self.head;
            let (next, rest) = bytes.split_at((HEAD - *len).min(bytes.len()));
            head[*len..*len + next.len()].copy_from_slice(next);
            *len += next.len();
            bytes = rest;
            if *len == HEAD {
                *len = 0;
                let head = Head::decode(head);
                self.begin(head)?;
            }
        }
        Ok(())
    }

    /// Takes a head.
    fn begin(&mut self, head: Head) -> Result<(), &'static str> {
        let is_frame = head.is_frame().ok_or("a head of no known form")?;
        let Released { frames, data } = head.released;
        self.outgoing.acknowledge_low(frames, data)?;
        if !is_frame {
            return Ok(());
        }
        let len = head.len as usize;
        self.received.frames += 1;
        self.received.data += units(len);
        if head.sequence != self.received.frames as u32 {
            return Err("a frame out of order");
        }
        if len > self.max_body || !self.incoming.admits(self.received) {
            return Err("more than it has credits for");
        }
        let body = Packet::with_capacity(len).ok_or("a body for which this process has no memory")?;
        self.begun = Some(Arrived { head, body });
        Ok(())
    }

    /// Whether a frame has arrived.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Frames that have arrived, and credits to send: what a thread that waits may wait for.
    pub(super) fn progress(&self) -> (usize, Credits) {
        (self.arrived.len(), self.outgoing.left())
    }

    /// The next frame that has arrived.
    pub(super) fn next(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// Drops what has arrived.
    pub(super) fn discard(&mut self) {
        self.arrived = VecDeque::new();
        self.begun = None;
    }

    /// Counts a frame as released.
    pub(super) fn release(&mut self, body: &Packet) {
        self.is_due |= self.incoming.release(units(body.len));
    }

    /// No more frames have arrived: credits are to be published. A single one waits for a frame that carries it.
    pub(super) fn settle(&mut self) {
        self.is_due |= self.incoming.released().frames - self.published > 1;
    }

    /// The head of credits to be sent now, if there are any.
    pub(super) fn due(&mut self) -> Option<Head> {
        self.is_due.then(|| Head::credits(self.publish()))
    }

    /// The credits, which are published by this.
    fn publish(&mut self) -> Released {
        self.is_due = false;
        self.incoming.publish();
        self.published = self.incoming.released().frames;
        self.incoming.released().into()
    }

    /// Whether there is credit for a body of so many bytes.
    pub(super) fn has_credit(&self, len: usize) -> bool {
        self.outgoing.has_credit(units(len))
    }

    /// Counts a frame as sent. Returns its head.
    pub(super) fn send(&mut self, words: [u64; 2], len: usize) -> Head {
        Head {
            sequence: self.outgoing.send(units(len)),
            len: len as u32,
            words,
            released: self.publish(),
        }
    }

    pub(super) fn is_unconsumed(&self, sequence: u32) -> bool {
        self.outgoing.is_unconsumed(sequence)
    }
}

impl Arrived {
    fn is_whole(&self) -> bool {
        self.body.len == self.head.len as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: RingSize = RingSize {
        slots: 4,
        data: RingSize::MIN_DATA,
    };

    fn pair() -> (Flow, Flow) {
        (Flow::new(SMALL, SMALL), Flow::new(SMALL, SMALL))
    }

    fn frame(from: &mut Flow, body: &[u8]) -> Vec<u8> {
        [&from.send([1, 2], body.len()).encode()[..], body].concat()
    }

    #[test]
    fn a_stream_in_pieces_of_any_size_is_the_same_frames() {
        for piece in [1, 7, 31, 32, 33, 100, 1000] {
            let (mut near, mut far) = pair();
            let bodies = [0, 1, 64, 900].map(|len| vec![len as u8; len]);
            let stream: Vec<u8> = bodies.iter().flat_map(|body| frame(&mut near, body)).collect();
            assert!(!near.has_credit(0));
            stream.chunks(piece).for_each(|piece| far.take(piece).unwrap());
            for (number, body) in (1..).zip(&bodies) {
                let arrived = far.next().unwrap();
                assert_eq!((arrived.head.sequence, arrived.body.bytes()), (number, &body[..]));
                assert!(arrived.body.bytes().as_ptr().addr().is_multiple_of(BODY_ALIGN));
                far.release(&arrived.body);
                let credits = far.due().expect("a quarter of the frames");
                near.take(&credits.encode()).unwrap();
                assert!(near.has_credit(900) && far.due().is_none());
            }
            assert!(far.next().is_none());
        }
    }

    #[test]
    fn credits_wait_until_there_are_several_or_a_frame_carries_them() {
        let size = RingSize {
            slots: 64,
            data: RingSize::MIN_DATA,
        };
        let (mut near, mut far) = (Flow::new(size, size), Flow::new(size, size));
        for round in 1..=3 {
            for (count, is_due) in [(1, false), (2, true)] {
                far.take(&frame(&mut near, b"x")).unwrap();
                let arrived = far.next().unwrap();
                assert!(near.is_unconsumed(arrived.head.sequence));
                far.release(&arrived.body);
                far.settle();
                let due = far.due();
                assert_eq!(due.is_some(), is_due, "{round} {count}");
                if let Some(credits) = due {
                    assert_eq!(credits.released.frames, 2 * round);
                    near.take(&credits.encode()).unwrap();
                    assert!(!near.is_unconsumed(2 * round));
                }
            }
        }
        far.take(&frame(&mut near, b"x")).unwrap();
        far.take(&frame(&mut near, b"a begun one")[..HEAD + 1]).unwrap();
        assert!(far.has_arrived() && far.begun.is_some());
        far.discard();
        assert!(!far.has_arrived() && far.next().is_none() && far.begun.is_none());
    }

    #[test]
    fn a_packet_has_memory_for_what_was_stated() {
        let packet = Packet::with_capacity(100).unwrap();
        assert!(packet.capacity() >= 100 && packet.capacity().is_multiple_of(BODY_ALIGN));
        assert_eq!((packet.bytes(), Packet::default().capacity()), (&[][..], 0));
    }

    #[test]
    fn what_exceeds_the_window_is_refused_before_memory_is_taken_for_it() {
        let (mut near, mut far) = pair();
        for _ in 0..4 {
            far.take(&frame(&mut near, b"x")).unwrap();
        }
        assert!(far.take(&frame(&mut near, b"x")).is_err(), "a fifth frame");
        let (_, mut far) = pair();
        let mut long = Head::credits(Released { frames: 0, data: 0 });
        (long.sequence, long.len, long.words[0]) = (1, SMALL.data / 2 + 1, 1);
        assert!(
            far.take(&long.encode()).is_err(),
            "a body of more than half of the data"
        );
        assert_eq!(far.received.frames, 1);
        assert!(far.begun.is_none());
        let (_, mut far) = pair();
        long.len = SMALL.data / 2;
        far.take(&long.encode()).unwrap();
        let begun = far.begun.unwrap();
        assert_eq!(
            (begun.body.lines.len(), begun.body.len),
            (0, 0),
            "nothing is touched"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), opened in any::<bool>()) {
            let (mut near, mut far) = pair();
            if opened {
                far.take(&frame(&mut near, b"body")[..20]).unwrap();
            }
            let _ = far.take(&bytes);
            prop_assert!(far.arrived.len() <= 4);
        }
    }
}
