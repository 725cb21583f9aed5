//! A connection of `ifunc-proto` whose peer sends whatever the input says, while its driver uses both halves of it.

mod host;
mod pipe;

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind, Limits};
use ifunc_abi::machine::Machine;
use ifunc_abi::travel::{SlotRef, TravelHead};
use ifunc_proto::caller::Submission;
use ifunc_proto::node::{self, Event, NodeConfig};
use ifunc_proto::{Config, Connection, Peer, ServerConfig};
use zerocopy::IntoBytes as _;
use zerocopy::little_endian::U32;

use host::{Echo, Letter};
use pipe::{MAX_BODY, Pipe, WINDOW};

/// Limits of this side.
pub(crate) const MAX_PAYLOAD: usize = 3000;
const MAX_IMAGE: usize = 4000;
const MAX_ANSWER: usize = 2500;
/// Answers that the driver has not dropped.
const MAX_ANSWERS: usize = 20_000;
const BATCH: usize = 600;

/// The input, read from its front. What is missing is zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// Mostly small, sometimes anything.
    fn number(&mut self) -> u32 {
        match self.byte() {
            255 => u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
            small => small.into(),
        }
    }

    /// As long as a byte says, in units of which another byte chooses one, filled by a few bytes.
    fn body(&mut self) -> Vec<u8> {
        let len = match self.byte() {
            small @ 0..200 => usize::from(small),
            large => usize::from(large - 199) * (MAX_BODY / 56),
        };
        let (taken, rest) = self.0.split_at(len.min(self.0.len()).min(64));
        self.0 = rest;
        let mut body = taken.to_vec();
        body.resize(len.min(MAX_BODY), taken.last().copied().unwrap_or(7));
        body
    }
}

struct World {
    connection: Connection<Letter, (), (ifunc_abi::ImageId, u8)>,
    host: Echo,
    pipe: Pipe,
    peer: Peer,
    /// Sequence of the next frame from the peer.
    sequence: u32,
    handles: Vec<u32>,
    tokens: Vec<u64>,
}

/// Each byte chooses a step, and those behind it say which.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut world = World::new(input.byte());
    while !input.0.is_empty() {
        world.step(&mut input);
        world.check();
    }
    // Whatever happened, the end of the link ends everything.
    world.pipe.kill();
    for _ in 0..200 {
        if world.connection.poll(&mut world.pipe, &mut world.host).is_err() {
            break;
        }
    }
    world.connection.lose(&mut world.pipe, "it ends");
    assert!(!world.connection.is_linked());
}

impl World {
    fn new(roles: u8) -> Self {
        let limits = Limits {
            max_payload: MAX_PAYLOAD as u64,
            max_image: MAX_IMAGE as u64,
            max_answer: MAX_ANSWER as u64,
        };
        let server = ServerConfig {
            limits,
            max_handles: 8,
            has_private_answers: roles & 1 != 0,
        };
        let (serves, invokes) = (roles & 6 != 6, roles & 6 != 4);
        let node = (roles & 24 == 24).then_some(2);
        let config = Config {
            batch_size: BATCH,
            max_answers: MAX_ANSWERS,
            server: serves.then_some(server),
        };
        let peer = Peer {
            machine: Machine::default(),
            max_answer: 1500,
            limits: invokes.then_some(limits),
            invokes: serves,
            node,
        };
        let mut state = node::Node::new(NodeConfig {
            number: Some(1),
            epoch: 1,
            seed: 9,
            outbox_bytes: 4000,
            max_slots: 16,
            max_unread: 64,
            max_scopes: 16,
            max_payload: MAX_PAYLOAD,
            max_answer: MAX_ANSWER,
            ..NodeConfig::default()
        });
        if node.is_some() {
            state.linked(2, 1, 0);
        }
        let mut world = Self {
            connection: Connection::new(config),
            host: Echo::new(state, node),
            pipe: Pipe::new(),
            peer,
            sequence: 1,
            handles: Vec::new(),
            tokens: Vec::new(),
        };
        world.connection.connect(&mut world.pipe, peer);
        world
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 24 {
            0..=5 => self.frame(input),
            6 => self.install(input),
            7 => self.batch(input),
            8 => self.travel(input),
            9..=12 => self.poll(),
            13 => self.pipe.tx().window = (self.pipe.tx().window + usize::from(input.byte())).min(WINDOW),
            14 => {
                if self.handles.len() < 6 {
                    let letter = Letter::new(input.byte());
                    self.handles.push(self.connection.caller.bind(letter));
                }
            }
            15 => {
                if let Some(handle) = self.handles.pop() {
                    self.connection.caller.unbind(handle);
                }
            }
            16 | 17 => self.submit(input),
            18 => {
                let token = match input.byte() % 3 {
                    0 => self.connection.flush(&mut self.pipe),
                    1 => self.connection.stats(&mut self.pipe, input.number()),
                    _ => self.connection.finish(&mut self.pipe, input.number()),
                };
                self.keep(token);
            }
            19 => self.take(input),
            20 => {
                self.connection.close_batch(&mut self.pipe);
                self.connection.caller.take_reports();
            }
            21 => self.answer(input),
            22 => {
                self.host.now += u64::from(input.number()) << 20;
                self.host.node.tick(self.host.now);
                self.host.node.idle(self.host.now);
            }
            _ => self.relink(input),
        }
    }

