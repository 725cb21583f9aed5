//! A simulated link: two channels that deliver, reorder, return credits late and die as the simulator tells them.

use std::collections::VecDeque;

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::link::{Frame, Inbound, Link, LinkError, Outbound};

use crate::rng::Rng;

/// Calls of a channel's methods in one step after which the connection is stuck.
const MAX_CALLS: u32 = 100_000;

/// What a channel gives its users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Credits: frames, and bytes of bodies.
    pub(crate) window: u32,
    pub(crate) window_bytes: usize,
    pub(crate) max_body: usize,
    /// Frames arrive in order.
    pub(crate) is_ordered: bool,
    /// Frames arrive, and credits return, at once.
    pub(crate) is_instant: bool,
    /// The sender can tell which frames were consumed.
    pub(crate) knows_consumed: bool,
    pub(crate) first_quantum: usize,
}

impl Shape {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let window = rng.pick(&[1, 1, 2, 3, 4, 8, 16, 64, 256, 256]);
        let max_body = rng.pick(&[32, 48, 64, 100, 128, 256, 600]);
        let is_instant = rng.one_in(3);
        Self {
            window,
            window_bytes: max_body * (1 + rng.below(window as usize)),
            max_body,
            is_ordered: is_instant || rng.one_in(2),
            is_instant,
            knows_consumed: rng.one_in(2),
            first_quantum: rng.pick(&[1, 1, 4, usize::MAX]),
        }
    }
}

/// A frame under way.
#[derive(Debug)]
struct Flight {
    sequence: u32,
    words: [u64; 2],
    body: Vec<u8>,
}

/// What a committed frame holds, for the ledger: a request, an invocation, or a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) sequence: u32,
    pub(crate) kind: Kind,
    /// Handle, or status code.
    pub(crate) handle: u32,
    pub(crate) token: u64,
    /// Number of the invocation; `None`: its payload is too short for one. Of an image: the begin of its id.
    pub(crate) id: Option<u32>,
    /// Length of the payload.
    pub(crate) len: usize,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) shape: Shape,
    staging: AlignedBuffer,
    reserved: Option<usize>,
    sent: u32,
    used: u32,
    used_bytes: usize,
    in_flight: VecDeque<Flight>,
    arrived: VecDeque<Flight>,
    /// Credits that the receiver has not settled, and credits on their way back.
    unsettled: (u32, usize),
    returning: (u32, usize),
    /// All frames up to this one were released; those released ahead of it; and what the sender knows of it.
    released: u32,
    released_ahead: Vec<u32>,
    acknowledged: u32,
    end: Option<LinkError>,
    pub(crate) sender_knows_end: bool,
    pub(crate) receiver_knows_end: bool,
    /// The body that is sent in fragments: its number, the invocation and the length.
    fragmented: (u32, Option<u32>, usize),
    pub(crate) log: Vec<Commit>,
    /// Frames released and credits returned: whether anything moved.
    pub(crate) moved: u64,
    /// Calls of the channel's methods since the last step: a connection that never returns is stopped.
    pub(crate) calls: u32,
    /// How the connection misused the channel.
    pub(crate) misuse: Option<&'static str>,
    pool: Vec<Vec<u8>>,
}

impl Channel {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut staging = AlignedBuffer::default();
        staging.resize(shape.max_body);
        Self {
            shape,
            staging,
            reserved: None,
            sent: 0,
            used: 0,
            used_bytes: 0,
            in_flight: VecDeque::new(),
            arrived: VecDeque::new(),
            unsettled: (0, 0),
            returning: (0, 0),
            released: 0,
            released_ahead: Vec::new(),
            acknowledged: 0,
            end: None,
            sender_knows_end: false,
            receiver_knows_end: false,
            fragmented: (0, None, 0),
            log: Vec::new(),
            moved: 0,
            calls: 0,
            misuse: None,
            pool: Vec::new(),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty() || self.receiver_knows_end
    }

    /// Whether the window is open for a body of `len` bytes.
    pub(crate) fn has_credit(&self, len: usize) -> bool {
        self.used < self.shape.window && self.used_bytes + len <= self.shape.window_bytes
    }

