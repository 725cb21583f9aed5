//! A node of a group: invocations that travel from node to node, without I/O.
//!
//! A [`Node`] belongs to a process that serves, beside its [`Connection`](crate::Connection)s. The connections carry frames;
//! the node holds what outlives one frame: the *slots* that await answers, the *outbox* of what is sent to other nodes, the
//! *scopes* whose weights are out, and which nodes were lost. It opens no socket, takes no lock and reads no clock: its
//! driver passes the time, in nanoseconds on any clock that does not go back.
//!
//! # A driver
//!
//! 1. [`Host::travel`](crate::host::Host::travel) calls [`Node::arrive`], runs the invocation with the [`Visit`] that it
//!    returns, and calls [`Node::end`]. The running code sends, forwards and replies through the node and the visit.
//!    Nothing leaves before `end`. Over the link of a node comes also what sources of that node's process send: it
//!    [is of a source](ifunc_abi::travel::TravelHead::is_of_source), and arrives as such.
//! 2. [`Host::admits_travel`](crate::host::Host::admits_travel) is [`Node::admits`];
//!    [`Host::reject_travel`](crate::host::Host::reject_travel) is [`Node::reject`]; `finish`, `grant`,
//!    `cancel` and `node_frame` are [`Node::finish`], [`Node::grant`], [`Node::cancel`] and [`Node::receive`].
//! 3. After a poll the driver runs each [`Node::next_local`], does what each [`Node::next_event`] says, and calls
//!    [`Node::drive`] for each node that it [has something for](Node::has_work_for) and whose window may be open.
//! 4. After a poll that found nothing it calls [`Node::idle`], and [`Node::tick`] when [`Node::next_deadline`] has passed.
//! 5. It makes links when [`Event::Connect`] asks, and reports them: [`Node::add`], [`Node::linked`], [`Node::lose`].
//!
//! # Rules
//!
//! * **Slots.** The first node of a source's call opens a slot when the invocation is forwarded. Each node that ends the
//!   invocation replies straight to it. A slot ends once: a late second reply finds another nonce. It ends early when its source
//!   drops the call; what was forwarded runs all the same.
//! * **Outbox.** What arrives from nodes is always received: it consumes one message and produces at most what it sends.
//!   While the outbox is over half of its bytes, sources wait. Over the bound, [`send`](Node::send) and
//!   [`forward`](Node::forward) return `Busy`. Replies are not bounded in bytes, but by the slots that await them, and by
//!   [`NodeConfig::max_unread`]: a peer that claims more slots than a node has, and receives nothing, loses its link.
//! * **Failures.** What was not sent when its node was lost, and what was sent and perhaps not consumed, is reported to the
//!   slot by the node that sent it. What was consumed and lost is known at the deadline: `Indeterminate`, with the nodes that
//!   were lost since. A call without a deadline gets one when a node is lost: [`NodeConfig::grace`].
//! * **Unknown nodes.** A node runs an invocation only if it knows the nodes that await its answer and hold its scope, so that what
//!   it sends on can be reported, too. Otherwise the invocation bounces: the node that sent it, which knows them, reports
//!   `UnknownNode`.
//! * **Scopes.** The first node of a source's scope issues weight to each invocation. An invocation divides its weight among
//!   those that it sends, and returns one part of it with the outcome. The scope ends when all weight has returned. Weight
//!   that cannot be divided is kept as the root of a scope of its own. What returns is gathered: many returns share a frame.
//! * **Streams.** A call with a window takes partial answers. The window is opened by the source as it takes them. An
//!   invocation whose window is closed may forward itself to its own node, where it waits until the window opens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::Status;
use ifunc_abi::travel::{LostNode, NO_NODE, ReplyHead, SlotRef, TravelHead, WindowHead};

use crate::host::MalformedFrame;

mod drive;
mod members;
mod outbox;
mod scopes;
mod slots;
mod table;
#[cfg(test)]
mod tests;
mod visit;

use members::{Member, Members};
pub use outbox::Sendable;
use outbox::{Message, Spare};
use scopes::{Returns, Scope};
use slots::{Slot, Waiting};
use table::{Nonces, Table};
pub use visit::{Arrival, Ended, Local, Visit};

