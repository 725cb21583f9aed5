//! Order and at-most-once: whatever order a transport delivers in, frames are looked at by sequence, each once.

use ifunc_proto::link::Body as _;
use std::collections::BTreeMap;

use crate::transport::{Body, Frame};

/// What to do with a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the next one.
    Now,
    /// It comes later: park it.
    Later,
    /// It was looked at before: drop it.
    Past,
}

/// A frame whose turn has not come.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) words: [u64; 2],
    pub(crate) body: Vec<u8>,
}

impl Parked {
    /// The frame as it would have arrived.
    pub(crate) fn arrived(&self, sequence: u32) -> Frame<Body<'_>> {
        let body = Body::from(&*self.body);
        Frame {
            sequence,
            words: self.words,
            body,
        }
    }
}

/// The order of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Order {
    next: u32,
    parked: BTreeMap<u32, Parked>,
    bytes: usize,
}

/// More frames ahead of their turn than a peer that keeps to its credits can have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFarAhead;

impl Order {
    /// Most frames that wait for their turn: the largest number of credits that a transport gives.
    const MAX_PARKED: usize = 4096;
    /// Most bytes that wait for their turn.
    const MAX_BYTES: usize = 64 << 20;

    pub(crate) fn new() -> Self {
        Self {
            next: 1,
            parked: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// The sequence number whose turn it is.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Whether frames wait for their turn.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Judges a sequence number.
    #[inline]
    pub(crate) fn turn(&self, sequence: u32) -> Turn {
        // Serial-number arithmetic: half of the numbers are ahead, half behind.
        match sequence.wrapping_sub(self.next) as i32 {
            0 => Turn::Now,
            ahead if ahead > 0 => Turn::Later,
            _ => Turn::Past,
        }
    }

    /// Keeps a copy of a frame until its turn.
    pub(crate) fn park(&mut self, frame: &Frame<Body<'_>>) -> Result<(), TooFarAhead> {
        if self.parked.contains_key(&frame.sequence) {
            return Ok(());
        }
        let ahead = frame.sequence.wrapping_sub(self.next) as usize;
        if ahead > Self::MAX_PARKED || self.bytes + frame.body.len() > Self::MAX_BYTES {
            return Err(TooFarAhead);
        }
        let mut body = Vec::new();
        frame.body.append_to(&mut body);
        self.bytes += body.len();
        self.parked.insert(
            frame.sequence,
            Parked {
                words: frame.words,
                body,
            },
        );
        Ok(())
    }

    /// The parked frame whose turn it is, if it is parked.
    #[inline]
    pub(crate) fn parked(&self) -> Option<&Parked> {
        if self.parked.is_empty() {
            return None;
        }
        self.parked.get(&self.next)
    }

    /// Takes it. It must be [`advance`](Self::advance)d over.
    pub(crate) fn take_next(&mut self) -> Option<Parked> {
        if self.parked.is_empty() {
            return None;
        }
        self.unpark_next()
    }

    #[cold]
    fn unpark_next(&mut self) -> Option<Parked> {
        let parked = self.parked.remove(&self.next)?;
        self.bytes -= parked.body.len();
        Some(parked)
    }

    /// The frame whose turn it is has been dealt with, or is about to be. Returns its number.
    #[inline]
    pub(crate) fn advance(&mut self) -> u32 {
        let this = self.next;
        self.next = this.wrapping_add(1);
        this
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u32, body: &[u8]) -> Frame<Body<'_>> {
        let body = Body::from(body);
        Frame {
            sequence,
            words: [0, u64::from(sequence)],
            body,
        }
    }

    #[test]
    fn any_order_comes_out_in_order_and_once() {
        let mut order = Order::new();
        // Begins close to the wrap, so that it is crossed.
        order.next = u32::MAX - 2;
        let sequences: Vec<u32> = (0..8).map(|i| (u32::MAX - 2).wrapping_add(i)).collect();
        let mut seen = Vec::new();
        for &i in &[3, 1, 0, 0, 2, 7, 5, 6, 4, 4, 1] {
            let arrived = frame(sequences[i], b"x");
            match order.turn(arrived.sequence) {
                Turn::Now => {
                    seen.push(arrived.sequence);
                    order.advance();
                }
                Turn::Later => order.park(&arrived).unwrap(),
                Turn::Past => {}
            }
            while let Some(parked) = order.take_next() {
                assert_eq!(parked.words[1], u64::from(order.next()));
                seen.push(order.next());
                order.advance();
            }
        }
        assert_eq!(seen, sequences);
        assert_eq!(order.bytes, 0);
    }

    #[test]
    fn parks_no_more_than_credits() {
        let mut order = Order::new();
        assert_eq!(order.park(&frame(5000, b"")), Err(TooFarAhead));
        assert_eq!(order.park(&frame(0x8000_0000, b"")), Err(TooFarAhead));
        assert_eq!(order.park(&frame(4097, b"")), Ok(()));
    }
}
