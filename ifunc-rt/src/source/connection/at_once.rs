//! The fast path of a submission: the send window is open and nothing else waits. It becomes a part of its caller, down to
//! the stores into the ring. All other submissions take the [slow path](Connection::try_submit).

use ifunc_abi::frame::{Header, Kind};
use ifunc_proto::link::Link as _;
use rustix::time::{ClockId, clock_gettime};

use super::pending::What;
use super::{Connection, Error};
use crate::transport::{Inbound, Outbound, with_link};

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
            || self.signals.is_crowded()
        {
            return Err(LONG_WAY);
        }
        if self.asked != clock_gettime(ClockId::MonotonicCoarse) {
            return Err(LONG_WAY);
        }
        // What may be sent again is kept.
        if wants && slot.library.is_idempotent() {
            return Err(LONG_WAY);
        }
        let link = self.link.as_mut().ok_or(LONG_WAY)?;
        let limit = link.hello.limits.max_payload;
        let (pending, reports, library) = (&mut self.pending, &self.reports, &slot.library);
        let (place, token) = with_link!(link, link => {
            let (tx, rx) = link.split();
            // A call returns no failure of an earlier send, so that received frames can wait.
            if !wants && !(reports.is_empty() && rx.is_empty()) || bound > tx.max_body() {
                return Err(LONG_WAY);
            }
            let Ok(Some(room)) = tx.reserve(bound, align) else {
                return Err(LONG_WAY);
            };
            let len = encode(room).map_err(|error| Some(Box::new(error)))?;
            assert!(len <= bound, "a payload is longer than its bound");
            if len as u64 > limit {
                return Err(Some(Box::new(library.too_large(len, limit))));
            }
            let token = if wants {
                pending.wait_for(What::Ifunc(handle), None)
            } else {
                0
            };
            (tx.commit(Header::new(Kind::Exec, handle, token), len), token)
        });
        if wants {
            self.pending.sent(token, place);
        } else {
            self.last_send = Some((place, handle));
        }
        Ok(token)
    }
}
