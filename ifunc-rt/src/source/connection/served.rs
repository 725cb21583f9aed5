//! A connection whose link a target of this process serves: the thread that serves polls it, for both roles.
//!
//! Threads that wait for an answer or for credit are parked, and the thread that serves wakes them. It does not hold the
//! connection's lock while an invocation runs, so others use the connection meanwhile, and so may the invocation.

use std::sync::Arc;
use std::thread::ThreadId;

use ifunc_abi::hello::Hello;
use ifunc_exec::services::now;
use ifunc_proto::host::{Failed, Host, Refusal, ReplyTo, report_failed};
use ifunc_proto::link::{Inbound as _, Outbound as _};
use ifunc_proto::{Closed, ServerConfig};

use super::{Connection, Protocol};
use crate::os::{EventFd, this_thread};
use crate::policy::SharedConnect;
use crate::target::Bound;
use crate::transport::{ConnectError, Ends, Link, Route, Waiter, with_link};
use crate::travel::Travels;

/// How a target serves a link that carries invocations both ways.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(super) config: ServerConfig,
    /// What the target states about itself.
    pub(super) hello: Hello,
    /// Which peers may invoke.
    pub(super) connect: SharedConnect,
    /// Wakes the thread that serves.
    pub(super) doorbell: Arc<EventFd>,
    /// The thread that polls: the only one, or one of several while it polls.
    polled_by: Option<ThreadId>,
    /// Why the target serves no longer.
    over: Option<&'static str>,
}

impl Service {
    pub(crate) fn new(
        config: ServerConfig,
        hello: Hello,
        connect: SharedConnect,
        doorbell: Arc<EventFd>,
    ) -> Self {
        Self {
            config,
            hello,
            connect,
            doorbell,
            polled_by: None,
            over: None,
        }
    }

