//! Delivery out of order.

use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::link::Body as _;

use crate::transport::{Body, Ends, Frame, Inbound, Link, LinkError, Pair, Park, RingSize, shm};

/// The link, which delivers frames of a ring of `incoming` in an order that depends on the seed.
pub(in super::super::super) fn shuffled(mut link: Link, seed: Option<u64>, incoming: RingSize) -> Link {
    link.ends = match (seed, link.ends) {
        (Some(state), Ends::Shm(Pair { tx, rx })) => {
            let rx = Shuffled {
                inner: rx,
                arrived: Vec::new(),
                peeked: None,
                state,
                early: incoming.slots,
            };
            Ends::other(tx, rx)
        }
        (_, ends) => ends,
    };
    link
}

/// A copy of a frame that has arrived.
struct Arrived {
    sequence: u32,
    words: [u64; 2],
    body: AlignedBuffer,
}

/// Frames in, each of them earlier than its turn by less than `early`.
struct Shuffled {
    inner: shm::Incoming,
    arrived: Vec<Arrived>,
    peeked: Option<Arrived>,
    /// State of the generator.
    state: u64,
    early: u32,
}

impl Shuffled {
    /// Takes what has arrived, up to the credits of the sender.
    fn receive(&mut self) -> Result<(), LinkError> {
        while self.arrived.len() < self.early as usize
            && let Some(Frame {
                sequence,
                words,
                body,
            }) = self.inner.peek()?
        {
            let mut copy = AlignedBuffer::default();
            copy.resize(body.len());
            body.copy_to(copy.as_mut_slice());
            self.arrived.push(Arrived {
                sequence,
                words,
                body: copy,
            });
            self.inner.release();
        }
        Ok(())
    }

    fn pick(&mut self) -> Option<Arrived> {
        let sequences = self.arrived.iter().map(|frame| frame.sequence);
        let oldest = sequences.reduce(|a, b| if (b.wrapping_sub(a) as i32) < 0 { b } else { a })?;
        let candidates: Vec<usize> = (0..self.arrived.len())
            .filter(|&at| self.arrived[at].sequence.wrapping_sub(oldest) < self.early)
            .collect();
        let pick = self.next_random() % candidates.len() as u64;
        Some(self.arrived.remove(candidates[pick as usize]))
    }

    /// xorshift64*, enough to shuffle a test.
    fn next_random(&mut self) -> u64 {
        self.state |= 1;
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

impl Inbound for Shuffled {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.peeked.is_none() {
            let received = self.receive();
            self.peeked = self.pick();
            if self.peeked.is_none() {
                received?;
            }
        }
        Ok(self.peeked.as_ref().map(|frame| Frame {
            sequence: frame.sequence,
            words: frame.words,
            body: Body::from(frame.body.as_slice()),
        }))
    }

    fn release(&mut self) {
        self.peeked = None;
    }

    fn settle(&mut self) {
        self.inner.settle();
    }
}

impl Park for Shuffled {
    fn arm(&mut self) -> bool {
        self.inner.arm() && self.is_idle()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn park(&mut self) {
        self.inner.park();
    }

    fn is_idle(&mut self) -> bool {
        self.peeked.is_none() && self.arrived.is_empty() && self.inner.is_idle()
    }
}
