//! The steps of nodes: they poll, run what they took, do what their state says, and send.

use ifunc_abi::travel::ScopeReport;
use ifunc_proto::host::Failed;
use ifunc_proto::link::Outbound as _;
use ifunc_proto::node::Event;

use super::host::{Manner, MeshHost, Origin, Running};
use super::visit::Stage;
use super::{Mesh, Peer, Port, Scenario, say};
use crate::link::End as LinkEnd;

impl Mesh {
    /// Polls a connection. Returns how much it processed.
    pub(super) fn poll(&mut self, at: usize, port: usize) -> usize {
        self.answer_taken(at, port);
        if !self.nodes[at].ports[port].serves {
            return self.take_outcomes(at, port, false).into();
        }
        if self.nodes[at].manner == Manner::Taken {
            self.poll_as::<true>(at, port)
        } else {
            self.poll_as::<false>(at, port)
        }
    }

    fn poll_as<const TAKES: bool>(&mut self, at: usize, port: usize) -> usize {
        let (mut host, connection, mut end) = self.parts::<TAKES>(at, port);
        let polled = connection.poll(&mut end, &mut host);
        let (misuse, held, takes) = (host.misuse, host.held, host.takes);
        if let Some(misuse) = misuse {
            self.ledger.fail("a host is used as agreed", misuse);
        }
        self.coverage.held += held;
        self.coverage.taken += takes as u64;
        let &Port { link, peer, .. } = &self.nodes[at].ports[port];
        say!(self, "node {at}: polls link {link} to {peer:?}: {polled:?}");
        match polled {
            Ok(processed) => {
                if processed == 0 && self.scenario == Scenario::Fan {
                    self.nodes[at].node.idle(self.now);
                }
                processed
            }
            Err(closed) => {
                self.port_is_over(at, port, &closed.to_string());
                1
            }
        }
    }

    /// Answers what the last poll of a connection took and does not travel.
    pub(super) fn answer_taken(&mut self, at: usize, port: usize) -> bool {
        let Some(taken) = self.nodes[at].ports[port].taken.take() else {
            return false;
        };
        let max = taken.reply_to.max_answer();
        let mut stage = self.stage(at);
        let answer = stage.run_plain(taken.image, &taken.payload, max);
        let (mut host, connection, mut end) = self.parts::<true>(at, port);
        let answer = answer.as_deref().map_err(|failed| failed_alike(failed));
        connection.answer(&mut end, &mut host, &taken.reply_to, answer);
        true
    }

    /// The link of a port died, and everything that arrived was processed.
    pub(super) fn port_is_over(&mut self, at: usize, port: usize, why: &str) {
        let own = &mut self.nodes[at].ports[port];
        let (link, side) = (own.link, own.side);
        if !self.links[link].channels[0].is_dead() {
            self.ledger
                .fail("a link ends when it dies", format_args!("node {at}: {why}"));
        }
        let mut end = LinkEnd::new(&mut self.links[link].channels, side);
        own.connection.lose(&mut end, "lost");
        self.client_lost_link(at, port);
        let port = self.nodes[at].ports.swap_remove(port);
        self.nodes[at].node.forget_connection(link as u64);
        match port.peer {
            Peer::Source(_) | Peer::Target => {}
            Peer::Node(other) => {
                let mut tx = LinkEnd::new(&mut self.links[link].channels, side).tx;
                let is_unconsumed = |sequence| tx.is_unconsumed(sequence);
                self.nodes[at].node.lose(other as u32, self.now, is_unconsumed);
                say!(self, "node {at}: has lost node {other}");
            }
        }
    }

    /// Runs one invocation: one that was taken, or one that the node sent itself.
    pub(super) fn run_one(&mut self, at: usize, which: usize) -> bool {
        let own = &mut self.nodes[at];
        let running = if own.running.is_empty() || which == 7 && own.node.has_local() {
            let Some(local) = own.node.next_local(self.now) else {
                return false;
            };
            Running {
                image: local.image,
                payload: local.payload,
                visit: local.visit,
            }
        } else {
            let index = which % own.running.len();
            own.running.swap_remove(index)
        };
        if let Some((Some(origin), answered)) = self.stage(at).run(running) {
            self.answer(at, &origin, at, answered);
        }
        true
    }

