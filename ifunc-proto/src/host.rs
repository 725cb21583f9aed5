//! What a connection needs of the node that serves it.

use ifunc_abi::ImageId;
use ifunc_abi::batch::ALIGN;
use ifunc_abi::frame::{Companions, Header};
pub use ifunc_abi::refusal::{AnswerBytes, Failed, Refusal};
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;

use crate::link::Body;

#[cfg(test)]
mod tests;

/// The serving side of a node. The connection calls it in the order of the frames.
pub trait Host {
    /// An entry of an installed image, as a handle is bound to it. Dropping all entries of an image releases the image.
    type Image;

    /// Whether the host [takes](Self::take) invocations. A poll then ends with the first invocation.
    const TAKES: bool = false;

    /// Validates and installs an image, and returns its entries in their order. The bytes are a private copy: the peer cannot
    /// change them.
    ///
    /// # Errors
    /// Why this node does not run the image. Invocations of its handles are rejected with the same reason.
    fn install(&mut self, install: Install<'_>) -> Result<Vec<Self::Image>, Refusal>;

    /// Whether this is an entry of the image with this id. An `Install` of the id that its handles are bound to already is
    /// ignored; it asks for each entry.
    fn has_id(&mut self, image: &Self::Image, id: &ImageId) -> bool;

    /// Runs an image. Returns the length of the answer that it wrote to the begin of `answer`; `None`: the peer wants no
    /// answer.
    ///
    /// # Errors
    /// The image did not run, or did not run to its end; or its [answer](Failed::answer) is too long for that memory.
    fn invoke<B: Body>(
        &mut self,
        image: &Self::Image,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>>;

    /// Runs entries of a run in their order. Stops after one that has no answer in this memory; and before one, but not before the first,
    /// if there is less memory left for its answer than the longest one takes, or if other connections shall have their turn.
    /// Then the poll ends. A later call runs the others.
    fn invoke_run<B: Body>(
        &mut self,
        image: &Self::Image,
        run: Run<B>,
        answers: Option<Answers<'_>>,
    ) -> RunEnd {
        run_each(self, image, run, answers)
    }

    /// Takes an invocation, to run it when no poll is under way and before the next one begins.
    /// [`Connection::answer`](crate::Connection::answer) then ends it. Called instead of [`invoke`](Self::invoke) if the
    /// host [`TAKES`](Self::TAKES) invocations: the connection can be used while they run.
    fn take<B: Body>(&mut self, _image: &Self::Image, _invocation: &Invocation<'_, B>, _reply_to: ReplyTo) {}

    /// The page of this node's statistics that begins at `offset`, in at most `max` bytes.
    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>);

    /// Whether a source may add an invocation that travels. `false`: its frame stays where it is, and everything behind it,
    /// and the connection [is held](crate::Connection::is_held) until the driver polls it again. Nodes of the group are not
    /// asked: what they forward is always received.
    fn admits_travel(&mut self) -> bool {
        true
    }

    /// Receives an invocation that may travel on. Either runs it, and returns the length of the answer that it wrote to the
    /// begin of `answer`; or takes it, with a copy of its payload and with `reply_to`, and returns `None`: then
    /// [`Connection::answer`](crate::Connection::answer) or [`Connection::relay`](crate::Connection::relay) ends it, at any
    /// time and in any order with others, also over a link that carries invocations one way. A host that
    /// [`TAKES`](Self::TAKES) invocations takes this one, too.
    ///
    /// # Errors
    /// The image did not run, or did not run to its end. The peer's completion states it, or a report if the peer wants no
    /// completion: of an invocation whose head names another destination, the host reports the failure there and returns
    /// `None`.
    fn travel<B: Body>(
        &mut self,
        _image: &Self::Image,
        _invocation: Invocation<'_, B>,
        _head: &TravelHead,
        _reply_to: ReplyTo,
        _answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        Err(Refusal::new(Rejection::NoNode, "this target runs no invocations that travel").into())
    }

    /// An invocation that may travel on cannot run. Returns the failure if the peer is to receive it, in its completion or in
    /// a report; `None`: the host reports it to the destination that the head names.
    fn reject_travel(
        &mut self,
        _head: &TravelHead,
        _reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        Some(failed)
    }

    /// The source asks for a completion when everything in its scope has ended. [`Connection::answer`](crate::Connection::answer)
    /// ends the request, with an encoded [`ScopeReport`](ifunc_abi::travel::ScopeReport).
    ///
    /// # Errors
    /// Why there is no such completion.
    fn finish(&mut self, _scope: u32, _reply_to: ReplyTo) -> Result<(), Refusal> {
        Err(Refusal::new(Rejection::NoNode, "this target keeps no scopes"))
    }

    /// The source took partial answers of the call with this [token](ReplyTo::token).
    fn grant(&mut self, _token: u64, _count: u32) {}

    /// The source dropped the call with this [token](ReplyTo::token).
    fn cancel(&mut self, _token: u64) {}

    /// Receives a frame from a node of the group that is no invocation:
    /// [`Node::receive`](crate::node::Node::receive).
    ///
    /// # Errors
    /// The frame is malformed: the connection ends.
    fn node_frame(&mut self, _header: Header, _body: &[u8]) -> Result<(), MalformedFrame> {
        Err(MalformedFrame("a frame between nodes, and this is none"))
    }

    /// This connection is about to hold `bytes` bytes of a body whose last fragment has not arrived; 0: none. They replace what
    /// it held before, which a refusal leaves as it is.
    ///
    /// # Errors
    /// Why this node does not keep so many. The body is dropped, and what it was for is rejected with the reason.
    fn hold(&mut self, _bytes: usize) -> Result<(), Refusal> {
        Ok(())
    }

    /// Counts an event. The events of invocations that end well are not reported: [`invoke`](Self::invoke) counts those.
    fn observe(&mut self, event: Event);

    /// An invocation was refused, which an [`Event::Failed`] has counted. `detail` is the reason for the peer.
    fn refused(&mut self, reason: Rejection, detail: &[u8]) {
        let _ = (reason, detail);
    }
}

/// A frame from a node breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedFrame(pub &'static str);

/// An image to be installed.
#[derive(Clone, Copy, Debug)]
pub struct Install<'a> {
    /// The handle that its first entry is bound to. The handles after it are those of its other entries.
    pub handle: u32,
    /// How many entries its frame states. Refused if the image has another number of them.
    pub entries: usize,
    /// The id under which the peer sent it. Not compared with the bytes yet.
    pub id: ImageId,
    /// Signature scheme; see [`InstallHead`](ifunc_abi::frame::InstallHead).
    pub scheme: u16,
    /// The signature.
    pub signature: &'a [u8],
    /// Slices of it for other machines, which are not run here. A copy, too; not compared with their ids yet.
    pub companions: Companions<'a>,
    /// The image: a private copy, which the peer cannot change.
    pub image: &'a [u8],
}

/// One invocation.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a, B> {
    /// Sequence number of its frame.
    pub sequence: u32,
    /// Whether it came as an entry of a batch.
    pub is_batched: bool,
    /// Its payload.
    pub payload: Payload<'a, B>,
}

