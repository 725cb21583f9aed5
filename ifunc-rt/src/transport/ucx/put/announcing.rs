//! Going to sleep and waking others, as [`super::sleeping`] has it.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use super::layout::{ANNOUNCED, POSTED, Posted};
use super::operations::OneSided;
use super::rings::Rings;
use super::sleeping::{Step, Verdict};
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::header::Notice;
use crate::transport::ucx::packet::{BODY, Packet, Purpose};
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};

/// How long is looked without a pause for what is known to be under way.
pub(super) const SOON: Duration = Duration::from_millis(1);
/// The pause that follows: the peer may have been stopped in the middle of a put.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

impl Locked<'_> {
    /// Rings, if the peer announced that it sleeps: behind whatever it has to see, or when it has taken some of what was said
    /// before.
    pub(in super::super) fn answer(&mut self, id: ConnectionId) {
        // What was posted is there before this is looked at.
        fence(Ordering::SeqCst);
        let Some(rings) = self.state.connections.get_mut(&id).and_then(Connection::rings) else {
            return;
        };
        let announced = rings.view.announced();
        if announced == rings.answered {
            return;
        }
        let capacity = rings.peer.capacity();
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        if !connection.under_way.may_begin(capacity, 0) {
            // A peer may announce what it likes as often as it likes, and take none of the bells.
            connection.owes_credits = true;
            return;
        }
        if let Some(rings) = connection.rings() {
            rings.answered = announced;
        }
        self.notify_peer(id, Notice::Doorbell, announced, &[]);
    }

    /// Announces to the peer that this side is about to sleep, unless it knows.
    pub(in super::super) fn announce(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        if connection.gone.is_some() || !matches!(connection.stage, Stage::Put(_)) {
            return;
        }
        let Some(number) = connection.rings().and_then(|rings| rings.sleeping.begin()) else {
            return;
        };
        self.state.awake.remove(&id);
        if !self.can_put(id) {
            return;
        }
        let purpose = Purpose::Announcing { connection: id };
        match self.put_bytes(id, &number.to_ne_bytes(), ANNOUNCED, purpose) {
            Ok(true) => self.announcing(id, None),
            Ok(false) => {}
            Err(status) => {
                self.lose(id, "announcing a sleep", status);
            }
        }
    }

    /// A step of an announcement has ended; the packet is what was got.
    pub(super) fn announcing(&mut self, id: ConnectionId, mut ended: Option<Packet>) {
        while self.can_put(id) {
            let Some(rings) = self.state.connections.get_mut(&id).and_then(Connection::rings) else {
                break;
            };
            let operation = match rings.sleeping.advance() {
                Some(Step::Flushing) => OneSided::Flush,
                Some(Step::Getting) => {
                    // Over shared memory both are this processor's.
                    fence(Ordering::SeqCst);
                    OneSided::Get(BODY..BODY + Posted::LEN, POSTED)
                }
                Some(Step::Putting) | None => {
                    if let Some(packet) = &ended {
                        let mut words = [0; Posted::LEN];
                        words.copy_from_slice(packet.body(Posted::LEN));
                        rings.sleeping.got(Posted::decode(&words));
                    }
                    break;
                }
            };
            let packet = match ended.take() {
                Some(packet) => packet,
                None => self.packet(Posted::LEN),
            };
            match self.begin_one_sided(id, packet, operation, Purpose::Announcing { connection: id }) {
                Ok(Some(packet)) => ended = Some(packet),
                Ok(None) => return,
                Err(status) => {
                    return self.lose(id, "announcing a sleep", status);
                }
            }
        }
        if let Some(packet) = ended {
            self.give(packet);
        }
        if self.verdict(id) == Verdict::Expecting {
            self.state.expecting.insert(id);
        }
        // What has landed since this side looked last landed without a bell.
        self.state.notify(id);
    }

    /// The peer rang.
    pub(in super::super) fn receive_doorbell(
        &mut self,
        id: ConnectionId,
        number: u64,
    ) -> Result<(), &'static str> {
        let connection = self.state.connections.get_mut(&id);
        if let Some(rings) = connection.and_then(Connection::rings) {
            rings.sleeping.rung(number)?;
            self.state.awake.insert(id);
        }
        Ok(())
    }

    /// Announces the sleep of all connections that have to announce it, before the worker is armed.
    pub(in super::super) fn announce_all(&mut self) {
        let awake: Vec<_> = self.state.awake.iter().copied().collect();
        for id in awake {
            self.announce(id);
        }
    }

    fn verdict(&mut self, id: ConnectionId) -> Verdict {
        match self.state.connections.get_mut(&id) {
            Some(connection) if connection.gone.is_none() => {
                connection.rings().map_or(Verdict::Unannounced, Rings::verdict)
            }
            _ => Verdict::Unannounced,
        }
    }

    /// Whether a side may sleep that has looked for frames in vain.
    pub(in super::super) fn may_sleep(&mut self, id: ConnectionId) -> Verdict {
        match self.state.connections.get(&id) {
            // Its leave is known, and not all that it sent has landed.
            Some(connection) if connection.fin.is_some() && connection.gone.is_none() => Verdict::Expecting,
            _ => self.verdict(id),
        }
    }

    /// Looks whether what was posted has landed.
    pub(in super::super) fn poll_for_expected(&mut self) {
        if self.state.expecting.is_empty() && self.state.fins.is_empty() {
            self.state.expecting_since = None;
            return;
        }
        for id in std::mem::take(&mut self.state.expecting) {
            if self.verdict(id) == Verdict::Expecting {
                self.state.expecting.insert(id);
            } else {
                self.state.notify(id);
            }
        }
    }

    /// How long a target pauses before it looks again for what lands without a bell; `None`: nothing will.
    pub(in super::super) fn pause(&mut self) -> Option<Duration> {
        if self.state.expecting.is_empty() && self.state.fins.is_empty() {
            return None;
        }
        let since = *self.state.expecting_since.get_or_insert_with(Instant::now);
        Some(if since.elapsed() > SOON {
            PAUSE
        } else {
            Duration::ZERO
        })
    }
}
