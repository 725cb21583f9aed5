//! The steps of nodes: they poll, run what they took, do what their state says, and send.

use ifunc_abi::status::{Failure, Status};
use ifunc_abi::travel::{ScopeReport, TravelError};
use ifunc_proto::host::Failed;
use ifunc_proto::node::{Ended, Event};

use super::host::{MeshHost, Origin, Running};
use super::ledger::{End, Record};
use super::{Mesh, Peer, Port, say};
use crate::image::SentImage;
use crate::link::End as LinkEnd;
use crate::rng::{Rng, mix};

/// Images of which invocations are drawn: few, so that they are bound for long.
const IMAGES: usize = 6;

/// An image for an invocation.
pub(super) fn image_of(hash: u64) -> SentImage {
    // One in 16 is refused by every node.
    let index = if hash & 15 == 0 {
        3
    } else {
        [0, 1, 2, 4, 5, 9][(hash >> 4) as usize % IMAGES]
    };
    SentImage::of(index, hash >> 32)
}

impl Mesh {
    /// Polls a connection of a node. Returns how much it processed.
    pub(super) fn poll(&mut self, node: usize, port: usize) -> usize {
        let SimulatedNodeParts {
            node: state,
            running,
            port: own,
        } = self.parts(node, port);
        let Port {
            connection,
            installed,
            peer,
            link,
            side,
        } = own;
        let number = match *peer {
            Peer::Node(other) => Some(other as u32),
            Peer::Source(_) => None,
        };
        let mut host = MeshHost {
            node: state.0,
            running,
            installed,
            peer: number,
            link: *link,
            now: state.1,
            misuse: None,
        };
        let mut end = LinkEnd::new(&mut state.2[*link].channels, *side);
        let polled = connection.poll(&mut end, &mut host);
        let (misuse, at, peer) = (host.misuse, *link, *peer);
        if let Some(misuse) = misuse {
            self.ledger.fail("a host is used as agreed", misuse);
        }
        say!(self, "node {node}: polls link {at} to {peer:?}: {polled:?}");
        match polled {
            Ok(processed) => processed,
            Err(closed) => {
                if !self.links[at].channels[0].is_dead() {
                    self.ledger
                        .fail("a link ends when it dies", format_args!("node {node}: {closed}"));
                }
                self.port_is_over(node, port);
                1
            }
        }
    }

    /// The link of a node's port died, and everything that arrived was processed.
    pub(super) fn port_is_over(&mut self, node: usize, port: usize) {
        let mut port = self.nodes[node].ports.swap_remove(port);
        let mut end = LinkEnd::new(&mut self.links[port.link].channels, port.side);
        port.connection.lose(&mut end, "lost");
        match port.peer {
            Peer::Source(_) => self.nodes[node].node.forget_connection(port.link as u64),
            Peer::Node(other) => {
                use ifunc_proto::link::Outbound as _;
                let tx = &mut end.tx;
                let is_unconsumed = |sequence| tx.is_unconsumed(sequence);
                self.nodes[node].node.lose(other as u32, self.now, is_unconsumed);
                say!(self, "node {node}: has lost node {other}");
            }
        }
    }

    /// Runs one invocation: one that was taken, or one that the node sent itself.
    pub(super) fn run_one(&mut self, node: usize, which: usize) -> bool {
        let own = &mut self.nodes[node];
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
        self.run(node, running);
        true
    }

