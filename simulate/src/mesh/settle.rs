//! Liveness of a group: a network that delivers everything, and time that passes when nothing else moves.

use ifunc_proto::node::NodeFootprint;

use super::ledger::Record;
use super::{FAN_STEP, Mesh, Peer, Port, Scenario, say};
use crate::ledger::Violation;
use crate::link::End;
use crate::rng::Rng;

/// Passes after which a group that still moves is stuck: a flood of thousands takes several for each invocation.
const MAX_PASSES: usize = 200_000;

impl Mesh {
    /// The end of a run: nothing new begins, and everything ends.
    pub(crate) fn finish_run(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        say!(self, "the run ends");
        if rng.one_in(2) {
            while self.nodes.iter().any(|node| !node.is_up) {
                self.restart(rng);
            }
        }
        self.settle();
        self.verdict()?;
        for (at, port) in self.clients() {
            let client = self.nodes[at]
                .ports
                .get(port)
                .and_then(|port| port.client.as_ref());
            for scope in client.map_or_else(Vec::new, |client| client.scopes.clone()) {
                self.finish(at, port, scope);
                self.settle();
                self.verdict()?;
            }
        }
        self.settle();
        self.expect_rest();
        self.expect_all_ran();
        self.expect_little_bookkeeping();
        self.verdict()
    }

    /// Moves everything until nothing moves any more, whatever time passes.
    pub(super) fn settle(&mut self) {
        let mut rng = Rng::new(self.steps);
        for (at, port) in self.clients() {
            let own = &mut self.nodes[at].ports[port];
            let mut end = End::new(&mut self.links[own.link].channels, own.side);
            own.connection.close_batch(&mut end);
        }
        for node in 0..self.nodes.len() {
            let mut port = 0;
            // Every driver is awake, and polls until there is nothing.
            while let Some(link) = self.nodes[node].ports.get(port).map(|port| port.link) {
                let is_awake = self.poll(node, port) > 0;
                let is_same = self.nodes[node]
                    .ports
                    .get(port)
                    .is_some_and(|port| port.link == link);
                port += usize::from(is_same && !is_awake);
            }
        }
        for _ in 0..MAX_PASSES {
            if self.ledger.violation.is_some() {
                return;
            }
            if self.pass(&mut rng) {
                continue;
            }
            for node in self.nodes.iter_mut().filter(|node| node.is_up) {
                node.node.idle(self.now);
            }
            if self.pass(&mut rng) {
                continue;
            }
            self.expect_slots();
            let nodes = self.nodes.iter().filter(|node| node.is_up);
            match nodes.filter_map(|node| node.node.next_deadline()).min() {
                Some(at) => self.pass_time(at.saturating_sub(self.now).max(1)),
                None => return,
            }
        }
        self.ledger.fail("everything comes to rest", "it still moves");
    }

    /// Lets everything that can move do so once.
    fn pass(&mut self, rng: &mut Rng) -> bool {
        self.notice_all();
        let mut has_moved = self.connect_wanted(rng);
        self.steps += 1;
        for link in &mut self.links {
            for channel in &mut link.channels {
                while channel.deliver(rng) {
                    has_moved = true;
                }
                has_moved |= channel.return_credits(true);
            }
        }
        for node in 0..self.nodes.len() {
            let mut port = 0;
            while port < self.nodes[node].ports.len() {
                has_moved |= self.answer_taken(node, port);
                if self.is_due(node, port) {
                    let before = self.nodes[node].ports.len();
                    let link = self.nodes[node].ports[port].link;
                    let moved = self.moved(link);
                    // A driver sleeps after a poll that finds nothing.
                    while self.poll(node, port) > 0 {
                        has_moved = true;
                        self.steps += 1;
                        if self.nodes[node].ports.len() < before {
                            break;
                        }
                    }
                    has_moved |= self.moved(link) != moved;
                    if self.nodes[node].ports.len() < before {
                        continue;
                    }
                }
                port += 1;
            }
            while self.run_one(node, 0) || self.do_events(node) {
                has_moved = true;
                if self.ledger.violation.is_some() {
                    return true;
                }
            }
            for other in 0..self.nodes.len() {
                has_moved |= self.drive(node, other);
            }
        }
        for (at, port) in self.clients() {
            has_moved |= self.take_outcomes(at, port, true);
        }
        if self.scenario == Scenario::Fan {
            self.pass_time(FAN_STEP);
        }
        self.check_bounds();
        has_moved
    }

    /// How much a link moved.
    fn moved(&self, link: usize) -> u64 {
        self.links[link]
            .channels
            .iter()
            .map(|channel| channel.moved)
            .sum()
    }

