//! The way of nearly every frame: an invocation whose payload lies in its slot and that nobody waits for, one behind another,
//! out of the ring into the image. Whatever is unusual about a frame, it is left where it is, for the [long way](super::turn).

use ifunc_abi::frame::{Header, INLINE, Kind};
use ifunc_abi::status::Status;

use super::binding::Binding;
use super::{Argument, End, Parts};
use crate::exec::entry::Session;
use crate::target::Host;
use crate::target::invoke::{Invocation, invoke, invoke_watched};
use crate::transport::ShmIncoming;

/// Whether a source sends one frame behind another, so that there is always a next one.
///
/// A target that is the faster of the two would have caught up with such a source, and read each slot while it is being
/// written: its cache line would go back and forth several times, and both would wait for it (25 ns a frame become 60). So it
/// stays some frames behind: it looks at a slot further on, one line of many, until that one has been written. It is about as many
/// as a turn has, at whose end it would have caught up otherwise: what the processor fetches ahead is written by then, too (8 bytes
/// 35 → 24 ns).
#[derive(Default)]
pub(super) struct Stream {
    /// Turns in a row that found something at once.
    turns: u32,
    /// Turns since that found nothing.
    vain: u32,
    /// How far behind it stays, if it is a stream.
    behind: u32,
}

impl Stream {
    /// Turns in a row that make it a stream.
    const TURNS: u32 = 16;
    /// Turns in vain that do not interrupt it.
    const VAIN: u32 = 2;
    /// How far behind the target stays, in frames: that far at least, and where the source gets further ahead, further.
    const NEAR: u32 = 15;
    const FAR: u32 = 63;
    const STEP: u32 = 16;
    /// How often it looks, with a pause behind each, for every step that the source gets ahead: about a microsecond.
    const LOOKS: u32 = 16;

    /// Lets a source that streams get ahead.
    #[inline]
    pub(super) fn fall_behind(&mut self, rx: &ShmIncoming) {
        if self.turns >= Self::TURNS {
            self.wait(rx);
        }
    }

    fn wait(&mut self, rx: &ShmIncoming) {
        let mut far = Self::NEAR;
        loop {
            if !Self::comes(rx, far) {
                (self.turns, self.behind) = (0, Self::NEAR);
                return;
            }
            if far >= self.behind {
                self.behind = (far + Self::STEP).min(Self::FAR);
                return;
            }
            far += Self::STEP;
        }
    }

    /// Whether so many frames come soon.
    fn comes(rx: &ShmIncoming, frames: u32) -> bool {
        for _ in 0..Self::LOOKS {
            if rx.has_more_than(frames) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// A turn is over.
    #[inline]
    pub(super) fn turn(&mut self, found: bool) {
        if !found {
            self.vain = self.vain.saturating_add(1);
            return;
        }
        self.turns = if self.vain <= Self::VAIN {
            self.turns.saturating_add(1)
        } else {
            0
        };
        self.vain = 0;
    }
}

/// Runs what can be run so, as far as the share goes.
pub(super) fn quick(
    rx: &mut ShmIncoming,
    parts: &mut Parts<'_>,
    host: &Host,
    session: &mut Session<'_>,
    argument: &Argument,
) -> Result<(), Box<End>> {
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
        return Ok(());
    }
    let traced = tracing::level_enabled!(tracing::Level::TRACE);
    for _ in 0..share.left() {
        let Some((sequence, handle, body)) = rx.peek_invocation() else {
            break;
        };
        let Some(Binding::Bound(bound)) = state.bindings.get(handle as usize) else {
            break;
        };
        let (image, counters) = (&*bound.image, &*bound.book.counters);
        if order.next() != sequence || !argument.suits(image) || !image.is_aligned(body.as_ptr()) {
            break;
        }
        // Before it runs: whatever happens then, it is not run twice.
        order.advance();
        share.take_run();
        let size = body.len();
        let invocation = Invocation {
            image,
            payload: body.as_ptr(),
            size,
            target: argument.target,
            sender: state.source.connection,
        };
        let outcome = if traced || counters.is_due() {
            invoke_watched(&state.span, counters, session, invocation, sequence, None)
        } else {
            invoke(session, invocation, None)
        };
        failpoint!("target.answer");
        rx.release_invocation();
        match outcome {
            Ok(_) => counters.executed(size, 0),
            Err(failed) => {
                let (why, detail) = state.failed(bound, size, *failed);
                state.count_unwell(Status::Failed(why), size, detail.len());
                let request = Header::new(Kind::Exec, handle, 0);
                return replies.conclude(sequence, request, Status::Failed(why), &detail);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Stream;

    #[test]
    fn who_waits_for_what_comes_back_does_not_stream() {
        let mut stream = Stream::default();
        for _ in 0..Stream::TURNS {
            stream.turn(true);
            (0..Stream::VAIN).for_each(|_| stream.turn(false));
        }
        assert!(stream.turns >= Stream::TURNS, "one frame behind another");
        (0..=Stream::VAIN).for_each(|_| stream.turn(false));
        assert!(stream.turns >= Stream::TURNS, "nothing may still come");
        stream.turn(true);
        assert_eq!(stream.turns, 0, "it came late");
    }
}
