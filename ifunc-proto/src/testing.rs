//! A link of the tests, which records what is sent over it, and delivers what a test puts in.

use std::collections::VecDeque;

use ifunc_abi::ImageId;
use ifunc_abi::frame::{BODY_ALIGN, Header};

use crate::buffer::AlignedBuffer;
use crate::caller::Image;
use crate::link::{Frame, Inbound, Link, LinkError, Outbound};

/// The outgoing direction.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) max_body: usize,
    /// Frames that may be sent.
    pub(crate) credits: usize,
    /// What each attempt to reserve returns instead of memory.
    pub(crate) error: Option<LinkError>,
    /// What was sent.
    pub(crate) frames: Vec<(Header, Vec<u8>)>,
    /// Length and alignment of each successful reservation.
    pub(crate) reserved: Vec<(usize, usize)>,
    /// The frames up to this number were consumed.
    pub(crate) consumed: u32,
    memory: AlignedBuffer,
}

impl Wire {
    pub(crate) fn new(max_body: usize, credits: usize) -> Self {
        Self {
            max_body,
            credits,
            error: None,
            frames: Vec::new(),
            reserved: Vec::new(),
            consumed: 0,
            memory: AlignedBuffer::default(),
        }
    }

    /// Takes what was sent.
    pub(crate) fn take(&mut self) -> Vec<(Header, Vec<u8>)> {
        std::mem::take(&mut self.frames)
    }
}

impl Outbound for Wire {
    fn max_body(&self) -> usize {
        self.max_body
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(len <= self.max_body, "{len} bytes of a body");
        assert!(align.is_power_of_two() && align <= BODY_ALIGN);
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.credits == 0 {
            return Ok(None);
        }
        self.reserved.push((len, align));
        // More than was asked for, and not zeros: memory of a transport was used before.
        self.memory.resize(self.max_body);
        self.memory.as_mut_slice().fill(0xa5);
        Ok(Some(self.memory.as_mut_slice()))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let (reserved, _) = self.reserved.last().expect("a reservation");
        assert!(len <= *reserved, "{len} bytes of {reserved} that were reserved");
        self.credits = self.credits.checked_sub(1).expect("a credit");
        let body = self.memory.as_slice()[..len].to_vec();
        self.frames.push((header, body));
        self.frames.len() as u32
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        sequence > self.consumed
    }
}

/// The incoming direction.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// Sequence numbers, headers and bodies of the frames that arrived.
    pub(crate) frames: VecDeque<(u32, Header, Vec<u8>)>,
    pub(crate) is_dead: bool,
    pub(crate) released: usize,
    pub(crate) settled: usize,
    /// Invocations in the first poll after an idle one.
    pub(crate) quantum: usize,
    /// How polls ended: whether they found something.
    pub(crate) polls: Vec<bool>,
}

impl Inbound for Arrived {
    type Body<'a> = &'a [u8];

    fn peek(&mut self) -> Result<Option<Frame<&[u8]>>, LinkError> {
        match self.frames.front() {
            Some((sequence, header, body)) => Ok(Some(Frame {
                sequence: *sequence,
                words: header.words(),
                body,
            })),
            None if self.is_dead => Err(LinkError::Closed),
            None => Ok(None),
        }
    }

    fn release(&mut self) {
        self.frames.pop_front();
        self.released += 1;
    }

    fn settle(&mut self) {
        self.settled += std::mem::take(&mut self.released);
    }

    fn is_empty(&mut self) -> bool {
        self.frames.is_empty() && !self.is_dead
    }

    fn end_poll(&mut self, found: bool) {
        self.polls.push(found);
    }

    fn first_quantum(&self) -> usize {
        self.quantum
    }
}

/// Both directions.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) tx: Wire,
    pub(crate) rx: Arrived,
    next: u32,
}

impl Ends {
    pub(crate) fn new(max_body: usize, credits: usize) -> Self {
        Self {
            tx: Wire::new(max_body, credits),
            rx: Arrived {
                quantum: usize::MAX,
                ..Arrived::default()
            },
            next: 0,
        }
    }

    /// A frame arrives.
    pub(crate) fn arrive(&mut self, header: Header, body: &[u8]) {
        self.next += 1;
        self.arrive_as(self.next, header, body);
    }

    /// A frame arrives with this sequence number.
    pub(crate) fn arrive_as(&mut self, sequence: u32, header: Header, body: &[u8]) {
        self.rx.frames.push_back((sequence, header, body.to_vec()));
    }

    /// The peer is gone.
    pub(crate) fn die(&mut self) {
        self.tx.error = Some(LinkError::Closed);
        self.rx.is_dead = true;
    }
}

impl Link for Ends {
    type Tx = Wire;
    type Rx = Arrived;

    fn split(&mut self) -> (&mut Wire, &mut Arrived) {
        (&mut self.tx, &mut self.rx)
    }
}

/// An entry of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) id: ImageId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: u8,
    pub(crate) entry: u8,
    pub(crate) is_idempotent: bool,
}

impl Code {
    /// The only entry of an image whose bytes are a letter.
    pub(crate) fn new(letter: u8, len: usize) -> Self {
        Self {
            id: [letter; 32],
            bytes: vec![letter; len],
            entries: 1,
            entry: 0,
            is_idempotent: false,
        }
    }

    pub(crate) fn idempotent(letter: u8, len: usize) -> Self {
        Self {
            is_idempotent: true,
            ..Self::new(letter, len)
        }
    }
}

impl Image for Code {
    fn id(&self) -> &ImageId {
        &self.id
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn entries(&self) -> u8 {
        self.entries
    }

    fn entry(&self) -> u8 {
        self.entry
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
}
