//! A simulated group: nodes whose invocations travel on, sources that are no nodes, and the oracle that checks them.
//!
//! | module | holds |
//! |---|---|
//! | `ledger` | the oracle: which invocation was sent, ran and ended, and how each call and scope ended |
//! | `host` | a node's serving side |
//! | `node` | the steps of nodes: poll, run, send |
//! | `source` | the steps of sources: call, take, finish |
//! | `network` | links, deaths and restarts |
//! | `settle` | liveness, and what is checked when everything rests |

use ifunc_proto::node::{Node, NodeConfig};
use ifunc_proto::{Config, Connection, ServerConfig};

use crate::image::{Installed, SentImage};
use crate::ledger::Violation;
use crate::link::Channel;
use crate::rng::Rng;

mod host;
mod ledger;
mod network;
mod node;
mod settle;
mod source;

use host::{Origin, Running};
use ledger::Ledger;

/// Which side of a link a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Node(usize),
    Source(usize),
}

/// A connection, as its driver holds it.
#[derive(Debug)]
struct Port {
    peer: Peer,
    link: usize,
    side: usize,
    connection: Connection<SentImage, u32, Installed>,
    installed: std::rc::Rc<std::cell::Cell<usize>>,
}

/// A node that runs, or a dead one.
#[derive(Debug)]
struct SimulatedNode {
    is_up: bool,
    epoch: u64,
    node: Node<SentImage, Origin>,
    ports: Vec<Port>,
    /// Invocations that were taken and have not run.
    running: Vec<Running>,
    /// Nodes to which it asked for a link.
    wanted: Vec<usize>,
}

/// A source.
#[derive(Debug)]
struct Source {
    node: usize,
    port: Option<Port>,
    /// Its calls on this connection that are not over: tokens, and numbers in the ledger.
    calls: Vec<(u64, u32)>,
    /// Its scopes on this connection that are not over: their numbers in the ledger.
    scopes: Vec<u32>,
    /// Windows that it has not told the node: tokens, and counts.
    ungranted: Vec<(u64, u32)>,
    /// Numbers of scopes that it used.
    numbers: u32,
}

#[derive(Debug)]
struct MeshLink {
    channels: [Channel; 2],
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Submit,
    TakeOutcomes,
    Finish,
    Poll,
    Run,
    Events,
    Drive,
    Idle,
    Time,
    Deliver,
    Credits,
    Connect,
    Kill,
    Cut,
    Notice,
    Restart,
    Settle,
}

const ACTIONS: [(Action, u32); 17] = [
    (Action::Submit, 160),
    (Action::TakeOutcomes, 60),
    (Action::Finish, 8),
    (Action::Poll, 260),
    (Action::Run, 160),
    (Action::Events, 120),
    (Action::Drive, 200),
    (Action::Idle, 40),
    (Action::Time, 20),
    (Action::Deliver, 200),
    (Action::Credits, 120),
    (Action::Connect, 40),
    (Action::Kill, 3),
    (Action::Cut, 2),
    (Action::Notice, 20),
    (Action::Restart, 6),
    (Action::Settle, 1),
];

/// How the invocations of a run behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taste {
    /// Of 8 invocations, so many forward themselves.
    forwards: usize,
    /// Most invocations that one sends.
    sends: usize,
    /// Of 8 submissions of sources, so many are calls, in a scope, streamed.
    calls: usize,
    scoped: usize,
    streamed: usize,
    deadlines: usize,
    /// Longest payload.
    payload: usize,
    window: u32,
    hop_limit: u16,
    outbox: usize,
}

/// The group of one seed.
#[derive(Debug)]
pub(crate) struct Mesh {
    nodes: Vec<SimulatedNode>,
    sources: Vec<Source>,
    links: Vec<MeshLink>,
    ledger: Ledger,
    now: u64,
    weights: [u32; ACTIONS.len()],
    taste: Taste,
    /// Every link has one credit.
    has_one_credit: bool,
    pub(crate) steps: u64,
    pub(crate) trace: Option<Vec<String>>,
}

macro_rules! say {
    ($mesh:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $mesh.trace {
            let step = $mesh.steps;
            trace.push(format!("{step:6}  {}", format_args!($($text)*)));
        }
    };
}
use say;

impl Mesh {
    pub(crate) fn new(seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::of_step(seed, u64::MAX - 7);
        // Two nodes that flood each other through one credit are a scenario of their own.
        let is_flood = rng.one_in(5);
        let is_faultless = is_flood || rng.one_in(2);
        let count = if is_flood { 2 } else { rng.pick(&[2, 2, 3, 4, 6]) };
        let taste = Taste {
            forwards: if is_flood { 7 } else { rng.pick(&[1, 3, 5, 7]) },
            sends: rng.pick(&[0, 1, 2, 3]),
            calls: rng.pick(&[0, 4, 7, 8]),
            scoped: rng.pick(&[0, 2, 5, 8]),
            streamed: rng.pick(&[0, 0, 3, 8]),
            deadlines: rng.pick(&[0, 0, 0, 2]),
            payload: rng.pick(&[4, 40, 300, 900]),
            window: rng.pick(&[1, 2, 5]),
            hop_limit: rng.pick(&[0, 3, 12, 40]),
            outbox: rng.pick(&[1500, 6000, 40_000]),
        };
        let mut weights = ACTIONS.map(|(_, weight)| weight);
        for weight in &mut weights {
            *weight = *weight * rng.pick(&[1, 2, 2, 4, 8]) / 2;
        }
        if is_faultless {
            for (weight, (action, _)) in weights.iter_mut().zip(ACTIONS) {
                if matches!(action, Action::Kill | Action::Restart | Action::Cut) {
                    *weight = 0;
                }
            }
        }
        let mut mesh = Self {
            nodes: Vec::new(),
            sources: Vec::new(),
            links: Vec::new(),
            ledger: Ledger::default(),
            now: 1,
            weights,
            taste,
            has_one_credit: is_flood || rng.one_in(4),
            steps: 0,
            trace: is_traced.then(Vec::new),
        };
        for index in 0..count {
            let node = mesh.new_node(&mut rng, count, index, 1);
            mesh.nodes.push(node);
        }
        for _ in 0..1 + rng.below(3) {
            let node = rng.below(count);
            mesh.sources.push(Source {
                node,
                port: None,
                calls: Vec::new(),
                scopes: Vec::new(),
                ungranted: Vec::new(),
                numbers: 0,
            });
        }
        mesh.connect_all(&mut rng);
        mesh
    }

