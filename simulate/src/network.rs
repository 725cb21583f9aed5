//! What the network and the machines do: deliver, delay, die, come back.

use ifunc_proto::link::LinkError;
use ifunc_proto::{Connection, Peer};

use crate::link::{Channel, Shape};
use crate::port::Node;
use crate::rng::Rng;
use crate::world::{Session, SimulatedLink, World, note};

/// Why a link died, where its end is a violation of the protocol.
pub(crate) const BROKEN: &str = "a broken simulated link";

impl World {
    pub(crate) fn deliver(&mut self, rng: &mut Rng) {
        let Some((link, channel)) = self.pick_channel(rng) else {
            return;
        };
        let count = rng.pick(&[1, 1, 2, 8]);
        let delivered = (0..count)
            .take_while(|_| channel_of(&mut self.links, link, channel).deliver(rng))
            .count();
        note!(self, "link {link}: delivers {delivered} frames of side {channel}");
    }

    pub(crate) fn return_credits(&mut self, rng: &mut Rng) {
        let Some((link, channel)) = self.pick_channel(rng) else {
            return;
        };
        let is_all = rng.one_in(2);
        let is_some = self.links[link].channels[channel].return_credits(is_all);
        note!(self, "link {link}: returns credits to side {channel}: {is_some}");
    }

    fn pick_channel(&self, rng: &mut Rng) -> Option<(usize, usize)> {
        let index = rng.below(self.live_links.len().max(1));
        Some((*self.live_links.get(index)?, rng.below(2)))
    }

    pub(crate) fn kill(&mut self, rng: &mut Rng) {
        let Some((link, _)) = self.pick_channel(rng) else {
            return;
        };
        self.kill_link(rng, link);
    }

    fn kill_link(&mut self, rng: &mut Rng, link: usize) {
        let channels = &mut self.links[link].channels;
        if channels[0].is_dead() {
            return;
        }
        let end = if rng.one_in(8) {
            LinkError::Malformed(BROKEN)
        } else {
            LinkError::Closed
        };
        for channel in channels {
            channel.kill(rng, end.clone());
            channel.sender_knows_end = rng.one_in(3);
            channel.receiver_knows_end = rng.one_in(3);
        }
        note!(self, "link {link}: dies: {end:?}");
    }

    pub(crate) fn notice(&mut self, rng: &mut Rng) {
        let Some((link, channel)) = self.pick_channel(rng) else {
            return;
        };
        let channel = &mut self.links[link].channels[channel];
        if channel.is_dead() {
            if rng.one_in(2) {
                channel.sender_knows_end = true;
            } else {
                channel.receiver_knows_end = true;
            }
        }
    }

    /// All ends of a dead link know it.
    pub(crate) fn notice_all(&mut self, link: usize) {
        for channel in &mut self.links[link].channels {
            if channel.is_dead() {
                channel.sender_knows_end = true;
                channel.receiver_knows_end = true;
            }
        }
    }

    /// The driver learns from elsewhere that the link is dead.
    pub(crate) fn lose(&mut self, port: usize) {
        if let Some((link, _)) = self.ports[port].link
            && self.links[link].channels[0].is_dead()
        {
            self.notice_all(link);
            self.with_link(port, "is told that its link is dead", |port, end| {
                port.connection.lose(end, "lost");
            });
        }
    }