    /// Delivers one frame. A channel that reorders prefers the later ones: the first may stay behind for long.
    pub(crate) fn deliver(&mut self, rng: &mut Rng) -> bool {
        let index = match self.in_flight.len() {
            0 => return false,
            _ if self.shape.is_ordered => 0,
            len => rng.below(len).max(rng.below(len)),
        };
        self.arrived.extend(self.in_flight.remove(index));
        self.moved += 1;
        true
    }

    /// Returns credits that are on their way: all, or some.
    pub(crate) fn return_credits(&mut self, is_all: bool) -> bool {
        let (frames, bytes) = self.returning;
        if frames == 0 || self.end.is_some() {
            return false;
        }
        let is_all = is_all || frames == 1;
        let share = if is_all { frames } else { frames.div_ceil(2) };
        let share_bytes = if is_all { bytes } else { bytes / 2 };
        self.returning = (frames - share, bytes - share_bytes);
        self.used -= share;
        self.used_bytes -= share_bytes;
        let unknown = frames - share + self.unsettled.0;
        self.acknowledged = self.acknowledged.max(self.released.saturating_sub(unknown));
        self.moved += 1;
        true
    }

    /// The link dies. Some of the frames under way still arrive.
    pub(crate) fn kill(&mut self, rng: &mut Rng, end: LinkError) {
        let survivors = rng.below(self.in_flight.len() + 1);
        if self.shape.is_ordered {
            self.in_flight.truncate(survivors);
        } else {
            while self.in_flight.len() > survivors {
                let index = rng.below(self.in_flight.len());
                self.in_flight.remove(index);
            }
        }
        while self.deliver(rng) {}
        self.end = Some(end);
    }

    fn count_call(&mut self) {
        self.calls += 1;
        assert!(self.calls < MAX_CALLS, "a call of a connection does not return");
    }

    fn id_of(&self, len: usize) -> Option<u32> {
        (len >= 4).then(|| read_u32(self.staging.as_slice(), 0))
    }

    fn record(&mut self, sequence: u32, header: Header, len: usize) {
        let commit = |kind, handle, token, id, len| Commit {
            sequence,
            kind,
            handle,
            token,
            id,
            len,
        };
        let Header {
            kind, handle, token, ..
        } = header;
        match kind {
            Kind::Fragment => {
                if self.fragmented.0 != handle {
                    self.fragmented = (handle, self.id_of(len), token as usize);
                }
            }
            Kind::Exec if header.flags.contains(FrameFlags::ASSEMBLED) => {
                let (_, id, len) = self.fragmented;
                self.log.push(commit(kind, handle, token, id, len));
            }
            Kind::Exec => self.log.push(commit(kind, handle, token, self.id_of(len), len)),
            // One in fragments may have begun when its handles had other users.
            Kind::Install if !header.flags.contains(FrameFlags::ASSEMBLED) => {
                self.log.push(commit(kind, handle, token, self.id_of(len), len));
            }
            Kind::Batch | Kind::Completions => {
                let mut at = 0;
                let bytes = &self.staging.as_slice()[..len];
                while at + 24 <= len {
                    let code = read_u32(bytes, at);
                    let size = read_u32(bytes, at + 4) as usize;
                    let first =
                        u64::from(read_u32(bytes, at + 8)) | u64::from(read_u32(bytes, at + 12)) << 32;
                    let count = read_u32(bytes, at + 16) as usize;
                    let stride = read_u32(bytes, at + 20) as usize;
                    at += 24;
                    for index in 0..count {
                        let entry = at + index * stride;
                        let id = (kind == Kind::Batch && size >= 4).then(|| read_u32(bytes, entry));
                        let token = if first == 0 { 0 } else { first + index as u64 };
                        let kind = if kind == Kind::Batch {
                            Kind::Exec
                        } else {
                            Kind::Completion
                        };
                        self.log.push(commit(kind, code, token, id, size));
                    }
                    at = (at + count * stride).next_multiple_of(8);
                }
                if at != len {
                    self.misuse = Some("commits a batch that is cut off");
                }
            }
            _ => self.log.push(commit(kind, handle, token, None, len)),
        }
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// One end of a link.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) tx: Sender<'a>,
    pub(crate) rx: Receiver<'a>,
}

impl<'a> End<'a> {
    /// The end of a side, 0 or 1. A side sends on the channel of its number.
    pub(crate) fn new(channels: &'a mut [Channel; 2], side: usize) -> Self {
        let [first, second] = channels;
        let (tx, rx) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        Self {
            tx: Sender(tx),
            rx: Receiver(rx),
        }
    }
}

impl<'a> Link for End<'a> {
    type Tx = Sender<'a>;
    type Rx = Receiver<'a>;

