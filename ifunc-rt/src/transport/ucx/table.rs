//! What an engine knows of its connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ucx_sys::{ucp_ep_h, ucp_listener_h, ucs_status_t};

use super::credits::{Incoming, Outgoing, UnderWay};
use super::handshake::{LONGEST, Misheard, Way, Welcome};
use super::header::{Head, Name, Notice};
use super::inbox::{Data, Event};
use super::parcel::Parcel;
use super::put::memory::Memory;
use super::put::rings::Rings;
use super::silence::Watch;
use crate::transport::{Key, LinkError};

/// A connection of an engine, by the number in its name. Unlike the address of an endpoint it is not used again
/// soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionId(pub(super) u32);

/// Everything under the lock of an engine.
#[derive(Default)]
pub(super) struct State {
    /// How frames go.
    pub(super) way: Way,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    /// By the address of the endpoint, those that have one to themselves.
    pub(super) endpoints: BTreeMap<usize, ConnectionId>,
    /// Of operations under way: UCX has their addresses, and with them the memory.
    pub(super) parcels: BTreeSet<*mut Parcel>,
    /// How many of those close endpoints.
    pub(super) closing: usize,
    /// Calls of `ucp_worker_progress`.
    pub(super) looks: u64,
    /// A target's.
    pub(super) door: Option<Door>,
    /// Connections that this side has left, and whose peers have not heard everything.
    pub(super) leaving: usize,
    /// Connections whose peers broke the protocol, and whose endpoints are to be closed.
    pub(super) broken: Vec<ConnectionId>,
    /// Memory that peers were given the key of, until the endpoint is closed by which they reached it: the operation that closes
    /// it.
    pub(super) graves: Vec<(*mut Parcel, Memory)>,
    /// Connections whose peers have left, and not all of whose frames have landed.
    pub(super) byes: Vec<ConnectionId>,
    /// Connections that put, and have not announced that they sleep, or were answered.
    pub(super) awake: BTreeSet<ConnectionId>,
    /// Connections whose peers posted what has not landed, and will land without a bell.
    pub(super) expecting: BTreeSet<ConnectionId>,
    /// Since when something is awaited that lands without a bell.
    pub(super) expecting_since: Option<Instant>,
    /// Connections of a target that rested until something happened to them.
    pub(super) ready: Vec<Key>,
    /// Room for events.
    pub(super) events: Vec<Event>,
    /// The worker is the application's again, and not used any more.
    pub(super) closed: bool,
    /// UCX did not forget the callback of a worker that is not used any more: what it refers to has to stay.
    pub(super) keeps_callback: bool,
    /// Endpoints of the application's of which it said that their peers are gone.
    pub(super) lost: BTreeSet<usize>,
    /// Over whose silence connections of TCP end; `None` where that is not our business.
    pub(super) watch: Option<Watch>,
    /// It was said that the worker cannot be armed.
    pub(super) unarmed: bool,
    /// How often in succession the worker could not be armed because of messages that peers have no room for.
    pub(super) stuck: u32,
    last: u32,
    lots: Lots,
}

/// Where names get from what nobody can guess: keys from the system's random numbers.
#[derive(Default)]
struct Lots(RandomState);

impl Lots {
    fn draw(&self, id: ConnectionId) -> u32 {
        self.0.hash_one((id.0, Instant::now())) as u32
    }
}

// SAFETY: the pointers are to endpoints, requests and parcels that are only used under the lock of the engine whose state
// this is, by any one thread at a time.
unsafe impl Send for State {}

