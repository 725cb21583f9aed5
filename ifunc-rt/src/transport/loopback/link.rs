//! A connection: for each side a queue of the frames that it receives, under a lock.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use ifunc_abi::frame::{BODY_ALIGN, Header};
use ifunc_abi::hello::Hello;
use ifunc_proto::buffer::AlignedBuffer;

use super::{Acceptor, lock};
use crate::os::EventFd;
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};
use crate::transport::{
    Body, Ends, Frame, Inbound, Key, Link, LinkError, Outbound, Park, Peer, RingSize, Waiter,
};

/// A frame on its way.
struct QueuedFrame {
    sequence: u32,
    words: [u64; 2],
    body: AlignedBuffer,
}

/// The bytes that a body takes of its direction.
fn footprint(len: usize) -> u64 {
    len.next_multiple_of(BODY_ALIGN) as u64
}

/// The frames towards one side.
#[derive(Default)]
struct Queue {
    frames: VecDeque<QueuedFrame>,
    /// What the side released and published.
    released: Credits,
}

/// What a side announced.
const POLLS: u8 = 0;
const SLEEPS: u8 = 1;
const PARKED: u8 = 2;

struct Side {
    incoming: Mutex<Queue>,
    doorbell: Arc<EventFd>,
    announced: AtomicU8,
    is_closed: AtomicBool,
}

/// One end of a connection. When the last part of a link drops it, the other end is notified.
struct End {
    sides: Arc<[Side; 2]>,
    me: usize,
    /// A target's: whom to report an event to, and its name for the connection.
    target: (Arc<Acceptor>, Key),
}

const TARGET: usize = 0;
const SOURCE: usize = 1;

/// The links of the target and of the source over a new connection.
pub(super) fn pair(acceptor: &Arc<Acceptor>, key: Key, doorbell: EventFd, source: Hello) -> [Link; 2] {
    let (to_target, to_source) = (acceptor.config.to_target, acceptor.config.to_source);
    let side = |doorbell: Arc<EventFd>| Side {
        incoming: Mutex::default(),
        doorbell,
        announced: AtomicU8::new(POLLS),
        is_closed: AtomicBool::new(false),
    };
    let sides = Arc::new([side(Arc::clone(&acceptor.doorbell)), side(Arc::new(doorbell))]);
    let link = |me: usize, [incoming, outgoing]: [RingSize; 2], hello| {
        let end = Arc::new(End {
            sides: Arc::clone(&sides),
            me,
            target: (Arc::clone(acceptor), key),
        });
        let sender = Sender {
            end: Arc::clone(&end),
            reserved: None,
            window: SendWindow::new(Credits::of(outgoing, 1)),
            max_body: outgoing.max_body(),
        };
        let receiver = Receiver {
            end: Arc::clone(&end),
            peeked: None,
            window: ReceiveWindow::new(Credits::of(incoming, 1)),
            #[cfg(test)]
            shuffle: acceptor.config.shuffle.map(|seed| shuffle::Shuffle {
                state: seed,
                early: incoming.slots,
            }),
        };
        Link {
            ends: Ends::other(sender, receiver),
            waiter: end,
            peer: Peer {
                uid: Some(rustix::process::geteuid().as_raw()),
                pid: std::process::id().try_into().ok(),
            },
            hello,
            key,
        }
    };
    [
        link(TARGET, [to_target, to_source], source),
        link(SOURCE, [to_source, to_target], acceptor.config.hello),
    ]
}

impl End {
    fn own(&self) -> &Side {
        &self.sides[self.me]
    }

    fn peer(&self) -> &Side {
        &self.sides[1 - self.me]
    }

    fn is_gone(&self) -> bool {
        self.peer().is_closed.load(Ordering::SeqCst)
    }

    /// Wakes the peer as it announced.
    fn wake_peer(&self) {
        match self.peer().announced.swap(POLLS, Ordering::SeqCst) {
            SLEEPS => self.peer().doorbell.wake(),
            PARKED => self.target.0.mark_ready(self.target.1),
            _ => {}
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.own().is_closed.store(true, Ordering::SeqCst);
        self.peer().doorbell.wake();
        self.wake_peer();
        if self.me == TARGET {
            lock(&self.target.0.state).live -= 1;
        }
    }
}

impl Waiter for End {
    fn doorbell(&self) -> BorrowedFd<'_> {
        self.own().doorbell.as_fd()
    }

