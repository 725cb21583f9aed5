//! Links between nodes and from sources, deaths and restarts.

use ifunc_proto::link::LinkError;
use ifunc_proto::{Connection, Peer as PeerHello};

use super::client::Client;
use super::{Mesh, MeshLink, Peer, Port, Scenario, Source, say};
use crate::link::{Channel, End, Shape};
use crate::rng::Rng;

impl Mesh {
    /// Sources connect to their nodes. Links between nodes are made when they ask for them, and some before.
    pub(super) fn connect_all(&mut self, rng: &mut Rng) {
        self.connect_sources(rng);
        for node in 0..self.members {
            for other in 0..node {
                if rng.one_in(2) {
                    self.connect_nodes(rng, node, other);
                }
            }
        }
    }

    pub(super) fn connect_sources(&mut self, rng: &mut Rng) {
        for at in 0..self.sources.len() {
            let Source { target, is_duplex } = self.sources[at];
            let home = self.members + at;
            if self.nodes[home].ports.is_empty() && self.nodes[target].is_up {
                let link = self.new_link(rng, false);
                let mut port = self.port(Peer::Target, link, 0, is_duplex);
                port.client = Some(Client::new(target));
                self.nodes[home].ports.push(port);
                let mut port = self.port(Peer::Source(at), link, 1, is_duplex);
                port.client = is_duplex.then(|| Client::new(home));
                self.nodes[target].ports.push(port);
                say!(self, "source {at}: connects to node {target} by link {link}");
            }
        }
    }

    /// Makes a link between two nodes that have none.
    pub(super) fn connect_nodes(&mut self, rng: &mut Rng, one: usize, other: usize) -> bool {
        let has_port = |mesh: &Self, from: usize, to: usize| {
            mesh.nodes[from]
                .ports
                .iter()
                .any(|port| port.peer == Peer::Node(to))
        };
        let are_up = self.nodes[one].is_up && self.nodes[other].is_up;
        if one == other || !are_up || has_port(self, one, other) || has_port(self, other, one) {
            return false;
        }
        let link = self.new_link(rng, true);
        for (side, (from, to)) in [(one, other), (other, one)].into_iter().enumerate() {
            let mut port = self.port(Peer::Node(to), link, side, true);
            port.client = (self.has_programs && rng.one_in(2)).then(|| Client::new(to));
            let epoch = self.nodes[to].epoch;
            self.nodes[from].ports.push(port);
            self.nodes[from].node.linked(to as u32, epoch, self.now);
            self.ledger.met.insert((from, to));
        }
        say!(self, "node {one}: connects to node {other} by link {link}");
        true
    }

    pub(super) fn connect_wanted(&mut self, rng: &mut Rng) -> bool {
        let mut is_some = false;
        self.connect_sources(rng);
        for node in 0..self.nodes.len() {
            for other in std::mem::take(&mut self.nodes[node].wanted) {
                if !self.nodes[other].is_up {
                    // No link can be made.
                    self.nodes[node].node.lose(other as u32, self.now, |_| true);
                    say!(self, "node {node}: finds no node {other}");
                    is_some = true;
                } else if !self.connect_nodes(rng, node, other)
                    && !self.nodes[node].node.is_linked(other as u32)
                {
                    self.nodes[node].wanted.push(other);
                }
            }
        }
        is_some
    }

    fn new_link(&mut self, rng: &mut Rng, is_between_nodes: bool) -> usize {
        let has_one_credit = match self.scenario {
            Scenario::Flood => is_between_nodes,
            Scenario::Mixed | Scenario::Fan => self.has_one_credit,
        };
        let mut shape = || {
            let mut shape = Shape::draw(rng);
            // Answers wait for a source that is slow.
            let is_narrow = !is_between_nodes && rng.one_in(3);
            if has_one_credit || is_narrow && self.scenario == Scenario::Mixed {
                shape.window = 1;
                shape.window_bytes = shape.max_body;
            } else if self.scenario == Scenario::Fan {
                shape.window = shape.window.max(8);
                shape.max_body = shape.max_body.max(256);
                shape.window_bytes = shape.window as usize * shape.max_body;
            }
            Channel::new(shape)
        };
        let channels = [shape(), shape()];
        self.links.push(MeshLink {
            channels,
            is_between_nodes,
        });
        self.links.len() - 1
    }

