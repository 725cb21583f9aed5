//! A simulated group: nodes whose invocations travel on, sources that are no nodes, and the oracle that checks them.
//!
//! | module | holds |
//! |---|---|
//! | `draw` | which run a seed draws |
//! | `ledger` | the oracle: which invocation was sent, ran and ended, and how each call and scope ended |
//! | `host`, `visit` | the serving side of a connection, and what an invocation does |
//! | `node` | the steps of nodes: poll, run, send |
//! | `client` | the steps of those that invoke: call, take, finish |
//! | `network` | links, deaths and restarts |
//! | `settle` | liveness, and what is checked when everything rests |

use std::cell::Cell;
use std::rc::Rc;

use ifunc_abi::frame::Kind;
use ifunc_proto::node::Node;
use ifunc_proto::{Config, Connection, ServerConfig};

use crate::image::{Installed, SentImage};
use crate::ledger::Violation;
use crate::link::Channel;
use crate::report::Coverage;
use crate::rng::Rng;

mod client;
mod draw;
mod host;
mod ledger;
mod network;
mod node;
mod settle;
mod visit;

use client::Client;
pub(crate) use draw::flood;
use draw::{Scenario, Taste};
use host::{Manner, Origin, Running, Taken};
use ledger::Ledger;

/// Which side of a link a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Between two nodes.
    Node(usize),
    /// The target's side of a source's link.
    Source(usize),
    /// The source's side of it.
    Target,
}

type MeshConnection = Connection<SentImage, u32, Installed>;

/// A connection, as its driver holds it.
#[derive(Debug)]
struct Port {
    peer: Peer,
    link: usize,
    side: usize,
    connection: MeshConnection,
    serves: bool,
    installed: Rc<Cell<usize>>,
    /// The last numbers that arrived over the link, from a node and from a source.
    last_arrived: [Option<u32>; 2],
    /// An invocation that was taken, and is answered before the next poll.
    taken: Option<Taken>,
    /// What the driver invokes, if it does.
    client: Option<Client>,
}

/// A node that runs, or a dead one. Behind the nodes of the group are those of the sources, which are in no group.
#[derive(Debug)]
struct SimulatedNode {
    is_up: bool,
    epoch: u64,
    manner: Manner,
    node: Node<SentImage, Origin>,
    ports: Vec<Port>,
    /// Invocations that were taken and have not run.
    running: Vec<Running>,
    /// Nodes to which it asked for a link.
    wanted: Vec<usize>,
}

/// A source.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// The node that it invokes.
    target: usize,
    /// It is a target, too: the node invokes it over the same link.
    is_duplex: bool,
}

