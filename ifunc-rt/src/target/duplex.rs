//! A connection that carries invocations both ways: the target serves it, and sources of this process send over it.

use std::sync::Arc;
use std::time::Instant;

use ifunc_proto::Closed;
use ifunc_proto::buffer::AlignedBuffer;

use super::Host;
use super::peers::Peers;
use super::served::{Execution, Served, State};
use super::visits::deliver;
use crate::group::Nodes;
use crate::policy::SourceInfo;
use crate::serve::doorbell::TargetDoorbell;
use crate::source::connection::{ACCEPTED, Connection};
use crate::source::shared::SharedConnection;
use crate::transport::{ConnectError, Ends, Key, Link, Waiter};
use crate::{Source, SourceError, SourceOptions};

/// The key of a connection: its listener's, or one of its own.
pub(super) fn own_key(named: Option<Key>, number: u64) -> Key {
    named.unwrap_or(Key::of_own(number))
}

/// Invocations that one poll runs.
const QUANTUM: usize = 64;
/// Why a connection ends with its target.
const TARGET_GONE: &str = "the target that served the connection is gone";

/// A connection that the target shares with sources of this process.
///
/// The target holds its lock while it takes an invocation out of the link and while it sends the answer, and not while the
/// invocation runs.
pub(super) struct Duplex {
    shared: Arc<SharedConnection>,
    pub(super) info: SourceInfo,
    pub(super) key: Key,
    /// What is served of the link that there is now, by the link's number.
    served: Option<(u64, State)>,
    /// The answer of the invocation that runs.
    answer: AlignedBuffer,
    is_busy: bool,
    doorbell: Doorbell,
    /// The node of the group at the other side.
    node: Option<Node>,
}

/// A node of the group to which a link leads.
struct Node {
    number: u32,
    /// The group in which the link counts.
    listed: Option<Nodes>,
}

/// What wakes the target for the link.
enum Doorbell {
    /// The listener's, by whose means the link was made. It was accepted if there are peers, and its sources are listed among these as
    /// long as the connection lives.
    Listener(Option<Peers>),
    /// The link's own.
    Own {
        target: Arc<TargetDoorbell>,
        watched: Option<Arc<dyn Waiter>>,
        /// Whether the next use of the source makes another link after this one.
        reconnects: bool,
    },
}

impl Duplex {
    /// Of a link that the target accepted from a node.
    pub(super) fn accepted(number: u64, link: Link, host: &Host) -> Self {
        let (key, info) = (own_key(link.key, number), SourceInfo::new(number, &link.peer));
        let options = SourceOptions::default();
        let source = Connection::of_link(None, link, options, Some(host.service())).map(Source::of);
        let Ok(Ok(source)) = source else {
            unreachable!("it makes neither a descriptor nor a thread");
        };
        host.peers.add(info.clone(), source.clone());
        let peers = Some(host.peers.clone());
        Self::new(&source, info, key, Doorbell::Listener(peers), host)
    }

    /// Of a link that the target made. It `reconnects`, or ends with the link.
    ///
    /// # Errors
    /// The link is gone; as [`Source::connect_with`].
    pub(super) fn connected(
        number: u64,
        connection: Connection,
        reconnects: bool,
        host: &Host,
    ) -> Result<(Source, Self), SourceError> {
        let link = connection.served_link();
        let link = link.map(|(link, _)| (link.peer.clone(), link.key, link.waiter.poll_interval()));
        let (peer, key, interval) = link.ok_or_else(|| ConnectError::Io {
            doing: "connecting".into(),
            source: std::io::ErrorKind::ConnectionReset.into(),
        })?;
        let source = Source::of(connection)?;
        let info = SourceInfo::new(number, &peer);
        // Another link may have another key.
        let key = key.filter(|_| !reconnects);
        let doorbell = match key {
            Some(_) => {
                host.doorbell.poll_within(interval);
                Doorbell::Listener(None)
            }
            None => Doorbell::Own {
                target: Arc::clone(&host.doorbell),
                watched: None,
                reconnects,
            },
        };
        let key = own_key(key, number);
        let mut duplex = Self::new(&source, info, key, doorbell, host);
        if let Some(nodes) = host.nodes().filter(|_| !reconnects) {
            Self::list(&mut duplex.node, number, nodes, source.clone());
        }
        Ok((source, duplex))
    }

    fn new(source: &Source, info: SourceInfo, key: Key, doorbell: Doorbell, host: &Host) -> Self {
        let shared = Arc::clone(source.shared());
        let state = shared.lock();
        let node = state.connection.peer_node();
        let served = state.connection.served_link().map(|(link, number)| {
            let mut state = State::new(info.connection, link, host);
            state.link = number;
            (number, state)
        });
        drop(state);
        Self {
            shared,
            info,
            key,
            served,
            answer: AlignedBuffer::default(),
            is_busy: true,
            doorbell,
            node: node.map(|number| Node { number, listed: None }),
        }
    }

