//! Invocations that may travel on, and frames between nodes.

use ifunc_abi::frame::{BODY_ALIGN, Header, Kind};
use ifunc_abi::travel::TravelHead;
use zerocopy::IntoBytes;

use super::{Caller, Image, NotSent, Submission, SubmitError};
use crate::calls::{LastSend, Request, recorded};
use crate::connection::Connection;
use crate::link::{Link, LinkError, Outbound};

/// A frame that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The token of the call; 0: there is none.
    pub token: u64,
    /// Sequence number of the frame; `None`: it is sent in fragments, and [`Caller::last_fragmented`] returns the number
    /// when [`Caller::has_outgoing`] is false.
    pub sequence: Option<u32>,
}

impl<I: Image + Clone, U, B> Connection<I, U, B> {
    /// Sends an invocation that may travel on, with its head. It is not [aggregated](Self::append), and it is not sent again
    /// over another link.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_travel<L: Link, E>(
        &mut self,
        link: &mut L,
        submission: Submission,
        head: &TravelHead,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Accepted, NotSent<I, E>> {
        if !submission.wants_completion {
            self.receive_all(link);
        }
        let (tx, _) = link.split();
        match self.caller.submit_travel(tx, submission, head, encode) {
            Ok(accepted) => Ok(accepted),
            Err(error) => Err(self.not_sent(link, error)),
        }
    }

    /// Sends a frame that is no invocation to a node: its body is `head` and then `rest`. `None`: the window is closed, or
    /// the link died.
    pub fn submit_to_node<L: Link>(
        &mut self,
        link: &mut L,
        header: Header,
        head: &[u8],
        rest: &[u8],
    ) -> Option<Accepted> {
        let (tx, _) = link.split();
        match self.caller.submit_to_node(tx, header, head, rest) {
            Ok(accepted) => accepted,
            Err(error) => {
                let _: NotSent<I, ()> = self.not_sent(link, error.into());
                None
            }
        }
    }

    /// Asks for a completion when everything in a scope has ended: its token. The scope's number is in the
    /// [heads](TravelHead::scope) of its invocations. `None`: the window is closed.
    pub fn finish<L: Link>(&mut self, link: &mut L, scope: u32) -> Option<u64> {
        self.request(link, Kind::Finish, scope, Request::Finish)
    }

    /// Allows the peer to send so many more partial answers of a call. `false`: the window is closed.
    pub fn grant<L: Link>(&mut self, link: &mut L, token: u64, count: u32) -> bool {
        let header = Header::new(Kind::Grant, count, token);
        self.submit_to_node(link, header, &[], &[]).is_some()
    }
}

impl<I: Image + Clone, U> Caller<I, U> {
    fn submit_travel<E>(
        &mut self,
        tx: &mut impl Outbound,
        submission: Submission,
        head: &TravelHead,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Accepted, NotSent<I, E>> {
        let Submission {
            handle,
            bound,
            wants_completion,
            carries_code,
            ..
        } = submission;
        // Nearly always so between nodes.
        let is_ready = !wants_completion
            && !carries_code
            && self.attention.is_none_but_duplex()
            && self.handles[handle as usize].installed == self.generation;
        if !is_ready {
            self.prepare(tx, handle, wants_completion, carries_code)?;
        }
        let whole = bound.saturating_add(TravelHead::SIZE);
        let accepted = if whole > tx.max_body() {
            let mut body = Vec::new();
            body.try_reserve_exact(whole)
                .map_err(|_| self.payload_too_large(bound))?;
            body.resize(whole, 0);
            body[..TravelHead::SIZE].copy_from_slice(head.as_bytes());
            let len = encode(&mut body[TravelHead::SIZE..]).map_err(SubmitError::Encode)?;
            let len = self.checked_len(len, bound)?;
            body.truncate(len);
            let token = if wants_completion {
                self.calls.begin(Request::Traveling(handle), None)
            } else {
                0
            };
            self.start(Header::new(Kind::Travel, handle, token), body);
            // The invocation is accepted. If the link is dead, the next attempt to use it finds that.
            let _ = self.drive(tx);
            Accepted {
                token,
                sequence: None,
            }
        } else {
            let Some(memory) = tx.reserve(whole, BODY_ALIGN)? else {
                self.lacking = whole;
                return Err(NotSent::Blocked);
            };
            memory[..TravelHead::SIZE].copy_from_slice(head.as_bytes());
            let len = encode(&mut memory[TravelHead::SIZE..whole]).map_err(SubmitError::Encode)?;
            let len = self.checked_len(len, bound)?;
            let mut sequence = 0;
            let mut send = |token| {
                sequence = tx.commit(Header::new(Kind::Travel, handle, token), len);
                recorded(sequence)
            };
            let token = if wants_completion {
                self.calls.begin_sent(Request::Traveling(handle), None, send)
            } else {
                send(0);
                self.calls.last_send = LastSend::new(sequence, handle);
                0
            };
            Accepted {
                token,
                sequence: Some(sequence),
            }
        };
        if carries_code {
            self.resend_image(handle);
        }
        Ok(accepted)
    }

    /// The length of a body whose payload has `len` bytes.
    fn checked_len<E>(&self, len: usize, bound: usize) -> Result<usize, NotSent<I, E>> {
        assert!(len <= bound, "a payload is longer than its bound");
        if len as u64 > self.limits.max_payload {
            return Err(self.payload_too_large(len).into());
        }
        Ok(TravelHead::SIZE + len)
    }

    fn submit_to_node(
        &mut self,
        tx: &mut impl Outbound,
        header: Header,
        head: &[u8],
        rest: &[u8],
    ) -> Result<Option<Accepted>, LinkError> {
        if !self.is_served() || !self.drive(tx)? {
            return Ok(None);
        }
        let len = head.len() + rest.len();
        if len > tx.max_body() {
            self.start(header, [head, rest].concat());
            // The frame is accepted. If the link is dead, the next attempt to use it finds that.
            let _ = self.drive(tx);
            return Ok(Some(Accepted {
                token: 0,
                sequence: None,
            }));
        }
        let Some(memory) = tx.reserve(len, 8)? else {
            self.lacking = len;
            return Ok(None);
        };
        memory[..head.len()].copy_from_slice(head);
        memory[head.len()..len].copy_from_slice(rest);
        let sequence = tx.commit(header, len);
        Ok(Some(Accepted {
            token: 0,
            sequence: Some(sequence),
        }))
    }

    /// Sequence number of the last frame whose body was sent in fragments.
    #[must_use]
    pub fn last_fragmented(&self) -> u32 {
        self.last_fragmented
    }
}