    /// Whether a driver polls a connection, as the connection tells it.
    fn is_due(&mut self, node: usize, port: usize) -> bool {
        let own = &mut self.nodes[node];
        let admits = own.node.admits();
        let port = &mut own.ports[port];
        let mut end = End::new(&mut self.links[port.link].channels, port.side);
        let has_arrived = end.rx.0.has_arrived();
        let connection = &mut port.connection;
        if !port.serves {
            return false;
        }
        if connection.is_stalled() {
            // What arrived waits for the send window, unless credits and requests come the same way.
            let is_duplex = matches!(port.peer, Peer::Node(_)) || port.client.is_some();
            return !connection.is_blocked(&mut end) || has_arrived && is_duplex;
        }
        if connection.is_held() && !admits {
            return connection.has_work();
        }
        connection.has_work() || has_arrived && connection.is_linked()
    }

    /// Without faults and deadlines everything that was accepted has run.
    fn expect_all_ran(&mut self) {
        if !self.is_faultless {
            return;
        }
        // What a node could not answer bounces; a scope is refused when there are too many.
        let may_end_unrun = self.taste.deadlines > 0 || self.ledger.is_sparse;
        // The window of a stream that was dropped does not open again.
        let is_dropped = |record: &Record| {
            let call = record.call.map(|call| &self.ledger.calls[call as usize]);
            call.is_some_and(|call| call.is_streamed && call.is_dropped)
        };
        let may_end = |record: &Record| {
            record.travels && (may_end_unrun || record.scope.is_some() || is_dropped(record))
                || record.image.image.is_refused
        };
        let records = self.ledger.records.iter();
        let missing = records
            .enumerate()
            .find(|(_, record)| record.runs == 0 && !record.is_closed && !may_end(record));
        if let Some((id, record)) = missing {
            let detail = format!("number {id}: {record:?}");
            self.ledger.fail("what is accepted runs", detail);
        }
    }

    /// Of what nodes send each other for a scope, at most one frame in 100 returns weight, but for a few at its begin and some
    /// each second: invocations that run for long may not wait for others.
    fn expect_little_bookkeeping(&mut self) {
        if self.scenario != Scenario::Fan {
            return;
        }
        let (frames, runs) = (self.ledger.weight_frames, self.ledger.runs);
        let pairs = (self.ledger.scopes.len() * (self.members - 1)) as u64;
        let free = pairs * (12 + self.now / 50_000_000);
        self.coverage.fan_runs += runs;
        if frames > runs / 100 + free {
            let detail = format!("{frames} frames for {runs} invocations in {} ns", self.now);
            self.ledger
                .fail("at most one frame in 100 returns weight", detail);
        }
    }

    /// Nothing moves until time passes: nodes hold slots for the calls that their sources await, and not for those that they
    /// dropped.
    fn expect_slots(&mut self) {
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            // A frame that says so may be behind an invocation that waits.
            let may_wait = |port: &Port| port.connection.is_held() || port.connection.is_stalled();
            if node.ports.iter().any(may_wait) {
                continue;
            }
            let clients = self.nodes.iter().flat_map(|node| &node.ports);
            let clients = clients.filter_map(|port| port.client.as_ref());
            let own = clients.filter(|client| client.target == index);
            let awaited: usize = own.map(|client| client.calls.len()).sum();
            let slots = node.node.footprint().slots;
            if slots > awaited {
                self.ledger.fail(
                    "a call that was dropped holds no slot",
                    format_args!("node {index}: {slots} slots for {awaited} calls"),
                );
            }
        }
    }

    /// Nothing moves any more: nothing may wait.
    fn expect_rest(&mut self) {
        for (at, port) in self.clients() {
            let Some(client) = &self.nodes[at].ports[port].client else {
                continue;
            };
            if !client.calls.is_empty() || !client.scopes.is_empty() {
                let detail = format!(
                    "driver {at}: calls {:?}, scopes {:?}",
                    client.calls, client.scopes
                );
                self.ledger.fail("every call and every scope ends", detail);
            }
            let tokens = self.nodes[at].ports[port].connection.footprint().calls;
            if tokens > 0 {
                self.ledger.fail(
                    "the token of a call is free when it has ended",
                    format_args!("driver {at}: {tokens} in use"),
                );
            }
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            let held = node.node.footprint();
            let none = NodeFootprint {
                unconsumed: held.unconsumed,
                ..NodeFootprint::default()
            };
            if held != none || !node.running.is_empty() || node.ports.iter().any(|port| port.taken.is_some())
            {
                self.ledger.fail(
                    "nothing waits on a node that could go on",
                    format_args!("node {index}: {held:?}"),
                );
            }
        }
    }
}