    /// Counts as a link to its node, if it has been accepted.
    #[cold]
    fn list_accepted(node: &mut Option<Node>, doorbell: &Doorbell, number: u64, nodes: &Nodes) {
        let source = match doorbell {
            Doorbell::Listener(Some(peers)) => peers.source(number),
            Doorbell::Listener(None) | Doorbell::Own { .. } => None,
        };
        if let Some(source) = source {
            Self::list(node, number, nodes, source);
        }
    }

    /// Counts as a link to its node.
    fn list(node: &mut Option<Node>, number: u64, nodes: &Nodes, source: Source) {
        if let Some(node) = node
            && node.listed.is_none()
            && node.number != nodes.number()
        {
            nodes.link_up(node.number, number, source);
            node.listed = Some(nodes.clone());
        }
    }

    /// Whether it leads to a node, and does not count yet.
    fn is_unlisted(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.listed.is_none())
    }

    /// See [`Connection::meet`](super::connection::Connection::meet).
    pub(super) fn meet(&mut self, nodes: &Nodes) {
        if self.is_unlisted() && self.shared.lock().connection.has_frame() {
            Self::list_accepted(&mut self.node, &self.doorbell, self.info.connection, nodes);
        }
    }

    /// Another thread may poll next.
    pub(super) fn release_thread(&self) {
        self.shared.lock().connection.set_polled_here(false);
    }

    pub(super) fn carried_by(&self) -> String {
        let waiter = self.shared.lock().connection.waiter();
        waiter.map_or_else(String::new, |waiter| waiter.carried_by())
    }

    /// Whether the listener names the link, and its doorbell is the link's.
    pub(super) fn is_named(&self) -> bool {
        matches!(self.doorbell, Doorbell::Listener(_))
    }

    /// Whether the connection goes on when its link has ended.
    fn reconnects(&self) -> bool {
        matches!(self.doorbell, Doorbell::Own { reconnects: true, .. })
    }

    /// Processes at most one quantum of what has arrived. Returns the number of frames and batch entries processed; `None`:
    /// the connection ended.
    #[cold]
    pub(super) fn poll(&mut self, execution: &mut Execution<'_>) -> Option<usize> {
        let host = execution.host;
        let mut processed = 0;
        while processed < QUANTUM {
            let polled = self.poll_one(execution)?;
            if polled == 0 {
                break;
            }
            processed += polled;
            // Before the link is asked for more, which may take system calls.
            host.send_to_nodes();
            if host.travels.has_mail() || self.shared.lock().connection.is_drained() {
                break;
            }
        }
        self.is_busy |= processed > 0;
        if execution.argument.is_shared() {
            self.release_thread();
        }
        Some(processed)
    }

    /// Processes what has arrived up to the next invocation, and runs that.
    fn poll_one(&mut self, execution: &mut Execution<'_>) -> Option<usize> {
        let host = execution.host;
        let is_unlisted = self.is_unlisted();
        let mut state = self.shared.lock();
        if state.is_closed {
            return None;
        }
        state.connection.set_polled_here(true);
        let Some((link, number)) = state.connection.served_link() else {
            drop(state);
            self.link_ended(host);
            return self.reconnects().then_some(0);
        };
        if self.served.as_ref().is_none_or(|(known, _)| *known != number) {
            self.served = None;
            let mut state = State::new(self.info.connection, link, host);
            state.link = number;
            self.served = Some((number, state));
        }
        let Some((_, served)) = &mut self.served else {
            return None;
        };
        let mut served = Served::<true> {
            state: served,
            execution: execution.reborrow(),
        };
        let polled = state.connection.poll_served(&mut served);
        state.polled();
        drop(state);
        let processed = match polled {
            Ok(processed) => processed,
            Err(closed) => {
                served.state.ended(&closed);
                self.link_ended(host);
                return self.reconnects().then_some(0);
            }
        };
        if processed == 0 {
            return Some(0);
        }
        if is_unlisted && let Some(nodes) = host.nodes() {
            Self::list_accepted(&mut self.node, &self.doorbell, self.info.connection, nodes);
        }
        if let Some((reply_to, outcome)) = served.run_taken(&mut self.answer) {
            let outcome = outcome.map(|len| &self.answer.as_slice()[..len]);
            let mut state = self.shared.lock();
            state.connection.answer(number, &mut served, &reply_to, outcome);
            state.polled();
        }
        Some(processed)
    }

    /// Nothing awaits answers over the link any longer.
    fn link_ended(&mut self, host: &Host) {
        if self.served.take().is_some() {
            host.forget(self.info.connection);
        }
    }

    /// Sends what other nodes reported for its source.
    #[cold]
    pub(super) fn deliver(&mut self, host: &Host) {
        let mail = host.travels.take_mail(self.info.connection);
        if let Some((number, served)) = &self.served
            && !mail.is_empty()
        {
            self.is_busy = true;
            let mut state = self.shared.lock();
            state
                .connection
                .deliver(*number, |protocol, link| match &mut link.ends {
                    Ends::Shm(link) => deliver(protocol, link, served, mail),
                    #[cfg(any(test, feature = "ucx", feature = "tls"))]
                    Ends::Other(link) => deliver(protocol, link, served, mail),
                });
            state.polled();
        }
    }

    /// Whether an invocation waits until the target admits those that may travel.
    pub(super) fn is_held(&self) -> bool {
        self.shared.lock().connection.is_held()
    }

    /// Applies the policy that there is now.
    #[cold]
    pub(super) fn review(&mut self, host: &Host) {
        let is_accepted = matches!(self.doorbell, Doorbell::Listener(Some(_)));
        let mut state = self.shared.lock();
        let Some((number, served)) = &mut self.served else {
            return;
        };
        let connection = &mut state.connection;
        let peer = connection.served_link().filter(|(_, now)| now == number);
        let Some(peer) = peer.map(|(link, _)| link.peer.clone()) else {
            return;
        };
        let readmitted = host.policy.readmits(&peer, is_accepted);
        served.review(host, readmitted, |keeps| connection.review_images(keeps));
        self.is_busy = true;
    }

    /// The state of what is served, if there is a link.
    pub(super) fn state(&self) -> Option<&State> {
        self.served.as_ref().map(|(_, served)| served)
    }

    /// Drops a body that takes too long to arrive.
    pub(super) fn refuse_overdue(&mut self, host: &Host, now: Instant) {
        let connection = &mut self.shared.lock().connection;
        if let Some((_, served)) = &mut self.served
            && served.is_overdue(connection.unfinished(), now)
        {
            connection.refuse_unfinished(host.unfinished.overdue());
        }
    }

    /// Whether a poll would find something. If not, grants the peer its credits.
    pub(super) fn has_work(&mut self) -> bool {
        let mut state = self.shared.lock();
        let is_over = state.is_closed || !self.reconnects() && !state.connection.is_linked();
        let has_work = is_over || state.connection.has_arrived();
        state.polled();
        has_work
    }

    /// Whether a poll processed something since the last call. A link whose doorbell the listener does not watch counts as
    /// busy: no listener reports it.
    pub(super) fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.is_busy) || !self.is_named()
    }

    pub(super) fn park(&mut self) {
        let is_named = self.is_named();
        let connection = &mut self.shared.lock().connection;
        if let Doorbell::Own { target, watched, .. } = &mut self.doorbell {
            target.watch(watched, connection.waiter());
        }
        connection.park(!is_named);
    }

    pub(super) fn is_quiet(&mut self, host: &Host) -> bool {
        let is_named = self.is_named();
        let mut state = self.shared.lock();
        if state.connection.is_held() {
            return !host.travels.admits();
        }
        if state.is_closed || !self.reconnects() && !state.connection.is_linked() {
            return false;
        }
        let is_quiet = state.connection.is_quiet(is_named);
        state.polled();
        is_quiet
    }

    pub(super) fn unpark(&mut self) {
        self.shared.lock().connection.unpark();
        if let Doorbell::Own {
            watched: Some(waiter),
            ..
        } = &self.doorbell
        {
            waiter.clear_doorbell();
        }
        self.is_busy = true;
    }
}

/// Ends the link. Sources that use it learn why.
impl Drop for Duplex {
    fn drop(&mut self) {
        let listed = match &mut self.doorbell {
            Doorbell::Listener(Some(peers)) => peers.remove(self.info.connection),
            Doorbell::Listener(None) => None,
            Doorbell::Own { target, watched, .. } => {
                target.watch(watched, None);
                None
            }
        };
        let mut state = self.shared.lock();
        let is_linked = state.connection.is_linked();
        let why = if is_linked { TARGET_GONE } else { ACCEPTED };
        state.connection.retire(why);
        state.give_up(why.into());
        drop(state);
        if is_linked && let Some((_, served)) = &self.served {
            served.ended(&Closed::Left);
        }
        let of_group = self.node.take().and_then(|Node { number, listed }| {
            let nodes = listed?;
            nodes.link_down(number, self.info.connection)
        });
        drop((listed, of_group));
    }
}
