//! Sends invocations, each in a frame of its own.

use ifunc_abi::travel::TravelHead;
use ifunc_proto::caller::{Encode, Submission, SubmitError};

use super::{Connection, NotSent};
use crate::source::error::Error;
use crate::transport::{Ends, Inbound as _, Link, Outbound as _, with_link};

/// Frames of a stream between two polls for replies; a poll takes a tenth of a send's time.
const POLL_INTERVAL: u64 = 16;

impl Connection {
    /// Sends an invocation if that is all there is to do. `None`: that is not so, and nothing happened.
    #[inline(always)]
    pub(in crate::source) fn submit_at_once(
        &mut self,
        submission: &Submission,
        encode: &mut impl Encode<Error = Error>,
    ) -> Option<Result<u64, NotSent>> {
        if !self.is_examined(submission.bound) {
            return None;
        }
        let link = self.link.as_mut()?;
        with_link!(link, link => {
            if !submission.wants_completion && !link.rx.is_empty() {
                return None;
            }
            let sent = self.protocol.submit_at_once(link, submission, encode)?;
            if !submission.wants_completion {
                link.tx.wake();
            }
            Some(sent)
        })
    }

    /// As [`submit_at_once`](Self::submit_at_once), without completion, over a ring, and if nothing is to be examined. Polls for replies once
    /// in [`POLL_INTERVAL`] frames. Calls nothing that is not inlined. `Some(true)`: [`wake_peer`](Self::wake_peer) has something to do.
    #[inline(always)]
    pub(in crate::source) fn publish_at_once(
        &mut self,
        submission: &Submission,
        encode: &mut impl Encode<Error = Error>,
    ) -> Option<bool> {
        let Some(Link {
            ends: Ends::Shm(link),
            ..
        }) = &mut self.link
        else {
            return None;
        };
        let sent = link.tx.sent();
        if sent >= self.signals.polled_until {
            if sent >= self.signals.examined_until || !link.rx.is_empty() {
                return None;
            }
            self.signals.polled_until = (sent + POLL_INTERVAL).min(self.signals.examined_until);
        }
        self.protocol.submit_at_once(link, submission, encode)?.ok()?;
        Some(link.tx.must_wake())
    }

    /// Wakes the peer if it sleeps.
    pub(in crate::source) fn wake_peer(&mut self) {
        if let Some(link) = &mut self.link {
            with_link!(link, link => link.tx.wake());
        }
    }

    /// Sends an invocation. With a completion the result is its token, otherwise 0.
    ///
    /// # Errors
    /// There is no credit now or no link; or the invocation cannot be sent.
    #[inline(never)]
    pub(in crate::source) fn submit(
        &mut self,
        submission: Submission,
        encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, NotSent> {
        let mut encode = |memory: &mut [u8]| encode(memory);
        if !self.is_examined(submission.bound) {
            return Err(NotSent::Blocked);
        }
        let Some(link) = &mut self.link else {
            return Err(self.not_linked(submission.wants_completion));
        };
        let result = with_link!(link, link => match self.protocol.submit(link, submission, &mut encode) {
            Ok(token) if !self.protocol.caller.needs_attention() => return Ok(token),
            result => result,
        });
        self.unsettled(result)
    }

    /// Sends an invocation that may travel on. Otherwise as [`submit`](Self::submit).
    pub(in crate::source) fn submit_travel(
        &mut self,
        submission: Submission,
        head: &TravelHead,
        encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, NotSent> {
        self.check_peer();
        if !self.prepare(submission.bound + TravelHead::SIZE) {
            return Err(NotSent::Blocked);
        }
        let Some(link) = &mut self.link else {
            return Err(self.not_linked(submission.wants_completion));
        };
        let mut encode = |memory: &mut [u8]| encode(memory);
        let result =
            with_link!(link, link => self.protocol.submit_travel(link, submission, head, &mut encode));
        self.unsettled(result.map(|accepted| accepted.token))
    }

    /// [Examines](Self::examine) before a submission, if that is due. `false`: it is the turn of waiters for credit.
    #[inline(always)]
    fn is_examined(&mut self, bytes: usize) -> bool {
        self.sent() < self.signals.examined_until || self.examine(bytes)
    }

    /// How many frames were sent over the link.
    #[inline(always)]
    fn sent(&mut self) -> u64 {
        match &mut self.link {
            Some(link) => with_link!(link, link => link.tx.sent()),
            None => u64::MAX,
        }
    }

    /// Before a submission: [prepares](Self::prepare) if the tick has passed, or waiters for credit exist. `false`: it is their turn.
    #[cold]
    #[inline(never)]
    fn examine(&mut self, bytes: usize) -> bool {
        let unexamined = self.check_peer().filter(|_| !self.signals.is_crowded);
        if unexamined.is_some() {
            self.asked.count();
        }
        match unexamined {
            Some(frames) => self.signals.examined_until = self.sent().saturating_add(1 + u64::from(frames)),
            None => self.signals.examine_next(),
        }
        unexamined.is_some() || self.prepare(bytes)
    }

    /// The result of a submission after which the driver has something to do.
    #[cold]
    #[inline(never)]
    fn unsettled(&mut self, result: Result<u64, NotSent>) -> Result<u64, NotSent> {
        self.submitted(result.is_ok());
        if matches!(result, Err(NotSent::Blocked)) {
            // An application that only tries again receives nothing otherwise: neither credit nor answers.
            self.receive_all();
        }
        match result {
            Ok(token) if self.protocol.caller.has_backlog() || self.signals.is_raised() => {
                Err(SubmitError::Unfinished(token).into())
            }
            result => result,
        }
    }

    /// Submissions until [`flush_held`](Self::flush_held) follow each other at once: over some transports their frames share messages.
    pub(in crate::source) fn hold(&mut self) {
        if let Some(link) = &mut self.link {
            with_link!(link, link => link.tx.hold());
        }
    }

    /// Sends what was held.
    pub(in crate::source) fn flush_held(&mut self) {
        if let Some(link) = &mut self.link {
            with_link!(link, link => link.tx.flush());
        }
    }

    /// Receives what has arrived, and lets waiters for credit go first. `false`: it is their turn.
    #[cold]
    pub(super) fn prepare(&mut self, bytes: usize) -> bool {
        self.receive_all();
        if self.signals.is_crowded || self.signals.is_raised() {
            // The driver learns the size of the submission, or wakes waiters after it.
            self.protocol.caller.set_attention();
        }
        self.signals.admits(bytes)
    }

    /// Why a submission is not sent while there is no link: an earlier one did not end well, or it waits for another link.
    #[cold]
    pub(super) fn not_linked(&mut self, wants_completion: bool) -> NotSent {
        if wants_completion {
            return NotSent::Blocked;
        }
        match self.protocol.caller.take_report() {
            Some(report) => SubmitError::Earlier(Box::new(report)).into(),
            None => NotSent::Blocked,
        }
    }

    /// Reports to the driver after an attempt to send.
    #[cold]
    pub(super) fn submitted(&mut self, is_sent: bool) {
        self.report();
        if is_sent {
            self.signals.took_credit();
        } else {
            self.signals.lacking = self.protocol.caller.lacking();
        }
    }
}