/// What a node is and what it holds at most.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfig {
    /// Its number in the group, less than [`NO_NODE`]; `None`: it is in no group, and nothing travels on from it.
    pub number: Option<u32>,
    /// A number that differs after each restart.
    pub epoch: u64,
    /// A random number. The nonces of slots are drawn from it: a peer must not guess it.
    pub seed: u64,
    /// Bytes of the messages for nodes, itself included, that were not sent.
    pub outbox_bytes: usize,
    /// Slots that await answers.
    pub max_slots: usize,
    /// Frames that wait for one other node and are no invocations; and as many scopes of it to which weight is to be returned. A
    /// node that leaves more unread loses its link. One that polls stays far below: no more replies than it has slots, and
    /// no more weights than it has scopes, wait for it at a time.
    pub max_unread: usize,
    /// Scopes of sources; and as many for weight that cannot be divided.
    pub max_scopes: usize,
    /// Weight that a scope issues to an invocation: 2 to 2^48. With less, more scopes are opened for weight that cannot be
    /// divided.
    pub scope_weight: u64,
    /// Most partial answers of a call that its source has not taken.
    pub max_window: u32,
    /// Largest payload in bytes.
    pub max_payload: usize,
    /// Largest partial answer in bytes.
    pub max_answer: usize,
    /// Nanoseconds after which a call without a deadline ends, once a node was lost.
    pub grace: u64,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            number: None,
            epoch: 0,
            seed: 0,
            outbox_bytes: 16 << 20,
            max_slots: 1 << 16,
            max_unread: 4 << 16,
            max_scopes: 1 << 16,
            scope_weight: 1 << 48,
            max_window: 256,
            max_payload: usize::MAX,
            max_answer: usize::MAX,
            grace: 60_000_000_000,
        }
    }
}

/// What the driver does for the node. `O`: see [`Node`].
#[derive(Debug)]
pub enum Event<O> {
    /// A call ends: [`Connection::relay`](crate::Connection::relay) over the source's link.
    Answer {
        /// The call.
        origin: O,
        /// The node that reports it. The call ends with [`answer`](crate::Connection::answer) if it is this node.
        node: u32,
        /// Its answer, or why it has none.
        outcome: Result<Vec<u8>, Box<Failed>>,
    },
    /// A partial answer: [`Connection::answer_partially`](crate::Connection::answer_partially).
    Partial {
        /// The call.
        origin: O,
        /// Counts its partial answers from 0.
        number: u32,
        /// The partial answer.
        answer: Vec<u8>,
    },
    /// A scope ended: [`Connection::answer`](crate::Connection::answer) with the encoded report.
    Finished {
        /// The request for its end.
        origin: O,
        /// How its invocations ended.
        report: Box<ifunc_abi::travel::ScopeReport>,
    },
    /// A node was lost. What it held ends by itself, at the latest with the deadlines.
    NodeLost {
        /// Its number.
        node: u32,
    },
    /// There is something for a node to which there is no link.
    Connect {
        /// The node.
        node: u32,
    },
}

/// What a node holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFootprint {
    /// Bytes of messages that were not sent, and of those of running invocations.
    pub outbox_bytes: usize,
    /// Slots that await answers.
    pub slots: usize,
    /// Scopes whose weight is out.
    pub scopes: usize,
    /// Invocations that wait for the window of their stream.
    pub waiting: usize,
    /// Invocations that were sent and may not have been consumed.
    pub unconsumed: usize,
    /// Replies and other frames for nodes that were not sent.
    pub replies: usize,
    /// Scopes to which weight is returned soon.
    pub returns: usize,
}

/// Frames that a node has sent to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTraffic {
    /// Invocations.
    pub invocations: u64,
    /// Answers, partial answers and failures.
    pub replies: u64,
    /// Frames that return weights.
    pub weights: u64,
    /// Windows, lost nodes, and invocations that are sent back.
    pub others: u64,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Slot(u32, u64),
    Waiting(u64),
    Scope(u32, u64),
}

/// Connections that ended and are remembered.
const MAX_ENDED: usize = 64;

/// Dropped calls that are remembered while invocations run.
const MAX_CANCELLED: usize = 1024;

/// Lost nodes that are remembered.
const MAX_LOST: usize = 256;

/// Numbers of nodes unknown here whose loss one node may report: more than a group has nodes.
const MAX_STRANGERS: usize = 4096;

