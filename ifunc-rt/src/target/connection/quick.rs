//! The fast path of a poll: invocations with a short payload and no token, one after another, out of the link into the image.
//! A frame that is anything else stays where it is, for the [general loop](super::turn).

use ifunc_abi::frame::{FrameFlags, Header, INLINE, Kind};
use ifunc_abi::status::Status;
use ifunc_proto::link::Body as _;

use super::binding::Binding;
use super::{Argument, End, Parts};
use crate::observe::run_observed;
use crate::target::Host;
use crate::transport::Rx;
use ifunc_exec::Session;
use ifunc_exec::{Executor, InProcess, Invocation};

/// The lower half of word 1 of an `Exec` without flags, but for where its body lies.
const INVOCATION: u32 = Header {
    kind: Kind::Exec,
    flags: FrameFlags::NONE,
    handle: 0,
    token: 0,
}
.words()[0] as u32;

/// [`FrameFlags::INLINE`] as it stands in word 1.
const INLINE_BIT: u32 = (FrameFlags::INLINE.bits() as u32) << 8;

/// Runs the invocations that the fast path can run, as far as the quantum goes. `true` if there is no other frame.
pub(super) fn quick<R: Rx>(
    rx: &mut R,
    parts: &mut Parts<'_>,
    host: &Host,
    session: &mut Session<'_>,
    argument: &Argument,
) -> Result<bool, Box<End>> {
    let Parts {
        replies,
        order,
        state,
        share,
        ..
    } = parts;
    let usual = !state.copy_payloads
        && state.batch_at == 0
        && !replies.owes()
        && !order.has_parked()
        && host.limits.max_payload >= INLINE as u64;
    if !usual {
        return Ok(false);
    }
    let traced = tracing::level_enabled!(tracing::Level::TRACE);
    for _ in 0..share.left() {
        let Some(frame) = rx.peek()? else {
            return Ok(true);
        };
        let ([word, token], body) = (frame.words, frame.body);
        if word as u32 & !INLINE_BIT != INVOCATION || token != 0 || body.len() > INLINE {
            break;
        }
        let (sequence, handle) = (frame.sequence, (word >> 32) as u32);
        let Some(Binding::Bound(bound)) = state.bindings.get(handle as usize) else {
            break;
        };
        let (image, counters) = (&*bound.image, &*bound.metrics.counters);
        if order.next() != sequence || !argument.suits(image) || !image.is_aligned(body.as_ptr()) {
            break;
        }
        // Before it runs: whatever happens then, it is not run twice.
        order.advance();
        share.take_run();
        let size = body.len();
        // SAFETY: the policy accepted the image; `suits` compared its target type with that of the target arguments; the payload
        // stays in its slot until it is released, and was found to be aligned.
        let invocation = unsafe {
            Invocation::new(
                image,
                body.as_ptr(),
                size,
                argument.target,
                state.source.connection,
            )
        };
        let outcome = if traced || counters.is_due() {
            run_observed(&state.span, counters, session, invocation, sequence, None)
        } else {
            InProcess::run(session, invocation, None)
        };
        failpoint!("target.answer");
        rx.release();
        match outcome {
            Ok(_) => counters.executed(size, 0),
            Err(failed) => {
                let (why, detail) = state.failed(bound, size, *failed);
                state.count_unwell(Status::Failed(why), size, detail.len());
                let request = Header::new(Kind::Exec, handle, 0);
                replies.conclude(sequence, request, Status::Failed(why), &detail)?;
                break;
            }
        }
    }
    Ok(false)
}