/// Invocations of one image, in their order, with payloads of one length: entries of a batch, or frames that arrived one after another.
#[derive(Clone, Copy, Debug)]
pub struct Run<B> {
    /// Sequence number of their frame, or of the first of their frames.
    pub sequence: u32,
    /// Whether they came as entries of a batch.
    pub is_batched: bool,
    /// The payloads, `stride` bytes apart, up to the end of the last one at least.
    pub payloads: B,
    /// Length of each payload.
    pub len: usize,
    /// Distance between two payloads.
    pub stride: usize,
    /// Number of entries, at least one.
    pub count: usize,
}

impl<B: Body> Run<B> {
    /// The invocation of an entry.
    ///
    /// # Panics
    /// If there are not so many entries.
    #[must_use]
    pub fn invocation(&self, index: usize) -> Invocation<'static, B> {
        let payload = self.payloads.slice(index * self.stride, self.len);
        Invocation {
            sequence: self.sequence_of(index),
            is_batched: self.is_batched,
            payload: Payload::InPlace(payload.expect("an entry of this run")),
        }
    }

    /// The entries from `index` on, `count` of them.
    ///
    /// # Panics
    /// If there are not so many entries.
    #[must_use]
    pub fn part(&self, index: usize, count: usize) -> Self {
        let len = extent(count, self.stride, self.len);
        let payloads = self.payloads.slice(index * self.stride, len);
        Self {
            sequence: self.sequence_of(index),
            payloads: payloads.expect("entries of this run"),
            count,
            ..*self
        }
    }

    fn sequence_of(&self, index: usize) -> u32 {
        match self.is_batched {
            true => self.sequence,
            false => self.sequence.wrapping_add(index as u32),
        }
    }
}

