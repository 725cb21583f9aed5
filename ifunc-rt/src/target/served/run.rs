//! Runs the invocations of a connection, and counts them.

use ifunc_abi::rare::rarely;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_exec::{BatchAnswers, BatchEnd, EntryProperties, Executor, ImageExecutor, InstalledEntry};
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::host::{Answers, Failed, Invocation, Payload, Refusal, ReplyTo, Run, RunEnd, run_each};
use ifunc_proto::link::Body;

use super::bound::{Bound, Counted};
use super::{Served, State};
use crate::observe::run_observed;
use crate::policy::SourceInfo;
use crate::target::argument::Argument;

/// Bytes of a copied payload that are kept for the next one, where each invocation has its payload copied.
const KEPT: usize = 64 << 10;
/// Entries of a batch that run one by one in one poll.
const ONE_BY_ONE: usize = 64;

impl<const TAKES: bool> Served<'_, '_, TAKES> {
    /// Runs the invocation that the poll took, if it took one. Returns the length of what it wrote to `answer`, if the peer
    /// receives that over this link.
    pub(in crate::target) fn run_taken(
        &mut self,
        answer: &mut AlignedBuffer,
    ) -> Option<(ReplyTo, Result<usize, Box<Failed>>)> {
        if let Some(taken) = self.state.taken_visit.take() {
            let payload = std::mem::take(&mut self.state.scratch);
            let outcome = self.run_taken_visit(taken, payload.as_slice(), answer);
            if payload.len() <= KEPT {
                self.state.scratch = payload;
            }
            return outcome;
        }
        let (counted, reply_to, has_memory) = self.state.taken.take()?;
        if let Err(refusal) = has_memory {
            return Some((reply_to, Err(refusal.into())));
        }
        let payload = std::mem::take(&mut self.state.scratch);
        let invocation = reply_to.invocation(payload.as_slice());
        let max_answer = reply_to.max_answer();
        answer.resize(max_answer.unwrap_or(0));
        let outcome = self.run(&counted, invocation, max_answer.map(|_| answer.as_mut_slice()));
        if payload.len() <= KEPT {
            self.state.scratch = payload;
        }
        Some((reply_to, outcome))
    }