    /// Makes a new link of a session, unless there is one.
    pub(crate) fn reconnect(&mut self, rng: &mut Rng, session: usize) {
        let Session { nodes, ports } = self.sessions[session];
        let is_dead = |world: &Self, port: usize| match world.ports[port].link {
            Some((link, _)) => world.links[link].channels[0].is_dead(),
            None => true,
        };
        if !is_dead(self, ports[0]) || !is_dead(self, ports[1]) {
            return;
        }
        // The side that connects knows that its link is dead. The other may still run what it received.
        self.lose(ports[0]);
        let mut ports = ports;
        if rng.one_in(2) && self.ports[ports[1]].link.is_some() {
            self.ports[ports[1]].is_replaced = true;
            self.ports[ports[1]].waiting = None;
            ports[1] = self.add_port(nodes[1]);
            self.sessions[session].ports = ports;
        } else {
            self.lose(ports[1]);
        }
        if ports.iter().any(|&port| self.ports[port].connection.is_linked()) {
            return;
        }
        let link = self.links.len();
        let shapes = [Shape::draw(rng), Shape::draw(rng)];
        self.links.push(SimulatedLink {
            channels: shapes.map(Channel::new),
            ports,
        });
        self.live_links.push(link);
        let specs = nodes.map(|node| self.nodes[node]);
        let is_duplex = specs
            .iter()
            .all(|spec| spec.config.server.is_some() && spec.invokes);
        note!(self, "link {link}: joins ports {ports:?}, {shapes:?}, {specs:?}");
        for side in 0..2 {
            let (here, there) = (specs[side], specs[1 - side]);
            // Replies to this side's requests travel in the other channel.
            let max_answer = there
                .config
                .server
                .map_or(0, |server| server.limits.max_answer as usize);
            let max_answer = max_answer.min(here.takes_answers);
            let room = max_answer.min(shapes[1 - side].max_body);
            let max_handles = there.config.server.map_or(0, |server| server.max_handles);
            self.ledger.add_lane(max_handles, room, max_answer, is_duplex);
            let port = &mut self.ports[ports[side]];
            port.link = Some((link, side));
            port.installs.clear();
            port.was_linked = true;
            port.serves = here.config.server.is_some() && there.invokes;
            port.is_served = there.config.server.is_some() && here.invokes;
            port.waiting = port.waiting.filter(|_| port.is_served);
        }
        for side in 0..2 {
            let (here, there) = (specs[side], specs[1 - side]);
            let peer = Peer {
                machine: ifunc_abi::machine::Machine::default(),
                limits: there
                    .config
                    .server
                    .filter(|_| here.invokes)
                    .map(|server| server.limits),
                invokes: there.invokes,
                max_answer: there.takes_answers as u64,
                node: None,
            };
            self.with_link(ports[side], "connects", |port, end| {
                port.connection.connect(end, peer);
                port.connection.drive(end);
            });
        }
        self.forget_old_links();
    }

    /// Links that no port uses any more are not chosen again.
    pub(crate) fn forget_old_links(&mut self) {
        let Self {
            links,
            ports,
            live_links,
            live,
            ..
        } = self;
        live_links.retain(|&link| {
            let holds =
                |port: &usize| live.contains(port) && ports[*port].link.is_some_and(|(held, _)| held == link);
            links[link].ports.iter().any(holds)
        });
    }

    /// A node restarts: its connections are gone, and the node may come back another.
    pub(crate) fn restart(&mut self, rng: &mut Rng) {
        let node = rng.below(self.nodes.len());
        note!(self, "node {node}: restarts");
        let gone: Vec<usize> = self
            .live
            .iter()
            .copied()
            .filter(|&port| self.ports[port].node == node)
            .collect();
        self.live.retain(|&port| self.ports[port].node != node);
        if !rng.one_in(4) {
            let limits = Node::draw(rng).config.server;
            let config = &mut self.nodes[node].config;
            if config.server.is_some() && limits.is_some() {
                config.server = limits;
            }
            // It accepts less than before: what waits to be sent again may be too long.
            if let Some(server) = &mut config.server
                && rng.one_in(2)
            {
                server.limits.max_payload = server.limits.max_payload.min(48) / 4;
            }
        }
        for port in gone {
            if let Some((link, _)) = self.ports[port].link {
                self.kill_link(rng, link);
            }
            let config = self.nodes[node].config;
            // Nothing looks at it any more; its images are released.
            self.ports[port].connection = Connection::new(config);
            if self.ports[port].installed.get() != 0 {
                self.ledger
                    .fail("images are released with their link", format_args!("port {port}"));
            }
            for session in 0..self.sessions.len() {
                for side in 0..2 {
                    if self.sessions[session].ports[side] == port {
                        self.sessions[session].ports[side] = self.add_port(node);
                    }
                }
            }
        }
        self.forget_old_links();
    }
}

fn channel_of(links: &mut [SimulatedLink], link: usize, channel: usize) -> &mut Channel {
    &mut links[link].channels[channel]
}