    /// Whether the target may serve the peer.
    ///
    /// # Errors
    /// It is a process of a user whom the policy does not admit, or its key is revoked.
    pub(super) fn admit(&self, link: &Link, route: &Route) -> Result<(), ConnectError> {
        let me = rustix::process::geteuid().as_raw();
        let connect = self.connect.get();
        match link.peer.uid {
            Some(uid) if !connect.admits_user(uid, me) => Err(ConnectError::Refused {
                address: route.to_string(),
                reason: format!(
                    "it belongs to user {uid}, whose processes the policy of this target does not admit; help: `Policy::connect_users`, or `Source::connect`, which serves nothing"
                ),
            }),
            _ => Ok(()),
        }?;
        match link.peer.key {
            Some(key) if connect.is_revoked(&key) => Err(ConnectError::Refused {
                address: route.to_string(),
                reason: format!("the policy of this target revoked its key {key}"),
            }),
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// The link, and the number of links so far. `None`: there is no link.
    pub(crate) fn served_link(&self) -> Option<(&Link, u64)> {
        Some((self.link.as_ref()?, self.protocol.caller.generation()))
    }

    /// The number of the node at the other side, if it is of a group.
    pub(crate) fn peer_node(&self) -> Option<u32> {
        self.link.as_ref()?.hello.node
    }

    /// The epoch of the process at the other side.
    pub(crate) fn peer_epoch(&self) -> Option<u64> {
        Some(self.link.as_ref()?.hello.epoch)
    }

    /// Whether this link is the one that is used to a node of the group.
    pub(crate) fn is_member(&self) -> bool {
        self.member.is_some()
    }

    /// Sends a frame that asks for nothing: the peer sees by it that this side takes the link.
    pub(crate) fn greet(&mut self) {
        if let Some(token) = self.try_flush() {
            self.protocol.caller.abandon(token);
        }
    }

    /// Whether a frame has arrived that was not processed.
    pub(crate) fn has_frame(&mut self) -> bool {
        let link = self.link.as_mut();
        link.is_some_and(|link| link.rx().has_arrived().unwrap_or(false))
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// This thread polls from now on, or any thread may.
    pub(crate) fn set_polled_here(&mut self, is_here: bool) {
        if let Some(service) = &mut self.service {
            service.polled_by = is_here.then(this_thread);
        }
    }

    /// Whether this thread would wait for itself: it is the one that polls.
    pub(super) fn is_polled_here(&self) -> bool {
        let thread = self.service.as_ref().and_then(|service| service.polled_by);
        thread.is_some_and(|thread| thread == this_thread())
    }

    /// As [`waiter`](Self::waiter), if those that wait for the connection poll the link themselves.
    pub(in crate::source) fn own_waiter(&self) -> Option<Arc<dyn Waiter>> {
        self.waiter().filter(|_| self.service.is_none())
    }

    /// The link, if those that wait for the connection poll it themselves. The thread that serves arms its own.
    pub(super) fn own_link(&mut self) -> Option<&mut Link> {
        self.link.as_mut().filter(|_| self.service.is_none())
    }

    /// Whether another thread polls the link, and wakes those that wait.
    pub(super) fn is_served(&self) -> bool {
        self.service.is_some() && self.link.is_some()
    }

    /// Processes what has arrived until the host has taken an invocation, and sends what waits for credit.
    ///
    /// # Errors
    /// The link died.
    pub(crate) fn poll_served(&mut self, host: &mut impl Host<Image = Bound>) -> Result<usize, Box<Closed>> {
        let Some(link) = &mut self.link else {
            return Ok(0);
        };
        let (before, left) = (self.protocol.received(), self.protocol.caller.calls.untaken());
        let polled = with_link!(link, link => self.protocol.poll(link, host));
        if self.protocol.received() != before {
            self.protocol.caller.calls.note_received(left);
        }
        // Before what it took is forwarded: a node that finds this link dead then knows that it was taken, and waits for who has it now.
        // Over UCX that would cost a message for each.
        if self.member.is_some()
            && let Ends::Shm(link) = &mut link.ends
        {
            link.rx.settle();
        }
        if !self.signals.is_timed {
            self.close_due_batch();
        }
        self.drive();
        self.send_ready_to_node();
        polled
    }

    /// The link leads to this node of the group: what waits for the node is sent over it, and the group learns of its end.
    pub(crate) fn serve_node(&mut self, node: u32, travels: &Arc<Travels>) {
        let Some(link) = &self.link else {
            return travels.with(|state| state.lose(node, now(), |_| true));
        };
        let epoch = link.hello.epoch;
        travels.with(|state| state.linked(node, epoch, now()));
        self.member = Some((node, Arc::clone(travels)));
    }

    /// The link leads to the node no longer: another one does.
    pub(crate) fn leave_node(&mut self) {
        if let (Some((node, travels)), Some(link)) = (self.member.take(), &mut self.link) {
            with_link!(link, link => lose_node(&travels, node, link));
        }
    }

    /// As [`send_to_node`](Self::send_to_node), if something waits for the window of the link or is ready for a node.
    fn send_ready_to_node(&mut self) {
        let is_ready = |(_, travels): &(u32, Arc<Travels>)| travels.is_ready();
        if self.is_node_waiting || self.member.as_ref().is_some_and(is_ready) {
            self.send_to_node();
        }
    }

    /// Sends what waits for the node of the group to which the link leads.
    pub(crate) fn send_to_node(&mut self) {
        let (Some((node, travels)), Some(link)) = (&self.member, &mut self.link) else {
            return;
        };
        let node = *node;
        with_link!(link, link => travels.with(|state| {
            self.is_node_waiting =
                state.has_work_for(node) && !state.drive(node, &mut self.protocol, link, now());
        }));
        self.report();
    }

    /// Uses the link of this number, if there still is that one.
    pub(crate) fn deliver(&mut self, link: u64, send: impl FnOnce(&mut Protocol, &mut Link)) {
        if self.protocol.caller.generation() != link {
            return;
        }
        if let Some(link) = &mut self.link {
            send(&mut self.protocol, link);
        }
        self.report();
    }

    /// Whether an invocation waits until the target admits those that may travel.
    pub(crate) fn is_held(&self) -> bool {
        self.protocol.is_held()
    }

    /// Ends an invocation that the host has taken from this link.
    pub(crate) fn answer(
        &mut self,
        link: u64,
        host: &mut impl Host<Image = Bound>,
        reply_to: &ReplyTo,
        outcome: Result<&[u8], Box<Failed>>,
    ) {
        match &mut self.link {
            Some(now) if self.protocol.caller.generation() == link => {
                with_link!(now, link => self.protocol.answer(link, host, reply_to, outcome));
            }
            // The link has ended, and the failure counts all the same.
            _ => {
                if let Err(failed) = outcome {
                    report_failed(&failed, host, reply_to.payload_len());
                }
            }
        }
        self.report();
    }

    /// As [`Protocol::review_images`](ifunc_proto::Connection::review_images).
    pub(crate) fn review_images(&mut self, keeps: impl FnMut(&mut Bound) -> Result<(), Refusal>) {
        self.protocol.review_images(keeps);
    }

    /// As [`Protocol::unfinished`](ifunc_proto::Connection::unfinished).
    pub(crate) fn unfinished(&self) -> Option<u64> {
        self.protocol.unfinished()
    }

    /// As [`Protocol::refuse_unfinished`](ifunc_proto::Connection::refuse_unfinished).
    pub(crate) fn refuse_unfinished(&mut self, refusal: Refusal) {
        self.protocol.refuse_unfinished(refusal);
    }

    /// Whether a poll would find something. If not, grants the peer its credits.
    pub(crate) fn has_arrived(&mut self) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let has_arrived = self.protocol.has_work() || link.rx().has_arrived().unwrap_or(true);
        if !has_arrived {
            link.rx().settle();
        }
        has_arrived
    }

    /// Whether a poll would find nothing now. After this side has sent something, it says so once, as a poll would: what cannot
    /// have come yet is not asked for.
    pub(crate) fn is_drained(&mut self) -> bool {
        let link = self.link.as_mut();
        !self.protocol.has_work() && link.is_some_and(|link| link.rx().is_empty())
    }

    /// Announces that the thread that serves no longer polls. `by_doorbell`: the link's own doorbell wakes it, not a listener.
    pub(crate) fn park(&mut self, by_doorbell: bool) {
        if let Some(link) = &mut self.link {
            if by_doorbell {
                link.rx().arm();
            } else {
                link.rx().park();
            }
        }
    }

    /// Whether there is nothing to do. Call it after [`park`](Self::park), and after the listener's fence. `is_named`: the listener names
    /// the link when a frame arrives from now on, so the link is not polled here.
    pub(crate) fn is_quiet(&mut self, is_named: bool) -> bool {
        self.drive();
        self.send_ready_to_node();
        let Some(link) = &mut self.link else {
            return true;
        };
        // While replies wait for credit, requests and answers are processed all the same.
        let is_blocked =
            self.protocol.is_stalled() && with_link!(link, link => self.protocol.is_blocked(link));
        let has_work = if is_blocked {
            self.protocol.has_work_beside_replies()
        } else {
            self.protocol.has_work()
        };
        !has_work && (is_named || !link.rx().has_arrived().unwrap_or(true)) && link.rx().is_idle()
    }

    /// The thread that serves polls again.
    pub(crate) fn unpark(&mut self) {
        if let Some(link) = &mut self.link {
            link.rx().disarm();
        }
    }

    /// The target serves no longer: ends the link for both roles, and no other one is made.
    pub(crate) fn retire(&mut self, why: &'static str) {
        if let Some(service) = &mut self.service {
            service.over = Some(why);
        }
        // The peer runs what was accepted before.
        self.close_batch();
        if let Some(link) = &mut self.link {
            with_link!(link, link => self.protocol.lose(link, why));
        }
        self.report();
    }

    /// Why no other link is made, if that is so.
    pub(super) fn is_over(&self) -> Option<&'static str> {
        let over = self.service.as_ref().and_then(|service| service.over);
        over.or(self.route.is_none().then_some(ACCEPTED))
    }
}

/// The link to a node of the group ended.
pub(super) fn lose_node(travels: &Travels, node: u32, link: &mut impl ifunc_proto::link::Link) {
    let (tx, _) = link.split();
    travels.with(|state| state.lose(node, now(), |sequence| tx.is_unconsumed(sequence)));
    // It may be another thread that noticed.
    travels.wake();
}

/// Why the accepting side does not reconnect.
pub(crate) const ACCEPTED: &str = "the link was accepted, and its peer has not connected again";
