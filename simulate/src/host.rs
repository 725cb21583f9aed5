//! The serving side of a simulated node.

use std::cell::Cell;
use std::rc::Rc;

use ifunc_abi::ImageId;
use ifunc_abi::status::{Rejection, Status};
use ifunc_proto::caller::Image;
use ifunc_proto::host::{Event, Failed, Host, Install, Invocation, Payload, Refusal};
use ifunc_proto::link::Body;

use crate::image::{Installed, SentImage};
use crate::ledger::{Ledger, Plan, write_bytes};

/// The host of one port, for one call of its connection.
pub(crate) struct SimulatedHost<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) link: usize,
    /// The lane of the requests that arrive.
    pub(crate) lane: usize,
    pub(crate) is_link_dead: bool,
    /// Counts the installed images of this port.
    pub(crate) installed: &'a Rc<Cell<usize>>,
}

/// The page of statistics that begins at an offset.
pub(crate) fn stats_page(offset: u32, max: usize) -> Vec<u8> {
    let mut page = vec![0; max.min(24)];
    write_bytes(&mut page, offset);
    page
}

impl Host for SimulatedHost<'_> {
    type Image = Installed;

    fn install(&mut self, install: Install) -> Result<Installed, Refusal> {
        let Some(image) = SentImage::find(&install.id) else {
            self.ledger
                .fail("an image arrives as it was sent", "an unknown id");
            return Err(Refusal::new(Rejection::IdMismatch, ""));
        };
        let bytes = &install.body[install.image];
        if image.bytes() != bytes || install.scheme != 0 || !install.signature.is_empty() {
            self.ledger.fail(
                "an image arrives as it was sent",
                format_args!("image {}", image.0.index),
            );
        }
        if image.0.is_refused {
            return Err(Refusal::new(Rejection::Policy, "the simulated node refuses it"));
        }
        Ok(Installed::new(image, self.installed))
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
        let mut copy = Vec::new();
        let payload = match invocation.payload {
            Payload::InPlace(body) => {
                body.append_to(&mut copy);
                &copy[..]
            }
            Payload::Private(bytes) => bytes,
        };
        let Some(id) = self
            .ledger
            .run(self.lane, image.image, invocation.sequence, payload)
        else {
            return Ok(0);
        };
        let wants_answer = self.ledger.records[id as usize].wants_completion;
        let is_as_wanted = match &answer {
            Some(memory) => wants_answer && memory.len() == self.ledger.lanes[self.lane].max_answer,
            None => !wants_answer || self.is_link_dead,
        };
        if !is_as_wanted {
            self.ledger.fail(
                "an invocation that wants an answer has memory for it",
                format_args!("number {id}"),
            );
        }
        match (Plan::of(id), answer) {
            (Plan::Answer(len), Some(memory)) => {
                let len = len.min(memory.len());
                write_bytes(&mut memory[..len], id);
                self.ledger.answered(id, self.link, len);
                Ok(len)
            }
            (Plan::Answer(_), None) => Ok(0),
            (Plan::Fail(status, len), _) => {
                let mut detail = vec![0; len];
                write_bytes(&mut detail, id);
                Err(Box::new(Failed { status, detail }))
            }
        }
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        (Status::Executed, stats_page(offset, max))
    }

    fn observe(&mut self, _: Event) {}
}