/// A node.
///
/// `I` is an image that is sent to nodes ([`Sendable`]); `O` is what the driver keeps with a source's request until it ends: its connection
/// and the [`ReplyTo`](crate::host::ReplyTo).
///
/// ```
/// use ifunc_abi::travel::TravelHead;
/// use ifunc_proto::caller::Image;
/// use ifunc_proto::node::{Arrival, Ended, Node, NodeConfig};
///
/// #[derive(Clone)]
/// struct Code;
/// impl Image for Code {
///     fn id(&self) -> &[u8; 32] { &[7; 32] }
///     fn bytes(&self) -> &[u8] { b"code" }
///     fn entries(&self) -> u8 { 1 }
///     fn entry(&self) -> u8 { 0 }
///     fn is_idempotent(&self) -> bool { false }
/// }
///
/// let config = NodeConfig { number: Some(0), seed: 42, ..NodeConfig::default() };
/// let mut node = Node::<Code, &str>::new(config);
/// node.add(1);
/// let source = Arrival::Source { connection: 9, token: 5, origin: Some("a call"), max_answer: 64 };
/// let mut visit = node.arrive(source, &TravelHead::of_source(16), 0).unwrap();
/// node.forward(&mut visit, 1, Code, b"payload").unwrap();
/// assert!(matches!(node.end(visit, Ok(None), 0), Ended::Elsewhere));
/// assert!(node.has_work_for(1));
/// ```
#[derive(Debug)]
pub struct Node<I, O> {
    config: NodeConfig,
    nonces: Nonces,
    members: Members<I>,
    /// Messages for this node.
    local: VecDeque<Message<I>>,
    /// Bytes of all messages that were not sent.
    bytes: usize,
    slots: Table<Slot<O>>,
    /// The slots, by connection and token.
    calls: BTreeMap<(u64, u64), (u32, u64)>,
    /// Invocations of sources that have arrived and not ended.
    visits: usize,
    /// Calls that were dropped while they may have been one of these, by connection and token.
    cancelled: VecDeque<(u64, u64)>,
    /// Invocations that wait for the window of their stream.
    waiting: BTreeMap<u64, Waiting<I>>,
    /// Their part of `bytes`.
    waiting_bytes: usize,
    next_waiter: u64,
    scopes: Table<Scope<O>>,
    /// The scopes of sources, by connection and number.
    source_scopes: BTreeMap<(u64, u32), (u32, u64)>,
    /// Weights for scopes of other nodes, by scope.
    returns: BTreeMap<SlotRef, Returns>,
    /// When these are sent at the latest: the scopes to which weight is owed.
    owed: BTreeSet<(u64, SlotRef)>,
    timers: BTreeSet<(u64, Timer)>,
    /// The nodes that were lost, each once, the last one last, and how many losses there were before.
    lost: VecDeque<(u64, u32)>,
    lost_count: u64,
    events: VecDeque<Event<O>>,
    /// The last connections that ended: their invocations may still run.
    ended_connections: VecDeque<u64>,
    /// Scopes to which weight was returned when those without were last forgotten.
    owed_at_last_sweep: usize,
    /// When the driver last told the time.
    now: u64,
    traffic: NodeTraffic,
    spare: Spare<I>,
}

impl<I: Sendable, O: Clone> Node<I, O> {
    /// A node without peers.
    #[must_use]
    pub fn new(config: NodeConfig) -> Self {
        Self {
            nonces: Nonces::new(config.seed),
            config,
            members: Members::new(),
            local: VecDeque::new(),
            bytes: 0,
            slots: Table::new(),
            calls: BTreeMap::new(),
            visits: 0,
            cancelled: VecDeque::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            next_waiter: 1,
            scopes: Table::new(),
            source_scopes: BTreeMap::new(),
            returns: BTreeMap::new(),
            owed: BTreeSet::new(),
            timers: BTreeSet::new(),
            lost: VecDeque::new(),
            lost_count: 0,
            events: VecDeque::new(),
            ended_connections: VecDeque::new(),
            owed_at_last_sweep: 0,
            now: 0,
            traffic: NodeTraffic::default(),
            spare: Spare::new(),
        }
    }