    fn clear_doorbell(&self) {
        self.own().doorbell.clear();
    }

    fn close(&self) {
        self.own().doorbell.wake();
    }

    fn carried_by(&self) -> String {
        "loopback".into()
    }

    fn is_peer_closed(&self) -> bool {
        self.is_gone()
    }
}

/// Frames out.
struct Sender {
    end: Arc<End>,
    reserved: Option<AlignedBuffer>,
    window: SendWindow,
    max_body: usize,
}

impl Outbound for Sender {
    fn max_body(&self) -> usize {
        self.max_body
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(
            len <= self.max_body && align <= BODY_ALIGN,
            "a body larger than the transport takes"
        );
        if self.end.is_gone() {
            return Err(LinkError::Closed);
        }
        let released = lock(&self.end.peer().incoming).released;
        self.window.acknowledge(released).map_err(LinkError::Malformed)?;
        if !self.window.has_credit(footprint(len)) {
            return Ok(None);
        }
        let body = self.reserved.insert(AlignedBuffer::default());
        body.resize(len);
        Ok(Some(body.as_mut_slice()))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let mut body = self.reserved.take().expect("`reserve` comes before `commit`");
        assert!(len <= body.len(), "a body larger than what was reserved");
        body.resize(len);
        let sequence = self.window.send(footprint(len));
        let words = header.words();
        lock(&self.end.peer().incoming).frames.push_back(QueuedFrame {
            sequence,
            words,
            body,
        });
        self.end.wake_peer();
        sequence
    }
}

/// Frames in.
struct Receiver {
    end: Arc<End>,
    peeked: Option<QueuedFrame>,
    window: ReceiveWindow,
    #[cfg(test)]
    shuffle: Option<shuffle::Shuffle>,
}

impl Receiver {
    fn pop(&mut self) -> Option<QueuedFrame> {
        let frames = &mut lock(&self.end.own().incoming).frames;
        #[cfg(test)]
        if let Some(shuffle) = &mut self.shuffle {
            return shuffle.pop(frames);
        }
        frames.pop_front()
    }
}

impl Inbound for Receiver {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.peeked.is_none() {
            // Read before the queue: what was sent before leaving is delivered.
            let is_gone = self.end.is_gone();
            self.peeked = self.pop();
            if self.peeked.is_none() && is_gone {
                return Err(LinkError::Closed);
            }
        }
        Ok(self.peeked.as_ref().map(|frame| Frame {
            sequence: frame.sequence,
            words: frame.words,
            body: Body::from(frame.body.as_slice()),
        }))
    }

    fn release(&mut self) {
        let Some(frame) = self.peeked.take() else { return };
        if self.window.release(footprint(frame.body.len())) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        if let Some(credits) = self.window.publish() {
            lock(&self.end.own().incoming).released = credits;
            self.end.wake_peer();
        }
    }
}

impl Park for Receiver {
    fn arm(&mut self) -> bool {
        self.end.own().announced.store(SLEEPS, Ordering::SeqCst);
        self.is_idle()
    }

    fn disarm(&mut self) {
        self.end.own().announced.store(POLLS, Ordering::SeqCst);
    }

    fn park(&mut self) {
        self.end.own().announced.store(PARKED, Ordering::SeqCst);
    }

    fn is_idle(&mut self) -> bool {
        self.peeked.is_none() && !self.end.is_gone() && lock(&self.end.own().incoming).frames.is_empty()
    }
}

/// Delivery out of order.
#[cfg(test)]
mod shuffle {
    use std::collections::VecDeque;

    use super::QueuedFrame;

    /// Picks the next frame.
    pub(super) struct Shuffle {
        /// State of the generator.
        pub(super) state: u64,
        /// A frame is earlier than its turn by less than this.
        pub(super) early: u32,
    }

    impl Shuffle {
        pub(super) fn pop(&mut self, frames: &mut VecDeque<QueuedFrame>) -> Option<QueuedFrame> {
            let oldest = frames
                .iter()
                .map(|frame| frame.sequence)
                .reduce(|a, b| if (b.wrapping_sub(a) as i32) < 0 { b } else { a })?;
            let candidates: Vec<usize> = (0..frames.len())
                .filter(|&at| frames[at].sequence.wrapping_sub(oldest) < self.early)
                .collect();
            let pick = self.next_random() % candidates.len() as u64;
            frames.remove(candidates[pick as usize])
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
}