    fn new_node(&self, rng: &mut Rng, count: usize, index: usize, epoch: u64) -> SimulatedNode {
        let config = NodeConfig {
            number: Some(index as u32),
            epoch,
            seed: rng.next(),
            outbox_bytes: self.taste.outbox,
            max_slots: rng.pick(&[2, 20, 1000]),
            max_scopes: rng.pick(&[40, 1000]),
            scope_weight: rng.pick(&[2, 5, 1 << 48]),
            max_window: 8,
            max_payload: MAX_PAYLOAD,
            max_answer: MAX_ANSWER,
            grace: 10_000_000_000,
        };
        let mut node = Node::new(config);
        for other in 0..count {
            if other != index {
                node.add(other as u32);
            }
        }
        SimulatedNode {
            is_up: true,
            epoch,
            node,
            ports: Vec::new(),
            running: Vec::new(),
            wanted: Vec::new(),
        }
    }

    fn config(&self, is_node: bool) -> Config {
        let server = ServerConfig {
            limits: ifunc_abi::frame::Limits {
                max_payload: MAX_PAYLOAD as u64,
                max_image: 4000,
                max_answer: MAX_ANSWER as u64,
            },
            max_handles: 200,
            has_private_answers: false,
        };
        Config {
            batch_size: 256,
            max_answers: 1 << 20,
            server: is_node.then_some(server),
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) fn describe(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let line = format!(
                "node {index}: up {}, epoch {}, {:?}, running {}",
                node.is_up,
                node.epoch,
                node.node.footprint(),
                node.running.len()
            );
            self.trace.iter_mut().for_each(|trace| trace.push(line.clone()));
        }
    }

    /// Takes one step.
    pub(crate) fn step(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let total: u32 = self.weights.iter().sum();
        let mut drawn = rng.below(total as usize) as u32;
        let index = self.weights.iter().position(|&weight| {
            let is_it = drawn < weight;
            drawn = drawn.wrapping_sub(weight);
            is_it
        });
        self.steps += 1;
        let node = rng.below(self.nodes.len());
        let source = rng.below(self.sources.len());
        match ACTIONS[index.unwrap_or(0)].0 {
            Action::Submit => self.submit(rng, source),
            Action::TakeOutcomes => {
                self.take_outcomes(source, rng.one_in(2));
            }
            Action::Finish => self.finish_scope(rng, source),
            Action::Poll => {
                let ports = self.nodes[node].ports.len();
                if ports > 0 {
                    self.poll(node, rng.below(ports));
                }
            }
            Action::Run => {
                self.run_one(node, rng.below(8));
            }
            Action::Events => {
                self.do_events(node);
            }
            Action::Drive => {
                let other = rng.below(self.nodes.len());
                self.drive(node, other);
            }
            Action::Idle => self.nodes[node].node.idle(self.now),
            Action::Time => {
                let by = rng.pick(&[1_000, 100_000, 1_000_000, 20_000_000, 300_000_000]);
                self.pass_time(by);
            }
            Action::Deliver => {
                let link = rng.below(self.links.len());
                let side = rng.below(2);
                for _ in 0..rng.pick(&[1, 1, 2, 8]) {
                    self.links[link].channels[side].deliver(rng);
                }
            }
            Action::Credits => {
                let link = rng.below(self.links.len());
                let is_all = rng.one_in(2);
                self.links[link].channels[rng.below(2)].return_credits(is_all);
            }
            Action::Connect => {
                self.connect_wanted(rng);
            }
            Action::Kill => self.kill(rng, node),
            Action::Cut => self.cut(rng),
            Action::Notice => self.notice(rng),
            Action::Restart => self.restart(rng),
            Action::Settle => self.settle(),
        }
        self.verdict()
    }

    pub(crate) fn verdict(&mut self) -> Result<(), Violation> {
        self.check_bounds();
        match self.ledger.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// What nodes hold is bounded.
    fn check_bounds(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let held = node.node.footprint();
            // In each of the two directions of a link, its window bounds the frames that are not consumed.
            let is_bounded = held.outbox_bytes <= self.taste.outbox
                && held.slots <= 1000
                && held.unconsumed <= 256 * self.nodes.len();
            if !is_bounded {
                self.ledger.fail(
                    "what a node holds is bounded",
                    format_args!("node {index}: {held:?}"),
                );
            }
        }
        for link in &mut self.links {
            for channel in &mut link.channels {
                channel.log.clear();
                channel.calls = 0;
                if let Some(misuse) = channel.misuse {
                    self.ledger.fail("a connection uses its link as agreed", misuse);
                }
            }
        }
    }
}

/// Limits of every node.
const MAX_PAYLOAD: usize = 1000;
const MAX_ANSWER: usize = 500;
