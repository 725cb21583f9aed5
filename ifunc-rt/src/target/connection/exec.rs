//! An invocation, from its payload to its answer: an `Exec`, or an entry of a batch.

use ifunc_abi::frame::{FrameFlags, Header};
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_proto::link::Body as _;

use super::binding::{Bound, bound};
use super::state::State;
use super::{Argument, End, broke};
use crate::observe::run_observed;
use crate::policy::SourceInfo;
use crate::target::Host;
use crate::target::replies::Replies;
use crate::transport::{Body, Frame};
use ifunc_exec::Refusal;
use ifunc_exec::Session;
use ifunc_exec::{Executor, Failed, InProcess, Invocation};

/// An invocation that has no answer.
pub(super) enum Unwell {
    /// The source is told why.
    Told(Status, Vec<u8>),
    /// The connection is over.
    Over(Box<End>),
}

impl From<Refusal> for Box<Unwell> {
    fn from(refusal: Refusal) -> Self {
        Box::new(Unwell::Told(
            Status::Rejected(refusal.reason),
            refusal.detail.as_bytes().to_vec(),
        ))
    }
}

impl State {
    /// Runs what `header` and `arrived` ask for; `BATCHED`, they are an entry's, and so is its answer's way.
    #[inline(always)]
    pub(super) fn exec<const BATCHED: bool>(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
        header: Header,
        arrived: &Frame<Body<'_>>,
    ) -> Result<usize, Box<Unwell>> {
        let Self {
            source,
            bindings,
            assembly,
            scratch,
            copy_payloads,
            span,
            ..
        } = self;
        let assembled = header.flags.contains(FrameFlags::ASSEMBLED);
        // Borrowed, not cloned: a reference count costs as much as the rest of a small invocation.
        let bound = match bound(bindings, host, argument, header.handle) {
            Ok(bound) => bound,
            Err(refusal) => {
                if assembled {
                    assembly.clear();
                }
                return Err(refusal.into());
            }
        };
        let (image, counters) = (&*bound.image, &*bound.metrics.counters);
        let (payload, size) = if assembled {
            let whole = assembly
                .finish(&arrived.body)
                .map_err(|error| Box::new(Unwell::Over(broke(error))))?;
            (whole.as_slice().as_ptr(), whole.len())
        } else if *copy_payloads || !image.is_aligned(arrived.body.as_ptr()) {
            scratch.resize(arrived.body.len());
            arrived.body.copy_to(scratch.as_mut_slice());
            (scratch.as_slice().as_ptr(), scratch.len())
        } else {
            (arrived.body.as_ptr(), arrived.body.len())
        };
        if size as u64 > host.limits.max_payload {
            if assembled {
                assembly.clear();
            }
            let limit = host.limits.max_payload;
            let detail = format!("a payload of {size} bytes, the limit is {limit}");
            return Err(Refusal::new(Rejection::TooLarge, detail).into());
        }
        // SAFETY: the policy accepted the image; `bound` compared its target type with that of the target arguments; the payload is
        // in memory of the transport or of this connection, which stays until the frame is released, and is aligned.
        let invocation = unsafe { Invocation::new(image, payload, size, argument.target, source.connection) };
        let room = if BATCHED {
            counters.batched();
            replies.entry_room(header.token)
        } else {
            replies.answer_room(header.token)
        };
        let watched = counters.is_due() || tracing::level_enabled!(tracing::Level::TRACE);
        let outcome = if watched {
            run_observed(span, counters, session, invocation, arrived.sequence, room)
        } else {
            InProcess::run(session, invocation, room)
        };
        failpoint!("target.answer");
        if assembled {
            assembly.clear();
        }
        match outcome {
            Ok(answer_len) => {
                counters.executed(size, answer_len);
                Ok(answer_len)
            }
            Err(failed) => {
                let (why, detail) = failed_of(span, source, bound, size, *failed);
                Err(Box::new(Unwell::Told(Status::Failed(why), detail)))
            }
        }
    }

    /// Notes that an invocation with a payload of `size` bytes did not end well: why, and what is to be told of it.
    #[cold]
    pub(super) fn failed(&self, bound: &Bound, size: usize, failed: Failed) -> (Failure, Vec<u8>) {
        failed_of(&self.span, &self.source, bound, size, failed)
    }

    /// Counts an invocation that has no answer.
    #[cold]
    pub(super) fn count_unwell(&self, status: Status, payload: usize, detail: usize) {
        let link = &self.metrics.link;
        match status {
            // Its handle has counted the rest.
            Status::Failed(why) => link.failed.count(why),
            Status::Rejected(why) => {
                link.rejected.count(why);
                link.bytes_in.add(payload as u64);
            }
            Status::Executed => {}
        }
        link.bytes_out.add(detail as u64);
    }
}

/// See [`State::failed`].
#[cold]
fn failed_of(
    span: &tracing::Span,
    source: &SourceInfo,
    bound: &Bound,
    size: usize,
    failed: Failed,
) -> (Failure, Vec<u8>) {
    let Failed { why, detail } = failed;
    bound.metrics.counters.failed(size);
    tracing::debug!(
        parent: span, ifunc = %bound.image.name, source = source.connection, %why, "invocation failed"
    );
    (why, detail)
}
