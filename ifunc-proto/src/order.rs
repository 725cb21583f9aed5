//! The reorder buffer, which delivers each frame in its turn and once; and the quantum, which bounds the frames of one poll, so
//! that connections share a thread fairly.

use std::collections::BTreeMap;

use ifunc_abi::frame::{FrameFlags, Header, Kind};

use crate::link::{Body, Frame};

/// Where a sequence number stands relative to the next expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the next one.
    Now,
    /// It is ahead: park the frame.
    Early,
    /// It was processed before: drop the frame.
    Duplicate,
}

/// A frame that arrived ahead of its turn.
#[derive(Debug)]
struct Parked {
    words: [u64; 2],
    body: Vec<u8>,
}

/// The reorder buffer of one direction.
#[derive(Debug)]
pub(crate) struct Order {
    next: u32,
    parked: BTreeMap<u32, Parked>,
    bytes: usize,
}

/// The peer sent further ahead than its credits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFarAhead;

impl Order {
    /// Most parked frames: the largest send window of a transport.
    const MAX_PARKED: usize = 4096;
    /// Most bytes of parked bodies.
    const MAX_BYTES: usize = 64 << 20;

    pub(crate) fn new() -> Self {
        Self::starting_at(1)
    }

    /// An empty reorder buffer whose next expected number is `next`.
    pub(crate) fn starting_at(next: u32) -> Self {
        Self {
            next,
            parked: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// The next expected sequence number.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Number of parked frames, and bytes of their bodies.
    pub(crate) fn parked(&self) -> (usize, usize) {
        (self.parked.len(), self.bytes)
    }

    /// Whether frames are parked.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether the next expected frame is parked.
    #[inline]
    pub(crate) fn is_next_parked(&self) -> bool {
        !self.parked.is_empty() && self.parked.contains_key(&self.next)
    }

    /// Compares a sequence number with the next expected one, by serial-number arithmetic (RFC 1982).
    #[inline]
    pub(crate) fn turn(&self, sequence: u32) -> Turn {
        match sequence.wrapping_sub(self.next) as i32 {
            0 => Turn::Now,
            ahead if ahead > 0 => Turn::Early,
            _ => Turn::Duplicate,
        }
    }

    /// Copies a frame that is ahead of its turn.
    #[cold]
    pub(crate) fn park(&mut self, frame: &Frame<impl Body>) -> Result<(), TooFarAhead> {
        if self.parked.contains_key(&frame.sequence) {
            return Ok(());
        }
        let ahead = frame.sequence.wrapping_sub(self.next) as usize;
        if ahead > Self::MAX_PARKED || self.bytes + frame.body.len() > Self::MAX_BYTES {
            return Err(TooFarAhead);
        }
        let mut body = Vec::new();
        body.try_reserve_exact(frame.body.len())
            .map_err(|_| TooFarAhead)?;
        frame.body.append_to(&mut body);
        self.bytes += body.len();
        let words = frame.words;
        self.parked.insert(frame.sequence, Parked { words, body });
        Ok(())
    }

    /// The next expected frame, if it is parked. It stays parked until [`advance`](Self::advance).
    pub(crate) fn next_parked(&self) -> Option<Frame<&[u8]>> {
        self.parked.get(&self.next).map(|parked| Frame {
            sequence: self.next,
            words: parked.words,
            body: &parked.body[..],
        })
    }

    /// Takes the next expected frame out and advances past it, if it is parked.
    #[cold]
    pub(crate) fn take_parked(&mut self) -> Option<(u32, [u64; 2], Vec<u8>)> {
        let Parked { words, body } = self.parked.remove(&self.next)?;
        self.bytes -= body.len();
        Some((self.advance(), words, body))
    }

    /// Marks the next expected frame as processed and returns its number.
    #[inline]
    pub(crate) fn advance(&mut self) -> u32 {
        let this = self.next;
        self.next = this.wrapping_add(1);
        this
    }

    /// Marks the next `count` frames as processed. None of them is parked.
    pub(crate) fn advance_by(&mut self, count: usize) {
        self.next = self.next.wrapping_add(count as u32);
    }

    /// The last `count` frames that were marked as processed were not.
    pub(crate) fn step_back(&mut self, count: usize) {
        self.next = self.next.wrapping_sub(count as u32);
    }
}

/// Units in one poll: small frames and entries of batches, or [`BYTES`] bytes of bodies.
pub(crate) const UNITS: usize = 64;
/// Bytes of bodies that cost as much as [`UNITS`] small invocations: what a processor copies in that time.
const BYTES: usize = 256 << 10;
/// Bytes of bodies that cost as much as an entry of a run, which shares a crossing of the call gate with others.
const ENTRY: usize = BYTES / MAX_TOGETHER;
/// Most entries of a run that one poll processes.
pub(crate) const MAX_TOGETHER: usize = 1 << 10;
/// Units of an `Install`, however small its image is.
const INSTALL: u32 = 8;
/// Factor by which the invocations of the next poll grow after a poll that used up its quantum.
const GROWTH: u32 = 8;

/// Units of an invocation in a frame of its own. After an idle poll it is dearer: a poll has room for few of them then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Price(u32);

impl Price {
    /// One invocation uses up a poll.
    pub(crate) const WHOLE: Self = Self(UNITS as u32);

    /// The price at which one poll has room for so many small invocations, at most [`UNITS`].
    #[inline]
    pub(crate) fn for_invocations(invocations: usize) -> Self {
        Self((UNITS / invocations.clamp(1, UNITS)) as u32)
    }

    /// So many [`UNITS`], as [`units`](Self::units) returned them.
    pub(crate) const fn of_units(units: u32) -> Self {
        Self(units)
    }

    /// At most [`UNITS`].
    pub(crate) const fn units(self) -> u32 {
        self.0
    }

    /// The price after a poll that used up its quantum.
    #[inline]
    pub(crate) fn next(self) -> Self {
        Self((self.0 / GROWTH).max(1))
    }
}

/// Units of so many bytes of bodies.
#[inline]
fn units_of(bytes: usize) -> u32 {
    (bytes / (BYTES / UNITS)) as u32
}

/// The budget of one poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantum {
    /// Units used. Half a word: two counters of one size would be added in a vector, which takes longer.
    used: u32,
    /// Frames and entries of batches processed.
    pub(crate) processed: usize,
    price: Price,
}

impl Quantum {
    #[inline]
    pub(crate) fn new(price: Price) -> Self {
        Self {
            used: 0,
            processed: 0,
            price,
        }
    }