    /// Runs an invocation: what it does is a function of its number.
    fn run(&mut self, at: usize, running: Running) {
        let Running {
            image,
            payload,
            mut visit,
        } = running;
        let epoch = self.nodes[at].epoch;
        let Some(id) = self.ledger.run(at, epoch, image, &payload) else {
            return;
        };
        let record = self.ledger.records[id as usize].clone();
        let mut rng = Rng::new(mix(u64::from(id) ^ 0x7ea1));
        let mut sent = Vec::new();
        let most = if record.depth < 5 {
            self.taste.sends
        } else {
            usize::from(rng.one_in(4)).min(self.taste.sends)
        };
        for _ in 0..rng.below(most + 1) {
            let child = self.child(&mut rng, &record, None);
            let to = self.ledger.records[child as usize].to;
            let bytes = payload_of(child, self.ledger.records[child as usize].len);
            let image = self.ledger.records[child as usize].image;
            let result = self.nodes[at].node.send(&mut visit, to as u32, image, &bytes);
            self.posted(at, child, result, &mut sent);
        }
        let call = record.call.map(|call| call as usize);
        let mut is_waiting = false;
        if let Some(call) = call
            && self.ledger.calls[call].is_streamed
        {
            for _ in 0..rng.below(5) {
                let number = self.ledger.calls[call].partials;
                let mut answer = number.to_le_bytes().to_vec();
                answer.resize(
                    4 + rng.below(visit.max_answer().unwrap_or(60).clamp(4, 60) - 3),
                    0,
                );
                match self.nodes[at].node.reply_partially(&mut visit, &answer) {
                    Ok(()) => self.ledger.partial_sent(call),
                    Err(TravelError::Window) => is_waiting = true,
                    Err(TravelError::TooLarge) if visit.max_answer().is_none_or(|max| max < answer.len()) => {
                    }
                    Err(error) => self.ledger.fail("a partial answer in its window is sent", error),
                }
            }
        }
        let mut forwarded = None;
        let forwards = is_waiting || rng.below(8) < self.taste.forwards;
        if forwards {
            let child = self.child(&mut rng, &record, is_waiting.then_some(at));
            let to = self.ledger.records[child as usize].to;
            let bytes = payload_of(child, self.ledger.records[child as usize].len);
            let image = self.ledger.records[child as usize].image;
            let result = self.nodes[at].node.forward(&mut visit, to as u32, image, &bytes);
            if result.is_ok() {
                forwarded = Some(child);
            }
            self.posted(at, child, result, &mut sent);
        }
        let max_answer = visit.max_answer();
        let mut end = match rng.below(8) {
            0 => End::Fail(Status::Failed(Failure::Panic)),
            1 if forwarded.is_some() => End::Answer(5),
            _ => End::Answer(rng.below(600)),
        };
        let answer = vec![id as u8; if let End::Answer(len) = end { len } else { 0 }];
        let outcome = match end {
            End::Answer(5) if forwarded.is_some() => Ok(Some(&answer[..])),
            End::Answer(_) if forwarded.is_some() => Ok(None),
            End::Answer(_) => Ok(Some(&answer[..])),
            End::Fail(status) => Err(Box::new(Failed {
                status,
                detail: b"why".to_vec(),
            })),
        };
        if forwarded.is_some() && !matches!(outcome, Ok(None)) {
            // What was forwarded is dropped.
            if let Some(child) = forwarded.take() {
                self.ledger.take_back(child);
            }
            if outcome.is_ok() {
                end = End::Fail(Status::Failed(Failure::EndedTwice));
            }
        } else if let End::Answer(len) = end
            && max_answer.is_some_and(|max| len > max)
            && forwarded.is_none()
        {
            end = End::Fail(Status::Failed(Failure::Answer));
        }
        if let Some(scope) = record.scope {
            self.ledger.scopes[scope as usize].ended += 1;
        }
        if let Some(call) = call {
            match forwarded {
                Some(child) => {
                    self.ledger.records[child as usize].call = record.call;
                    self.ledger.calls[call].current = child;
                }
                None => self.ledger.calls[call].end = Some(end.clone()),
            }
        }
        say!(
            self,
            "node {at}: runs {id}, {record:?}: sends {sent:?}, forwards {forwarded:?}, ends {end:?}"
        );
        let ended = self.nodes[at].node.end(visit, outcome, self.now);
        if let Ended::Here {
            origin: Some(origin),
            failed,
        } = ended
        {
            let answer = answer.clone();
            self.answer(
                at,
                &origin,
                at,
                match failed {
                    None => Ok(answer),
                    Some(failed) => Err(failed),
                },
            );
        }
    }

