//! Invocations that are timed or traced.

use std::time::Instant;

use ifunc_abi::refusal::Failed;
use ifunc_abi::status::Status;
use ifunc_exec::{Executor, ImageExecutor, Invocation, Session};

use super::HandleCounters;

/// Runs an invocation in a span of its own, a child of `connection`, and times it if that is due.
#[cold]
#[inline(never)]
pub(crate) fn run_observed(
    connection: &tracing::Span,
    counters: &HandleCounters,
    session: &mut Session<'_>,
    invocation: Invocation<'_>,
    sequence: u32,
    room: Option<&mut [u8]>,
) -> Result<usize, Box<Failed>> {
    let span = tracing::trace_span!(
        parent: connection,
        "invocation",
        ifunc = %invocation.entry().name,
        sequence,
        payload_bytes = invocation.payload_len(),
        answer_bytes = tracing::field::Empty,
        failed = tracing::field::Empty,
    );
    let outcome = span.in_scope(|| {
        let begin = counters.is_due().then(Instant::now);
        let outcome = ImageExecutor::run(session, || invocation, room);
        if let Some(begin) = begin {
            counters.time(begin.elapsed());
        }
        outcome
    });
    match &outcome {
        Ok(answer) => {
            span.record("answer_bytes", answer);
        }
        Err(failed) => {
            if let Some(answer) = &failed.answer {
                span.record("answer_bytes", answer.bytes().len());
            }
            if let Status::Failed(why) = failed.status {
                span.record("failed", tracing::field::display(why));
            }
        }
    }
    outcome
}
