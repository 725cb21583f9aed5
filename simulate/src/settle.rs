//! Liveness: a network that delivers everything, and drivers that sleep until their connection says that it can go on.

use std::collections::BTreeMap;

use ifunc_proto::link::Link;

use crate::ledger::Violation;
use crate::link::End;
use crate::rng::Rng;
use crate::world::{World, note};

/// Passes after which a world that still moves is stuck: hundreds of long answers over frames of 32 bytes take 30,000.
const MAX_PASSES: usize = 50_000;

impl World {
    /// A step in the middle of a run: everything that can move does, over the links that live.
    pub(crate) fn settle_step(&mut self) {
        note!(self, "everything settles");
        self.settle();
        self.expect_rest();
    }

    /// The end of a run: links are made again or given up, and everything ends.
    pub(crate) fn finish(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        note!(self, "the run ends");
        for link in self.live_links.clone() {
            self.notice_all(link);
        }
        self.settle();
        let reconnects = !rng.one_in(4);
        for session in 0..self.sessions.len() {
            if reconnects {
                self.reconnect(rng, session);
            }
        }
        self.settle();
        self.verdict()?;
        for port in self.live.clone() {
            self.give_up(port);
        }
        self.settle();
        self.expect_rest();
        self.verdict()?;
        for port in self.live.clone() {
            if self.ports[port].is_served && self.ports[port].connection.is_linked() {
                self.flush(port);
            }
        }
        self.settle();
        self.expect_rest();
        for port in self.live.clone() {
            self.ledger.rested(port);
        }
        self.verdict()
    }

    /// Takes all reports, and every outcome that is there.
    pub(crate) fn take_all(&mut self, port: usize) {
        for index in (0..self.ports[port].calls.len()).rev() {
            self.take(port, index);
        }
        self.take_reports(port, true);
    }

    /// Moves everything until nothing moves any more.
    fn settle(&mut self) {
        // What settles is drawn from nothing: the order of the network does not matter here, other steps vary it.
        let mut rng = Rng::new(self.steps);
        for port in self.live.clone() {
            self.with_link(port, "closes its batch", |port, end| {
                port.connection.close_batch(end)
            });
            // Every driver is awake, and polls until there is nothing.
            while self.poll(port) > 0 {
                self.steps += 1;
            }
        }
        for _ in 0..MAX_PASSES {
            let mut has_moved = false;
            for index in 0..self.live_links.len() {
                let link = self.live_links[index];
                self.notice_all(link);
                for channel in &mut self.links[link].channels {
                    while channel.deliver(&mut rng) {
                        has_moved = true;
                    }
                    has_moved |= channel.return_credits(true);
                }
            }
            for index in 0..self.live.len() {
                let port = self.live[index];
                has_moved |= self.wake(port);
                if self.ledger.violation.is_some() {
                    return;
                }
            }
            if !has_moved {
                return;
            }
        }
        self.ledger.fail("everything comes to rest", "it still moves");
    }

    /// Lets a driver do what its connection and its link tell it to do. `false`: the driver sleeps.
    fn wake(&mut self, at: usize) -> bool {
        let port = &mut self.ports[at];
        let Some((link, side)) = port.link else {
            return false;
        };
        let before = self.movement(at);
        self.steps += 1;
        self.answer(at);
        let port = &mut self.ports[at];
        let mut end = End::new(&mut self.links[link].channels, side);
        let has_arrived = end.rx.0.has_arrived();
        let connection = &mut port.connection;
        let is_linked = connection.is_linked();
        let is_due = if port.serves && connection.is_stalled() {
            // What arrived waits for the send window, unless credits and requests come the same way.
            !connection.is_blocked(&mut end) || has_arrived && port.is_duplex()
        } else {
            connection.has_work() || connection.has_more() || has_arrived && is_linked
        };
        if is_due && (is_linked || self.ports[at].connection.has_work()) {
            // A driver sleeps after a poll that finds nothing.
            while self.poll(at) > 0 {
                self.steps += 1;
            }
        }
        let port = &mut self.ports[at];
        let mut end = End::new(&mut self.links[link].channels, side);
        let lacking = port.connection.caller.lacking().min(end.tx.0.shape.max_body);
        if port.connection.is_linked()
            && port.connection.caller.has_backlog()
            && end.split().0.0.has_credit(lacking)
        {
            self.with_link(at, "drives", |port, end| port.connection.drive(end));
        }
        if self.ports[at].connection.is_linked()
            && let Some(wish) = self.ports[at].waiting
            && self.submit(at, wish)
        {
            self.ports[at].waiting = None;
            self.with_link(at, "closes its batch", |port, end| {
                port.connection.close_batch(end)
            });
            return true;
        }
        self.movement(at) != before
    }