/// Where sources meet a target.
pub(super) struct Door {
    /// By which sources come in; without one, whoever has the worker's address says hello.
    pub(super) listener: Option<ucp_listener_h>,
    /// What everybody is told.
    pub(super) welcome: Welcome,
    /// Most connections at a time.
    pub(super) most: usize,
    /// Connected, but they have not said what they are, and since when.
    pub(super) guests: VecDeque<(ConnectionId, Instant)>,
    /// Connections that the target has not taken yet.
    pub(super) waiting: VecDeque<ConnectionId>,
    /// The worker is armed: it must not be looked at before the sleep, or what wakes it would be taken away.
    pub(super) armed: bool,
    /// Somebody may sleep on the bell. What another thread makes UCX take in meanwhile does not ring by itself.
    pub(super) asleep: bool,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// A source has said what it is.
    Calling,
    /// The target did not take it.
    Refused(String),
    /// The target did not take it at this moment.
    Busy(String),
    /// The target said something else.
    Misheard(Misheard),
    /// A target waits to hear what its guest is.
    Guest,
    /// A target has given its ring away, and waits for its guest's.
    Offered(Box<Rings>),
    /// Frames may come and go, by puts.
    Put(Box<Rings>),
    /// A target has told its guest that it does not take it.
    TurnedAway,
    /// Frames may come and go.
    Open {
        welcome: Welcome,
        out: Outgoing,
        incoming: Incoming,
    },
}

/// A connection.
pub(super) struct Connection {
    /// Null when it was closed.
    pub(super) ep: ucp_ep_h,
    /// The endpoint is the engine's, for this connection alone, and closed with it. Others are the application's.
    pub(super) own: bool,
    /// What the peer calls the connection in what it sends here.
    pub(super) name: Name,
    /// What it is called in what is sent to the peer; none: it has not said.
    pub(super) peer: Name,
    /// The id of the active messages that the peer listens to; `None`: the engine's.
    pub(super) am_id: Option<u16>,
    /// The operation that closes it.
    pub(super) closing: Option<*mut Parcel>,
    pub(super) stage: Stage,
    /// Messages that are being sent.
    pub(super) under_way: UnderWay,
    /// Credits are to be sent, or where frames are put a bell, when there are fewer of those.
    pub(super) owes_credits: bool,
    /// In their order.
    pub(super) arrived: VecDeque<Frame>,
    /// Those that overtook others, by sequence. There are at most as many as credits, because credits are given back for
    /// what was looked at, and that is done in order.
    early: BTreeMap<u32, Frame>,
    /// Sequence of the frame behind the last of `arrived`.
    next: u32,
    /// `State::looks` at the last look for frames, where they are put.
    pub(super) looked: u64,
    /// A target looks here only when it is told to.
    pub(super) resting: bool,
    pub(super) gone: Option<LinkError>,
    /// The status by which the endpoint failed.
    pub(super) failure: Option<ucs_status_t>,
    /// How many frames the peer had sent when it left.
    pub(super) bye: Option<u32>,
    /// The peer has heard everything.
    pub(super) heard: bool,
    /// This side has left; until then the peer may hear everything.
    pub(super) left: Option<Instant>,
    /// For those who do not have the lock.
    pub(super) signs: Arc<Signs>,
}

/// What of a connection can be known without the lock. All of it is written under the lock.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// `gone.is_some()`, or its worker is not used any more.
    pub(super) gone: AtomicBool,
    /// There is something in `arrived`.
    pub(super) arrived: AtomicBool,
    /// A frame was sent since the last look that could have let UCX work, and UCX had nothing under way behind it.
    pub(super) sent: AtomicBool,
}

impl Signs {
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// A frame that has arrived.
pub(super) struct Frame {
    pub(super) sequence: u32,
    pub(super) words: [u64; 2],
    pub(super) data: Data,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Frame,
    Notice(Notice),
}

impl State {
    pub(super) fn new(way: Way) -> Self {
        Self {
            way,
            ..Self::default()
        }
    }