    /// Charges an entry of a batch, or a small frame.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charge_units(1, bytes);
    }

    /// Charges entries of a run, each of `bytes` bytes.
    pub(crate) fn charge_entries(&mut self, count: u32, bytes: usize) {
        let cost = (count as usize).saturating_mul(bytes.max(ENTRY));
        self.used = self.used.saturating_add(cost.div_ceil(BYTES / UNITS) as u32);
        self.processed += count as usize;
    }

    /// How many entries of a run the poll may process, each of `bytes` bytes: at least one.
    pub(crate) fn entries_left(&self, bytes: usize) -> u32 {
        let left = UNITS.saturating_sub(self.used as usize) * (BYTES / UNITS);
        (left / bytes.max(ENTRY)).max(1) as u32
    }

    /// Ends the poll after what it processes now.
    pub(crate) fn exhaust(&mut self) {
        self.used = self.used.max(UNITS as u32);
    }

    /// Charges an invocation that came in a frame of its own.
    #[inline]
    pub(crate) fn charge_invocation(&mut self, bytes: usize) {
        self.charge_units(self.price.0, bytes);
    }

    /// Charges `count` invocations that came in frames of their own, each of `bytes` bytes.
    pub(crate) fn charge_invocations(&mut self, count: usize, bytes: usize) {
        self.used += count as u32 * (self.price.0 + units_of(bytes));
        self.processed += count;
    }

    /// Whether the poll may process so many small invocations that come in frames of their own.
    #[inline]
    pub(crate) fn admits_invocations(&self, count: usize) -> bool {
        self.used + count as u32 * self.price.0 <= UNITS as u32
    }

    /// How many invocations in frames of their own the poll may process, each of `bytes` bytes. The last one may exceed the quantum.
    pub(crate) fn invocations_left(&self, bytes: usize) -> usize {
        let left = (UNITS as u32).saturating_sub(self.used);
        left.div_ceil(self.price.0 + units_of(bytes)) as usize
    }

    #[inline]
    fn charge_units(&mut self, units: u32, bytes: usize) {
        self.used += units + units_of(bytes);
        self.processed += 1;
    }

