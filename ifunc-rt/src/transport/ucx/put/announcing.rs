//! Going to sleep and waking the peer, as [`super::sleeping`] has it.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use ::ucx::Operation;

use super::layout::{ANNOUNCED, POSTED, Posted};
use super::rings::Rings;
use super::sleeping::{Step, Verdict};
use crate::transport::LinkError;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::header::Notice;
use crate::transport::ucx::packet::{BODY, Packet, Purpose};
use crate::transport::ucx::table::ConnectionId;

/// How long a side polls without a pause for what is known to be under way.
const SOON: Duration = Duration::from_millis(1);
/// The pause that follows: the peer may have been stopped in the middle of a put.
const PAUSE: Duration = Duration::from_millis(2);

impl Locked<'_> {
    /// Sends a doorbell if the peer announced that it sleeps. Call it after each put that the peer has to see, and after a fence.
    pub(crate) fn answer(&mut self, id: ConnectionId) {
        let Some(rings) = self.state.rings(id) else {
            return;
        };
        if !rings.is_announced() {
            return;
        }
        let announced = rings.view.announced();
        rings.answered = announced;
        self.notify_peer(id, Notice::Doorbell, announced, &[]);
    }

    /// Announces to the peer that this side is about to sleep, unless it is announced.
    pub(crate) fn announce(&mut self, id: ConnectionId) {
        let Some(number) = self.state.rings(id).and_then(|rings| rings.sleeping.begin()) else {
            return;
        };
        self.state.awake.remove(&id);
        let purpose = Purpose::Announcing { connection: id };
        if let Ok(true) = self.put_bytes(id, &number.to_ne_bytes(), ANNOUNCED, purpose) {
            self.announcing(id, None);
        }
    }

    /// A step of an announcement has ended; the packet holds what was got.
    pub(super) fn announcing(&mut self, id: ConnectionId, mut ended: Option<Packet>) {
        let purpose = Purpose::Announcing { connection: id };
        while let Some(rings) = self.state.rings(id) {
            let Some(step) = rings.sleeping.advance() else {
                if let Some(packet) = &ended {
                    let mut words = [0; Posted::LEN];
                    words.copy_from_slice(packet.body(Posted::LEN));
                    rings.sleeping.got(Posted::decode(&words));
                }
                break;
            };
            let packet = match ended.take() {
                Some(packet) => packet,
                None => self.packet(Posted::LEN),
            };
            // Over shared memory the announcement and the get are this processor's.
            fence(Ordering::SeqCst);
            let begun = self.one_sided(id, packet, purpose, POSTED, |at| match step {
                Step::Flushing => Operation::Flush {
                    endpoint: at.endpoint,
                },
                _ => Operation::Get {
                    from: at,
                    data: BODY..BODY + Posted::LEN,
                },
            });
            match begun {
                Ok(Some(packet)) => ended = Some(packet),
                _ => return,
            }
        }
        ended.into_iter().for_each(|packet| self.give(packet));
        if self.may_sleep(id) == Verdict::Expecting {
            self.state.expecting.insert(id);
        }
        // Frames that landed since this side's last poll landed without a doorbell.
        self.state.notify(id);
    }

    /// A doorbell arrived.
    pub(crate) fn receive_doorbell(&mut self, id: ConnectionId, number: u64) -> Result<(), &'static str> {
        if let Some(rings) = self.state.rings(id) {
            rings.sleeping.woken(number)?;
            self.state.awake.insert(id);
        }
        Ok(())
    }

    /// Announces the sleep of all connections that have to announce it, before the worker is armed.
    pub(crate) fn announce_all(&mut self) {
        for id in Vec::from_iter(self.state.awake.iter().copied()) {
            self.announce(id);
        }
    }

    /// Whether a side may sleep that has polled for frames in vain.
    pub(crate) fn may_sleep(&mut self, id: ConnectionId) -> Verdict {
        match self.state.connections.get_mut(&id) {
            Some(connection) if connection.gone.is_none() => match connection.fin {
                // The peer has closed, and not all of its frames have landed.
                Some(_) => Verdict::Expecting,
                None => connection.rings().map_or(Verdict::Unannounced, Rings::verdict),
            },
            _ => Verdict::Unannounced,
        }
    }

    /// Polls for frames that were posted and have not landed.
    pub(crate) fn poll_for_expected(&mut self) {
        if self.state.expecting.is_empty() {
            self.state.expecting_since = None;
            return;
        }
        for id in std::mem::take(&mut self.state.expecting) {
            if let Err(why) = self.acknowledge_fin(id) {
                self.end(id, LinkError::Malformed(why));
            }
            if self.may_sleep(id) == Verdict::Expecting {
                self.state.expecting.insert(id);
            } else {
                self.state.notify(id);
            }
        }
    }

    /// How long a side pauses before its next poll for frames that land without a doorbell; `None`: none will.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        if self.state.expecting.is_empty() {
            return None;
        }
        let since = *self.state.expecting_since.get_or_insert_with(Instant::now);
        Some(match since.elapsed() > SOON {
            true => PAUSE,
            false => Duration::ZERO,
        })
    }
}
