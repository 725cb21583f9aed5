//! A source's connection: the link to its target, and the protocol's state, which outlives the link.

mod batch;
mod driven;
mod served;
mod submit;
mod tick;

use std::sync::Arc;
use std::time::Instant;

use ifunc_abi::hello::Roles;
use ifunc_proto::Peer;
use ifunc_proto::calls::{Completion, Outcome};

pub(crate) use served::{ACCEPTED, Service};

use self::batch::BatchTimer;
use self::tick::Tick;
use super::completion::explain_lost;
use super::error::Error;
use super::library::Library;
use super::options::{Progress, SourceOptions};
use super::stream::{GRANT, Part};
use crate::driver::backoff::{RETRY, after};
use crate::driver::driven::{Config, Driven as _, Signals};
use crate::driver::queue::Ticket;
use crate::keys::Signatures;
use crate::os::EventFd;
use crate::target::Bound;
use crate::transport::{ConnectConfig, ConnectError, Ends, Link, Route, Waiter, with_link};
use crate::travel::Travels;

/// The protocol. Its driver keeps the ticket of a waiter with each call.
pub(crate) type Protocol = ifunc_proto::Connection<Arc<Library>, Ticket, Bound>;

/// Why an invocation was not sent.
pub(super) type NotSent = ifunc_proto::caller::NotSent<Arc<Library>, Error>;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) protocol: Protocol,
    link: Option<Link>,
    /// When the transport was last asked whether the target lives.
    asked: Tick,
    signals: Signals,
    /// A body or a batch waited for credit at the last report to the driver.
    was_sending: bool,
    batch: BatchTimer,
    /// `None`: the link was accepted, and its peer makes the next one.
    route: Option<Route>,
    pub(super) options: SourceOptions,
    /// Signatures of images that are registered without one.
    pub(super) signatures: Signatures,
    /// A thread is making a new link.
    connecting: bool,
    /// Wakes the thread that sleeps on the link's doorbell.
    local: Arc<EventFd>,
    /// A target of this process serves the link.
    service: Option<Service>,
    /// The link leads to this node of the group.
    member: Option<(u32, Arc<Travels>)>,
    /// Something waits for the window of that node.
    is_node_waiting: bool,
}

impl Connection {
    /// Connects. With a service, a target of this process serves what the peer sends over the link.
    pub(crate) fn connect(
        route: Route,
        options: SourceOptions,
        service: Option<Service>,
    ) -> Result<Self, ConnectError> {
        let until = after(options.connect_timeout);
        let config = connect_config(&options, service.as_ref());
        let mut earlier = None;
        let link = loop {
            match route.connect(&config, until) {
                Ok(link) => break link,
                // Source and target are often started together, and the target may be slower.
                Err(error) if error.may_pass() && Instant::now() < until => {
                    if !matches!(error, ConnectError::Timeout { .. }) {
                        earlier = Some(error);
                    }
                    std::thread::sleep(RETRY)
                }
                // The last attempt has little time left: the target's answer to an earlier one explains more.
                Err(error @ ConnectError::Timeout { .. }) => return Err(earlier.unwrap_or(error)),
                Err(error) => return Err(error),
            }
        };
        if let Some(service) = &service {
            service.admit(&link, &route)?;
        }
        Self::of_link(Some(route), link, options, service)
    }

    /// A connection over a link that was made. The route makes later ones.
    pub(crate) fn of_link(
        route: Option<Route>,
        link: Link,
        options: SourceOptions,
        service: Option<Service>,
    ) -> Result<Self, ConnectError> {
        let local = match &service {
            // The thread that serves sleeps, and no thread sleeps on the link.
            Some(service) => Arc::clone(&service.doorbell),
            None => Arc::new(EventFd::new().map_err(|source| ConnectError::Io {
                doing: "making what threads of this process are woken by".into(),
                source,
            })?),
        };
        #[cfg(feature = "failpoints")]
        crate::failpoint::failpoints::hook_protocol();
        let mut connection = Self {
            protocol: Protocol::new(ifunc_proto::Config {
                batch_size: options.aggregation.bytes,
                max_answers: options.max_answers,
                server: service.as_ref().map(|service| service.config),
            }),
            link: None,
            asked: Tick::now(),
            signals: Signals::default(),
            was_sending: false,
            batch: BatchTimer {
                delay: options.aggregation.delay,
                open: None,
                due: None,
            },
            route,
            options,
            signatures: Signatures::default(),
            connecting: false,
            local,
            service,
            member: None,
            is_node_waiting: false,
        };
        connection.relink(link);
        Ok(connection)
    }

    /// The number of the target that serves the link, if it is a node of a group.
    fn own_node(&self) -> Option<u32> {
        self.service.as_ref()?.hello.node
    }

    /// Continues over a new link: images are sent over it again, and so is what may run twice.
    fn relink(&mut self, mut link: Link) {
        let peer = Peer {
            limits: Some(link.hello.limits),
            invokes: self.service.is_some() && link.hello.roles.contains(Roles::INVOKES),
            max_answer: link.hello.limits.max_answer,
            machine: link.hello.machine(),
            node: self.own_node().and(link.hello.node),
        };
        with_link!(link, link => self.protocol.connect(link, peer));
        self.link = Some(link);
        self.signals.examine_next();
    }

