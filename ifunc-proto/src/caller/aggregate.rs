//! Aggregated invocations: the open batch, from its first entry until it is sent.

use ifunc_abi::batch::{ALIGN, RunHead};
use ifunc_abi::frame::{Header, Kind};

use super::{CALL_WINDOW, Caller, Image, NotSent, Submission, SubmitError};
use crate::attention::Attention;
use crate::batch::Joining;
use crate::calls::{LastSend, Lost, Request, Retry};
use crate::link::{LinkError, Outbound};

impl<I: Image + Clone, U> Caller<I, U> {
    /// Whether an entry for this submission fits into a batch at all. Larger ones are sent in frames of their own.
    pub(crate) fn fits_batch(&self, submission: &Submission) -> bool {
        RunHead::single_len(submission.bound).is_some_and(|size| size <= self.batch.limit())
    }

    /// Whether an entry for this submission fits into the open batch.
    pub fn fits_open_batch(&self, submission: &Submission) -> bool {
        let size = RunHead::single_len(submission.bound);
        size.is_some_and(|size| self.batch.len() + size <= self.batch.limit())
    }

    /// Adds an invocation to the open batch if the last entry invokes the same handle and nothing else is to be done: neither
    /// before, nor after it. `None`: that is not so, and nothing happened.
    #[inline]
    pub fn append_alike<E>(
        &mut self,
        submission: &Submission,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<u64, NotSent<I, E>>> {
        let &Submission {
            handle,
            bound,
            align,
            wants_completion,
            ..
        } = submission;
        // The batch stays open: one more entry of this size fits after this one.
        let size = RunHead::single_len(bound)?.checked_mul(2)?;
        let is_alike = self.attention == Attention::BATCH
            && self.batch.ends_with(handle)
            && self.batch.has_capacity(size)
            && bound as u64 <= self.limits.max_payload
            && !(wants_completion && self.handles[handle as usize].image.is_idempotent());
        if !is_alike {
            return None;
        }
        let len = match self.batch.encode(handle, bound, align, encode) {
            Ok(len) => len,
            Err(error) => return Some(Err(SubmitError::Encode(error).into())),
        };
        let token = if wants_completion {
            self.batch.has_calls = true;
            self.calls.begin_in_batch(Request::Invocation(handle), None)
        } else {
            self.batch.last_send = Some(handle);
            0
        };
        self.batch.push(handle, token, len, align);
        Some(Ok(token))
    }

    /// As [`append_alike`](Self::append_alike), for the first of these payloads as far as they are like those of the last run in
    /// length and alignment, too. Returns how many joined it. Calls `sent` with the first of their consecutive tokens, or 0, and their number.
    #[inline]
    pub fn append_run<P, E>(
        &mut self,
        (handle, wants_completion): (u32, bool),
        payloads: &[P],
        layout: impl Fn(&P) -> (usize, usize),
        mut encode: impl FnMut(&P, &mut [u8]) -> Result<usize, E>,
        sent: impl FnOnce(u64, usize),
    ) -> usize {
        if self.attention != Attention::BATCH
            || wants_completion && self.handles[handle as usize].image.is_idempotent()
        {
            return 0;
        }
        let Some(joining) = self.batch.joining(handle) else {
            return 0;
        };
        let Joining {
            len,
            stride,
            first_token,
            memory,
        } = joining;
        let mut encoded = 0;
        for (payload, entry) in payloads.iter().zip(memory.chunks_exact_mut(stride)) {
            let (bound, align) = layout(payload);
            let (memory, zeros) = entry.split_at_mut(len);
            let is_alike = bound == len && align <= ALIGN && len.next_multiple_of(align) == stride;
            // One that is shorter than its bound, or does not encode, is encoded again: as one that is unlike the others.
            if !is_alike || !matches!(encode(payload, memory), Ok(encoded) if encoded == len) {
                break;
            }
            if !zeros.is_empty() {
                zeros.fill(0);
            }
            encoded += 1;
        }
        let joined = match (wants_completion, first_token) {
            (false, 0) => encoded,
            (true, 1..) => {
                let request = Request::Invocation(handle);
                self.calls.begin_together(request, first_token, encoded)
            }
            _ => 0,
        };
        if joined > 0 {
            self.batch.join(joined);
            if wants_completion {
                self.batch.has_calls = true;
            } else {
                self.batch.last_send = Some(handle);
            }
            sent(first_token, joined);
        }
        joined
    }

    /// Adds an invocation to the open batch. `None`: the window is closed and the batch is full. `is_eager`: the batch is
    /// sent with its first entry.
    pub(crate) fn append<E>(
        &mut self,
        tx: &mut impl Outbound,
        submission: Submission,
        is_eager: bool,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<u64, NotSent<I, E>> {
        let Submission {
            handle,
            bound,
            align,
            wants_completion,
            ..
        } = submission;
        if !wants_completion {
            self.refuse_after_report()?;
        }
        if !self.is_served() {
            return Err(NotSent::Blocked);
        }
        if wants_completion && !self.has_call_window() {
            // The calls under way may lie in the batch.
            self.close_batch(tx)?;
            self.lacking = CALL_WINDOW;
            return Err(NotSent::Blocked);
        }
        let size = RunHead::single_len(bound).unwrap_or(usize::MAX);
        let is_installed = self.handles[handle as usize].installed == self.generation;
        let is_ready = is_installed || self.drive(tx)? && self.install(tx, handle, false)??;
        if !is_ready {
            return Err(NotSent::Blocked);
        }
        if !self.batch.reserve(size) {
            self.close_batch(tx)?;
            if !self.batch.is_empty() || !self.batch.reserve(size) {
                return Err(NotSent::Blocked);
            }
        }
        let len = self
            .batch
            .encode(handle, bound, align, encode)
            .map_err(SubmitError::Encode)?;
        if len as u64 > self.limits.max_payload {
            return Err(self.payload_too_large(len).into());
        }
        let slot = &mut self.handles[handle as usize];
        if !std::mem::replace(&mut slot.is_batched, true) {
            slot.users += 1;
            self.batch.handles.push(handle);
        }
        let token = if wants_completion {
            let is_idempotent = slot.image.is_idempotent();
            let retry = is_idempotent.then(|| Retry::new(handle, self.batch.encoded(len)));
            self.batch.has_calls = true;
            self.calls.begin_in_batch(Request::Invocation(handle), retry)
        } else {
            self.batch.last_send = Some(handle);
            0
        };
        if self.batch.push(handle, token, len, align) {
            self.batch.generation = self.generation;
            self.attention.set(Attention::BATCH, true);
        }
        // An entry of the same size would not fit any more.
        if is_eager || self.batch.len() + size > self.batch.limit() {
            // The invocation is accepted. If the link is dead, the next attempt to use it finds that.
            let _ = self.close_batch(tx);
        }
        Ok(token)
    }

    /// The number of the open batch, counted from 1; `None`: no batch is open.
    #[inline]
    pub fn open_batch(&self) -> Option<u64> {
        (!self.batch.is_empty()).then_some(self.batch.opened)
    }

    /// Whether the open batch waits for the window.
    pub fn is_batch_closing(&self) -> bool {
        self.batch.is_closing
    }

    /// Sends the open batch after everything else that waits. If the window is closed, the next drive sends it.
    #[cold]
    pub(crate) fn close_batch(&mut self, tx: &mut impl Outbound) -> Result<(), LinkError> {
        self.close_batch_soon();
        self.drive(tx).map(drop)
    }

    /// The next drive sends the open batch.
    #[inline]
    pub(crate) fn close_batch_soon(&mut self) {
        if !self.batch.is_empty() {
            self.batch.is_closing = true;
            self.attention.set(Attention::BACKLOG, true);
        }
    }

    /// Sends the batch, or as much of it as one frame holds, or an image that must precede it. `false`: the window is
    /// closed.
    pub(super) fn send_batch(&mut self, tx: &mut impl Outbound) -> Result<bool, LinkError> {
        if self.batch.generation != self.generation {
            return self.refit_batch(tx);
        }
        let part = self.batch.first_part(tx.max_body());
        if part.len == 0 {
            self.send_first_entry_alone();
            return Ok(true);
        }
        let Some(memory) = tx.reserve(part.len, ALIGN)? else {
            self.lacking = part.len;
            return Ok(false);
        };
        self.batch.write(part, &mut memory[..part.len]);
        let sequence = tx.commit(Header::new(Kind::Batch, 0, 0), part.len);
        failpoint!("source.batch");
        if self.batch.has_calls {
            let Self { batch, calls, .. } = self;
            for (head, _) in batch.heads(part).filter(|(head, _)| head.token != 0) {
                calls.sent_in_batch(head.token.get(), head.count.get(), sequence);
            }
        }
        if let Some(handle) = self.batch.last_send_of(part) {
            self.calls.last_send = LastSend::new(sequence, handle);
        }
        self.batch.remove(part);
        self.end_batch();
        Ok(true)
    }

    /// The first entry fits into no frame of this link: it is sent in fragments.
    #[cold]
    fn send_first_entry_alone(&mut self) {
        let first = self.batch.first_entry();
        let Some((head, entry)) = self.batch.heads(first).next() else {
            return;
        };
        let payload = entry[..head.len.get() as usize].to_vec();
        let token = head.token.get();
        self.calls.set_in_batch(token, false);
        self.batch.remove(first);
        self.start(Header::new(Kind::Exec, head.code.get(), token), payload);
        self.end_batch();
    }

    /// Releases what an empty batch holds.
    fn end_batch(&mut self) {
        if !self.batch.is_empty() {
            return;
        }
        self.attention.set(Attention::BATCH, false);
        self.batch.is_closing = false;
        self.batch.has_calls = false;
        self.batch.last_send = None;
        while let Some(handle) = self.batch.handles.pop() {
            self.leave_batch(handle);
        }
    }

    /// The batch is no user of the handle any more.
    fn leave_batch(&mut self, handle: u32) {
        self.handles[handle as usize].is_batched = false;
        self.unbind(handle);
    }

    /// Before the batch is sent over another link than it was made for: sends the images of its entries, and fails the
    /// entries that the new peer does not accept. `false`: the window is closed.
    #[cold]
    fn refit_batch(&mut self, tx: &mut impl Outbound) -> Result<bool, LinkError> {
        for index in 0..self.batch.handles.len() {
            let handle = self.batch.handles[index];
            match self.install(tx, handle, false)? {
                // The image is sent in fragments first.
                Ok(true) if self.outgoing.is_some() => return Ok(true),
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(lost) => {
                    self.fail_runs(|run| (run.code == handle).then(|| lost.clone()));
                    self.batch.handles.swap_remove(index);
                    self.leave_batch(handle);
                    self.end_batch();
                    return Ok(true);
                }
            }
        }
        let limit = self.limits.max_payload;
        self.fail_runs(|run| {
            let len = run.len.get().into();
            (len > limit).then_some(Lost::PayloadTooLarge { len, limit })
        });
        self.batch.generation = self.generation;
        self.end_batch();
        Ok(true)
    }

    /// Fails runs of the open batch, and releases it if none is left.
    #[cold]
    pub(super) fn fail_batch(&mut self, verdict: impl FnMut(RunHead) -> Option<Lost>) {
        if !self.batch.is_empty() {
            self.fail_runs(verdict);
            self.end_batch();
        }
    }

    /// Removes the runs for which there is a verdict. Their calls and sends end with it.
    fn fail_runs(&mut self, mut verdict: impl FnMut(RunHead) -> Option<Lost>) {
        let mut failed = Vec::new();
        self.batch.retain(|run| match verdict(run) {
            Some(lost) => {
                failed.push((run, lost));
                false
            }
            None => true,
        });
        for (run, lost) in failed {
            for index in 0..run.count.get() {
                if run.token == 0 {
                    // The batch is a user of the handle: it was not bound to another image.
                    self.report(run.code.get(), Err(Box::new(lost.clone())), |_| false);
                } else {
                    let token = run.token.get() + u64::from(index);
                    self.calls.set_in_batch(token, false);
                    self.fail(token, lost.clone());
                }
            }
        }
    }
}
