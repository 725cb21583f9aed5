//! The simulated world: nodes, ports, links, and the steps that are drawn for them.

use ifunc_abi::frame::Kind;
use ifunc_proto::DUPLEX_CALLS;

use crate::ledger::{Account, Ledger, Violation};
use crate::link::{Channel, End};
use crate::port::{Node, Port};
use crate::rng::Rng;

/// Two nodes with a link between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) nodes: [usize; 2],
    pub(crate) ports: [usize; 2],
}

/// A link and the ports at its ends.
#[derive(Debug)]
pub(crate) struct SimulatedLink {
    pub(crate) channels: [Channel; 2],
    pub(crate) ports: [usize; 2],
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Submit,
    CloseBatch,
    CloseBatchOf,
    Flush,
    Stats,
    Take,
    TakeReports,
    Abandon,
    Bind,
    Unbind,
    ResendImage,
    Poll,
    Answer,
    Refuse,
    Drive,
    Deliver,
    Credits,
    Kill,
    Notice,
    Lose,
    Reconnect,
    Restart,
    GiveUp,
    Settle,
}

/// Every action, and how often it is drawn in the usual run.
const ACTIONS: [(Action, u32); 24] = [
    (Action::Submit, 300),
    (Action::CloseBatch, 20),
    (Action::CloseBatchOf, 10),
    (Action::Flush, 20),
    (Action::Stats, 8),
    (Action::Take, 100),
    (Action::TakeReports, 15),
    (Action::Abandon, 10),
    (Action::Bind, 30),
    (Action::Unbind, 25),
    (Action::ResendImage, 5),
    (Action::Poll, 200),
    (Action::Answer, 60),
    (Action::Refuse, 20),
    (Action::Drive, 40),
    (Action::Deliver, 120),
    (Action::Credits, 60),
    (Action::Kill, 9),
    (Action::Notice, 20),
    (Action::Lose, 3),
    (Action::Reconnect, 20),
    (Action::Restart, 10),
    (Action::GiveUp, 2),
    (Action::Settle, 1),
];

/// The world of one seed.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) ports: Vec<Port>,
    /// Ports that still live.
    pub(crate) live: Vec<usize>,
    pub(crate) links: Vec<SimulatedLink>,
    /// Links that a port still uses.
    pub(crate) live_links: Vec<usize>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) ledger: Ledger,
    weights: [u32; ACTIONS.len()],
    total_weight: u32,
    /// No link dies.
    pub(crate) is_faultless: bool,
    /// How submissions are drawn.
    pub(crate) taste: Taste,
    /// Steps taken.
    pub(crate) steps: u64,
    pub(crate) trace: Option<Vec<String>>,
}

/// What the driver of a run prefers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taste {
    /// Of 8 submissions, so many want a completion, are added to a batch, or carry their code.
    pub(crate) calls: usize,
    pub(crate) batches: usize,
    /// Of 8 payloads, so many have 8 bytes: entries of a batch that share a run.
    pub(crate) alike: usize,
    pub(crate) code: usize,
    /// Of 8 payloads, so many are small.
    pub(crate) small: usize,
}

/// Adds a line to the trace, if there is one.
macro_rules! note {
    ($world:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            let step = $world.steps;
            trace.push(format!("{step:6}  {}", format_args!($($text)*)));
        }
    };
}
pub(crate) use note;