    /// As [`relink`](Self::relink), after an earlier link died.
    fn adopt(&mut self, link: Link) {
        tracing::info!(address = self.address(), "connected again");
        self.relink(link);
        if let Some(service) = &self.service {
            service.doorbell.wake();
        }
        self.signals.raise(Signals::LINK_CHANGED);
        self.drive();
        self.signals.raise(Signals::UNBLOCKED);
    }

    /// The link's doorbell and description, if there is a link.
    pub(crate) fn waiter(&self) -> Option<Arc<dyn Waiter>> {
        self.link.as_ref().map(|link| Arc::clone(&link.waiter))
    }

    /// The address of the peer, for logs.
    fn address(&self) -> String {
        let route = self.route.as_ref();
        route.map_or_else(|| "(accepted)".into(), Route::to_string)
    }

    /// How this connection is driven.
    pub(super) fn driver_config(&self) -> Config {
        let any_thread = self
            .link
            .as_ref()
            .is_none_or(|link| link.waiter.serves_any_thread());
        Config {
            timeout: self.options.timeout,
            reconnect: self.options.reconnect,
            always: self.options.progress == Progress::Thread,
            spin: self.options.spin,
            no_thread: (!any_thread).then_some(
                "the source is of a UCX worker that one thread alone may use; help: receive for its futures by `Source::driver` on that thread",
            ),
        }
    }

    /// Releases a handle. The release is sent now if there is credit: the target may need the image's memory.
    pub(super) fn unbind(&mut self, handle: u32) {
        self.protocol.caller.unbind(handle);
        self.drive();
    }

    /// Drops a call. If it travels, the source cancels it at its target, now if there is credit: the target gives back what it holds for
    /// it.
    pub(super) fn abandon(&mut self, token: u64) {
        self.abandon_all([token]);
    }

    /// As [`abandon`](Self::abandon), for several calls.
    pub(super) fn abandon_all(&mut self, tokens: impl IntoIterator<Item = u64>) {
        let caller = &mut self.protocol.caller;
        tokens.into_iter().for_each(|token| caller.abandon(token));
        self.drive();
    }

    /// Asks for a completion when the target has consumed everything that was sent before. `None`: there is no credit now,
    /// or no link.
    pub(super) fn try_flush(&mut self) -> Option<u64> {
        let token = match &mut self.link {
            Some(link) => with_link!(link, link => self.protocol.flush(link)),
            None => self.protocol.flushed(),
        };
        self.requested(token)
    }

    /// Asks for a completion when everything in a scope has ended. `None`: there is no credit now, or no link.
    pub(super) fn try_finish(&mut self, scope: u32) -> Option<u64> {
        let link = self.link.as_mut()?;
        let token = with_link!(link, link => self.protocol.finish(link, scope));
        self.requested(token)
    }

    /// The next part of a call's answer, or its end. Each part that is taken allows the target another one.
    pub(super) fn next_part(&mut self, token: u64, ungranted: &mut u32) -> Option<Part> {
        let mut partial = self.protocol.caller.calls.take_partial(token);
        if partial.is_none() {
            self.receive_all();
            partial = self.protocol.caller.calls.take_partial(token);
        }
        let Some(partial) = partial else {
            return self.protocol.caller.calls.take(token).map(Part::End);
        };
        *ungranted += 1;
        if *ungranted >= GRANT
            && let Some(link) = &mut self.link
            && with_link!(link, link => self.protocol.grant(link, token, *ungranted))
        {
            *ungranted = 0;
        }
        self.report();
        Some(Part::Partial(partial))
    }

    /// Asks for the page of the target's statistics that begins at `offset`. `None`: there is no credit now, or no link.
    pub(super) fn try_stats(&mut self, offset: u32) -> Option<u64> {
        let link = self.link.as_mut()?;
        let token = with_link!(link, link => self.protocol.stats(link, offset));
        self.requested(token)
    }

    fn requested(&mut self, token: Option<u64>) -> Option<u64> {
        if token.is_none() {
            self.signals.lacking = self.protocol.caller.lacking();
        }
        self.report();
        token
    }

    /// Takes the outcome of this request if it is there, without a poll, which is a system call over some transports. Otherwise receives what
    /// has arrived, until the outcome or all of it, and sends what the request waits for.
    pub(super) fn receive(&mut self, token: u64) -> Option<Outcome> {
        let calls = &mut self.protocol.caller.calls;
        if calls.untaken() > 0
            && let Some(outcome) = calls.take(token)
        {
            return Some(outcome);
        }
        self.receive_until(token);
        self.protocol.caller.calls.take(token)
    }

