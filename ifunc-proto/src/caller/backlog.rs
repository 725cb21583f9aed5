//! What waits to be sent: fragments, calls that are sent again, a batch that is closing, calls that were dropped, handles to be
//! released.

use ifunc_abi::frame::{BODY_ALIGN, FrameFlags, Header, Kind};

use super::{Caller, Image};
use crate::attention::Attention;
use crate::calls::{LastSend, Request, Retry};
use crate::link::{LinkError, Outbound};

impl<I: Image + Clone, U> Caller<I, U> {
    /// Sends what waits. `false`: the window is closed for some of it.
    #[inline]
    pub(crate) fn drive(&mut self, tx: &mut impl Outbound) -> Result<bool, LinkError> {
        if self.has_backlog() {
            self.drive_backlog(tx)
        } else {
            Ok(true)
        }
    }

    #[cold]
    fn drive_backlog(&mut self, tx: &mut impl Outbound) -> Result<bool, LinkError> {
        loop {
            let is_sent = if self.outgoing.is_some() {
                self.send_fragment(tx)?
            } else if let Some(&token) = self.resend.front() {
                self.send_again(tx, token)?
            } else if self.batch.is_closing {
                self.send_batch(tx)?
            } else if let Some(&token) = self.cancel.front() {
                self.send_cancel(tx, token)?
            } else if let Some(&handle) = self.unbind.last() {
                self.send_unbind(tx, handle)?
            } else {
                self.attention.set(Attention::BACKLOG, false);
                return Ok(true);
            };
            if !is_sent {
                return Ok(false);
            }
        }
    }

    /// Sends the next fragment of the outgoing body, or its last one with the request's own header.
    fn send_fragment(&mut self, tx: &mut impl Outbound) -> Result<bool, LinkError> {
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(true);
        };
        let left = outgoing.body.len() - outgoing.sent;
        let len = left.min(tx.max_body());
        let Some(memory) = tx.reserve(len, BODY_ALIGN)? else {
            self.lacking = len;
            return Ok(false);
        };
        memory[..len].copy_from_slice(&outgoing.body[outgoing.sent..][..len]);
        if len < left {
            let header = Header::new(Kind::Fragment, outgoing.number, outgoing.body.len() as u64);
            tx.commit(header, len);
            outgoing.sent += len;
            failpoint!("source.fragment");
            return Ok(true);
        }
        let flags = if outgoing.sent > 0 {
            FrameFlags::ASSEMBLED
        } else {
            FrameFlags::NONE
        };
        let header = Header {
            flags,
            ..outgoing.header
        };
        self.outgoing = None;
        let sequence = tx.commit(header, len);
        self.last_fragmented = sequence;
        if header.kind == Kind::Install {
            self.installed(header.handle, sequence);
        } else if !matches!(header.kind, Kind::Exec | Kind::Travel) {
            // A frame between nodes. Its token is none of a call.
        } else if header.token == 0 {
            self.calls.last_send = LastSend::new(sequence, header.handle);
        } else {
            self.calls.sent(header.token, sequence);
        }
        Ok(true)
    }

    /// Sends the first of the calls that are sent again.
    fn send_again(&mut self, tx: &mut impl Outbound, token: u64) -> Result<bool, LinkError> {
        if let Some(Request::Invocation(handle)) = self.calls.pending(token) {
            match self.install(tx, handle, false)? {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(lost) => {
                    self.resend.pop_front();
                    self.fail(token, lost);
                    return Ok(true);
                }
            }
            // The driver gave the handle back meanwhile: the image was sent for this call alone.
            self.release_unused(handle);
            if self.outgoing.is_some() {
                // The image is sent in fragments first.
                return Ok(true);
            }
            if let Some(retry) = self.calls.take_retry(token) {
                let Retry { handle, payload } = *retry;
                if payload.len() as u64 > self.limits.max_payload {
                    let lost = self.payload_too_large(payload.len());
                    self.fail(token, lost);
                } else {
                    self.start(Header::new(Kind::Exec, handle, token), payload);
                }
            }
        }
        self.resend.pop_front();
        Ok(true)
    }

    /// Cancels a call that was dropped, unless it has ended meanwhile.
    fn send_cancel(&mut self, tx: &mut impl Outbound, token: u64) -> Result<bool, LinkError> {
        if self.calls.is_abandoned(token) {
            if tx.reserve(0, 1)?.is_none() {
                self.lacking = 0;
                return Ok(false);
            }
            tx.commit(Header::new(Kind::Cancel, 0, token), 0);
        }
        self.cancel.pop_front();
        Ok(true)
    }

    /// Tells the peer to release the image of a handle.
    fn send_unbind(&mut self, tx: &mut impl Outbound, handle: u32) -> Result<bool, LinkError> {
        if tx.reserve(0, 1)?.is_none() {
            self.lacking = 0;
            return Ok(false);
        }
        self.unbind.pop();
        self.at_hand = 0;
        tx.commit(Header::new(Kind::Unbind, handle, 0), 0);
        for slot in self.span(handle) {
            self.handles[slot].installed = 0;
        }
        Ok(true)
    }
}
