//! The way of nearly every submission: over shared memory, with room, while nothing else waits. It becomes a part of its
//! caller, down to the stores into the ring. Whatever is unusual goes the [long way](Connection::try_submit).

use ifunc_abi::frame::{Header, Kind};
use rustix::time::{ClockId, clock_gettime};

use super::pending::What;
use super::{Connection, Error};
use crate::transport::{Outbound, shm_is_inline};

/// Why nothing was sent at once. (What is returned fits into two registers: a frame costs less than a `Result` of the usual
/// size, which is written in parts and copied as a whole.)
pub(in crate::source) type NotSent = Option<Box<Error>>;

/// Only the long way can tell: nothing was sent, and nothing encoded.
const LONG_WAY: NotSent = None;

impl Connection {
    /// As [`try_submit`](Self::try_submit).
    ///
    /// # Errors
    /// The payload's; or [`LONG_WAY`].
    #[inline(always)]
    pub(in crate::source) fn submit_at_once(
        &mut self,
        (handle, align): (u32, usize),
        bound: usize,
        wants: bool,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, NotSent> {
        let slot = self.handles.get(handle as usize).ok_or(LONG_WAY)?;
        if slot.installed != self.generation
            || !self.is_idle()
            || !self.batch.is_empty()
            || !self.waiting.rooms.is_empty()
        {
            return Err(LONG_WAY);
        }
        if self.asked != clock_gettime(ClockId::MonotonicCoarse) {
            return Err(LONG_WAY);
        }
        let link = self.link.as_mut().ok_or(LONG_WAY)?;
        if wants {
            // What may be sent again is kept. Who calls is told nothing of earlier sends, so that what came back can wait.
            if slot.library.is_idempotent() {
                return Err(LONG_WAY);
            }
        } else if !self.reports.is_empty() || !link.rx.is_silent() {
            return Err(LONG_WAY);
        }
        let limit = link.limits.max_payload;
        let tx = link.tx.as_shm().ok_or(LONG_WAY)?;
        let inline = shm_is_inline(bound, align);
        let room = if inline {
            tx.slot_at_once(bound, align)
        } else {
            tx.reserve_at_once(bound, align)
        };
        let room = room.ok_or(LONG_WAY)?;
        let len = encode(room).map_err(|error| Some(Box::new(error)))?;
        assert!(len <= bound, "a payload is longer than its bound");
        if len as u64 > limit {
            return Err(Some(Box::new(slot.library.too_large(len, limit))));
        }
        let token = if wants {
            self.pending.wait_for(What::Ifunc(handle), None)
        } else {
            0
        };
        let header = Header::new(Kind::Exec, handle, token);
        let place = if inline {
            tx.publish_inline(header, len)
        } else {
            tx.commit(header, len)
        };
        if wants {
            self.pending.sent(token, place);
        } else {
            self.last_send = Some((place, handle));
        }
        Ok(token)
    }
}