/// Bytes from the begin of the first of `count` payloads to the end of the last one.
fn extent(count: usize, stride: usize, len: usize) -> usize {
    count.checked_sub(1).map_or(0, |last| last * stride + len)
}

/// Memory for the answers of a run.
#[derive(Debug)]
pub struct Answers<'a> {
    /// Each answer begins at a multiple of [`ALIGN`], right after the one before. There is memory for
    /// at least one.
    pub memory: &'a mut [u8],
    /// Length of the longest answer.
    pub max_answer: usize,
    /// The lengths of the answers: at least as many as the run has entries.
    pub lens: &'a mut [u32],
}

impl Answers<'_> {
    /// The memory after the first `count` answers, which have `used` bytes with what lies between them.
    pub fn after(&mut self, count: usize, used: usize) -> Answers<'_> {
        Answers {
            memory: &mut self.memory[used..],
            max_answer: self.max_answer,
            lens: &mut self.lens[count..],
        }
    }
}

/// How far a run was processed.
#[derive(Debug)]
pub struct RunEnd {
    /// Number of entries that ended well. Their answers were written.
    pub executed: usize,
    /// Why the entry after them has no answer in its memory; `None`: it was not started.
    pub failed: Option<Box<Failed>>,
}

/// Reports to the host an invocation that failed with a payload of `payload` bytes; not one whose answer lies in `failed.answer`. A driver calls
/// this for an invocation that it took and cannot [answer](crate::Connection::answer), because the link has ended.
pub fn report_failed(failed: &Failed, host: &mut impl Host, payload: usize) {
    if failed.answer.is_some() {
        return;
    }
    host.observe(Event::Failed {
        status: failed.status,
        payload,
        detail: failed.detail.len(),
    });
    if let Status::Rejected(reason) = failed.status {
        host.refused(reason, &failed.detail);
    }
}

/// Runs the entries of a run one by one.
pub fn run_each<H: Host + ?Sized, B: Body>(
    host: &mut H,
    image: &H::Image,
    run: Run<B>,
    mut answers: Option<Answers<'_>>,
) -> RunEnd {
    let mut used = 0;
    for index in 0..run.count {
        let memory = match &mut answers {
            Some(answers) if index > 0 && answers.memory.len() - used < answers.max_answer => {
                return RunEnd {
                    executed: index,
                    failed: None,
                };
            }
            Some(answers) => Some(&mut answers.memory[used..][..answers.max_answer]),
            None => None,
        };
        match host.invoke(image, run.invocation(index), memory) {
            Ok(len) => {
                if let Some(answers) = &mut answers {
                    answers.lens[index] = len as u32;
                    used += len.next_multiple_of(ALIGN);
                    used = used.min(answers.memory.len());
                }
            }
            Err(failed) => {
                return RunEnd {
                    executed: index,
                    failed: Some(failed),
                };
            }
        }
    }
    RunEnd {
        executed: run.count,
        failed: None,
    }
}

/// Where the answer to an invocation goes that the host took.
#[derive(Clone, Debug)]
pub struct ReplyTo {
    /// Its handle and its token.
    pub(crate) call: (u32, u64),
    pub(crate) sequence: u32,
    pub(crate) is_batched: bool,
    pub(crate) payload: usize,
    /// It may be answered after any later request.
    pub(crate) is_late: bool,
    max_answer: Option<usize>,
    /// Of an answer that lies elsewhere.
    longest: usize,
}