    fn keep(&mut self, token: Option<u64>) {
        self.tokens.extend(token.filter(|&token| token != 0));
    }

    /// A frame of any kind, mostly the next one.
    fn frame(&mut self, input: &mut Input<'_>) {
        let kind = match input.byte() {
            code if Kind::from_code(code).is_some() => code,
            code => code % 26,
        };
        let flags = input.byte();
        let handle = input.number();
        let token = self.token(input);
        let word = u64::from(handle) << 32 | u64::from(flags % 16) << 8 | u64::from(kind);
        let body = input.body();
        self.deliver(input, [word, token], body);
    }

    /// A token of one of this side's requests, or another.
    fn token(&mut self, input: &mut Input<'_>) -> u64 {
        let tokens = &self.pipe.tx().tokens;
        match input.byte() {
            own @ 0..128 if !tokens.is_empty() => tokens[usize::from(own) % tokens.len()],
            255 => u64::MAX,
            other => other.into(),
        }
    }

    fn deliver(&mut self, input: &mut Input<'_>, words: [u64; 2], body: Vec<u8>) {
        let sequence = match input.byte() {
            0..200 => self.sequence,
            ahead @ 200..250 => self.sequence.wrapping_add(u32::from(ahead - 199)),
            250..254 => self.sequence.wrapping_sub(1),
            _ => input.number(),
        };
        if sequence == self.sequence {
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.pipe.deliver(sequence, words, body);
    }

    fn install(&mut self, input: &mut Input<'_>) {
        let letter = input.byte();
        let mut head = InstallHead::unsigned([letter; 32], u16::from(input.byte() % 8));
        match input.byte() % 8 {
            7 => head = InstallHead::signed([letter; 32], 1),
            6 => head = head.with_companions(1),
            _ => {}
        }
        let body = [head.as_bytes(), &input.body()].concat();
        let token = self.token(input);
        let words = Header::new(Kind::Install, input.number(), token).words();
        self.deliver(input, words, body);
    }

    fn batch(&mut self, input: &mut Input<'_>) {
        let mut body = Vec::new();
        for _ in 0..input.byte() % 5 {
            let (code, len, token) = (input.number(), u32::from(input.byte() % 64), self.token(input));
            let (stride, count) = (len + u32::from(input.byte() % 9), u32::from(input.byte() % 12));
            let head = RunHead::new(code, token, len, stride, count);
            body.extend_from_slice(head.as_bytes());
            let entries = head.run_len().unwrap_or(RunHead::SIZE) - RunHead::SIZE;
            body.resize((body.len() + entries).min(MAX_BODY), input.byte());
        }
        let kind = [Kind::Batch, Kind::Completions][usize::from(input.byte() % 2)];
        self.deliver(input, Header::new(kind, 0, 0).words(), body);
    }

    fn travel(&mut self, input: &mut Input<'_>) {
        let slot =
            |input: &mut Input<'_>| SlotRef::new(input.number(), input.number(), input.number().into());
        let mut head = TravelHead::of_source(4);
        let states = input.byte();
        if states & 1 != 0 {
            head.reply_to = slot(input);
        }
        if states & 2 != 0 {
            head.scope = slot(input);
        }
        if states & 4 != 0 {
            head.hops = u16::from(input.byte()).into();
        }
        if states & 8 != 0 {
            (head.stream_next, head.stream_window) = (input.number().into(), U32::new(input.number()));
        }
        if states & 16 != 0 {
            (head.weight, head.deadline) =
                (u64::from(input.number()).into(), u64::from(input.number()).into());
        }
        let kind = [Kind::Travel, Kind::Travel, Kind::Bounce][usize::from(states >> 5) % 3];
        let body = [head.as_bytes(), &input.body()].concat();
        let (handle, token) = (input.number(), self.token(input));
        let mut header = Header::new(kind, handle, token);
        if states & 128 != 0 {
            header.flags = FrameFlags::ASSEMBLED;
        }
        self.deliver(input, header.words(), body);
    }

    fn poll(&mut self) {
        self.connection.drive(&mut self.pipe);
        let polled = self.connection.poll(&mut self.pipe, &mut self.host);
        if polled.is_err() {
            assert!(!self.connection.is_linked());
        }
        while let Some(event) = self.host.node.next_event() {
            let (pipe, host) = (&mut self.pipe, &mut self.host);
            match event {
                Event::Answer {
                    origin,
                    node,
                    outcome,
                } => {
                    let outcome = outcome.as_deref().map_err(|failed| &**failed);
                    self.connection.relay(pipe, host, &origin, node, outcome);
                }
                _ => {}
            }
        }
        if self.peer.node.is_some() && self.connection.is_linked() {
            let now = self.host.now;
            self.host.node.drive(2, &mut self.connection, &mut self.pipe, now);
        }
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let Some(&handle) = self
            .handles
            .get(usize::from(input.byte()) % self.handles.len().max(1))
        else {
            return;
        };
        let how = input.byte();
        let len = usize::from(input.byte()) * usize::from(how % 16 + 1);
        let submission = Submission {
            handle,
            bound: len,
            align: 1 << (how % 7),
            wants_completion: how & 16 != 0,
            carries_code: how & 32 != 0,
        };
        let mut encode = |memory: &mut [u8]| -> Result<usize, ()> {
            memory[..len].fill(how);
            if how == 77 { Err(()) } else { Ok(len) }
        };
        let sent = match how >> 6 {
            0 => self.connection.submit(&mut self.pipe, submission, &mut encode),
            1 => self
                .connection
                .append(&mut self.pipe, submission, true, &mut encode),
            2 => self
                .connection
                .append(&mut self.pipe, submission, false, &mut encode),
            _ => {
                let head = TravelHead::of_source(2);
                let sent = self
                    .connection
                    .submit_travel(&mut self.pipe, submission, &head, &mut encode);
                sent.map(|accepted| accepted.token)
            }
        };
        self.keep(sent.ok().filter(|_| submission.wants_completion));
    }

    /// The outcome of a request is taken once, or the driver gives it up.
    fn take(&mut self, input: &mut Input<'_>) {
        if self.tokens.is_empty() {
            return;
        }
        let index = usize::from(input.byte()) % self.tokens.len();
        let token = self.tokens[index];
        self.connection.receive(&mut self.pipe, token);
        let calls = &mut self.connection.caller.calls;
        calls.take_partial(token);
        if calls.take(token).is_some() {
            self.tokens.swap_remove(index);
            assert!(
                self.connection.caller.calls.take(token).is_none(),
                "an outcome is taken twice"
            );
        } else if input.byte() % 4 == 3 {
            self.tokens.swap_remove(index);
            self.connection.caller.abandon(token);
        } else if input.byte() % 4 == 2 {
            self.connection.grant(&mut self.pipe, token, input.number());
        }
    }

    /// The driver answers what waits.
    fn answer(&mut self, input: &mut Input<'_>) {
        let Some(reply_to) = self.host.waiting.pop() else {
            if let Some(unfinished) = self.connection.unfinished() {
                let _ = unfinished;
                let refusal =
                    ifunc_abi::refusal::Refusal::new(ifunc_abi::status::Rejection::Quota, "too late");
                self.connection.refuse_unfinished(refusal);
            }
            return;
        };
        let body = input.body();
        let answer = &body[..body.len().min(reply_to.longest_answer())];
        self.connection
            .answer(&mut self.pipe, &mut self.host, &reply_to, Ok(answer));
    }

    /// The link dies, and mostly there is another one.
    fn relink(&mut self, input: &mut Input<'_>) {
        self.pipe.kill();
        self.connection.lose(&mut self.pipe, "the fuzzer ends it");
        self.host.waiting.clear();
        self.host.node.forget_connection(1);
        let mut state = node::Node::new(NodeConfig::default());
        std::mem::swap(&mut state, &mut self.host.node);
        self.pipe = Pipe::new();
        self.sequence = 1;
        if input.byte() % 4 != 3 {
            if self.peer.node.is_some() {
                self.host.node.set_number(1);
                self.host.node.linked(2, 1, self.host.now);
            }
            self.connection.connect(&mut self.pipe, self.peer);
        }
    }

    /// What the connection holds is bounded.
    fn check(&mut self) {
        let held = self.connection.footprint();
        // As many as the reorder buffer takes of a peer that ignores its credits.
        assert!(held.parked.0 <= 4096 && held.parked.1 <= 64 << 20, "{held:?}");
        assert!(held.reports <= 64 && held.batch <= BATCH + 4096, "{held:?}");
        assert!(
            held.assembled <= MAX_PAYLOAD.max(MAX_IMAGE) + MAX_ANSWERS + 4096,
            "{held:?}"
        );
        assert!(self.pipe.tx().window <= WINDOW);
        let node = self.host.node.footprint();
        assert!(node.slots <= 16 || self.host.node.number().is_none() || node.slots <= 1 << 16);
    }
}
