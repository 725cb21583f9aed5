//! A link of the tests, which records what is sent over it, and delivers what a test puts in.

use std::collections::VecDeque;

use ifunc_abi::ImageId;
use ifunc_abi::frame::{BODY_ALIGN, Header};
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::TravelHead;

use crate::buffer::AlignedBuffer;
use crate::caller::Image;
use crate::host::{Event, Failed, Host, Install, Invocation, MalformedFrame, Refusal, ReplyTo};
use crate::link::{Body, Frame, Inbound, Link, LinkError, Outbound};

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
    /// How often the next frame was said to be one that may wait.
    pub(crate) may_wait: usize,
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
            may_wait: 0,
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

    fn may_wait(&mut self) {
        self.may_wait += 1;
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
    /// Polls that began with [`begin_poll`](Inbound::begin_poll), and whether that would wait.
    pub(crate) begun: usize,
    pub(crate) waits: bool,
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

    fn begin_poll(&mut self) {
        self.begun += 1;
    }

    fn must_begin_poll(&self) -> bool {
        self.waits
    }

    fn end_poll(&mut self, found: bool, settles: bool) {
        if settles {
            self.settle();
        }
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

/// A host that records what it is asked for. `TAKES`: it takes invocations.
///
/// An image is a letter. `x` is refused, and a capital has one entry whatever its frame states. An invocation answers with its
/// payload; with `fail` it fails, with `long` and a digit it has an answer of as many hundred bytes, with `take` the host takes it if
/// it travels.
#[derive(Debug)]
pub(crate) struct Recorder<const TAKES: bool = false> {
    pub(crate) log: Vec<String>,
    pub(crate) events: Vec<Event>,
    /// Bytes that it holds of a body at most.
    pub(crate) budget: usize,
    pub(crate) admits: bool,
    /// What was taken.
    pub(crate) taken: Vec<ReplyTo>,
}

impl<const TAKES: bool> Recorder<TAKES> {
    pub(crate) fn new() -> Self {
        Self {
            log: Vec::new(),
            events: Vec::new(),
            budget: usize::MAX,
            admits: true,
            taken: Vec::new(),
        }
    }

    /// Takes what was recorded: what the host was asked for, and the events.
    pub(crate) fn take_log(&mut self) -> (Vec<String>, Vec<Event>) {
        (std::mem::take(&mut self.log), std::mem::take(&mut self.events))
    }

    fn payload<B: Body>(&mut self, invocation: &Invocation<'_, B>) -> Vec<u8> {
        let mut payload = vec![0; invocation.payload.len()];
        invocation.payload.copy_to(&mut payload);
        payload
    }

    fn record<B: Body>(
        &mut self,
        what: &str,
        image: (u8, usize),
        invocation: &Invocation<'_, B>,
        answer: Option<usize>,
    ) {
        let payload = self.payload(invocation);
        let shown = match payload.len() {
            0..=20 => String::from_utf8_lossy(&payload).into_owned(),
            len => format!("{len} bytes"),
        };
        let &Invocation {
            sequence, is_batched, ..
        } = invocation;
        let place = if invocation.payload.is_in_place() {
            "in place"
        } else {
            "private"
        };
        let batched = if is_batched { " of a batch" } else { "" };
        let (letter, entry) = (char::from(image.0), image.1);
        let line =
            format!("{what} {letter}{entry}: {shown} {place}, frame {sequence}{batched}, answer {answer:?}");
        self.log.push(line);
    }
}

fn answered(payload: &[u8], answer: Option<&mut [u8]>) -> Result<usize, Box<Failed>> {
    if payload == b"fail" {
        return Err(Box::new(Failed::new(
            Status::Failed(Failure::Payload),
            b"it failed".to_vec(),
        )));
    }
    if let Some(&[digit]) = payload.strip_prefix(b"long") {
        let len = 100 * usize::from(digit - b'0');
        return Err(Box::new(Failed::answered(Box::new(vec![digit; len]))));
    }
    Ok(answer.map_or(0, |answer| {
        let len = payload.len().min(answer.len());
        answer[..len].copy_from_slice(&payload[..len]);
        len
    }))
}

impl<const TAKES: bool> Host for Recorder<TAKES> {
    /// The letter, and the index of the entry.
    type Image = (u8, usize);

    const TAKES: bool = TAKES;

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Self::Image>, Refusal> {
        let Install {
            handle,
            entries,
            id,
            scheme,
            signature,
            image: bytes,
            companions,
        } = install;
        let letter = id[0];
        assert!(bytes.iter().all(|&byte| byte == letter));
        self.log.push(format!(
            "install {} at {handle}, {entries} entries, scheme {scheme}, {} bytes of a signature, {} of an image",
            char::from(letter),
            signature.len(),
            bytes.len()
        ));
        for companion in companions {
            let (letter, len) = (char::from(companion.id[0]), companion.image.len());
            self.log
                .push(format!("with {letter}, {len} bytes, scheme {}", companion.scheme));
        }
        match letter {
            b'x' => Err(Refusal::new(Rejection::Policy, "no x")),
            b'A'..=b'Z' => Ok(vec![(letter, 0)]),
            _ => Ok((0..entries).map(|entry| (letter, entry)).collect()),
        }
    }

    fn has_id(&mut self, image: &Self::Image, id: &ImageId) -> bool {
        image.0 == id[0]
    }

    fn invoke<B: Body>(
        &mut self,
        image: &Self::Image,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        assert!(!TAKES);
        self.record(
            "run",
            *image,
            &invocation,
            answer.as_ref().map(|answer| answer.len()),
        );
        answered(&self.payload(&invocation), answer)
    }

    fn take<B: Body>(&mut self, image: &Self::Image, invocation: &Invocation<'_, B>, reply_to: ReplyTo) {
        self.record("take", *image, invocation, reply_to.max_answer());
        self.taken.push(reply_to);
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        self.log.push(format!("statistics from {offset}, at most {max}"));
        (Status::Executed, vec![1; max.min(77)])
    }

    fn admits_travel(&mut self) -> bool {
        self.admits
    }

    fn travel<B: Body>(
        &mut self,
        image: &Self::Image,
        invocation: Invocation<'_, B>,
        head: &TravelHead,
        reply_to: ReplyTo,
        answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        self.record(
            "travel",
            *image,
            &invocation,
            answer.as_ref().map(|answer| answer.len()),
        );
        self.log.push(format!(
            "of {} hops, call {:?}, late {}, at most {:?} or {} elsewhere, {} bytes",
            head.hop_limit,
            reply_to.call,
            reply_to.is_late,
            reply_to.max_answer(),
            reply_to.longest_answer(),
            reply_to.payload,
        ));
        let payload = self.payload(&invocation);
        if payload == b"take" {
            self.taken.push(reply_to);
            return Ok(None);
        }
        answered(&payload, answer).map(Some)
    }

    fn reject_travel(
        &mut self,
        head: &TravelHead,
        reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        let (call, detail) = (
            reply_to.call,
            String::from_utf8_lossy(&failed.detail).into_owned(),
        );
        self.log.push(format!(
            "reject of {} hops, call {call:?}, {} bytes: {detail}",
            head.hop_limit, reply_to.payload
        ));
        (head.hop_limit.get() != 99).then_some(failed)
    }

    fn finish(&mut self, scope: u32, reply_to: ReplyTo) -> Result<(), Refusal> {
        self.log.push(format!(
            "finish {scope}, call {:?}, at most {:?}",
            reply_to.call,
            reply_to.max_answer()
        ));
        match scope {
            0 => Err(Refusal::new(Rejection::NoNode, "no scope")),
            _ => {
                self.taken.push(reply_to);
                Ok(())
            }
        }
    }

    fn grant(&mut self, token: u64, count: u32) {
        self.log.push(format!("grant {count} to {token}"));
    }

    fn cancel(&mut self, token: u64) {
        self.log.push(format!("cancel {token}"));
    }

    fn node_frame(&mut self, header: Header, body: &[u8]) -> Result<(), MalformedFrame> {
        self.log
            .push(format!("{:?} of a node, {} bytes", header.kind, body.len()));
        match body {
            b"bad" => Err(MalformedFrame("bad")),
            _ => Ok(()),
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        match bytes <= self.budget {
            true => Ok(()),
            false => Err(Refusal::new(Rejection::Quota, "too much")),
        }
    }

    fn observe(&mut self, event: Event) {
        self.events.push(event);
    }
}