    /// Runs an invocation of an image that was accepted, and counts it.
    #[inline(always)]
    pub(in crate::target) fn run<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        if counted.suits != self.execution.argument.key {
            return rarely(move || self.run_unusual(counted, invocation, answer));
        }
        self.run_suited(counted, invocation, answer)
    }

    /// Runs an invocation that has quotas or runs in another process, or of an entry that was bound for other target arguments.
    fn run_unusual<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let (entry, executor) = (&*counted.entry, &self.execution.host.executor);
        if !self.execution.argument.suits(executor, entry) {
            return Err(unsuited(executor, entry, &self.execution.argument));
        }
        if entry.image().is_remote() {
            // SAFETY: they are of the type that the text describes. If they are copied, every content is a value of it, and `poll` borrows
            // them for this thread alone, as it does unless they are shared. `suits` compared the methods that the image imports.
            unsafe { self.execution.session.lend(self.execution.argument.lent()) };
        }
        let Some(limited) = counted.limited() else {
            return self.run_suited(counted, invocation, answer);
        };
        let begun = limited.begin(invocation.payload.len());
        let (run_time, _running) =
            begun.inspect_err(|refusal| self.state.refuse(counted, limited.signer(), refusal))?;
        let max = limited.max_answer();
        let answer = answer.map(|answer| {
            let len = answer.len().min(max);
            &mut answer[..len]
        });
        if run_time.is_some() {
            executor.limit_run_time(&mut self.execution.session, run_time);
        }
        let outcome = self.run_suited(counted, invocation, answer);
        if run_time.is_some() {
            executor.limit_run_time(&mut self.execution.session, None);
        }
        let failed = match outcome {
            Err(failed) => failed,
            executed => return executed,
        };
        // A long answer lies in memory of its own.
        match failed.answer.as_ref().map(|answer| answer.bytes().len()) {
            Some(len) if len > max => {
                self.state.exceeded(counted, Failure::Answer);
                let why = limited.exceeded_by_answer(len);
                Err(Box::new(Failed::new(
                    Status::Failed(Failure::Answer),
                    why.into_bytes(),
                )))
            }
            _ => Err(failed),
        }
    }

    /// Runs an invocation of an entry that suits the target arguments.
    #[inline(always)]
    fn run_suited<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let Self { state, execution } = self;
        let (entry, counters) = (&*counted.entry, &*counted.counters);
        let Invocation {
            sequence,
            is_batched,
            payload,
        } = invocation;
        let size = payload.len();
        let mut ptr = payload.as_ptr();
        if ptr.addr() & counted.misplaced != 0 {
            ptr = state.placed(entry, payload);
        }
        let invocation = move |argument: &Argument, source: &SourceInfo| {
            let (target, sender) = (argument.target, source.connection);
            // SAFETY: the policy accepted the image when it was installed. Its target type was compared with that of the
            // target arguments, now or by their key. A payload stays readable until its frame is released, after this call, and a
            // copy until the next one; it is aligned.
            unsafe { ifunc_exec::Invocation::new(&*counted.entry, ptr, size, target, sender) }
        };
        if is_batched {
            counters.batched(1);
        }
        if counters.is_due() || tracing::level_enabled!(tracing::Level::TRACE) {
            return rarely(move || {
                let invocation = invocation(&self.execution.argument, &self.state.source);
                self.run_timed(counted, invocation, size, sequence, answer)
            });
        }
        let is_answered = answer.is_some();
        let (session, argument, source) = (&mut execution.session, &execution.argument, &state.source);
        match ImageExecutor::run(session, move || invocation(argument, source), answer) {
            Ok(len) => {
                counters.executed(size, is_answered.then_some(len));
                Ok(len)
            }
            Err(failed) => {
                self.not_in_place(counted, size, &failed);
                Err(failed)
            }
        }
    }

    /// Runs an invocation that is timed or traced, and counts it.
    fn run_timed(
        &mut self,
        counted: &Counted,
        invocation: ifunc_exec::Invocation<'_>,
        size: usize,
        sequence: u32,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let (span, counters) = (&self.state.span, &*counted.counters);
        let outcome = run_observed(
            span,
            counters,
            &mut self.execution.session,
            invocation,
            sequence,
            answer,
        );
        match &outcome {
            Ok(len) => counters.executed(size, Some(*len)),
            Err(failed) => self.not_in_place(counted, size, failed),
        }
        outcome
    }

    /// Runs entries of a run in one crossing of the call gate, and counts them. One that is timed or traced, and those of an
    /// image without a function for batches, are run one by one.
    pub(super) fn run_batch<B: Body>(
        &mut self,
        counted: &Counted,
        bound: &Bound,
        run: Run<B>,
        answers: Option<Answers<'_>>,
    ) -> RunEnd {
        let (entry, counters) = (&*counted.entry, &*counted.counters);
        let suits = counted.suits == self.execution.argument.key
            || counted.limited().is_none()
                && self
                    .execution
                    .argument
                    .suits(&self.execution.host.executor, entry);
        if !ImageExecutor::has_batch(entry) || !suits || tracing::level_enabled!(tracing::Level::TRACE) {
            return run_each(self, bound, run.part(0, run.count.min(ONE_BY_ONE)), answers);
        }
        let count = counters.together(run.count);
        if count == 0 {
            return run_each(self, bound, run.part(0, run.count.min(counters.timed())), answers);
        }
        let (state, session) = (&mut *self.state, &mut self.execution.session);
        let (mut ptr, mut stride) = (run.payloads.as_ptr(), run.stride);
        if (ptr.addr() | stride) & counted.misplaced != 0 {
            match state.placed_run(entry, &run.part(0, count)) {
                Some(placed) => (ptr, stride) = placed,
                // Each alone may have memory.
                None => return run_each(self, bound, run.part(0, count.min(ONE_BY_ONE)), answers),
            }
        }
        let (target, sender) = (self.execution.argument.target, state.source.connection);
        // SAFETY: as in `run`, for each entry: payloads lie `stride` bytes apart, and each is aligned.
        let batch = unsafe {
            let first = ifunc_exec::Invocation::new(entry, ptr, run.len, target, sender);
            ifunc_exec::Batch::new(first, stride, count)
        };
        let mut answers = answers.map(|answers| BatchAnswers {
            memory: answers.memory,
            max_answer: answers.max_answer,
            lens: answers.lens,
        });
        let borrowed = answers.as_mut().map(|answers| BatchAnswers {
            memory: answers.memory,
            max_answer: answers.max_answer,
            lens: answers.lens,
        });
        let BatchEnd { executed, failed } = ImageExecutor::run_batch(session, batch, borrowed);
        let answered = answers.map_or(0, |answers| {
            let lens = &answers.lens[..executed];
            lens.iter().map(|&len| len as usize).sum()
        });
        counters.executed_together(executed, run.len, answered);
        if run.is_batched {
            counters.batched(executed + usize::from(failed.is_some()));
        }
        if let Some(failed) = &failed {
            self.not_in_place(counted, run.len, failed);
        }
        RunEnd { executed, failed }
    }

    /// Counts an invocation that has no answer in the memory that it was lent.
    #[cold]
    #[inline(never)]
    fn not_in_place(&self, counted: &Counted, size: usize, failed: &Failed) {
        match &failed.answer {
            Some(answer) => counted.counters.executed(size, Some(answer.bytes().len())),
            None => self.failed(counted, size, failed),
        }
    }

    /// Counts and logs an invocation that has no answer, and calls the host's hook if it ended early.
    fn failed(&self, counted: &Counted, size: usize, failed: &Failed) {
        let (state, ifunc) = (&*self.state, &*counted.entry.name);
        counted.counters.failed(size);
        match failed.status {
            Status::Failed(why @ (Failure::Answer | Failure::StackLow)) => state.exceeded(counted, why),
            Status::Failed(why) => tracing::debug!(
                parent: &state.span, ifunc, source = state.source.connection, %why, "invocation failed"
            ),
            _ => {}
        }
        self.execution
            .host
            .escaped(&self.execution.argument, &state.source, ifunc, failed);
    }
}

