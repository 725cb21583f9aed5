//! The serving side of a connection.

use std::cell::Cell;
use std::rc::Rc;

use ifunc_abi::ImageId;
use ifunc_abi::frame::Header;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use ifunc_proto::caller::Image;
use ifunc_proto::host::{
    Event, Failed, Host, Install, Invocation, MalformedFrame, Payload, Refusal, ReplyTo,
};
use ifunc_proto::link::Body;
use ifunc_proto::node::{Arrival, Ended, Visit};

use super::visit::Stage;
use crate::image::{Installed, SentImage};
use crate::rng::Rng;

/// Where a completion goes.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The link of the source.
    pub(super) link: usize,
    pub(super) reply_to: ReplyTo,
}

/// An invocation that travels and was taken.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) image: SentImage,
    pub(super) payload: Vec<u8>,
    pub(super) visit: Visit<SentImage, Origin>,
}

/// An invocation that does not travel and was taken: it is answered before the next poll.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) image: SentImage,
    pub(super) payload: Vec<u8>,
    pub(super) reply_to: ReplyTo,
}

/// When a node runs what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// In the poll that finds it.
    AtOnce,
    /// What travels is taken, and runs at any time and in any order.
    Later,
    /// Everything is taken, one invocation by each poll: what does not travel is answered before the next one.
    Taken,
}

impl Manner {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        rng.pick(&[Self::AtOnce, Self::Later, Self::Later, Self::Taken])
    }
}

/// The host of one connection, for one poll.
pub(super) struct MeshHost<'a, const TAKES: bool> {
    pub(super) stage: Stage<'a>,
    pub(super) runs_at_once: bool,
    pub(super) running: &'a mut Vec<Running>,
    pub(super) taken: &'a mut Option<Taken>,
    pub(super) installed: &'a Rc<Cell<usize>>,
    /// The last numbers that arrived over the link, from a node and from a source.
    pub(super) last_arrived: &'a mut [Option<u32>; 2],
    /// The peer, if it is a node.
    pub(super) peer: Option<u32>,
    pub(super) link: usize,
    /// Then an answer may go nowhere.
    pub(super) is_link_dead: bool,
    /// Invocations that this poll took.
    pub(super) takes: usize,
    /// Invocations of a source that were not admitted.
    pub(super) held: u64,
    /// How a connection misbehaves towards its host.
    pub(super) misuse: Option<&'static str>,
}

impl<const TAKES: bool> MeshHost<'_, TAKES> {
    fn arrival(&self, head: &TravelHead, reply_to: &ReplyTo) -> Arrival<Origin> {
        match self.peer.filter(|_| !head.is_of_source()) {
            Some(node) => Arrival::Node(node),
            None => Arrival::Source {
                connection: self.link as u64,
                token: reply_to.token(),
                origin: (reply_to.token() != 0).then(|| Origin {
                    link: self.link,
                    reply_to: reply_to.clone(),
                }),
                max_answer: reply_to.longest_answer(),
            },
        }
    }

    /// What the connection does about an invocation that ended as it arrived.
    fn ended(ended: Ended<Origin>) -> Result<Option<usize>, Box<Failed>> {
        match ended {
            Ended::Here {
                failed: Some(failed), ..
            } => Err(failed),
            Ended::Here { .. } => Ok(Some(0)),
            Ended::Elsewhere => Ok(None),
        }
    }

    /// The payload of an invocation that arrives.
    fn payload<B: Body>(&mut self, invocation: &Invocation<'_, B>, is_of_source: bool) -> Vec<u8> {
        let mut payload = Vec::new();
        match &invocation.payload {
            Payload::InPlace(body) => body.append_to(&mut payload),
            Payload::Private(bytes) => payload.extend_from_slice(bytes),
        }
        // Numbers are given out in the order in which invocations are submitted, or posted. What a node posts may wait while its
        // program submits.
        let last_arrived = &mut self.last_arrived[usize::from(is_of_source)];
        let id = payload.first_chunk().map(|first| u32::from_le_bytes(*first));
        if last_arrived.is_some() && id <= *last_arrived {
            let detail = format!("number {id:?} after {last_arrived:?}");
            self.stage
                .ledger
                .fail("what is sent over a link arrives in order, and once", detail);
        }
        *last_arrived = id.max(*last_arrived);
        payload
    }

    /// An invocation that awaits an answer has memory for it.
    fn check_memory(&mut self, payload: &[u8], max: Option<usize>) {
        let id = payload.first_chunk().map(|first| u32::from_le_bytes(*first));
        let record = id.and_then(|id| self.stage.ledger.records.get(id as usize));
        let is_right = record.is_some_and(|record| match max {
            Some(_) => record.call.is_some() && !record.travels,
            None => (record.call.is_none() || self.is_link_dead) && !record.travels,
        });
        if !is_right {
            let detail = format!("number {id:?}, {max:?} bytes: {record:?}");
            self.stage
                .ledger
                .fail("an invocation that wants an answer has memory for it", detail);
        }
    }

    /// An invocation was taken: the poll ends with it.
    fn take_one(&mut self) {
        self.takes += usize::from(TAKES);
        if self.takes > 1 {
            self.misuse = Some("a poll goes on after an invocation that was taken");
        }
    }
}

