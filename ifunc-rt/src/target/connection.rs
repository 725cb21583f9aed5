//! A connection of a target, of whichever kind.

use std::time::Instant;

use ifunc_abi::hello::Roles;

use super::Host;
use super::duplex::{Duplex, own_key};
use super::one_way::OneWay;
use super::served::{Execution, State};
use super::tasks::Tasks;
use crate::group::Nodes;
use crate::policy::SourceInfo;
use crate::transport::{Key, Link};

/// The connection ended, which was logged.
pub(super) struct ConnectionEnded;

/// A connection of a target.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are the large one, and each is in a box"
)]
pub(super) enum Connection {
    OneWay(OneWay),
    Duplex(Box<Duplex>),
    /// What a node does beside.
    Tasks(Box<Tasks>),
}

impl Connection {
    /// Of a link that was accepted.
    pub(super) fn new(number: u64, link: Link, host: &Host) -> Self {
        if link.hello.roles.contains(Roles::SERVES) {
            return Self::Duplex(Box::new(Duplex::accepted(number, link, host)));
        }
        Self::OneWay(OneWay::new(number, link, host))
    }

    /// Whether it is the node's tasks.
    pub(super) fn is_tasks(&self) -> bool {
        matches!(self, Self::Tasks(_))
    }

    /// Another thread polls it next.
    pub(super) fn release_thread(&self) {
        if let Self::Duplex(connection) = self {
            connection.release_thread();
        }
    }

    /// Counts as a link to a node of the group once that has sent something: it has found this one to be of the group.
    pub(super) fn meet(&mut self, nodes: &Nodes) {
        if let Self::Duplex(connection) = self {
            connection.meet(nodes);
        }
    }

    /// What carries it, as the transport describes it.
    pub(super) fn carried_by(&self) -> String {
        match self {
            Self::OneWay(connection) => connection.link.waiter.carried_by(),
            Self::Duplex(connection) => connection.carried_by(),
            Self::Tasks(_) => String::new(),
        }
    }

    pub(super) fn source(&self) -> &SourceInfo {
        match self {
            Self::OneWay(connection) => &connection.state.source,
            Self::Duplex(connection) => &connection.info,
            Self::Tasks(tasks) => &tasks.state.source,
        }
    }

    /// Applies the policy that there is now.
    pub(super) fn review(&mut self, host: &Host) {
        match self {
            Self::OneWay(connection) => connection.review(host),
            Self::Duplex(connection) => connection.review(host),
            Self::Tasks(_) => {}
        }
    }

    fn state(&self) -> Option<&State> {
        match self {
            Self::OneWay(connection) => Some(&connection.state),
            Self::Duplex(connection) => connection.state(),
            Self::Tasks(_) => None,
        }
    }

    /// The generation of the policy that it follows. `None`: none is asked.
    pub(super) fn reviewed(&self) -> Option<u64> {
        self.state().map(|state| state.reviewed)
    }

    /// Whether the policy does not admit its peer any more.
    pub(super) fn is_ending(&self) -> bool {
        self.state().is_some_and(|state| state.ending.is_some())
    }

    /// Whether a poll would find something. If not, grants the source its credits.
    pub(super) fn has_work(&mut self, host: &Host) -> bool {
        let has_mail = host.travels.has_mail() && host.travels.has_mail_for(self.source().connection);
        has_mail
            || match self {
                Self::OneWay(connection) => connection.has_work(),
                Self::Duplex(connection) => connection.has_work(),
                Self::Tasks(_) => Tasks::has_work(host),
            }
    }

    /// Whether an invocation waits until the target admits those that may travel.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::OneWay(connection) => connection.is_held(),
            Self::Duplex(connection) => connection.is_held(),
            Self::Tasks(_) => false,
        }
    }

    /// Sends what other nodes reported for its source.
    #[cold]
    #[inline(never)]
    pub(super) fn deliver(&mut self, host: &Host) {
        match self {
            Self::OneWay(connection) => connection.deliver(host),
            Self::Duplex(connection) => connection.deliver(host),
            Self::Tasks(_) => {}
        }
    }

    /// As [`Inbound::prefetch_frame`](crate::transport::Inbound::prefetch_frame).
    #[inline]
    pub(super) fn prefetch_frame(&mut self) {
        if let Self::OneWay(connection) = self {
            connection.prefetch_frame();
        }
    }

    /// As [`Inbound::prefetch_body`](crate::transport::Inbound::prefetch_body).
    #[inline]
    pub(super) fn prefetch_body(&mut self) {
        if let Self::OneWay(connection) = self {
            connection.prefetch_body();
        }
    }

    /// Processes at most one quantum of what has arrived. Returns the number of frames and batch entries processed.
    #[inline(always)]
    pub(super) fn poll(&mut self, mut execution: Execution<'_>) -> Result<usize, ConnectionEnded> {
        match self {
            Self::OneWay(connection) => connection.poll_to_end(execution),
            _ => self.poll_unusual(execution.reborrow()).ok_or(ConnectionEnded),
        }
    }

    /// As [`poll`](Self::poll), of a connection that is not one-way.
    #[cold]
    #[inline(never)]
    fn poll_unusual(&mut self, mut execution: Execution<'_>) -> Option<usize> {
        match self {
            Self::OneWay(_) => unreachable!("`poll` has polled it"),
            Self::Duplex(connection) => connection.poll(&mut execution),
            Self::Tasks(tasks) => Some(tasks.poll(&mut execution)),
        }
    }

    /// Drops a body that takes too long to arrive.
    pub(super) fn refuse_overdue(&mut self, host: &Host, now: Instant) {
        match self {
            Self::OneWay(connection) => connection.refuse_overdue(host, now),
            Self::Duplex(connection) => connection.refuse_overdue(host, now),
            Self::Tasks(_) => {}
        }
    }

    /// By which the listener names it.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::OneWay(connection) => own_key(connection.link.key, connection.state.source.connection),
            Self::Duplex(connection) => connection.key,
            Self::Tasks(_) => Tasks::KEY,
        }
    }

    /// Whether it had anything since this was asked last.
    pub(super) fn take_ready(&mut self) -> bool {
        match self {
            Self::OneWay(connection) => connection.take_busy(),
            Self::Duplex(connection) => connection.take_busy(),
            // No listener reports it.
            Self::Tasks(_) => true,
        }
    }

    /// Announces that it is polled no more until the listener names it. It holds after the listener's fence.
    pub(super) fn park(&mut self) {
        match self {
            Self::OneWay(connection) => connection.link.rx().park(),
            Self::Duplex(connection) => connection.park(),
            Self::Tasks(_) => {}
        }
    }

    /// Whether it has nothing. Asked after the fence.
    pub(super) fn is_quiet(&mut self, host: &Host) -> bool {
        match self {
            Self::OneWay(connection) => connection.is_quiet(host),
            Self::Duplex(connection) => connection.is_quiet(host),
            Self::Tasks(_) => Tasks::is_quiet(host),
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
            Self::Tasks(_) => {}
        }
    }
}