    /// Its number in the group.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.config.number
    }

    /// Joins a group. Call it before the first invocation.
    pub fn set_number(&mut self, number: u32) {
        self.config.number = Some(number);
    }

    /// The number, or [`NO_NODE`].
    fn me(&self) -> u32 {
        self.config.number.unwrap_or(NO_NODE)
    }

    /// Whether a source may add an invocation: the outbox is at most half full.
    ///
    /// What waits for the window of a stream does not count: the source that opens the window may be one that waits.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.bytes - self.waiting_bytes <= self.config.outbox_bytes / 2
    }

    /// What the driver does next for the node.
    pub fn next_event(&mut self) -> Option<Event<O>> {
        self.events.pop_front()
    }

    /// What the node holds.
    #[must_use]
    pub fn footprint(&self) -> NodeFootprint {
        let members = || self.members.iter().map(|(_, member)| member);
        NodeFootprint {
            outbox_bytes: self.bytes,
            slots: self.slots.len(),
            scopes: self.scopes.len(),
            waiting: self.waiting.len(),
            unconsumed: members().map(Member::unconsumed).sum(),
            replies: members().map(Member::replies).sum(),
            returns: self.owed.len(),
        }
    }

    /// What it has sent to other nodes so far. Invocations are work; the rest is bookkeeping.
    #[must_use]
    pub fn traffic(&self) -> NodeTraffic {
        self.traffic
    }

    /// Processes a frame of a node that is no invocation.
    ///
    /// # Errors
    /// The frame is malformed: the driver ends the connection.
    pub fn receive(
        &mut self,
        from: u32,
        header: Header,
        body: &[u8],
        now: u64,
    ) -> Result<(), MalformedFrame> {
        self.now = now;
        match header.kind {
            Kind::Reply => {
                let (head, bytes) = ReplyHead::split(body).ok_or(MalformedFrame("a malformed reply"))?;
                let status =
                    Status::from_code(header.handle).ok_or(MalformedFrame("a reply of unknown status"))?;
                self.replied(header.token, &head, status, bytes);
                Ok(())
            }
            Kind::Weights => self.weights_returned(body, now),
            Kind::NodesLost => {
                let nodes =
                    LostNode::parse_all(body).ok_or(MalformedFrame("a malformed list of lost nodes"))?;
                for lost in nodes {
                    self.reported_lost(from, lost.node.get(), lost.epoch.get(), now)?;
                }
                Ok(())
            }
            Kind::Window => {
                let head = WindowHead::parse(body).ok_or(MalformedFrame("a malformed window"))?;
                match header.handle {
                    0 => self.window_asked(from, header.token, &head),
                    1 => self.window_granted(head.waiter.get(), header.token, head.count.get()),
                    _ => return Err(MalformedFrame("a window of unknown kind")),
                }
                Ok(())
            }
            Kind::Bounce => {
                let head = TravelHead::parse(body).ok_or(MalformedFrame("a malformed bounce"))?;
                self.bounced(from, header.handle, &head, now);
                Ok(())
            }
            _ => Err(MalformedFrame("a frame that nodes do not send each other")),
        }
    }

    /// When [`tick`](Self::tick) has something to do, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|&(at, _)| at);
        let returns = self.owed.first().map(|&(at, _)| at);
        timer.into_iter().chain(returns).min()
    }

    /// Does what has become due.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        while let Some(&(at, timer)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Slot(index, nonce) => self.slot_expired(index, nonce),
                Timer::Waiting(waiter) => self.waiting_expired(waiter, now),
                Timer::Scope(index, nonce) => self.scope_is_stuck(index, nonce, now),
            }
        }
        self.send_returns(now, false);
    }

    /// Whether [`idle`](Self::idle) may have something to do.
    #[must_use]
    pub fn has_gathered(&self) -> bool {
        !self.owed.is_empty()
    }

    /// A poll found nothing: what was gathered is sent, unless more is expected soon.
    pub fn idle(&mut self, now: u64) {
        self.send_returns(now, true);
    }

    /// A source's connection ended: nothing awaits its answers. Its number is not used again.
    pub fn forget_connection(&mut self, connection: u64) {
        if self.ended_connections.len() == MAX_ENDED {
            self.ended_connections.pop_front();
        }
        self.ended_connections.push_back(connection);
        self.forget_slots(connection);
        self.forget_scopes(connection);
    }

    /// The deadline of a head that arrives now.
    fn deadline_of(head: &TravelHead, now: u64) -> u64 {
        now.saturating_add(head.deadline.get())
    }

    /// The nodes that were lost since so many were.
    fn lost_since(&self, count: u64) -> Vec<u32> {
        let since = self.lost.iter().filter(|(serial, _)| *serial >= count);
        let mut nodes: Vec<u32> = since.map(|&(_, node)| node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}