    /// Room for a connection over `ep`, which is its `own` or the application's.
    pub(super) fn insert(&mut self, ep: ucp_ep_h, own: bool, stage: Stage) -> ConnectionId {
        let id = loop {
            self.last = self.last.wrapping_add(1);
            let id = ConnectionId(self.last);
            if id.0 != 0 && !self.connections.contains_key(&id) {
                break id;
            }
        };
        let connection = Connection {
            ep,
            own,
            name: Name::new(id.0, self.lots.draw(id)),
            peer: Name::NONE,
            am_id: None,
            closing: None,
            stage,
            under_way: UnderWay::default(),
            owes_credits: false,
            arrived: VecDeque::new(),
            early: BTreeMap::new(),
            next: 1,
            looked: self.looks,
            resting: false,
            gone: None,
            failure: None,
            bye: None,
            heard: false,
            left: None,
            signs: Arc::default(),
        };
        if own {
            self.endpoints.insert(ep.addr(), id);
        }
        self.connections.insert(id, connection);
        id
    }
}

impl ConnectionId {
    /// By which a target names it.
    pub(super) fn key(self) -> Key {
        Key(self.0.into())
    }
}

impl State {
    /// Whether a look has something to do that is no event.
    #[inline]
    pub(super) fn has_errands(&self) -> bool {
        !self.broken.is_empty()
            || !self.byes.is_empty()
            || !self.expecting.is_empty()
            || self.expecting_since.is_some()
            || self.leaving > 0
            || self
                .door
                .as_ref()
                .is_some_and(|door| door.asleep || !door.guests.is_empty())
    }

    /// Something happened to a connection: a target that does not look there is told.
    pub(super) fn stir(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && std::mem::take(&mut connection.resting)
        {
            self.ready.push(id.key());
        }
    }
}

impl Connection {
    /// The first reason why it is over stays.
    pub(super) fn end(&mut self, why: LinkError) {
        self.gone.get_or_insert(why);
        self.signs.gone.store(true, Ordering::Release);
    }

    /// Puts a frame that has arrived where its turn is. A number that was there before, or that credits do not reach, is given
    /// back.
    pub(super) fn put(&mut self, frame: Frame) -> Result<(), Frame> {
        let slots = match &self.stage {
            Stage::Open { incoming, .. } => incoming.slots(),
            _ => 0,
        };
        // Numbers wrap: what is past is far ahead.
        if frame.sequence.wrapping_sub(self.next) >= slots || self.early.contains_key(&frame.sequence) {
            return Err(frame);
        }
        if frame.sequence == self.next && self.early.is_empty() {
            // Nearly always.
            self.next = self.next.wrapping_add(1);
            self.arrive(frame);
            return Ok(());
        }
        self.early.insert(frame.sequence, frame);
        while let Some(frame) = self.early.remove(&self.next) {
            self.next = self.next.wrapping_add(1);
            self.arrive(frame);
        }
        Ok(())
    }

    fn arrive(&mut self, frame: Frame) {
        self.arrived.push_back(frame);
        self.signs.arrived.store(true, Ordering::Release);
    }

    /// The next frame, and whether it is to be given back as soon as it was looked at.
    pub(super) fn take(&mut self) -> Option<(Frame, bool)> {
        let frame = self.arrived.pop_front()?;
        self.signs
            .arrived
            .store(!self.arrived.is_empty(), Ordering::Release);
        let is_due = match (&frame.data, &self.stage) {
            (Data::Copied(_, len), Stage::Open { incoming, .. }) => incoming.is_due(*len),
            _ => true,
        };
        Some((frame, is_due))
    }

    /// Takes all frames.
    pub(super) fn empty(&mut self) -> Vec<Frame> {
        let early = std::mem::take(&mut self.early);
        self.arrived.drain(..).chain(early.into_values()).collect()
    }

    /// Judges a message with so many bytes of data.
    pub(super) fn judge(
        &mut self,
        head: Option<Head>,
        len: usize,
        fetchable: bool,
    ) -> Result<Kind, &'static str> {
        let head = head.ok_or("a message that is no frame")?;
        if head.len as usize != len {
            return Err("a body of another length than its header says");
        }
        let notice = head.as_notice()?;
        if let Stage::Open { out, incoming, .. } = &mut self.stage {
            out.credit(head.credits)?;
            if notice.is_none() {
                if self.bye.is_some_and(|sent| incoming.are_all(sent) == Ok(true)) {
                    return Err("a frame behind its last");
                }
                incoming.receive(len)?;
                return Ok(Kind::Frame);
            }
        }
        match notice {
            None => Err("a frame before the handshake"),
            Some(_) if fetchable || len > LONGEST => Err("a notice that is too long"),
            Some(notice) => Ok(Kind::Notice(notice)),
        }
    }
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Copied(_, len) | Self::Kept(_, len) | Self::Fetchable(_, len) => *len,
        }
    }
}
