//! One side of a connection whose frames are messages, and the parts that it shares with one whose frames are put.

mod outbox;
mod receiver;
mod sender;
mod waiter;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ifunc_abi::hello::Hello;

pub(super) use self::outbox::Outbox;
use self::receiver::Receiver;
use self::sender::Sender;
use super::engine::{Engine, Locked};
use super::put;
use super::table::{Connection, ConnectionId, Signs, Stage};
use crate::transport::{Ends, Key, Link, LinkError, Peer};

/// A connection of an engine. The parts of a [`Link`] share it; the connection ends with the last of them.
pub(super) struct Handle {
    pub(super) engine: Arc<Engine>,
    pub(super) id: ConnectionId,
    pub(super) signs: Arc<Signs>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.close(self.id.into());
    }
}

/// The link of a connection that is open.
pub(super) fn new(engine: &Arc<Engine>, id: ConnectionId) -> Option<Link> {
    let locked = engine.lock();
    let key = locked.state.acceptor.is_some().then(|| id.key());
    let connection = locked.state.connections.get(&id)?;
    let hello = connection.hello?;
    let peer = connection.known.clone().unwrap_or(Peer {
        uid: None,
        pid: None,
        key: None,
        certified: None,
    });
    let handle = Arc::new(Handle {
        engine: Arc::clone(engine),
        id,
        signs: Arc::clone(&connection.signs),
    });
    match &connection.stage {
        Stage::Open { out, .. } => {
            let (sender, receiver) = (Sender::new(&handle, out), Receiver::new(&handle));
            drop(locked);
            // Bodies are in packets, or in memory that is UCX's until they are released.
            Some(handle.link(hello, key, peer, Ends::other(sender, receiver), false))
        }
        Stage::Put(rings) => {
            let (view, layout) = (rings.view.clone(), rings.peer);
            drop(locked);
            let sender = put::link::Sender::new(&handle, view.clone(), layout);
            let receiver = put::link::Receiver::new(&handle, view);
            Some(handle.link(hello, key, peer, Ends::other(sender, receiver), true))
        }
        _ => None,
    }
}

/// The error for a connection that was removed.
const CLOSED: LinkError = LinkError::Closed;

impl Handle {
    fn link(
        self: Arc<Self>,
        hello: Hello,
        key: Option<Key>,
        peer: Peer,
        ends: Ends,
        shares_bodies: bool,
    ) -> Link {
        Link {
            ends,
            key,
            waiter: self,
            peer,
            shares_bodies,
            hello,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.signs.is_gone()
    }

    /// Ends the connection, because the peer broke the protocol.
    pub(super) fn malformed(&self, why: &'static str) -> LinkError {
        let gone = LinkError::Malformed(why);
        self.engine.lock().end(self.id, gone.clone());
        gone
    }

    /// Whether a target polls the connection only when it is ready.
    pub(super) fn set_parked(&self, parked: bool) {
        self.signs.parked.store(parked, Ordering::Relaxed);
    }
}

pub(super) fn connection<'a>(
    locked: &'a mut Locked<'_>,
    id: ConnectionId,
) -> Result<&'a mut Connection, LinkError> {
    locked.state.connections.get_mut(&id).ok_or(CLOSED)
}