    /// Does what a node's state says.
    pub(super) fn do_events(&mut self, at: usize) -> bool {
        let mut is_some = false;
        while let Some(event) = self.nodes[at].node.next_event() {
            is_some = true;
            match event {
                Event::Answer {
                    origin,
                    node,
                    outcome,
                } => {
                    // A node without a number has none that it could name.
                    let node = if at < self.members { node as usize } else { at };
                    self.answer(at, &origin, node, outcome);
                }
                Event::Partial {
                    origin,
                    number,
                    answer,
                } => {
                    say!(
                        self,
                        "node {at}: partial answer {number} over link {}",
                        origin.link
                    );
                    self.with_port(at, &origin, |port, end| {
                        port.connection
                            .answer_partially(end, &origin.reply_to, number, answer);
                    });
                }
                Event::Finished { origin, report } => {
                    let mut bytes = Vec::new();
                    report.encode_to(
                        &mut bytes,
                        origin.reply_to.max_answer().unwrap_or(ScopeReport::MIN_SIZE),
                    );
                    self.answer(at, &origin, at, Ok(bytes));
                }
                Event::NodeLost { .. } => {}
                Event::Connect { node } => self.nodes[at].wanted.push(node as usize),
            }
        }
        is_some
    }

    fn with_port(&mut self, at: usize, origin: &Origin, call: impl FnOnce(&mut Port, &mut LinkEnd<'_>)) {
        let port = self.nodes[at]
            .ports
            .iter_mut()
            .find(|port| port.link == origin.link);
        if let Some(port) = port {
            let mut end = LinkEnd::new(&mut self.links[port.link].channels, port.side);
            call(port, &mut end);
        }
    }

    /// Ends a source's call.
    fn answer(&mut self, at: usize, origin: &Origin, node: usize, outcome: Result<Vec<u8>, Box<Failed>>) {
        say!(
            self,
            "node {at}: answers a call over link {}, from node {node}: {outcome:?}",
            origin.link
        );
        let mut ports = self.nodes[at].ports.iter();
        let Some(port) = ports.position(|port| port.link == origin.link) else {
            return;
        };
        let (mut host, connection, mut end) = self.parts::<false>(at, port);
        let reply_to = &origin.reply_to;
        if node == at {
            let answer = outcome.as_deref().map_err(|failed| failed_alike(failed));
            connection.answer(&mut end, &mut host, reply_to, answer);
        } else {
            let answer = outcome.as_deref().map_err(|failed| &**failed);
            connection.relay(&mut end, &mut host, reply_to, node as u32, answer);
        }
    }

    /// Sends what waits for another node.
    pub(super) fn drive(&mut self, at: usize, to: usize) -> bool {
        let own = &mut self.nodes[at];
        let Some(port) = own.ports.iter_mut().find(|port| port.peer == Peer::Node(to)) else {
            return false;
        };
        if !own.node.has_work_for(to as u32) {
            return false;
        }
        let before = self.links[port.link].channels[port.side].moved;
        let mut end = LinkEnd::new(&mut self.links[port.link].channels, port.side);
        let is_done = own
            .node
            .drive(to as u32, &mut port.connection, &mut end, self.now);
        let moved = self.links[port.link].channels[port.side].moved != before;
        say!(self, "node {at}: drives node {to}: {is_done}");
        moved
    }

    /// Where the invocations of a node run.
    fn stage(&mut self, at: usize) -> Stage<'_> {
        let own = &mut self.nodes[at];
        Stage {
            at,
            epoch: own.epoch,
            node: &mut own.node,
            ledger: &mut self.ledger,
            taste: self.taste,
            members: self.members,
            now: self.now,
            steps: self.steps,
            trace: &mut self.trace,
        }
    }

    /// A connection, its host and its end of the link.
    fn parts<const TAKES: bool>(
        &mut self,
        at: usize,
        port: usize,
    ) -> (MeshHost<'_, TAKES>, &mut super::MeshConnection, LinkEnd<'_>) {
        let own = &mut self.nodes[at];
        let port = &mut own.ports[port];
        let channels = &mut self.links[port.link].channels;
        let host = MeshHost {
            is_link_dead: channels[0].is_dead(),
            stage: Stage {
                at,
                epoch: own.epoch,
                node: &mut own.node,
                ledger: &mut self.ledger,
                taste: self.taste,
                members: self.members,
                now: self.now,
                steps: self.steps,
                trace: &mut self.trace,
            },
            runs_at_once: own.manner == Manner::AtOnce,
            running: &mut own.running,
            taken: &mut port.taken,
            installed: &port.installed,
            last_arrived: &mut port.last_arrived,
            peer: match port.peer {
                Peer::Node(other) => Some(other as u32),
                Peer::Source(_) | Peer::Target => None,
            },
            link: port.link,
            takes: 0,
            held: 0,
            misuse: None,
        };
        (host, &mut port.connection, LinkEnd::new(channels, port.side))
    }
}

/// A copy of a failure.
fn failed_alike(failed: &Failed) -> Box<Failed> {
    Box::new(Failed::new(failed.status, failed.detail.clone()))
}
