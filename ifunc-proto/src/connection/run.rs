//! Invocations in frames of their own that are alike and arrived one after another: they run in one crossing of the call gate, as
//! the entries of a batch do.

use ifunc_abi::frame::{Header, Kind};

use super::Connection;
use super::poll::Polled;
use crate::caller::Image;
use crate::host::{Host, Run};
use crate::link::{Body, Frame, FrameRun, Inbound, Link, MIN_RUN};
use crate::order::Quantum;

impl<I: Image + Clone, U, B> Connection<I, U, B> {
    /// A poll that finds a run: runs frames while those that are next are one. The frames behind them are the next poll's.
    #[inline(never)]
    pub(super) fn frame_runs<L: Link, H: Host<Image = B>>(&mut self, link: &mut L, host: &mut H) -> Polled {
        let mut quantum = Quantum::new(self.price);
        while quantum.admits_invocations(MIN_RUN)
            && link.split().1.begins_run()
            && self.frame_run(link, host, &mut quantum) == Some(true)
        {}
        if quantum.processed == 0 && self.is_fast {
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
        let Frame {
            sequence,
            words,
            body,
        } = rx.peek().ok()??;
        let len = body.len();
        let header = Header::parse_plain(words, Kind::Exec).filter(|header| header.token == 0)?;
        let server = self.server.as_ref().filter(|server| !server.replies.owes())?;
        let image = server.images.runs(header.handle, len)?;
        let FrameRun {
            bodies,
            stride,
            count,
        } = rx.peek_run(words, len, quantum.invocations_left(len))?;
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