    fn split(&mut self) -> (&mut Sender<'a>, &mut Receiver<'a>) {
        (&mut self.tx, &mut self.rx)
    }
}

/// The sending end of a channel.
#[derive(Debug)]
pub(crate) struct Sender<'a>(pub(crate) &'a mut Channel);

impl Outbound for Sender<'_> {
    fn max_body(&self) -> usize {
        self.0.shape.max_body
    }

    fn reserve(&mut self, len: usize, _align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        let channel = &mut *self.0;
        channel.count_call();
        channel.reserved = None;
        if let Some(end) = &channel.end
            && channel.sender_knows_end
        {
            return Err(end.clone());
        }
        if len > channel.shape.max_body {
            channel.misuse = Some("reserves more than a frame's body");
            return Ok(None);
        }
        if !channel.has_credit(len) {
            return Ok(None);
        }
        channel.reserved = Some(len);
        Ok(Some(&mut channel.staging.as_mut_slice()[..len]))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let channel = &mut *self.0;
        channel.sent = channel.sent.wrapping_add(1);
        match channel.reserved.take() {
            None => channel.misuse = Some("commits without a reservation"),
            Some(reserved) if len > reserved => channel.misuse = Some("commits more than it reserved"),
            Some(_) => {}
        }
        channel.record(channel.sent, header, len);
        channel.used += 1;
        channel.used_bytes += len;
        channel.moved += 1;
        // A frame that is sent into a dead link never arrives.
        if channel.end.is_none() {
            let mut body = channel.pool.pop().unwrap_or_default();
            body.clear();
            body.extend_from_slice(&channel.staging.as_slice()[..len]);
            let flight = Flight {
                sequence: channel.sent,
                words: header.words(),
                body,
            };
            if channel.shape.is_instant {
                channel.arrived.push_back(flight);
            } else {
                channel.in_flight.push_back(flight);
            }
        }
        channel.sent
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        !self.0.shape.knows_consumed || sequence > self.0.acknowledged
    }
}

/// The receiving end of a channel.
#[derive(Debug)]
pub(crate) struct Receiver<'a>(pub(crate) &'a mut Channel);

impl Inbound for Receiver<'_> {
    type Body<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn peek(&mut self) -> Result<Option<Frame<&[u8]>>, LinkError> {
        self.0.count_call();
        match (self.0.arrived.front(), &self.0.end) {
            (Some(flight), _) => Ok(Some(Frame {
                sequence: flight.sequence,
                words: flight.words,
                body: &flight.body,
            })),
            (None, Some(end)) if self.0.receiver_knows_end => Err(end.clone()),
            _ => Ok(None),
        }
    }

    fn release(&mut self) {
        let channel = &mut *self.0;
        let Some(flight) = channel.arrived.pop_front() else {
            channel.misuse = Some("releases a frame that did not arrive");
            return;
        };
        channel.unsettled.0 += 1;
        channel.unsettled.1 += flight.body.len();
        channel.moved += 1;
        channel.released_ahead.push(flight.sequence);
        while let Some(index) = channel
            .released_ahead
            .iter()
            .position(|&n| n == channel.released + 1)
        {
            channel.released_ahead.swap_remove(index);
            channel.released += 1;
        }
        channel.pool.push(flight.body);
    }

    fn settle(&mut self) {
        let (frames, bytes) = std::mem::take(&mut self.0.unsettled);
        if frames == 0 || self.0.end.is_some() {
            return;
        }
        self.0.returning.0 += frames;
        self.0.returning.1 += bytes;
        if self.0.shape.is_instant {
            self.0.return_credits(true);
        }
    }

    fn is_empty(&mut self) -> bool {
        !self.0.has_arrived()
    }

    fn first_quantum(&self) -> usize {
        self.0.shape.first_quantum
    }
}