impl ReplyTo {
    /// Memory that is lent for an answer; `None`: the peer wants no answer.
    #[must_use]
    pub fn max_answer(&self) -> Option<usize> {
        self.max_answer
    }

    /// Length of the longest answer, in that memory or [elsewhere](Failed::answer).
    #[must_use]
    pub fn longest_answer(&self) -> usize {
        self.longest
    }

    /// Length of the payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload
    }

    /// The token of the call, unique among the calls of its connection that are under way; 0: the peer wants no answer.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.call.1
    }

    /// The invocation, with a copy of its payload.
    #[must_use]
    pub fn invocation<'a>(&self, payload: &'a [u8]) -> Invocation<'a, &'a [u8]> {
        Invocation {
            sequence: self.sequence,
            is_batched: self.is_batched,
            payload: Payload::Private(payload),
        }
    }

    pub(crate) fn new<B: Body>(
        call: (u32, u64),
        invocation: &Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Self {
        Self {
            call,
            sequence: invocation.sequence,
            is_batched: invocation.is_batched,
            payload: invocation.payload.len(),
            is_late: false,
            longest: answer.as_ref().map_or(0, |answer| answer.len()),
            max_answer: answer.map(|answer| answer.len()),
        }
    }

    /// With this length of the longest answer.
    pub(crate) fn with_longest(mut self, longest: usize) -> Self {
        self.longest = longest;
        self
    }

    /// Of a request that may be answered after any later one.
    pub(crate) fn late(call: (u32, u64), sequence: u32, payload: usize, max_answer: Option<usize>) -> Self {
        Self {
            call,
            sequence,
            is_batched: false,
            payload,
            is_late: true,
            max_answer,
            longest: max_answer.unwrap_or(0),
        }
    }
}

/// A payload and where it lies.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a, B> {
    /// In the transport's memory. The peer may be able to change it.
    InPlace(B),
    /// In private memory, at a multiple of [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN).
    Private(&'a [u8]),
}

impl<B: Body> Payload<'_, B> {
    /// Address of the first byte. The bytes stay readable while the invocation runs.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            Self::InPlace(body) => body.as_ptr(),
            Self::Private(bytes) => bytes.as_ptr(),
        }
    }

    /// Copies the payload to `out`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, out: &mut [u8]) {
        match self {
            Self::InPlace(body) => body.copy_to(out),
            Self::Private(bytes) => out.copy_from_slice(bytes),
        }
    }

    /// Whether the peer may be able to change it.
    #[inline]
    pub fn is_in_place(&self) -> bool {
        matches!(self, Self::InPlace(_))
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::InPlace(body) => body.len(),
            Self::Private(bytes) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a node counts of a connection that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame that is no invocation was processed, or an invocation was rejected.
    Frame,
    /// Bytes of an image arrived.
    ImageBytes(usize),
    /// An image was refused by the protocol: before the host saw it, or because it is not what its frame states.
    Refused(Rejection),
    /// An invocation has no answer.
    Failed {
        /// Why.
        status: Status,
        /// Bytes of its payload.
        payload: usize,
        /// Bytes of the detail for the peer.
        detail: usize,
    },
    /// Bytes of a reply to a request that is no invocation were sent.
    ReplyBytes(usize),
    /// The connection waits for credits to reply (`true`), or got them (`false`).
    Stalled(bool),
}

/// The host of a node that does not serve.
#[derive(Clone, Copy, Debug)]
pub struct NoHost;

impl Host for NoHost {
    type Image = std::convert::Infallible;

    fn install(&mut self, _: Install<'_>) -> Result<Vec<Self::Image>, Refusal> {
        Err(Refusal::new(Rejection::Policy, "this node does not serve"))
    }

    fn has_id(&mut self, image: &Self::Image, _: &ImageId) -> bool {
        match *image {}
    }

    fn invoke<B: Body>(
        &mut self,
        image: &Self::Image,
        _: Invocation<'_, B>,
        _: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        match *image {}
    }

    fn stats(&mut self, _: u32, _: usize) -> (Status, Vec<u8>) {
        (Status::Rejected(Rejection::Policy), Vec::new())
    }

    fn observe(&mut self, _: Event) {}
}