/// Writes an answer to the memory for it, or leaves it where it is.
fn write(answered: Result<Vec<u8>, Box<Failed>>, memory: Option<&mut [u8]>) -> Result<usize, Box<Failed>> {
    let answer = answered?;
    if let Some(memory) = memory {
        let Some(memory) = memory.get_mut(..answer.len()) else {
            return Err(Box::new(Failed::answered(Box::new(answer))));
        };
        memory.copy_from_slice(&answer);
    }
    Ok(answer.len())
}

impl<const TAKES: bool> Host for MeshHost<'_, TAKES> {
    type Image = Installed;

    const TAKES: bool = TAKES;

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Installed>, Refusal> {
        let Some(entries) = SentImage::find(&install.id) else {
            self.misuse = Some("an unknown image");
            return Err(Refusal::new(Rejection::IdMismatch, ""));
        };
        let entries: Vec<_> = entries.collect();
        if entries[0].bytes() != install.image {
            self.misuse = Some("an image arrives changed");
        }
        if entries[0].image.is_refused {
            return Err(Refusal::new(Rejection::Policy, "the simulated node refuses it"));
        }
        let installed = |entry| Installed::new(entry, self.installed);
        Ok(entries.into_iter().map(installed).collect())
    }

    fn has_id(&mut self, image: &Installed, id: &ImageId) -> bool {
        image.image.id() == id
    }

    fn invoke<B: Body>(
        &mut self,
        installed: &Installed,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        if TAKES {
            self.misuse = Some("a host that takes invocations runs one");
        }
        let payload = self.payload(&invocation, true);
        let max = answer.as_ref().map(|memory| memory.len());
        self.check_memory(&payload, max);
        write(self.stage.run_plain(installed.image, &payload, max), answer)
    }

    fn take<B: Body>(&mut self, installed: &Installed, invocation: &Invocation<'_, B>, reply_to: ReplyTo) {
        self.take_one();
        let payload = self.payload(invocation, true);
        self.check_memory(&payload, reply_to.max_answer());
        *self.taken = Some(Taken {
            image: installed.image,
            payload,
            reply_to,
        });
    }

    fn admits_travel(&mut self) -> bool {
        if self.peer.is_some() {
            self.misuse = Some("a node was asked to wait");
        }
        let admits = self.stage.node.admits();
        self.held += u64::from(!admits);
        admits
    }

    fn travel<B: Body>(
        &mut self,
        installed: &Installed,
        invocation: Invocation<'_, B>,
        head: &TravelHead,
        reply_to: ReplyTo,
        answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        self.take_one();
        let payload = self.payload(&invocation, head.is_of_source());
        let held = self.stage.node.footprint();
        // What waits for the window of a stream does not count.
        if self.peer.is_none() && held.waiting == 0 && held.outbox_bytes > self.stage.taste.outbox / 2 {
            self.misuse = Some("a source is admitted while the outbox is more than half full");
        }
        let arrival = self.arrival(head, &reply_to);
        let visit = match self.stage.node.arrive(arrival, head, self.stage.now) {
            Ok(visit) => visit,
            Err(ended) => return Self::ended(ended),
        };
        let running = Running {
            image: installed.image,
            payload,
            visit,
        };
        if !self.runs_at_once {
            self.running.push(running);
            return Ok(None);
        }
        match self.stage.run(running) {
            Some((_, answered)) => write(answered, answer).map(Some),
            None => Ok(None),
        }
    }

    fn reject_travel(
        &mut self,
        head: &TravelHead,
        reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        let arrival = self.arrival(head, reply_to);
        match self.stage.node.reject(arrival, head, failed, self.stage.now) {
            Ended::Here { failed, .. } => failed,
            Ended::Elsewhere => None,
        }
    }

    fn finish(&mut self, scope: u32, reply_to: ReplyTo) -> Result<(), Refusal> {
        let origin = Origin {
            link: self.link,
            reply_to,
        };
        let (connection, now) = (self.link as u64, self.stage.now);
        self.stage.node.finish(connection, scope, origin, now);
        Ok(())
    }

    fn grant(&mut self, token: u64, count: u32) {
        self.stage.node.grant(self.link as u64, token, count);
    }

    fn cancel(&mut self, token: u64) {
        self.stage.node.cancel(self.link as u64, token);
    }

    fn node_frame(&mut self, header: Header, body: &[u8]) -> Result<(), MalformedFrame> {
        let from = self.peer.ok_or(MalformedFrame("from a source"))?;
        let received = self.stage.node.receive(from, header, body, self.stage.now);
        if received.is_err() {
            self.misuse = Some("a frame of a node is malformed");
        }
        received
    }

    fn stats(&mut self, _: u32, _: usize) -> (Status, Vec<u8>) {
        (Status::Executed, Vec::new())
    }

    fn observe(&mut self, _: Event) {}
}
