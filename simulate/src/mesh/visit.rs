//! What an invocation does on a node: a function of its number.

use ifunc_abi::status::{Failure, Status};
use ifunc_abi::travel::TravelError;
use ifunc_proto::host::Failed;
use ifunc_proto::node::{Ended, Node, Visit};

use super::host::{Origin, Running};
use super::ledger::{End, Ledger, Record};
use super::{Taste, say};
use crate::image::SentImage;
use crate::rng::{Rng, mix};

/// Images of which invocations are drawn: few, so that they are bound for long.
const IMAGES: usize = 6;

/// An image for an invocation.
pub(super) fn image_of(hash: u64) -> SentImage {
    // One in 16 is refused by every node.
    let index = if hash & 15 == 0 {
        3
    } else {
        [0, 1, 2, 4, 5, 9][(hash >> 4) as usize % IMAGES]
    };
    SentImage::of(index, hash >> 32)
}

/// The payload of an invocation.
pub(super) fn payload_of(id: u32, len: usize) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.resize(len, id as u8);
    bytes
}

/// Where invocations run: a node, and what the oracle knows.
pub(super) struct Stage<'a> {
    /// The number of the node.
    pub(super) at: usize,
    pub(super) epoch: u64,
    pub(super) node: &'a mut Node<SentImage, Origin>,
    pub(super) ledger: &'a mut Ledger,
    pub(super) taste: Taste,
    /// The nodes of the group. Those after them are in no group.
    pub(super) members: usize,
    pub(super) now: u64,
    pub(super) steps: u64,
    pub(super) trace: &'a mut Option<Vec<String>>,
}

/// What a source receives over its own link.
pub(super) type Answered = (Option<Origin>, Result<Vec<u8>, Box<Failed>>);

