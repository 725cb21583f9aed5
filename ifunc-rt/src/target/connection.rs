//! A target's connection to one source: its link, the protocol's state, and the target arguments of its invocations.

use std::ffi::c_void;

use ifunc_abi::image::ImageFlags;
use ifunc_exec::{InstalledImage, Session};
use ifunc_proto::{Closed, Config, Peer, ServerConfig};

use self::served::{Bound, Served, State};
use super::Host;
use crate::policy::{SourceInfo, TargetType};
use crate::transport::{Inbound as _, Key, Link, with_link};

mod served;

/// The protocol, as a target that sends no invocations of its own uses it.
type Protocol = ifunc_proto::Connection<NoImage, (), Bound>;

/// Image type of a side that sends no images.
#[derive(Clone, Debug)]
enum NoImage {}

impl ifunc_proto::caller::Image for NoImage {
    fn id(&self) -> &ifunc_abi::ImageId {
        match *self {}
    }

    fn bytes(&self) -> &[u8] {
        match *self {}
    }

    fn is_idempotent(&self) -> bool {
        match *self {}
    }
}

/// The target arguments of invocations.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub(super) target_type: TargetType,
    pub(super) target: *mut c_void,
    /// Several threads run invocations on it at the same time.
    pub(super) shared: bool,
}

impl Argument {
    /// Whether an image can run on it.
    #[inline]
    fn suits(&self, image: &InstalledImage) -> bool {
        (image.target == 0 || image.target == self.target_type.fingerprint)
            // It may have been bound while the target served on one thread.
            && (!self.shared || image.flags.contains(ImageFlags::SHARED))
    }
}

pub(super) struct Connection {
    // Holds the images that the source bound, whose metrics `state` owns: dropped first.
    protocol: Protocol,
    link: Link,
    state: State,
    /// A poll processed something since [`take_busy`](Self::take_busy) was called.
    is_busy: bool,
}

impl Connection {
    pub(super) fn new(number: u64, mut link: Link, host: &Host) -> Self {
        let me = rustix::process::geteuid().as_raw();
        let is_foreign = link.peer.uid != Some(me);
        let copies_payloads = host.copy_payloads || is_foreign;
        // A transport that does not know the peer's user trusts every peer that reaches the address, with more than numbers.
        let may_ask = host
            .share_stats
            .unwrap_or(link.peer.uid.is_none_or(|uid| uid == me));
        let source = SourceInfo::new(number, &link.peer);
        let carried_by = link.waiter.carried_by();
        let lanes = carried_by.split_whitespace().map(Into::into).collect();
        let span = tracing::info_span!(
            "connection",
            source = number,
            uid = source.uid,
            pid = source.pid,
            over = carried_by
        );
        tracing::info!(parent: &span, "source connected");
        #[cfg(feature = "failpoints")]
        crate::failpoint::failpoints::hook_protocol();
        let mut protocol = Protocol::new(Config {
            batch_size: 0,
            server: Some(ServerConfig {
                limits: host.limits,
                max_handles: host.max_handles,
                has_private_answers: copies_payloads,
            }),
        });
        let peer = Peer {
            limits: None,
            invokes: true,
        };
        with_link!(link, link => protocol.connect(link, peer));
        let metrics = host.metrics.connected(source, lanes);
        Self {
            protocol,
            link,
            state: State::new(source, span, metrics, copies_payloads, may_ask),
            is_busy: true,
        }
    }

    /// What carries it, as the transport describes it.
    pub(super) fn carried_by(&self) -> String {
        self.link.waiter.carried_by()
    }

    pub(super) fn source(&self) -> &SourceInfo {
        self.state.source()
    }

    /// Logs why the connection ended.
    pub(super) fn ended(&self, closed: &Closed) {
        match closed {
            Closed::Left => tracing::info!(parent: self.state.span(), "source left"),
            Closed::Broke(what) => {
                tracing::warn!(parent: self.state.span(), %what, "source broke the protocol; closed")
            }
        }
    }

    /// The key in the listener's reports.
    pub(super) fn key(&self) -> Key {
        self.link.key
    }

    /// Whether a poll processed something since the last call.
    pub(super) fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.is_busy)
    }

    /// Whether a poll would find something. If not, grants the source its credits.
    pub(super) fn has_work(&mut self) -> bool {
        let has_work =
            self.protocol.has_work() || with_link!(self.link, link => !matches!(link.rx.peek(), Ok(None)));
        if !has_work {
            with_link!(self.link, link => link.rx.settle());
        }
        has_work
    }

    /// Processes at most one quantum of what has arrived. Returns the number of frames and batch entries processed.
    ///
    /// # Errors
    /// The connection ended. If the poll processed something before, the next poll returns the error.
    #[inline]
    pub(super) fn poll(
        &mut self,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
    ) -> Result<usize, Box<Closed>> {
        let Self {
            protocol,
            link,
            state,
            ..
        } = self;
        let mut served = Served {
            state,
            host,
            session,
            argument,
        };
        let processed = with_link!(link, link => protocol.poll(link, &mut served))?;
        self.is_busy |= processed > 0;
        Ok(processed)
    }

    /// Parks it: polled only after the listener reports it. Takes effect after the listener's fence.
    pub(super) fn park(&mut self) {
        self.link.rx().park();
    }

    /// Whether there is nothing to do. Call it after the fence.
    pub(super) fn is_quiet(&mut self) -> bool {
        if self.protocol.is_stalled() {
            // The waiting request is known; it waits for credit for its reply.
            return with_link!(self.link, link => self.protocol.is_blocked(link));
        }
        !self.protocol.has_work() && self.link.rx().is_idle()
    }

    /// Returns it to the polled connections.
    pub(super) fn unpark(&mut self) {
        self.link.rx().disarm();
        self.is_busy = true;
    }
}
