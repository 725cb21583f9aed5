//! The serving side of a simulated node.

use std::cell::Cell;
use std::rc::Rc;

use ifunc_abi::ImageId;
use ifunc_abi::status::{Rejection, Status};
use ifunc_proto::caller::Image;
use ifunc_proto::host::{
    Answers, Event, Failed, Host, Install, Invocation, Payload, Refusal, ReplyTo, Run, RunEnd, run_each,
};
use ifunc_proto::link::Body;

use crate::image::{Installed, SentImage};
use crate::ledger::{Ledger, Plan, write_bytes};
use crate::rng::mix;

/// An invocation that a node took and has not answered yet.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) link: usize,
    /// The connection's number of that link.
    pub(crate) generation: u64,
    /// Its number; `None`: it is none that was sent.
    id: Option<u32>,
    /// Length of the longest answer.
    max_answer: usize,
    pub(crate) reply_to: ReplyTo,
}

impl Taken {
    /// Its outcome, which is sent.
    pub(crate) fn outcome(&self, ledger: &mut Ledger) -> Result<Vec<u8>, Box<Failed>> {
        let Some(id) = self.id else {
            return Ok(Vec::new());
        };
        let mut memory = self.reply_to.max_answer().map(|max| vec![0; max]);
        let len = end(ledger, id, self.link, self.max_answer, memory.as_deref_mut())?;
        let mut answer = memory.unwrap_or_default();
        answer.truncate(len);
        Ok(answer)
    }
}

/// The host of one port, for one call of its connection. `TAKES`: its node takes invocations and answers them later.
pub(crate) struct SimulatedHost<'a, const TAKES: bool> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) link: usize,
    /// The lane of the requests that arrive.
    pub(crate) lane: usize,
    pub(crate) is_link_dead: bool,
    /// Counts the installed images of this port.
    pub(crate) installed: &'a Rc<Cell<usize>>,
    /// The connection's number of the link.
    pub(crate) generation: u64,
    pub(crate) taken: &'a mut Option<Taken>,
}

impl<const TAKES: bool> SimulatedHost<'_, TAKES> {
    /// Checks that an invocation may run now. Returns its number. `max_answer`: the memory that it has for an answer.
    fn begin<B: Body>(
        &mut self,
        image: &Installed,
        invocation: &Invocation<'_, B>,
        max_answer: Option<usize>,
    ) -> Option<u32> {
        let mut copy = Vec::new();
        let payload = match invocation.payload {
            Payload::InPlace(body) => {
                body.append_to(&mut copy);
                &copy[..]
            }
            Payload::Private(bytes) => bytes,
        };
        let id = self
            .ledger
            .run(self.lane, image.image, invocation.sequence, payload)?;
        let wants_answer = self.ledger.records[id as usize].wants_completion;
        let is_as_wanted = match max_answer {
            Some(max) => wants_answer && max == self.ledger.lanes[self.lane].answer_room,
            None => !wants_answer || self.is_link_dead,
        };
        if !is_as_wanted {
            self.ledger.fail(
                "an invocation that wants an answer has memory for it",
                format_args!("number {id}"),
            );
        }
        Some(id)
    }
}

/// Ends an invocation as its number says. Returns the length of its answer.
fn end(
    ledger: &mut Ledger,
    id: u32,
    link: usize,
    max_answer: usize,
    answer: Option<&mut [u8]>,
) -> Result<usize, Box<Failed>> {
    match (Plan::of(id), answer) {
        (Plan::Answer(len), Some(memory)) if len.min(max_answer) > memory.len() => {
            let mut long = vec![0; len.min(max_answer)];
            write_bytes(&mut long, id);
            ledger.answered(id, link, long.len());
            Err(Box::new(Failed::answered(Box::new(long))))
        }
        (Plan::Answer(len), Some(memory)) => {
            let len = len.min(max_answer);
            write_bytes(&mut memory[..len], id);
            ledger.answered(id, link, len);
            Ok(len)
        }
        (Plan::Answer(_), None) => Ok(0),
        (Plan::Fail(status, len), _) => {
            let mut detail = vec![0; len];
            write_bytes(&mut detail, id);
            Err(Box::new(Failed::new(status, detail)))
        }
    }
}

/// The page of statistics that begins at an offset.
pub(crate) fn stats_page(offset: u32, max: usize) -> Vec<u8> {
    let mut page = vec![0; max.min(24)];
    write_bytes(&mut page, offset);
    page
}

impl<const TAKES: bool> Host for SimulatedHost<'_, TAKES> {
    type Image = Installed;

    const TAKES: bool = TAKES;

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Installed>, Refusal> {
        let Some(mut entries) = SentImage::find(&install.id) else {
            self.ledger
                .fail("an image arrives as it was sent", "an unknown id");
            return Err(Refusal::new(Rejection::IdMismatch, ""));
        };
        let entries: Vec<_> = entries.by_ref().collect();
        let image = entries[0].image;
        let is_whole = entries[0].bytes() == install.image && entries.len() == install.entries;
        if !is_whole || install.scheme != 0 || !install.signature.is_empty() {
            self.ledger.fail(
                "an image arrives as it was sent",
                format_args!("image {}", image.index),
            );
        }
        if image.is_refused {
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
        image: &Installed,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        match self.begin(image, &invocation, answer.as_ref().map(|memory| memory.len())) {
            Some(id) => {
                let max_answer = self.ledger.lanes[self.lane].max_answer;
                end(self.ledger, id, self.link, max_answer, answer)
            }
            None => Ok(0),
        }
    }

    /// Stops early, as an image does whose memory for answers is used up.
    fn invoke_run<B: Body>(
        &mut self,
        image: &Installed,
        run: Run<B>,
        answers: Option<Answers<'_>>,
    ) -> RunEnd {
        let hash = mix(u64::from(run.sequence) << 32 | run.count as u64);
        let count = if hash & 1 == 0 {
            run.count
        } else {
            1 + (hash >> 8) as usize % run.count
        };
        run_each(self, image, run.part(0, count), answers)
    }

    fn take<B: Body>(&mut self, image: &Installed, invocation: &Invocation<'_, B>, reply_to: ReplyTo) {
        if self.taken.is_some() {
            self.ledger.fail(
                "a poll ends with the invocation that its host took",
                format_args!("{reply_to:?}"),
            );
        }
        let id = self.begin(image, invocation, reply_to.max_answer());
        *self.taken = Some(Taken {
            link: self.link,
            generation: self.generation,
            id,
            max_answer: self.ledger.lanes[self.lane].max_answer,
            reply_to,
        });
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        (Status::Executed, stats_page(offset, max))
    }

    fn observe(&mut self, _: Event) {}
}