impl State {
    /// Where a payload is read that may have to be copied. What is copied fits into a frame, whose size this target chose.
    #[cold]
    fn placed(&mut self, entry: &EntryProperties, payload: Payload<'_, impl Body>) -> *const u8 {
        if entry.is_aligned(payload.as_ptr()) && !(self.copies_payloads && payload.is_in_place()) {
            return payload.as_ptr();
        }
        self.scratch.resize(payload.len());
        payload.copy_to(self.scratch.as_mut_slice());
        self.scratch.as_slice().as_ptr()
    }

    /// Copies the payloads of a run, so that each is aligned. Returns the first one and their distance; `None`: there is no
    /// memory for them.
    #[cold]
    fn placed_run(&mut self, entry: &EntryProperties, run: &Run<impl Body>) -> Option<(*const u8, usize)> {
        let is_placed = run.stride & (entry.payload_align - 1) == 0;
        let stride = if is_placed {
            run.stride
        } else {
            run.len.next_multiple_of(entry.payload_align)
        };
        self.scratch.try_resize(stride * run.count)?;
        let memory = self.scratch.as_mut_slice();
        if is_placed {
            run.payloads.copy_to(&mut memory[..run.payloads.len()]);
        } else {
            for index in 0..run.count {
                let payload = run.invocation(index).payload;
                payload.copy_to(&mut memory[index * stride..][..run.len]);
            }
        }
        Some((self.scratch.as_slice().as_ptr(), stride))
    }
}

/// A copy of a payload, aligned for any image.
pub(super) fn copied(scratch: &mut AlignedBuffer, payload: Payload<'_, impl Body>) -> Result<(), Refusal> {
    let size = payload.len();
    scratch.try_resize(size).ok_or_else(|| {
        Refusal::new(
            Rejection::Resources,
            format!("it has no memory for a payload of {size} bytes"),
        )
    })?;
    payload.copy_to(scratch.as_mut_slice());
    Ok(())
}

/// Why an entry does not run on these target arguments.
#[cold]
fn unsuited(executor: &ImageExecutor, entry: &InstalledEntry, argument: &Argument) -> Box<Failed> {
    if !argument.has_type(executor, entry.target) {
        return argument.wrong_target(executor, entry.target).into();
    }
    if let Err(refusal) = argument.admits_imports(executor, entry.image().import_names()) {
        return refusal.into();
    }
    Refusal::new(Rejection::NotShareable, NOT_SHAREABLE).into()
}

pub(in crate::target) const NOT_SHAREABLE: &str = "this target serves on several threads, and the ifunc takes its data for itself alone; help: take `&T` of a type that is `Sync` (atomics, or an opaque type with host functions that take `&T`), in C say `IFUNC_SHAREABLE(name)`, or let the target `serve`";
