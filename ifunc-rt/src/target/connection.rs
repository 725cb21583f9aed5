//! A target's connections: their links, the protocol's state, and the target arguments of their invocations.

use std::ffi::c_void;

use ifunc_abi::Fingerprint;
use ifunc_abi::hello::Roles;
use ifunc_abi::image::ImageFlags;
use ifunc_abi::text::Text;
use ifunc_exec::{InstalledImage, Session};
use ifunc_proto::{Closed, Config, Peer};

pub(crate) use self::served::Bound;
pub(super) use self::served::{Served, State};
use super::Host;
use super::duplex::Duplex;
use crate::policy::SourceInfo;
use crate::source::connection::Protocol;
use crate::transport::{Inbound as _, Key, Link, with_link};

mod served;

/// The target arguments of invocations.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub(super) target: *mut c_void,
    /// The text of their type.
    pub(super) text: &'static Text,
    /// Equal for target arguments that the same images suit: the fingerprint of their type, inverted if they are shared.
    key: u64,
    /// Several threads run invocations on them at the same time.
    pub(super) shared: bool,
}

impl Argument {
    /// Target arguments of the type of this text and fingerprint.
    #[inline]
    pub(super) fn new(
        target: *mut c_void,
        text: &'static Text,
        fingerprint: Fingerprint,
        shared: bool,
    ) -> Self {
        let key = if shared { !fingerprint } else { fingerprint };
        Self {
            target,
            text,
            key,
            shared,
        }
    }

    /// Whether an image takes arguments of this type.
    fn has_type(&self, target: Fingerprint) -> bool {
        let fingerprint = if self.shared { !self.key } else { self.key };
        target == 0 || target == fingerprint
    }

    /// Whether an image can run on them.
    #[cold]
    fn suits(&self, image: &InstalledImage) -> bool {
        // It may have been bound while the target served on one thread.
        self.has_type(image.target) && (!self.shared || image.flags.contains(ImageFlags::SHARED))
    }
}

/// A connection of a target.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are the large one, and each is in a box"
)]
pub(super) enum Connection {
    OneWay(OneWay),
    Duplex(Box<Duplex>),
}

impl Connection {
    /// Of a link that was accepted.
    pub(super) fn new(number: u64, link: Link, host: &Host) -> Self {
        if link.hello.roles.contains(Roles::SERVES) {
            return Self::Duplex(Box::new(Duplex::accepted(number, link, host)));
        }
        Self::OneWay(OneWay::new(number, link, host))
    }

    /// Another thread polls it next.
    pub(super) fn release_thread(&self) {
        if let Self::Duplex(connection) = self {
            connection.release_thread();
        }
    }

    /// What carries it, as the transport describes it.
    pub(super) fn carried_by(&self) -> String {
        match self {
            Self::OneWay(connection) => connection.link.waiter.carried_by(),
            Self::Duplex(connection) => connection.carried_by(),
        }
    }

    pub(super) fn source(&self) -> SourceInfo {
        match self {
            Self::OneWay(connection) => connection.state.source,
            Self::Duplex(connection) => connection.info,
        }
    }

    /// Whether a poll would find something. If not, grants the source its credits.
    pub(super) fn has_work(&mut self) -> bool {
        match self {
            Self::OneWay(connection) => connection.has_work(),
            Self::Duplex(connection) => connection.has_work(),
        }
    }

    /// Processes at most one quantum of what has arrived. Returns the number of frames and batch entries processed; `None`:
    /// the connection ended.
    #[inline]
    pub(super) fn poll(
        &mut self,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
    ) -> Option<usize> {
        match self {
            Self::OneWay(connection) => match connection.poll(host, session, argument) {
                Ok(processed) => Some(processed),
                Err(closed) => {
                    connection.state.ended(&closed);
                    None
                }
            },
            Self::Duplex(connection) => connection.poll(host, session, argument),
        }
    }

    /// By which the listener names it.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::OneWay(connection) => connection.link.key,
            Self::Duplex(connection) => connection.key,
        }
    }

    /// Whether it had anything since this was asked last.
    pub(super) fn take_ready(&mut self) -> bool {
        match self {
            Self::OneWay(connection) => std::mem::take(&mut connection.is_busy),
            Self::Duplex(connection) => connection.take_busy(),
        }
    }

    /// Announces that it is polled no more until the listener names it. It holds after the listener's fence.
    pub(super) fn park(&mut self) {
        match self {
            Self::OneWay(connection) => connection.link.rx().park(),
            Self::Duplex(connection) => connection.park(),
        }
    }

    /// Whether it has nothing. Asked after the fence.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::OneWay(connection) => connection.is_quiet(),
            Self::Duplex(connection) => connection.is_quiet(),
        }
    }

    /// It is polled again.
    pub(super) fn unpark(&mut self) {
        match self {
            Self::OneWay(connection) => {
                connection.link.rx().disarm();
                connection.is_busy = true;
            }
            Self::Duplex(connection) => connection.unpark(),
        }
    }
}

/// A connection whose source does not serve.
pub(super) struct OneWay {
    // Holds the images that the source bound, whose metrics `state` owns: dropped first.
    protocol: Protocol,
    link: Link,
    state: State,
    /// A poll processed something since [`take_ready`](Connection::take_ready) was called.
    is_busy: bool,
}

impl OneWay {
    pub(super) fn new(number: u64, mut link: Link, host: &Host) -> Self {
        #[cfg(feature = "failpoints")]
        crate::failpoint::failpoints::hook_protocol();
        let state = State::new(number, &link, host);
        let mut protocol = Protocol::new(Config {
            batch_size: 0,
            server: Some(host.server(state.copies_payloads)),
        });
        let peer = Peer {
            limits: None,
            invokes: true,
        };
        with_link!(link, link => protocol.connect(link, peer));
        Self {
            protocol,
            link,
            state,
            is_busy: true,
        }
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
        let mut served = Served::<false> {
            state,
            host,
            session,
            argument,
        };
        let processed = with_link!(link, link => protocol.poll(link, &mut served))?;
        self.is_busy |= processed > 0;
        Ok(processed)
    }

    /// Whether there is nothing to do. Call it after the fence.
    pub(super) fn is_quiet(&mut self) -> bool {
        if self.protocol.is_stalled() {
            // The waiting request is known; it waits for credit for its reply.
            return with_link!(self.link, link => self.protocol.is_blocked(link));
        }
        !self.protocol.has_work() && self.link.rx().is_idle()
    }
}