    /// Charges any other request. `assembled` is the number of bytes that came in fragments before.
    #[cold]
    pub(crate) fn charge_request(&mut self, header: Header, bytes: usize, assembled: usize) {
        self.charge(bytes);
        match header.kind {
            Kind::Install => {
                self.used += INSTALL - 1;
                if header.flags.contains(FrameFlags::ASSEMBLED) {
                    // The whole image is hashed, validated and copied.
                    self.used += units_of(assembled);
                }
            }
            // A page of statistics sums the counters of all sources.
            Kind::Stats => self.used += UNITS as u32 - 1,
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used >= UNITS as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(sequence: u32, body: &[u8]) -> Frame<&[u8]> {
        Frame {
            sequence,
            words: [0, u64::from(sequence)],
            body,
        }
    }

    /// Delivers the frames `first + order[i]` and returns the numbers in the order in which they were processed.
    fn deliver(first: u32, order: &[u32]) -> (Vec<u32>, Order) {
        let mut window = Order::new();
        window.next = first;
        let mut processed = Vec::new();
        for &offset in order {
            let arrived = frame(first.wrapping_add(offset), b"x");
            match window.turn(arrived.sequence) {
                Turn::Now => {
                    processed.push(arrived.sequence);
                    window.advance();
                }
                Turn::Early => window.park(&arrived).unwrap(),
                Turn::Duplicate => {}
            }
            while let Some((sequence, words, _)) = window.take_parked() {
                assert_eq!(words[1], u64::from(sequence));
                processed.push(sequence);
            }
        }
        (processed, window)
    }

    proptest! {
        #[test]
        fn any_order_with_duplicates_comes_out_in_order_and_once(
            count in 1u32..40,
            first in prop_oneof![Just(1u32), any::<u32>(), (u32::MAX - 40)..=u32::MAX],
            seed in proptest::collection::vec(any::<u32>(), 0..200),
        ) {
            // Every number once, and as many duplicates as the seed has, in an order that the seed shuffles.
            let mut order: Vec<u32> = (0..count).chain(seed.iter().map(|n| n % count)).collect();
            for (i, n) in seed.iter().enumerate() {
                let len = order.len();
                order.swap(i % len, *n as usize % len);
            }
            let (processed, window) = deliver(first, &order);
            let expected: Vec<u32> = (0..count).map(|i| first.wrapping_add(i)).collect();
            prop_assert_eq!(processed, expected);
            prop_assert_eq!(window.bytes, 0);
        }
    }

    #[test]
    fn a_poll_processes_more_entries_of_a_run_than_frames() {
        for (bytes, most) in [
            (0, 1024),
            (8, 1024),
            (256, 1024),
            (512, 512),
            (4096, 64),
            (1 << 20, 1),
        ] {
            let mut quantum = Quantum::new(Price::for_invocations(UNITS));
            assert_eq!(quantum.entries_left(bytes), most);
            quantum.charge_entries(most, bytes);
            assert!(quantum.is_exhausted());
            assert_eq!(quantum.processed, most as usize);
            assert_eq!(quantum.entries_left(bytes), 1);
        }
        let mut quantum = Quantum::new(Price::for_invocations(UNITS));
        // However short a run is, it costs as much as a frame.
        (0..UNITS).for_each(|_| quantum.charge_entries(1, 8));
        assert!(quantum.is_exhausted());
    }

    #[test]
    fn parks_no_more_than_credits() {
        let mut order = Order::new();
        assert_eq!(order.park(&frame(5000, b"")), Err(TooFarAhead));
        assert_eq!(order.park(&frame(0x8000_0000, b"")), Err(TooFarAhead));
        assert_eq!(order.park(&frame(4098, b"")), Err(TooFarAhead));
        assert_eq!(order.park(&frame(4097, b"")), Ok(()));
        assert_eq!(order.parked(), (1, 0));
    }

    #[test]
    fn parks_no_more_bytes_than_the_limit_and_counts_a_frame_once() {
        let mut order = Order::new();
        assert!(!order.has_parked() && order.next_parked().is_none() && order.take_parked().is_none());
        order.bytes = Order::MAX_BYTES - 5;
        assert_eq!(order.park(&frame(2, b"abcdef")), Err(TooFarAhead));
        assert!(!order.has_parked());
        assert_eq!(order.park(&frame(2, b"abcde")), Ok(()));
        assert_eq!(order.parked(), (1, Order::MAX_BYTES));
        assert_eq!(order.park(&frame(3, b"x")), Err(TooFarAhead));
        // One that is parked already is no other frame, and keeps its first body.
        assert_eq!(order.park(&frame(2, b"other")), Ok(()));
        assert_eq!(order.parked(), (1, Order::MAX_BYTES));
        assert!(order.has_parked() && !order.is_next_parked());
        assert_eq!(order.advance(), 1);
        assert!(order.is_next_parked());
        let next = order.next_parked().unwrap();
        assert_eq!((next.sequence, next.words, next.body), (2, [0, 2], &b"abcde"[..]));
        assert_eq!(order.take_parked(), Some((2, [0, 2], b"abcde".to_vec())));
        assert_eq!((order.next(), order.parked()), (3, (0, Order::MAX_BYTES - 5)));
    }

    #[test]
    fn turns_compare_by_serial_numbers() {
        for next in [0, 1, 7, 1 << 31, u32::MAX] {
            let order = Order::starting_at(next);
            let turns = [0, 1, i32::MAX as u32, 1 << 31, u32::MAX].map(|n| order.turn(next.wrapping_add(n)));
            let expected = [
                Turn::Now,
                Turn::Early,
                Turn::Early,
                Turn::Duplicate,
                Turn::Duplicate,
            ];
            assert_eq!(turns, expected, "{next}");
        }
    }

    /// What one charge takes: units, and frames or entries.
    fn cost(price: usize, charge: impl FnOnce(&mut Quantum)) -> (u32, usize) {
        let mut quantum = Quantum::new(Price::for_invocations(price));
        charge(&mut quantum);
        assert_eq!(quantum.is_exhausted(), quantum.used >= 64);
        (quantum.used, quantum.processed)
    }

    #[test]
    fn everything_has_its_price() {
        let prices = [0, 1, 2, 3, 16, 63, 64, 65, usize::MAX].map(|most| Price::for_invocations(most).0);
        assert_eq!(prices, [64, 64, 32, 21, 4, 1, 1, 1, 1]);
        let falling = [64, 21, 16, 7, 4, 3, 1].map(|price| Price(price).next().0);
        assert_eq!(falling, [8, 2, 2, 1, 1, 1, 1]);

        // 4 KiB are a unit.
        for (bytes, units) in [(0, 0), (4095, 0), (4096, 1), (8191, 1), (8192, 2), (1 << 20, 256)] {
            assert_eq!(cost(64, |quantum| quantum.charge(bytes)), (1 + units, 1));
            assert_eq!(
                cost(4, |quantum| quantum.charge_invocation(bytes)),
                (16 + units, 1)
            );
            let request = |kind, flags, assembled| {
                let header = Header {
                    flags,
                    ..Header::new(kind, 0, 0)
                };
                cost(64, |quantum| quantum.charge_request(header, bytes, assembled))
            };
            let (whole, last) = (FrameFlags::NONE, FrameFlags::ASSEMBLED);
            assert_eq!(request(Kind::Sync, whole, 9000), (1 + units, 1));
            assert_eq!(request(Kind::Install, whole, 9000), (8 + units, 1));
            assert_eq!(request(Kind::Install, last, 9000), (8 + units + 2, 1));
            assert_eq!(request(Kind::Stats, whole, 9000), (64 + units, 1));
        }
        // An entry of a run costs as 256 bytes do, or what its own do.
        for (count, bytes, units) in [
            (1, 0, 1),
            (16, 256, 1),
            (17, 256, 2),
            (16, 257, 2),
            (2, 5000, 3),
            (1024, 8, 64),
        ] {
            let charged = cost(64, |quantum| quantum.charge_entries(count, bytes));
            assert_eq!(charged, (units, count as usize), "{count} of {bytes} bytes");
        }
        assert_eq!(cost(64, Quantum::exhaust), (64, 0));
        assert_eq!(
            cost(64, |quantum| {
                quantum.charge(1 << 20);
                quantum.exhaust();
            }),
            (257, 1)
        );
        for (used, left) in [(0, 1024), (1, 1008), (62, 32), (63, 16), (64, 1), (300, 1)] {
            let mut quantum = Quantum::new(Price::for_invocations(64));
            quantum.used = used;
            assert_eq!(quantum.is_exhausted(), used >= 64);
            assert_eq!(quantum.entries_left(0), left, "{used}");
        }
        // A sum above all numbers stays exhausted.
        let mut quantum = Quantum::new(Price::for_invocations(64));
        quantum.used = u32::MAX - 1;
        quantum.charge_entries(u32::MAX, 1 << 20);
        assert!(quantum.is_exhausted());
    }
}