    /// A new invocation that another one sends.
    fn child(&mut self, rng: &mut Rng, parent: &Record, to: Option<usize>) -> u32 {
        let to = to.unwrap_or_else(|| rng.below(self.nodes.len()));
        let hash = rng.next();
        self.ledger.add(Record {
            call: None,
            scope: parent.scope,
            to,
            len: 4 + rng.below(self.taste.payload),
            depth: parent.depth + 1,
            image: image_of(hash),
            runs: 0,
            ran_at: 0,
            is_closed: false,
        })
    }

    /// A node accepted an invocation for sending, or did not.
    fn posted(&mut self, at: usize, child: u32, result: Result<(), TravelError>, sent: &mut Vec<u32>) {
        let record = &self.ledger.records[child as usize];
        let held = self.nodes[at].node.footprint();
        let hops = u32::from(self.taste.hop_limit);
        let is_right = match result {
            Ok(()) => {
                sent.push(child);
                return;
            }
            Err(TravelError::Busy) => {
                held.outbox_bytes + record.len + 192 > self.taste.outbox
                    || held.slots >= 2
                    || held.scopes >= 4
            }
            Err(TravelError::NoNode) => self.ledger.lost.iter().any(|&(node, _)| node == record.to),
            Err(TravelError::HopLimit) => record.depth > hops,
            Err(_) => false,
        };
        if !is_right {
            let detail = format!("number {child}: {result:?}, {held:?}");
            self.ledger
                .fail("an invocation is sent, or it is known why not", detail);
        }
        self.ledger.take_back(child);
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
                } => self.answer(at, &origin, node as usize, outcome),
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
                Event::NodeLost { node, connections } => {
                    for port in &mut self.nodes[at].ports {
                        if connections.contains(&(port.link as u64)) {
                            let mut end = LinkEnd::new(&mut self.links[port.link].channels, port.side);
                            port.connection.report_lost_nodes(&mut end, &[node]);
                        }
                    }
                }
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
        let own = &mut self.nodes[at];
        let Some(port) = own.ports.iter_mut().find(|port| port.link == origin.link) else {
            return;
        };
        let mut host = MeshHost {
            node: &mut own.node,
            running: &mut own.running,
            installed: &port.installed,
            peer: None,
            link: port.link,
            now: self.now,
            misuse: None,
        };
        let mut end = LinkEnd::new(&mut self.links[port.link].channels, port.side);
        if node == at {
            let answer = outcome.as_deref().map_err(Clone::clone);
            port.connection
                .answer(&mut end, &mut host, &origin.reply_to, answer);
        } else {
            let answer = outcome.as_deref().map_err(|failed| &**failed);
            port.connection
                .relay(&mut end, &mut host, &origin.reply_to, node as u32, answer);
        }
    }

    /// Sends what waits for another node.
    pub(super) fn drive(&mut self, at: usize, to: usize) -> bool {
        let own = &mut self.nodes[at];
        let Some(port) = own.ports.iter_mut().find(|port| port.peer == Peer::Node(to)) else {
            return false;
        };
        // A body that is sent in fragments is the connection's own.
        if !own.node.has_work_for(to as u32) && !port.connection.caller.has_backlog() {
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

    fn parts(&mut self, node: usize, port: usize) -> SimulatedNodeParts<'_> {
        let own = &mut self.nodes[node];
        SimulatedNodeParts {
            node: (&mut own.node, self.now, &mut self.links),
            running: &mut own.running,
            port: &mut own.ports[port],
        }
    }
}

/// What a poll needs of the world.
struct SimulatedNodeParts<'a> {
    node: (
        &'a mut ifunc_proto::node::Node<SentImage, Origin>,
        u64,
        &'a mut Vec<super::MeshLink>,
    ),
    running: &'a mut Vec<Running>,
    port: &'a mut Port,
}

/// The payload of an invocation.
pub(super) fn payload_of(id: u32, len: usize) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.resize(len, id as u8);
    bytes
}
