//! The serving side of a node's connection.

use ifunc_abi::ImageId;
use ifunc_abi::frame::Header;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use ifunc_proto::caller::Image;
use ifunc_proto::host::{
    Event, Failed, Host, Install, Invocation, MalformedFrame, Payload, Refusal, ReplyTo,
};
use ifunc_proto::link::Body;
use ifunc_proto::node::{Arrival, Ended, Node, Visit};

use crate::image::{Installed, SentImage};

/// Where a completion goes.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The link of the source.
    pub(super) link: usize,
    pub(super) reply_to: ReplyTo,
}

/// An invocation that was taken.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) image: SentImage,
    pub(super) payload: Vec<u8>,
    pub(super) visit: Visit<SentImage, Origin>,
}

/// The host of one connection, for one poll.
pub(super) struct MeshHost<'a> {
    pub(super) node: &'a mut Node<SentImage, Origin>,
    pub(super) running: &'a mut Vec<Running>,
    pub(super) installed: &'a std::rc::Rc<std::cell::Cell<usize>>,
    /// The peer, if it is a node.
    pub(super) peer: Option<u32>,
    pub(super) link: usize,
    pub(super) now: u64,
    /// How a connection misbehaves towards its host.
    pub(super) misuse: Option<&'static str>,
}

impl MeshHost<'_> {
    fn arrival(&self, reply_to: &ReplyTo) -> Arrival<Origin> {
        match self.peer {
            Some(node) => Arrival::Node(node),
            None => Arrival::Source {
                connection: self.link as u64,
                token: reply_to.token(),
                origin: (reply_to.token() != 0).then(|| Origin {
                    link: self.link,
                    reply_to: reply_to.clone(),
                }),
                max_answer: reply_to.max_answer().unwrap_or(0),
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
}

impl Host for MeshHost<'_> {
    type Image = Installed;

    fn install(&mut self, install: Install) -> Result<Vec<Installed>, Refusal> {
        let Some(entries) = SentImage::find(&install.id) else {
            self.misuse = Some("an unknown image");
            return Err(Refusal::new(Rejection::IdMismatch, ""));
        };
        let entries: Vec<_> = entries.collect();
        if entries[0].bytes() != &install.body[install.image] {
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
        _: &Installed,
        _: Invocation<'_, B>,
        _: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        self.misuse = Some("an invocation that travels lost its head");
        Ok(0)
    }

    fn admits_travel(&mut self) -> bool {
        if self.peer.is_some() {
            self.misuse = Some("a node was asked to wait");
        }
        self.node.admits()
    }

    fn travel<B: Body>(
        &mut self,
        installed: &Installed,
        invocation: Invocation<'_, B>,
        head: &TravelHead,
        reply_to: ReplyTo,
        _: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        let mut payload = Vec::new();
        match invocation.payload {
            Payload::InPlace(body) => body.append_to(&mut payload),
            Payload::Private(bytes) => payload.extend_from_slice(bytes),
        }
        match self.node.arrive(self.arrival(&reply_to), head, self.now) {
            Ok(visit) => {
                let image = installed.image;
                self.running.push(Running {
                    image,
                    payload,
                    visit,
                });
                Ok(None)
            }
            Err(ended) => Self::ended(ended),
        }
    }

    fn reject_travel(
        &mut self,
        head: &TravelHead,
        reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        let arrival = self.arrival(reply_to);
        match self.node.reject(arrival, head, failed, self.now) {
            Ended::Here { failed, .. } => failed,
            Ended::Elsewhere => None,
        }
    }

    fn finish(&mut self, scope: u32, reply_to: ReplyTo) -> Result<(), Refusal> {
        let origin = Origin {
            link: self.link,
            reply_to,
        };
        self.node.finish(self.link as u64, scope, origin, self.now);
        Ok(())
    }

    fn grant(&mut self, token: u64, count: u32) {
        self.node.grant(self.link as u64, token, count);
    }

    fn node_frame(&mut self, header: Header, body: &[u8]) -> Result<(), MalformedFrame> {
        let from = self.peer.ok_or(MalformedFrame("from a source"))?;
        let received = self.node.receive(from, header, body, self.now);
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
