//! A link in memory: two queues of frames with a window, which deliver at once and in order.

use std::collections::VecDeque;

use ifunc_abi::frame::Header;
use ifunc_proto::link::{Frame, Inbound, Link, LinkError, Outbound};

/// One direction.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) window: usize,
    max_body: usize,
    staging: Vec<u8>,
    sent: u32,
    /// Frames that no credit was returned for.
    used: usize,
    released: usize,
    frames: VecDeque<(u32, [u64; 2], Vec<u8>)>,
    pub(crate) is_dead: bool,
    /// Headers of all frames that were sent.
    pub(crate) headers: Vec<Header>,
}

/// Both directions.
#[derive(Debug)]
pub(crate) struct Pipe([Queue; 2]);

/// One side of a pipe.
#[derive(Debug)]
pub(crate) struct Side<'a>(Sender<'a>, Receiver<'a>);

#[derive(Debug)]
pub(crate) struct Sender<'a>(pub(crate) &'a mut Queue);

#[derive(Debug)]
pub(crate) struct Receiver<'a>(pub(crate) &'a mut Queue);

impl Pipe {
    pub(crate) fn new(window: usize, max_body: usize) -> Self {
        Self([0, 1].map(|_| Queue {
            window,
            max_body,
            staging: vec![0; max_body],
            sent: 0,
            used: 0,
            released: 0,
            frames: VecDeque::new(),
            is_dead: false,
            headers: Vec::new(),
        }))
    }

    pub(crate) fn side(&mut self, side: usize) -> Side<'_> {
        let [first, second] = &mut self.0;
        let (tx, rx) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        Side(Sender(tx), Receiver(rx))
    }

    /// The direction in which a side sends.
    pub(crate) fn queue(&mut self, side: usize) -> &mut Queue {
        &mut self.0[side]
    }

    /// Both directions end. What was sent and not received is lost.
    pub(crate) fn kill(&mut self) {
        for queue in &mut self.0 {
            queue.is_dead = true;
            queue.frames.clear();
        }
    }
}

impl<'a> Link for Side<'a> {
    type Tx = Sender<'a>;
    type Rx = Receiver<'a>;

    fn split(&mut self) -> (&mut Sender<'a>, &mut Receiver<'a>) {
        (&mut self.0, &mut self.1)
    }
}

impl Outbound for Sender<'_> {
    fn max_body(&self) -> usize {
        self.0.max_body
    }

    fn reserve(&mut self, len: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(len <= self.0.max_body);
        if self.0.is_dead {
            return Err(LinkError::Closed);
        }
        Ok((self.0.used < self.0.window).then_some(&mut self.0.staging[..len]))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let queue = &mut *self.0;
        assert!(queue.used < queue.window, "the window is closed");
        queue.used += 1;
        queue.sent += 1;
        queue.headers.push(header);
        queue
            .frames
            .push_back((queue.sent, header.words(), queue.staging[..len].to_vec()));
        queue.sent
    }
}

impl Inbound for Receiver<'_> {
    type Body<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn peek(&mut self) -> Result<Option<Frame<&[u8]>>, LinkError> {
        match self.0.frames.front() {
            Some((sequence, words, body)) => Ok(Some(Frame {
                sequence: *sequence,
                words: *words,
                body,
            })),
            None if self.0.is_dead => Err(LinkError::Closed),
            None => Ok(None),
        }
    }

    fn release(&mut self) {
        self.0.frames.pop_front();
        self.0.released += 1;
    }

    fn settle(&mut self) {
        self.0.used -= std::mem::take(&mut self.0.released);
    }
}