impl World {
    pub(crate) fn new(seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::of_step(seed, u64::MAX);
        let count = rng.pick(&[2, 2, 2, 2, 3, 4, 5]);
        let mut weights = ACTIONS.map(|(_, weight)| weight);
        for weight in &mut weights {
            *weight = *weight * rng.pick(&[1, 1, 2, 4, 4, 4, 8, 32]) / 2;
        }
        // Each kind of fault is left out of most runs.
        let is_faultless = rng.one_in(3);
        if is_faultless {
            for (weight, (action, _)) in weights.iter_mut().zip(ACTIONS) {
                if matches!(action, Action::Kill | Action::Restart | Action::GiveUp) {
                    *weight = 0;
                }
            }
        }
        let mut world = Self {
            nodes: (0..count).map(|_| Node::draw(&mut rng)).collect(),
            ports: Vec::new(),
            live: Vec::new(),
            links: Vec::new(),
            live_links: Vec::new(),
            sessions: Vec::new(),
            ledger: Ledger::default(),
            total_weight: weights.iter().sum(),
            weights,
            is_faultless,
            taste: Taste {
                calls: rng.below(9),
                batches: rng.pick(&[0, 2, 4, 6, 8]),
                alike: rng.pick(&[0, 0, 6]),
                code: rng.pick(&[0, 0, 1, 4]),
                small: rng.pick(&[4, 7, 8]),
            },
            steps: 0,
            trace: is_traced.then(Vec::new),
        };
        if world
            .nodes
            .iter()
            .all(|node| node.config.server.is_none() || !node.invokes)
        {
            world.nodes[0] = Node {
                invokes: true,
                ..world.nodes[0]
            };
            while world.nodes[1].config.server.is_none() {
                world.nodes[1] = Node::draw(&mut rng);
            }
        }
        for other in 1..count {
            let nodes = [rng.below(other), other];
            let ports = nodes.map(|node| world.add_port(node));
            world.sessions.push(Session { nodes, ports });
        }
        for session in 0..world.sessions.len() {
            world.reconnect(&mut rng, session);
        }
        world
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Adds the state of all live ports to the trace.
    pub(crate) fn describe(&mut self) {
        for index in 0..self.live.len() {
            let at = self.live[index];
            let Port {
                link,
                waiting,
                calls,
                connection,
                ..
            } = &self.ports[at];
            let held = connection.footprint();
            let state = format!(
                "port {at}: link {link:?}, linked: {}, stalled: {}, backlog: {}, {held:?}, {} calls, waiting: {waiting:?}",
                connection.is_linked(),
                connection.is_stalled(),
                connection.caller.has_backlog(),
                calls.len(),
            );
            self.trace.iter_mut().for_each(|trace| trace.push(state.clone()));
        }
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) fn add_port(&mut self, node: usize) -> usize {
        self.ports.push(Port::new(node, self.nodes[node].config));
        self.ledger.accounts.push(Account::default());
        self.live.push(self.ports.len() - 1);
        self.ports.len() - 1
    }

    /// Takes one step.
    pub(crate) fn step(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let mut drawn = rng.below(self.total_weight as usize) as u32;
        let index = self.weights.iter().position(|&weight| {
            let is_it = drawn < weight;
            drawn = drawn.wrapping_sub(weight);
            is_it
        });
        let action = ACTIONS[index.unwrap_or(0)].0;
        self.steps += 1;
        let port = self.live[rng.below(self.live.len())];
        match action {
            Action::Submit => self.submit_step(rng, port),
            Action::CloseBatch => {
                self.with_link(port, "closes its batch", |port, end| {
                    port.connection.close_batch(end)
                });
            }
            Action::CloseBatchOf => {
                if let Some(call) = self.pick_call(rng, port) {
                    self.with_link(port, "closes the batch of a call", |port, end| {
                        port.connection.close_batch_of(end, call.token);
                    });
                }
            }
            Action::Flush => self.flush(port),
            Action::Stats => self.stats(rng, port),
            Action::Take => self.take_step(rng, port),
            Action::TakeReports => self.take_reports(port, rng.one_in(2)),
            Action::Abandon => self.abandon(rng, port),
            Action::Bind => self.bind(rng, port),
            Action::Unbind => self.unbind(rng, port),
            Action::ResendImage => {
                let port = &mut self.ports[port];
                if !port.handles.is_empty() {
                    let (handle, _) = rng.pick(&port.handles);
                    port.connection.caller.resend_image(handle);
                }
            }
            Action::Poll => {
                self.poll(port);
            }
            Action::Answer => self.answer(port),
            Action::Refuse => self.refuse_unsent(port),
            Action::Drive => {
                self.with_link(port, "drives", |port, end| port.connection.drive(end));
            }
            Action::Deliver => self.deliver(rng),
            Action::Credits => self.return_credits(rng),
            Action::Kill => self.kill(rng),
            Action::Notice => self.notice(rng),
            Action::Lose => self.lose(port),
            Action::Reconnect => {
                let session = rng.below(self.sessions.len());
                self.reconnect(rng, session);
            }
            Action::Restart => self.restart(rng),
            Action::GiveUp => self.give_up(port),
            Action::Settle => self.settle_step(),
        }
        self.verdict()
    }

    /// The violation, if there is one.
    pub(crate) fn verdict(&mut self) -> Result<(), Violation> {
        match self.ledger.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// Calls a connection with its end of the link, if it ever had one, and checks what it did.
    pub(crate) fn with_link<R>(
        &mut self,
        port: usize,
        what: &str,
        call: impl FnOnce(&mut Port, &mut End<'_>) -> R,
    ) -> Option<R> {
        let (link, side) = self.ports[port].link?;
        let mut end = End::new(&mut self.links[link].channels, side);
        let result = call(&mut self.ports[port], &mut end);
        note!(self, "port {port}: {what}");
        self.check(port);
        Some(result)
    }

    /// Checks a port after a call of its connection.
    pub(crate) fn check(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let Some((link, side)) = port.link else { return };
        let [tx, rx] = {
            let [first, second] = &mut self.links[link].channels;
            if side == 0 {
                [first, second]
            } else {
                [second, first]
            }
        };
        for misuse in [tx.misuse, rx.misuse].into_iter().flatten() {
            self.ledger.fail("a connection uses its link as agreed", misuse);
        }
        let window = rx.shape.window as usize;
        let is_dead = tx.is_dead();
        for commit in &tx.log {
            if let Some(trace) = &mut self.trace {
                trace.push(format!("            sends {commit:?}"));
            }
            self.ledger.sent(at, link, side, commit);
            if matches!(commit.kind, Kind::Install | Kind::Unbind) && !port.sends_image(commit, self.steps) {
                self.ledger.fail(
                    "an image is released when nothing is bound to it",
                    format_args!("{commit:?}"),
                );
            }
        }
        tx.log.clear();
        tx.calls = 0;
        rx.calls = 0;
        for user in port.connection.caller.ended() {
            match port.calls.iter_mut().find(|call| call.user == Some(user)) {
                Some(call) if !call.is_woken => call.is_woken = true,
                _ => self.ledger.fail(
                    "a call that ends wakes its own waiter once",
                    format_args!("waiter {user}"),
                ),
            }
        }
        let held = port.connection.footprint();
        let node = &self.nodes[port.node].config;
        // An answer that arrives in fragments counts, too.
        const MAX_ANSWER: u64 = 4000;
        let limits = node
            .server
            .map(|server| server.limits.max_payload.max(server.limits.max_image + 2048));
        if held.parked.0 > window
            || held.replies > DUPLEX_CALLS + 64 + 1
            || held.batch > node.batch_size
            || held.assembled as u64 > limits.unwrap_or(0) + MAX_ANSWER
            || held.reports > 64
        {
            self.ledger.fail(
                "what a connection holds is bounded",
                format_args!("port {at}: {held:?}"),
            );
        }
        if port.was_linked && !port.connection.is_linked() {
            port.was_linked = false;
            if !is_dead {
                self.ledger.fail(
                    "a link ends when it dies",
                    format_args!("port {at} ended link {link}"),
                );
            }
            if port.installed.get() != 0 {
                self.ledger
                    .fail("images are released with their link", format_args!("port {at}"));
            }
            self.ledger.lost(at, link, side);
        }
    }
}
