//! A node of the tests: a connection, and a host whose invocations answer with their own payload.

use ifunc_abi::ImageId;
use ifunc_abi::frame::Limits;
use ifunc_abi::machine::Machine;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_proto::caller::{Image, NotSent, Submission, SubmitError};
use ifunc_proto::calls::Outcome;
use ifunc_proto::host::{AnswerBytes, Event, Failed, Host, Install, Invocation, Payload, Refusal, ReplyTo};
use ifunc_proto::link::Body;
use ifunc_proto::{Config, Connection, Peer, ServerConfig};

use crate::pipe::Pipe;

/// An entry of an image that is one letter, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    id: ImageId,
    bytes: Vec<u8>,
    entries: u8,
    entry: u8,
    is_idempotent: bool,
}

impl Letter {
    pub(crate) fn new(letter: u8, len: usize) -> Self {
        Self {
            id: [letter; 32],
            bytes: vec![letter; len],
            entries: 1,
            entry: 0,
            is_idempotent: false,
        }
    }

    /// An entry of the image with several.
    pub(crate) fn entry(self, entry: u8, entries: u8) -> Self {
        Self {
            entry,
            entries,
            ..self
        }
    }

    pub(crate) fn idempotent(self) -> Self {
        Self {
            is_idempotent: true,
            ..self
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
        self.entries
    }

    fn entry(&self) -> u8 {
        self.entry
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
}

/// Invocations that ran: the letter of the image plus the index of the entry, and the payload.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    pub(crate) runs: Vec<(u8, Vec<u8>)>,
    /// Images that were installed.
    pub(crate) installs: usize,
}

/// The letter of an image, and the index of an entry.
#[derive(Debug)]
pub(crate) struct Entry(u8, u8);

/// Length of the answer to a payload that begins with `long`.
pub(crate) const LONG: usize = 1000;

impl Host for Echo {
    type Image = Entry;

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Entry>, Refusal> {
        let letter = install.id[0];
        assert!(install.image.iter().all(|&byte| byte == letter));
        if letter == b'x' {
            return Err(Refusal::new(Rejection::Policy, "no x"));
        }
        self.installs += 1;
        // An image of capitals has three entries, whatever its frame states.
        let entries = if letter.is_ascii_uppercase() {
            3
        } else {
            install.entries
        };
        Ok((0..entries as u8).map(|entry| Entry(letter, entry)).collect())
    }

    fn has_id(&mut self, image: &Entry, id: &ImageId) -> bool {
        *id == [image.0; 32]
    }

    fn invoke<B: Body>(
        &mut self,
        &Entry(letter, entry): &Entry,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let mut payload = Vec::new();
        match invocation.payload {
            Payload::InPlace(body) => body.append_to(&mut payload),
            Payload::Private(bytes) => payload.extend_from_slice(bytes),
        }
        self.runs.push((letter + entry, payload.clone()));
        assert!(!payload.starts_with(b"unwind"), "the host unwinds");
        if let Some(&byte) = payload.strip_prefix(b"long").and_then(<[u8]>::first) {
            let answer: Box<dyn AnswerBytes> = Box::new(vec![byte; LONG]);
            return Err(Box::new(Failed::answered(answer)));
        }
        if payload == b"fail" {
            return Err(Box::new(Failed::new(Status::Failed(Failure::Payload), payload)));
        }
        Ok(answer.map_or(0, |answer| {
            let len = payload.len().min(answer.len());
            answer[..len].copy_from_slice(&payload[..len]);
            len
        }))
    }

    fn stats(&mut self, _: u32, _: usize) -> (Status, Vec<u8>) {
        (Status::Executed, Vec::new())
    }

    fn observe(&mut self, _: Event) {}
}

/// A host that takes one invocation in a poll.
#[derive(Debug, Default)]
pub(crate) struct Takes {
    pub(crate) taken: Option<(u8, Vec<u8>, ReplyTo)>,
    pub(crate) count: usize,
    echo: Echo,
}

impl Host for Takes {
    type Image = Entry;

    const TAKES: bool = true;

    fn install(&mut self, install: Install<'_>) -> Result<Vec<Entry>, Refusal> {
        self.echo.install(install)
    }

    fn has_id(&mut self, image: &Entry, id: &ImageId) -> bool {
        self.echo.has_id(image, id)
    }

    fn invoke<B: Body>(
        &mut self,
        _: &Entry,
        _: Invocation<'_, B>,
        _: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        unreachable!("it takes every invocation")
    }

    fn take<B: Body>(&mut self, image: &Entry, invocation: &Invocation<'_, B>, reply_to: ReplyTo) {
        let mut payload = vec![0; invocation.payload.len()];
        invocation.payload.copy_to(&mut payload);
        let earlier = self.taken.replace((image.0, payload, reply_to));
        assert!(earlier.is_none(), "a poll ends with the first invocation");
        self.count += 1;
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        self.echo.stats(offset, max)
    }

    fn observe(&mut self, _: Event) {}
}

/// A node with one connection, on one side of a pipe.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) connection: Connection<Letter, (), Entry>,
    pub(crate) host: Echo,
    side: usize,
}