#[derive(Debug)]
struct MeshLink {
    channels: [Channel; 2],
    is_between_nodes: bool,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Submit,
    TakeOutcomes,
    Abandon,
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

const ACTIONS: [(Action, u32); 18] = [
    (Action::Submit, 160),
    (Action::TakeOutcomes, 60),
    (Action::Abandon, 6),
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

/// The group of one seed.
#[derive(Debug)]
pub(crate) struct Mesh {
    scenario: Scenario,
    nodes: Vec<SimulatedNode>,
    /// How many of them are in the group.
    members: usize,
    sources: Vec<Source>,
    links: Vec<MeshLink>,
    ledger: Ledger,
    now: u64,
    weights: [u32; ACTIONS.len()],
    taste: Taste,
    /// No node dies, and no link is cut.
    is_faultless: bool,
    /// Every link has one credit.
    has_one_credit: bool,
    /// The programs of nodes invoke over the links of their nodes.
    has_programs: bool,
    pub(crate) coverage: Coverage,
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
        if self.scenario == Scenario::Fan {
            self.pass_time(FAN_STEP);
        }
        let node = rng.below(self.members);
        match ACTIONS[index.unwrap_or(0)].0 {
            Action::Submit => {
                let (at, port) = self.pick_client(rng);
                for _ in 0..self.taste.burst {
                    let is_full = self.ledger.records.len() > self.taste.records;
                    if port.is_none_or(|port| is_full || !self.submit(rng, at, port)) {
                        break;
                    }
                }
            }
            Action::TakeOutcomes => {
                if let (at, Some(port)) = self.pick_client(rng) {
                    self.take_outcomes(at, port, rng.one_in(2));
                }
            }
            Action::Finish => {
                if let (at, Some(port)) = self.pick_client(rng) {
                    self.finish_scope(rng, at, port);
                }
            }
            Action::Abandon => {
                if let (at, Some(port)) = self.pick_client(rng) {
                    self.abandon(rng, at, port);
                }
            }
            Action::Poll => {
                let node = if rng.one_in(4) {
                    rng.below(self.nodes.len())
                } else {
                    node
                };
                let ports = self.nodes[node].ports.len();
                if ports > 0 {
                    self.poll(node, rng.below(ports));
                }
            }
            Action::Run => {
                let node = if rng.one_in(4) {
                    rng.below(self.nodes.len())
                } else {
                    node
                };
                let most = if self.scenario == Scenario::Fan { 64 } else { 1 };
                for _ in 0..most {
                    self.run_one(node, rng.below(8));
                }
            }
            Action::Events => {
                let node = if rng.one_in(4) {
                    rng.below(self.nodes.len())
                } else {
                    node
                };
                self.do_events(node);
            }
            Action::Drive => {
                let other = rng.below(self.members);
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

    /// A driver that invokes: where it is, and its connection. Mostly a source.
    fn pick_client(&self, rng: &mut Rng) -> (usize, Option<usize>) {
        let Source { target, is_duplex } = self.sources[rng.below(self.sources.len())];
        let at = if is_duplex && rng.one_in(3) {
            target
        } else if self.has_programs && rng.one_in(3) {
            rng.below(self.members)
        } else {
            self.members + rng.below(self.sources.len())
        };
        let ports = &self.nodes[at].ports;
        let own: Vec<usize> = (0..ports.len())
            .filter(|&port| ports[port].client.is_some())
            .collect();
        (at, (!own.is_empty()).then(|| rng.pick(&own)))
    }

    /// Every driver that invokes.
    fn clients(&self) -> Vec<(usize, usize)> {
        let mut clients = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let ports = node.ports.iter().enumerate();
            let own = ports.filter(|(_, port)| port.client.is_some());
            clients.extend(own.map(|(port, _)| (at, port)));
        }
        clients
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
        let mut between_nodes = self.links.iter().filter(|link| link.is_between_nodes);
        let know_consumed =
            between_nodes.all(|link| link.channels.iter().all(|channel| channel.shape.knows_consumed));
        // In each of the two directions of a link, its window bounds the frames that are not consumed. A link that does not know
        // which those are keeps as many as the largest window of any transport has.
        let unconsumed = if know_consumed { 256 } else { 4096 };
        for (index, node) in self.nodes.iter().enumerate() {
            let held = node.node.footprint();
            let is_bounded = held.outbox_bytes <= self.taste.outbox
                && held.slots <= 1000
                && held.unconsumed <= unconsumed * self.members;
            if !is_bounded {
                self.ledger.fail(
                    "what a node holds is bounded",
                    format_args!("node {index}: {held:?}"),
                );
            }
        }
        let members = self.nodes[..self.members].iter();
        if self.scenario == Scenario::Flood && members.clone().all(|own| !own.node.admits()) {
            self.coverage.full_floods = 1;
            let mut channels = self.links.iter().filter(|link| link.is_between_nodes);
            let is_closed = |link: &MeshLink| link.channels.iter().all(|channel| !channel.has_credit(0));
            if channels.any(|link| !link.channels[0].is_dead() && is_closed(link)) {
                self.coverage.closed_floods = 1;
            }
        }
        for link in &mut self.links {
            for channel in &mut link.channels {
                let weights = channel.log.iter().filter(|commit| commit.kind == Kind::Weights);
                self.ledger.weight_frames += weights.count() as u64;
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

/// Nanoseconds of a step in which invocations fan out.
const FAN_STEP: u64 = 5_000;
