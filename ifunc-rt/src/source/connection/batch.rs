//! Invocations that share a frame: the open batch, and when it is sent.

use std::time::{Duration, Instant};

use ifunc_proto::caller::Submission;

use super::{Connection, NotSent};
use crate::driver::backoff::after;
use crate::driver::driven::Signals;
use crate::source::error::Error;
use crate::transport::with_link;

/// Deadline of the open batch.
#[derive(Debug)]
pub(super) struct BatchTimer {
    pub(super) delay: Duration,
    /// The number of the open batch.
    pub(super) open: Option<u64>,
    pub(super) due: Option<Instant>,
}

impl Connection {
    /// Adds an invocation to the open batch. Otherwise as [`submit`](Self::submit).
    pub(in crate::source) fn append(
        &mut self,
        submission: Submission,
        encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, NotSent> {
        if !self.protocol.caller.fits_open_batch(&submission) {
            self.check_peer();
            if !self.prepare(submission.bound) {
                return Err(NotSent::Blocked);
            }
        }
        let Some(link) = &mut self.link else {
            return Err(self.not_linked(submission.wants_completion));
        };
        let is_eager = self.batch.delay.is_zero();
        let mut encode = |memory: &mut [u8]| encode(memory);
        let result = with_link!(link, link => self.protocol.append(link, submission, is_eager, &mut encode));
        self.submitted(result.is_ok());
        self.close_due_batch();
        result
    }

    /// Adds an invocation to the open batch if that is all there is to do. `None`: that is not so, and nothing happened.
    #[inline(always)]
    pub(in crate::source) fn append_alike(
        &mut self,
        submission: &Submission,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Option<Result<u64, NotSent>> {
        // Without a thread that keeps the time, every caller sends what is due.
        if !self.signals.is_timed && self.batch.due.is_some() || self.signals.is_crowded {
            return None;
        }
        self.protocol.caller.append_alike(submission, encode)
    }

    /// As [`append_alike`](Self::append_alike), for several payloads. Returns how many joined the last run of the open batch.
    #[inline(always)]
    pub(in crate::source) fn append_run<P>(
        &mut self,
        invocation: (u32, bool),
        payloads: &[P],
        layout: impl Fn(&P) -> (usize, usize),
        encode: impl FnMut(&P, &mut [u8]) -> Result<usize, Error>,
        sent: impl FnOnce(u64, usize),
    ) -> usize {
        if !self.signals.is_timed && self.batch.due.is_some() || self.signals.is_crowded {
            return 0;
        }
        let caller = &mut self.protocol.caller;
        caller.append_run(invocation, payloads, layout, encode, sent)
    }

    /// Sends the open batch. `false`: it waits for credit.
    pub(in crate::source) fn try_push(&mut self) -> bool {
        self.receive_all();
        self.close_batch();
        self.protocol.caller.open_batch().is_none()
    }

    pub(super) fn close_batch(&mut self) {
        self.check_peer();
        if let Some(link) = &mut self.link {
            with_link!(link, link => self.protocol.close_batch(link));
            self.report();
        }
    }

    pub(super) fn is_batch_due(&self) -> bool {
        self.batch.due.is_some_and(|due| Instant::now() >= due)
    }

    /// Sends the open batch if it is due and no thread does it.
    pub(super) fn close_due_batch(&mut self) {
        if !self.signals.is_timed && self.is_batch_due() {
            self.close_batch();
        }
    }

    #[cold]
    pub(super) fn batch_changed(&mut self) {
        self.batch.open = self.protocol.caller.open_batch();
        let is_timed = self.batch.open.is_some() && self.batch.delay != Duration::MAX;
        self.batch.due = is_timed.then(|| after(self.batch.delay));
        self.signals.raise(Signals::DUE_CHANGED);
    }
}