/// A submission's result: the token, or `None`.
pub(crate) type Submitted = Result<Option<u64>, Box<SubmitError<Letter, ()>>>;

fn submitted(result: Result<u64, NotSent<Letter, ()>>) -> Submitted {
    match result {
        Ok(token) => Ok(Some(token)),
        Err(NotSent::Blocked) => Ok(None),
        Err(NotSent::Failed(error)) => Err(error),
    }
}

impl Node {
    pub(crate) fn new(side: usize, serves: bool) -> Self {
        Self::accepting(side, serves, 10_000)
    }

    /// A node that accepts payloads of so many bytes.
    pub(crate) fn accepting(side: usize, serves: bool, max_payload: u64) -> Self {
        Self::with_limits(side, serves, max_payload, 100)
    }

    /// A node that gives answers of so many bytes.
    pub(crate) fn answering(side: usize, serves: bool, max_answer: u64) -> Self {
        Self::with_limits(side, serves, 10_000, max_answer)
    }

    fn with_limits(side: usize, serves: bool, max_payload: u64, max_answer: u64) -> Self {
        let limits = Limits {
            max_payload,
            max_image: 10_000,
            max_answer,
        };
        let server = ServerConfig {
            limits,
            max_handles: 10,
            has_private_answers: false,
        };
        let config = Config {
            batch_size: 1000,
            max_answers: usize::MAX,
            server: serves.then_some(server),
        };
        Self {
            connection: Connection::new(config),
            host: Echo::default(),
            side,
        }
    }

    pub(crate) fn submission(handle: u32, len: usize, wants_completion: bool) -> Submission {
        Submission {
            handle,
            bound: len,
            align: 1,
            wants_completion,
            carries_code: false,
        }
    }

    pub(crate) fn submit(
        &mut self,
        pipe: &mut Pipe,
        handle: u32,
        payload: &[u8],
        wants_completion: bool,
    ) -> Submitted {
        let submission = Self::submission(handle, payload.len(), wants_completion);
        let mut encode = encoder(payload);
        let side = &mut pipe.side(self.side);
        let at_once = self.connection.submit_at_once(side, &submission, &mut encode);
        submitted(match at_once {
            Some(sent) => sent,
            None => self.connection.submit(side, submission, &mut encode),
        })
    }

    /// The same, with the image in front of it, whether the target has it or not.
    pub(crate) fn submit_with_code(&mut self, pipe: &mut Pipe, handle: u32, payload: &[u8]) -> Submitted {
        let submission = Submission {
            carries_code: true,
            ..Self::submission(handle, payload.len(), false)
        };
        let side = &mut pipe.side(self.side);
        submitted(self.connection.submit(side, submission, &mut encoder(payload)))
    }

    pub(crate) fn append(
        &mut self,
        pipe: &mut Pipe,
        handle: u32,
        payload: &[u8],
        is_eager: bool,
    ) -> Submitted {
        let submission = Self::submission(handle, payload.len(), true);
        let mut encode = encoder(payload);
        let side = &mut pipe.side(self.side);
        submitted(self.connection.append(side, submission, is_eager, &mut encode))
    }

    pub(crate) fn poll(&mut self, pipe: &mut Pipe) -> usize {
        let mut side = pipe.side(self.side);
        self.connection.drive(&mut side);
        if !self.connection.is_linked() {
            return 0;
        }
        let processed = self.connection.poll(&mut side, &mut self.host);
        self.connection.drive(&mut side);
        processed.unwrap_or(0)
    }

    pub(crate) fn take(&mut self, token: u64) -> Option<Outcome> {
        self.connection.caller.calls.take(token)
    }
}

fn encoder(payload: &[u8]) -> impl FnMut(&mut [u8]) -> Result<usize, ()> {
    move |memory| {
        memory[..payload.len()].copy_from_slice(payload);
        Ok(payload.len())
    }
}

/// Connects two nodes. `invokes`: whether each invokes.
pub(crate) fn connect(pipe: &mut Pipe, nodes: [&mut Node; 2], serves: [bool; 2], invokes: [bool; 2]) {
    let limits = Limits {
        max_payload: 10_000,
        max_image: 10_000,
        max_answer: 100,
    };
    for (here, node) in nodes.into_iter().enumerate() {
        let there = 1 - here;
        let peer = Peer {
            machine: Machine::default(),
            max_answer: u64::MAX,
            limits: (serves[there] && invokes[here]).then_some(limits),
            invokes: invokes[there],
            node: None,
        };
        node.connection.connect(&mut pipe.side(here), peer);
    }
}

/// Polls both nodes until nothing happens.
pub(crate) fn settle(pipe: &mut Pipe, first: &mut Node, second: &mut Node) {
    let mut idle = 0;
    while idle < 4 {
        let before = first.connection.received() + second.connection.received();
        let processed = first.poll(pipe) + second.poll(pipe);
        let after = first.connection.received() + second.connection.received();
        idle = if processed == 0 && before == after {
            idle + 1
        } else {
            0
        };
    }
}
