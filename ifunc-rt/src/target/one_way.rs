//! A connection whose source does not serve.

use std::time::Instant;

use ifunc_abi::rare::outlined;
use ifunc_proto::{Closed, Config};

use super::Host;
use super::connection::ConnectionEnded;
use super::served::{Execution, Served, State};
use super::visits::deliver;
use crate::source::connection::Protocol;
use crate::transport::{Inbound as _, Link, with_link};

/// A connection whose source does not serve.
pub(super) struct OneWay {
    // Holds the images that the source bound, whose metrics `state` owns: dropped first.
    protocol: Protocol,
    pub(super) link: Link,
    pub(super) state: State,
    /// Something other than a poll has happened since [`take_busy`](Self::take_busy) was called.
    pub(super) is_busy: bool,
    /// Sequence number of the next frame when it was called: polls note nothing.
    seen: u32,
}

impl OneWay {
    pub(super) fn new(number: u64, mut link: Link, host: &Host) -> Self {
        #[cfg(feature = "failpoints")]
        crate::failpoint::failpoints::hook_protocol();
        let state = State::new(number, &link, host);
        let mut protocol = Protocol::new(Config {
            batch_size: 0,
            max_answers: 0,
            server: Some(host.server(state.has_private_answers)),
        });
        let peer = ifunc_proto::Peer {
            limits: None,
            invokes: true,
            max_answer: link.hello.limits.max_answer,
            machine: link.hello.machine(),
            node: None,
        };
        with_link!(link, link => protocol.connect(link, peer));
        Self {
            protocol,
            link,
            state,
            is_busy: true,
            seen: 0,
        }
    }

    /// Whether a poll would find something. If not, grants the source its credits.
    pub(super) fn has_work(&mut self) -> bool {
        let has_work =
            self.protocol.has_work() || with_link!(self.link, link => link.rx.has_arrived().unwrap_or(true));
        if !has_work {
            with_link!(self.link, link => link.rx.settle());
        }
        has_work
    }

    #[inline]
    pub(super) fn prefetch_frame(&mut self) {
        with_link!(self.link, link => link.rx.prefetch_frame());
    }

    #[inline]
    pub(super) fn prefetch_body(&mut self) {
        with_link!(self.link, link => link.rx.prefetch_body());
    }

    /// Processes at most one quantum of what has arrived. Returns the number of frames and batch entries processed.
    ///
    /// # Errors
    /// The connection ended. If the poll processed something before, the next poll returns the error.
    #[inline(always)]
    pub(super) fn poll(&mut self, execution: Execution<'_>) -> Result<usize, Box<Closed>> {
        let Self {
            protocol,
            link,
            state,
            ..
        } = self;
        let mut served = Served::<false> { state, execution };
        with_link!(link, link => protocol.poll(link, &mut served))
    }

    /// Whether a frame was processed, or anything else has happened, since this was asked last.
    pub(super) fn take_busy(&mut self) -> bool {
        let next = self.protocol.next_sequence();
        let has_polled = std::mem::replace(&mut self.seen, next) != next;
        std::mem::take(&mut self.is_busy) || has_polled
    }

    /// As [`poll`](Self::poll), and logs the end.
    #[inline(always)]
    pub(super) fn poll_to_end(&mut self, execution: Execution<'_>) -> Result<usize, ConnectionEnded> {
        let polled = self.poll(execution);
        polled.map_err(|closed| outlined(|| self.ended(&closed)))
    }

    fn ended(&self, closed: &Closed) -> ConnectionEnded {
        self.state.ended(closed);
        ConnectionEnded
    }

    /// Applies the policy that there is now.
    #[cold]
    pub(super) fn review(&mut self, host: &Host) {
        let readmitted = host.policy.readmits(&self.link.peer, true);
        let protocol = &mut self.protocol;
        self.state
            .review(host, readmitted, |keeps| protocol.review_images(keeps));
        self.is_busy = true;
    }

    /// Drops a body that takes too long to arrive.
    pub(super) fn refuse_overdue(&mut self, host: &Host, now: Instant) {
        if self.state.is_overdue(self.protocol.unfinished(), now) {
            self.protocol.refuse_unfinished(host.unfinished.overdue());
        }
    }

    /// Sends what other nodes reported for its source.
    #[cold]
    pub(super) fn deliver(&mut self, host: &Host) {
        let mail = host.travels.take_mail(self.state.source.connection);
        if !mail.is_empty() {
            self.is_busy = true;
            with_link!(self.link, link => deliver(&mut self.protocol, link, &self.state, mail));
        }
    }

    /// Whether an invocation waits until the target admits those that may travel.
    pub(super) fn is_held(&self) -> bool {
        self.protocol.is_held()
    }

    /// Whether there is nothing to do. Call it after the fence.
    pub(super) fn is_quiet(&mut self, host: &Host) -> bool {
        if self.is_held() {
            // The node that sends what fills its outbox polls again.
            return !host.travels.admits() && !self.protocol.has_work();
        }
        if self.protocol.is_stalled() {
            // The waiting request is known; it waits for credit for its reply.
            return with_link!(self.link, link => self.protocol.is_blocked(link));
        }
        !self.protocol.has_work() && self.link.rx().is_idle()
    }
}