    /// One end of a link. `is_duplex`: both sides invoke and serve; otherwise the source invokes, and its target serves.
    fn port(&mut self, peer: Peer, link: usize, side: usize, is_duplex: bool) -> Port {
        let is_source = peer == Peer::Target;
        let mut connection = Connection::new(self.config(is_duplex || !is_source));
        let limits = self.config(true).server.map(|server| server.limits);
        let hello = PeerHello {
            machine: ifunc_abi::machine::Machine::default(),
            limits: limits.filter(|_| is_duplex || is_source),
            invokes: is_duplex || !is_source,
            max_answer: u64::MAX,
            node: match peer {
                Peer::Node(number) => Some(number as u32),
                Peer::Source(_) | Peer::Target => None,
            },
        };
        let mut end = End::new(&mut self.links[link].channels, side);
        connection.connect(&mut end, hello);
        Port {
            peer,
            link,
            side,
            connection,
            serves: is_duplex || !is_source,
            installed: Default::default(),
            last_arrived: [None; 2],
            taken: None,
            client: None,
        }
    }

    fn kill_link(&mut self, rng: &mut Rng, link: usize) {
        for channel in &mut self.links[link].channels {
            if !channel.is_dead() {
                channel.kill(rng, LinkError::Closed);
                channel.sender_knows_end = rng.one_in(3);
                channel.receiver_knows_end = rng.one_in(3);
            }
        }
    }

    /// A node dies, with all that it holds.
    pub(super) fn kill(&mut self, rng: &mut Rng, node: usize) {
        if !self.nodes[node].is_up {
            return;
        }
        say!(self, "node {node}: dies");
        let epoch = self.nodes[node].epoch;
        self.ledger.lost.push((node, epoch));
        let ports = std::mem::take(&mut self.nodes[node].ports);
        for port in &ports {
            self.kill_link(rng, port.link);
            if let Peer::Source(at) = port.peer {
                self.ledger.lost.push((self.members + at, 1));
            }
        }
        let mut dead = self.new_node(rng, Some(node), epoch);
        dead.is_up = false;
        self.ledger.met.retain(|&(knows, _)| knows != node);
        self.nodes[node] = dead;
    }

    /// A link between two nodes is cut: each counts as lost for the other.
    pub(super) fn cut(&mut self, rng: &mut Rng) {
        let node = rng.below(self.members);
        let count = self.nodes[node].ports.len();
        if count == 0 {
            return;
        }
        let port = &self.nodes[node].ports[rng.below(count)];
        let (link, peer) = (port.link, port.peer);
        if self.links[link].channels[0].is_dead() {
            return;
        }
        self.kill_link(rng, link);
        self.ledger.lost.push((node, self.nodes[node].epoch));
        let other = match peer {
            Peer::Node(other) => other,
            Peer::Source(at) => self.members + at,
            Peer::Target => return,
        };
        self.ledger.lost.push((other, self.nodes[other].epoch));
        say!(self, "link {link} of node {node} to {peer:?} is cut");
    }

    pub(super) fn notice(&mut self, rng: &mut Rng) {
        let link = rng.below(self.links.len());
        let channel = &mut self.links[link].channels[rng.below(2)];
        if channel.is_dead() {
            channel.sender_knows_end = true;
            channel.receiver_knows_end = true;
        }
    }

    pub(super) fn notice_all(&mut self) {
        for channel in self.links.iter_mut().flat_map(|link| &mut link.channels) {
            if channel.is_dead() {
                channel.sender_knows_end = true;
                channel.receiver_knows_end = true;
            }
        }
    }

    /// A dead node starts again, and every other one learns of it.
    pub(super) fn restart(&mut self, rng: &mut Rng) {
        let Some(node) = self.nodes.iter().position(|node| !node.is_up) else {
            return;
        };
        let epoch = self.nodes[node].epoch + 1;
        self.nodes[node] = self.new_node(rng, Some(node), epoch);
        for other in 0..self.members {
            if rng.one_in(2) {
                self.nodes[other].node.add(node as u32);
                self.ledger.met.insert((other, node));
            }
        }
        say!(self, "node {node}: starts again");
        self.connect_sources(rng);
    }

    pub(super) fn pass_time(&mut self, by: u64) {
        self.now += by;
        for node in self.nodes.iter_mut().filter(|node| node.is_up) {
            node.node.tick(self.now);
        }
    }
}