impl Stage<'_> {
    /// Runs an invocation that travels, and ends it. `None`: it ends on another node, or later.
    pub(super) fn run(&mut self, running: Running) -> Option<Answered> {
        let Running {
            image,
            payload,
            mut visit,
        } = running;
        let at = self.at;
        let id = self.ledger.run(at, self.epoch, image, &payload)?;
        let record = self.ledger.records[id as usize].clone();
        let mut rng = Rng::new(mix(u64::from(id) ^ 0x7ea1));
        let sent = self.send_others(&mut rng, &mut visit, &record);
        let call = record.call.map(|call| call as usize);
        let is_waiting = call.is_some_and(|call| self.reply_partially(&mut rng, &mut visit, call));
        let mut forwarded = None;
        if is_waiting || rng.below(8) < self.taste.forwards {
            let child = self.child(&mut rng, &record, is_waiting.then_some(at));
            let Record { to, len, image, .. } = self.ledger.records[child as usize];
            let bytes = payload_of(child, len);
            let result = self.node.forward(&mut visit, to as u32, image, &bytes);
            forwarded = self.posted(child, result).then_some(child);
        }
        let max_answer = visit.max_answer();
        let (mut end, answer) = self.ending(&mut rng, id, forwarded.is_some());
        let outcome = match end {
            End::Answer(5) if forwarded.is_some() => Ok(Some(&answer[..])),
            End::Answer(_) if forwarded.is_some() => Ok(None),
            End::Answer(_) => Ok(Some(&answer[..])),
            End::Fail(status) => Err(failure(status)),
        };
        if forwarded.is_some() && !matches!(outcome, Ok(None)) {
            // What was forwarded is dropped.
            if let Some(child) = forwarded.take() {
                self.ledger.take_back(child);
            }
            if outcome.is_ok() {
                end = End::Fail(Status::Failed(Failure::EndedTwice));
            }
        } else if let End::Answer(len) = end
            && max_answer.is_some_and(|max| len > max)
            && forwarded.is_none()
        {
            end = End::Fail(Status::Failed(Failure::Answer));
        }
        if let Some(scope) = record.scope {
            self.ledger.scopes[scope as usize].ended += 1;
        }
        if let Some(call) = call {
            match forwarded {
                Some(child) => {
                    self.ledger.records[child as usize].call = record.call;
                    self.ledger.calls[call].current = child;
                }
                None => self.ledger.calls[call].end = Some(end.clone()),
            }
        }
        say!(
            self,
            "node {at}: runs {id}, {record:?}: sends {sent:?}, forwards {forwarded:?}, ends {end:?}"
        );
        match self.node.end(visit, outcome, self.now) {
            Ended::Here {
                failed: Some(failed),
                origin,
            } => Some((origin, Err(failed))),
            Ended::Here { origin, failed: None } => {
                let answer = if origin.is_some() { answer } else { Vec::new() };
                Some((origin, Ok(answer)))
            }
            Ended::Elsewhere => None,
        }
    }

    /// Runs an invocation that does not travel. `max`: length of the longest answer; `None`: nothing awaits one.
    pub(super) fn run_plain(
        &mut self,
        image: SentImage,
        payload: &[u8],
        max: Option<usize>,
    ) -> Result<Vec<u8>, Box<Failed>> {
        let at = self.at;
        let Some(id) = self.ledger.run(at, self.epoch, image, payload) else {
            return Ok(Vec::new());
        };
        let record = self.ledger.records[id as usize].clone();
        let mut rng = Rng::new(mix(u64::from(id) ^ 0x7ea1));
        let (mut end, mut answer) = self.ending(&mut rng, id, false);
        if let End::Answer(len) = &mut end {
            *len = (*len).min(max.unwrap_or(0));
            answer.truncate(*len);
        }
        say!(self, "node {at}: runs {id}, {record:?}: ends {end:?}");
        if let Some(call) = record.call {
            self.ledger.calls[call as usize].end = Some(end.clone());
        }
        match end {
            End::Answer(_) => Ok(answer),
            End::Fail(status) => Err(failure(status)),
        }
    }

    /// How an invocation ends: one that was forwarded may answer, too.
    fn ending(&self, rng: &mut Rng, id: u32, is_forwarded: bool) -> (End, Vec<u8>) {
        let end = match rng.below(8) {
            0 => End::Fail(Status::Failed(Failure::Panic)),
            1 if is_forwarded => End::Answer(5),
            _ => End::Answer(rng.below(600)),
        };
        let answer = vec![id as u8; if let End::Answer(len) = end { len } else { 0 }];
        (end, answer)
    }

    /// Sends other invocations. Their numbers.
    fn send_others(
        &mut self,
        rng: &mut Rng,
        visit: &mut Visit<SentImage, Origin>,
        record: &Record,
    ) -> Vec<u32> {
        let mut sent = Vec::new();
        let most = if record.depth < 5 {
            self.taste.sends
        } else {
            usize::from(rng.one_in(4)).min(self.taste.sends)
        };
        for _ in 0..rng.below(most + 1) {
            let child = self.child(rng, record, None);
            let Record { to, len, image, .. } = self.ledger.records[child as usize];
            let bytes = payload_of(child, len);
            let result = self.node.send(visit, to as u32, image, &bytes);
            if self.posted(child, result) {
                sent.push(child);
            }
        }
        sent
    }

    /// Sends partial answers of a call that takes them. `true`: the window is closed.
    fn reply_partially(&mut self, rng: &mut Rng, visit: &mut Visit<SentImage, Origin>, call: usize) -> bool {
        let mut is_waiting = false;
        if !self.ledger.calls[call].is_streamed {
            return false;
        }
        for _ in 0..rng.below(5) {
            let number = self.ledger.calls[call].partials;
            let mut answer = number.to_le_bytes().to_vec();
            let max_answer = visit.max_answer();
            answer.resize(4 + rng.below(max_answer.unwrap_or(60).clamp(4, 60) - 3), 0);
            match self.node.reply_partially(visit, &answer) {
                Ok(()) => self.ledger.partial_sent(call),
                Err(TravelError::Window) => is_waiting = true,
                Err(TravelError::TooLarge) if max_answer.is_none_or(|max| max < answer.len()) => {}
                Err(error) => self.ledger.fail("a partial answer in its window is sent", error),
            }
        }
        is_waiting
    }

    /// A new invocation that another one sends.
    fn child(&mut self, rng: &mut Rng, parent: &Record, to: Option<usize>) -> u32 {
        let to = to.unwrap_or_else(|| {
            if self.taste.leaves && self.at < self.members {
                (self.at + 1 + rng.below(self.members - 1)) % self.members
            } else {
                rng.below(self.members)
            }
        });
        let hash = rng.next();
        self.ledger.add(Record {
            call: None,
            scope: parent.scope,
            to,
            len: 4 + rng.below(self.taste.payload),
            depth: parent.depth + 1,
            image: image_of(hash),
            travels: true,
            runs: 0,
            is_closed: false,
        })
    }

    /// A node accepted an invocation for sending, or did not.
    fn posted(&mut self, child: u32, result: Result<(), TravelError>) -> bool {
        let record = &self.ledger.records[child as usize];
        let held = self.node.footprint();
        let hops = u32::from(self.taste.hop_limit);
        let is_right = match result {
            Ok(()) => return true,
            Err(TravelError::Busy) => {
                held.outbox_bytes + record.len + 192 > self.taste.outbox
                    || held.slots >= 2
                    || held.scopes >= 4
            }
            Err(TravelError::NoNode) if self.ledger.is_stranger(self.at, record.to) => true,
            Err(TravelError::NoNode) => self.ledger.is_lost_node(record.to),
            Err(TravelError::HopLimit) => record.depth > hops,
            Err(TravelError::NoGroup) => self.at >= self.members,
            Err(_) => false,
        };
        if !is_right {
            let detail = format!("number {child}: {result:?}, {held:?}");
            self.ledger
                .fail("an invocation is sent, or it is known why not", detail);
        }
        self.ledger.take_back(child);
        false
    }
}

fn failure(status: Status) -> Box<Failed> {
    Box::new(Failed {
        status,
        detail: b"why".to_vec(),
        answer: None,
    })
}