    /// Whether a poll after a send may not look at what has arrived, because no answer can be there yet. The next one does.
    pub(super) fn may_skip_poll(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| !matches!(link.ends, Ends::Shm(_)))
    }

    /// Receives what has arrived.
    #[inline(never)]
    fn receive_all(&mut self) {
        self.receive_until(0);
    }

    /// Receives what has arrived, until the outcome of this request (0: of none), and sends what the request waits for.
    #[inline(always)]
    fn receive_until(&mut self, token: u64) {
        let (before, left) = (self.protocol.received(), self.protocol.caller.calls.untaken());
        if let Some(link) = &mut self.link {
            let has_arrived = with_link!(link, link => self.protocol.receive(link, token));
            // A call that has just ended has no use for whether the target lives. A thread that serves runs what arrived before.
            if !has_arrived && self.service.is_none() && link.waiter.is_peer_closed() {
                // Receives what the target sent before it closed.
                with_link!(link, link => self.protocol.lose(link, PEER_LEFT));
            }
        }
        if self.protocol.received() != before {
            self.protocol.caller.calls.note_received(left);
        }
        if self.protocol.caller.needs_attention() {
            self.drive_for(token);
        }
        self.signals.received = self.protocol.received();
    }

    /// Asks the transport whether the target lives, once per tick of the coarse clock (some milliseconds). A target that closes
    /// its links is seen without this. One that is killed may be noticed late by the transport, but no process restarts within a
    /// tick, so frames that are sent after a restart go to the new target. Of a source that sends many frames per tick a few may
    /// precede the question ([`Tick`]): as many as this returns, after each reading in a tick.
    fn check_peer(&mut self) -> Option<u32> {
        let unexamined = self.asked.read();
        if unexamined.is_some() {
            return unexamined;
        }
        self.signals.examine_next();
        if let Some(link) = &mut self.link
            && self.service.is_none()
            && link.waiter.check_peer_closed()
        {
            with_link!(link, link => self.protocol.lose(link, PEER_LEFT));
            self.report();
        }
        None
    }

    /// Sends what waits for credit. `false`: some of it still waits.
    fn drive(&mut self) -> bool {
        let is_done = match &mut self.link {
            Some(link) if self.protocol.caller.has_backlog() => {
                with_link!(link, link => self.protocol.drive(link))
            }
            _ => !self.protocol.caller.has_backlog(),
        };
        self.report();
        is_done
    }

    /// As [`try_drain`](Self::try_drain), as an attempt.
    pub(super) fn drained(&mut self) -> Result<Option<()>, Error> {
        Ok(self.try_drain().then_some(()))
    }

    /// The outcome of a request, if it ended. `what` names the request in errors.
    pub(super) fn try_complete(&mut self, token: u64, what: &str) -> Result<Option<Completion>, Error> {
        let outcome = self.receive(token).transpose();
        outcome.map_err(|lost| explain_lost(what, *lost))
    }

    /// Reports to the driver, and sends the open batch if the request lies in it or if it is due, and what waits for credit.
    #[cold]
    fn drive_for(&mut self, token: u64) {
        self.report();
        if self.protocol.caller.open_batch().is_none() && !self.protocol.caller.has_backlog() {
            return;
        }
        self.check_peer();
        if let Some(link) = &mut self.link {
            with_link!(link, link => self.protocol.close_batch_of(link, token));
        }
        self.close_due_batch();
        self.drive();
    }

    /// Reports to the driver what the protocol did, and drops a link that died.
    #[inline]
    fn report(&mut self) {
        self.signals.received = self.protocol.received();
        let was_quiet = !self.was_sending && self.batch.open.is_none();
        if !(was_quiet && self.protocol.caller.is_quiet() && self.protocol.is_linked()) {
            self.report_changes();
        }
    }

    #[cold]
    #[inline(never)]
    fn report_changes(&mut self) {
        for waiter in self.protocol.caller.ended() {
            self.signals.completed(waiter);
        }
        let is_sending = self.is_sending();
        if std::mem::replace(&mut self.was_sending, is_sending) && !is_sending {
            self.signals.raise(Signals::UNBLOCKED);
        }
        if self.protocol.caller.open_batch() != self.batch.open {
            self.batch_changed();
        }
        if !self.protocol.is_linked() {
            self.drop_link();
        }
    }

    #[cold]
    fn drop_link(&mut self) {
        self.leave_node();
        if let Some(link) = self.link.take() {
            tracing::info!(
                address = self.address(),
                gone = self.protocol.lost_because(),
                "the target went away"
            );
            self.signals.raise(Signals::LINK_CHANGED);
            // A thread that sleeps on the dead link has to reconnect.
            link.waiter.close();
        }
    }
}

/// What the transport is told of this side.
fn connect_config(options: &SourceOptions, service: Option<&Service>) -> ConnectConfig {
    let mut config = options.connect_config();
    if let Some(service) = service {
        let connect = service.connect.get();
        config.other_users |= connect.has_other_users();
        config.tls = config.tls.or_else(|| connect.tls.clone());
        config.hello = service.hello;
    }
    config
}

/// Error of a link that the transport reports dead.
const PEER_LEFT: &str = "the peer closed the connection or died";