    /// Changes whenever a connection did something.
    fn movement(&self, at: usize) -> (u64, u64, bool, bool, bool) {
        let port = &self.ports[at];
        let moved = port.link.map_or(0, |(link, _)| {
            self.links[link]
                .channels
                .iter()
                .map(|channel| channel.moved)
                .sum()
        });
        let connection = &port.connection;
        (
            moved,
            connection.received(),
            connection.is_linked(),
            connection.has_work(),
            connection.has_more(),
        )
    }

    /// Nothing moves any more: nothing may wait, except for a link.
    fn expect_rest(&mut self) {
        for at in self.live.clone() {
            if self.ledger.violation.is_some() {
                return;
            }
            self.take_all(at);
            let port = &self.ports[at];
            let connection = &port.connection;
            if !connection.is_linked() {
                continue;
            }
            let held = connection.footprint();
            let problem = if port.waiting.is_some() {
                "a submission waits"
            } else if !port.is_served {
                // What waits, waits for a link to a peer that serves.
                continue;
            } else if !port.calls.is_empty() {
                "a call is pending"
            } else if connection.caller.calls.in_use() != 0 {
                "a token of a call that was dropped is in use"
            } else if connection.caller.has_backlog()
                || connection.caller.has_unsent()
                || connection.caller.is_batch_closing()
            {
                "something waits to be sent"
            } else if connection.is_stalled() || connection.has_work() {
                "a reply waits to be sent"
            } else if held.parked.0 != 0 || held.replies != 0 || held.batch != 0 {
                "frames or replies are kept"
            } else {
                continue;
            };
            let detail = format!(
                "port {at}: {problem}: {held:?}, waiting: {:?}, calls: {:?}",
                port.waiting, port.calls
            );
            self.ledger.fail("nothing waits that could go on", detail);
        }
        self.expect_released();
        self.bury_replaced();
    }

    /// A target has no more entries installed than the images have that its source binds.
    fn expect_released(&mut self) {
        for &link in &self.live_links {
            let ports = self.links[link].ports;
            if ports.iter().any(|&port| !self.ports[port].connection.is_linked()) {
                continue;
            }
            for (source, target) in [(ports[0], ports[1]), (ports[1], ports[0])] {
                let handles = self.ports[source].handles.iter();
                let images: BTreeMap<u8, usize> = handles
                    .map(|(_, sent)| (sent.image.index, sent.image.entries.into()))
                    .collect();
                let installed = self.ports[target].installed.get();
                if installed > images.values().sum() {
                    let detail = format!("port {target} has {installed}, port {source} binds {images:?}");
                    self.ledger
                        .fail("images are released when nothing is bound to them", detail);
                }
            }
        }
    }

    /// Ports whose place was taken end with their link.
    fn bury_replaced(&mut self) {
        for at in self.live.clone() {
            let port = &self.ports[at];
            if !port.is_replaced || port.connection.is_linked() || port.connection.has_work() {
                continue;
            }
            self.give_up(at);
            self.ledger.rested(at);
            let calls = self.ports[at].connection.caller.calls.in_use();
            if calls != 0 {
                self.ledger
                    .fail("every token is freed", format_args!("port {at}: {calls} in use"));
            }
            self.live.retain(|&other| other != at);
        }
        self.forget_old_links();
    }
}
