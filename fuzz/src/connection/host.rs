//! The host of a connection: its invocations answer with their payloads, and some of them fail, wait or travel.

use ifunc_abi::ImageId;
use ifunc_abi::frame::Header;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::TravelHead;
use ifunc_proto::caller::Image;
use ifunc_proto::host::{Event, Failed, Host, Install, Invocation, MalformedFrame, Refusal, ReplyTo};
use ifunc_proto::link::Body;
use ifunc_proto::node::{Arrival, Ended, Node};

use super::MAX_PAYLOAD;

/// An entry of an image that this side sends.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    id: ImageId,
    bytes: Vec<u8>,
    entry: u8,
}

impl Letter {
    pub(super) fn new(letter: u8) -> Self {
        Self {
            id: [letter; 32],
            bytes: vec![letter; usize::from(letter) * 11],
            entry: letter % 2,
        }
    }
}

impl Image for Letter {
    fn id(&self) -> &ImageId {
        &self.id
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn entries(&self) -> u8 {
        2
    }

    fn entry(&self) -> u8 {
        self.entry
    }

    fn is_idempotent(&self) -> bool {
        self.bytes.len() % 3 == 0
    }
}

/// The serving side.
pub(super) struct Echo {
    pub(super) node: Node<Letter, ReplyTo>,
    /// The number of the peer, if it is a node.
    pub(super) peer: Option<u32>,
    /// Invocations that wait to be answered.
    pub(super) waiting: Vec<ReplyTo>,
    pub(super) now: u64,
    /// Bytes of unfinished bodies.
    held: usize,
}

impl Echo {
    pub(super) fn new(node: Node<Letter, ReplyTo>, peer: Option<u32>) -> Self {
        Self {
            node,
            peer,
            waiting: Vec::new(),
            now: 0,
            held: 0,
        }
    }

    fn arrival(&self, head: &TravelHead, reply_to: &ReplyTo) -> Arrival<ReplyTo> {
        match self.peer {
            Some(node) if !head.is_of_source() => Arrival::Node(node),
            _ => Arrival::Source {
                connection: 1,
                token: reply_to.token(),
                origin: reply_to.max_answer().map(|_| reply_to.clone()),
                max_answer: reply_to.longest_answer(),
            },
        }
    }

    fn outcome(payload: &[u8]) -> Result<&[u8], Box<Failed>> {
        match payload.first() {
            Some(b'f') => Err(Box::new(Failed::new(
                Status::Failed(Failure::Payload),
                payload.to_vec(),
            ))),
            Some(b'l') => Err(Box::new(Failed::answered(Box::new(payload.repeat(20))))),
            _ => Ok(payload),
        }
    }

    fn write(answered: &[u8], answer: Option<&mut [u8]>) -> usize {
        answer.map_or(0, |answer| {
            let len = answered.len().min(answer.len());
            answer[..len].copy_from_slice(&answered[..len]);
            len
        })
    }

    fn ended(ended: Ended<ReplyTo>) -> Result<Option<usize>, Box<Failed>> {
        match ended {
            Ended::Here {
                failed: Some(failed), ..
            } => Err(failed),
            Ended::Here { failed: None, .. } => Ok(Some(0)),
            Ended::Elsewhere => Ok(None),
        }
    }
}

fn payload<B: Body>(invocation: &Invocation<'_, B>) -> Vec<u8> {
    let mut payload = vec![0; invocation.payload.len()];
    invocation.payload.copy_to(&mut payload);
    assert!(
        payload.len() <= MAX_PAYLOAD,
        "a payload above the limit is not run"
    );
    payload
}

impl Host for Echo {
    type Image = (ImageId, u8);

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Self::Image>, Refusal> {
        match install.id[0] {
            b'x' => Err(Refusal::new(Rejection::Policy, "no x")),
            // Another number than the frame states.
            b'y' => Ok(vec![(install.id, 0)]),
            _ => Ok((0..install.entries as u8)
                .map(|entry| (install.id, entry))
                .collect()),
        }
    }

    fn has_id(&mut self, image: &Self::Image, id: &ImageId) -> bool {
        image.0 == *id
    }

    fn invoke<B: Body>(
        &mut self,
        _: &Self::Image,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let payload = payload(&invocation);
        Self::outcome(&payload).map(|answered| Self::write(answered, answer))
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        (Status::Executed, vec![offset as u8; max.min(100)])
    }

    fn admits_travel(&mut self) -> bool {
        self.node.admits()
    }

    fn travel<B: Body>(
        &mut self,
        _: &Self::Image,
        invocation: Invocation<'_, B>,
        head: &TravelHead,
        reply_to: ReplyTo,
        answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        let payload = payload(&invocation);
        let arrival = self.arrival(head, &reply_to);
        let mut visit = match self.node.arrive(arrival, head, self.now) {
            Ok(visit) => visit,
            Err(ended) => return Self::ended(ended),
        };
        let letter = Letter::new(payload.first().copied().unwrap_or(1));
        match payload.get(1) {
            // Sends another invocation, forwards itself, replies in parts, or waits until the driver answers.
            Some(b's') => drop(self.node.send(&mut visit, 2, letter, &payload)),
            Some(b'F') => drop(self.node.forward(&mut visit, 2, letter, &payload)),
            Some(b'p') => drop(self.node.reply_partially(&mut visit, &payload)),
            _ => {}
        }
        let answered = Self::outcome(&payload);
        let has_forwarded = visit.is_forwarded();
        let outcome = match &answered {
            Ok(_) if has_forwarded => Ok(None),
            Ok(answered) => Ok(Some(*answered)),
            Err(_) => Err(Box::new(Failed::new(
                Status::Failed(Failure::Payload),
                Vec::new(),
            ))),
        };
        match self.node.end(visit, outcome, self.now) {
            Ended::Here { failed: None, .. } => Ok(Some(Self::write(answered.unwrap_or_default(), answer))),
            ended => Self::ended(ended),
        }
    }

    fn reject_travel(
        &mut self,
        head: &TravelHead,
        reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        let arrival = self.arrival(head, reply_to);
        match self.node.reject(arrival, head, failed, self.now) {
            Ended::Here { failed, .. } => failed,
            Ended::Elsewhere => None,
        }
    }

    fn finish(&mut self, scope: u32, reply_to: ReplyTo) -> Result<(), Refusal> {
        if scope % 4 == 3 {
            self.waiting.push(reply_to);
        } else {
            self.node.finish(1, scope, reply_to, self.now);
        }
        Ok(())
    }

    fn grant(&mut self, token: u64, count: u32) {
        self.node.grant(1, token, count);
    }

    fn cancel(&mut self, token: u64) {
        self.node.cancel(1, token);
    }

    fn node_frame(&mut self, header: Header, body: &[u8]) -> Result<(), MalformedFrame> {
        let from = self.peer.ok_or(MalformedFrame("from a source"))?;
        self.node.receive(from, header, body, self.now)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > 3 * MAX_PAYLOAD {
            return Err(Refusal::new(Rejection::Quota, "too much"));
        }
        self.held = bytes;
        Ok(())
    }

    fn observe(&mut self, _: Event) {}
}
