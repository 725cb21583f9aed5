//! Invocations in frames of their own that are alike and arrived one after another: they run in one crossing of the call gate, as
//! the entries of a batch do.

use ifunc_abi::frame::Kind;

use super::Connection;
use super::poll::Polled;
use crate::caller::Image;
use crate::host::{Host, Run};
use crate::link::{FrameRun, Inbound, Link, MIN_RUN};
use crate::order::Quantum;

impl<I: Image + Clone, U, B> Connection<I, U, B> {
    /// A poll that may process several frames and has one: runs frames while those that are next are alike. The frames behind them are the
    /// next poll's; if there is no run, all are this one's.
    #[inline(never)]
    pub(super) fn frame_runs<L: Link, H: Host<Image = B>>(&mut self, link: &mut L, host: &mut H) -> Polled {
        let mut quantum = Quantum::new(self.plan.price());
        while self.frame_run(link, host, &mut quantum) == Some(true) && quantum.admits_invocations(MIN_RUN) {}
        if quantum.processed == 0 && self.plan.is_fast() {
            return self.frames(link, host);
        }
        Polled {
            processed: quantum.processed,
            is_exhausted: quantum.is_exhausted() || !link.split().1.is_empty(),
        }
    }

    /// Runs the next frame and those after it that are alike, if they are invocations that want no answer. Returns whether the poll
    /// goes on; `None`: there is no such run.
    #[inline(always)]
    fn frame_run<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        quantum: &mut Quantum,
    ) -> Option<bool> {
        let (_, rx) = link.split();
        let server = self.server.as_ref().filter(|server| !server.replies.owes())?;
        let (header, run) = rx.peek_run(Kind::Exec, |len| quantum.invocations_left(len))?;
        if header.token != 0 {
            return None;
        }
        let FrameRun {
            sequence,
            len,
            bodies,
            stride,
            count,
        } = run;
        let image = server.images.runs(header.handle, len)?;
        // Before they run: a frame never runs twice.
        self.order.advance_by(count);
        let run = Run {
            sequence,
            is_batched: false,
            payloads: bodies,
            len,
            stride,
            count,
        };
        let end = host.invoke_run(image, run, None);
        failpoint!("target.answer");
        let started = end.executed + usize::from(end.failed.is_some());
        assert!(
            (1..=count).contains(&started),
            "a host runs at least one invocation of a run"
        );
        self.order.step_back(count - started);
        quantum.charge_invocations(started, len);
        rx.release_run(end.executed, len);
        Some(match end.failed {
            None => true,
            // Its frame is the next one.
            Some(failed) => self.next_unanswered(link, host, failed.into()),
        })
    }
}
