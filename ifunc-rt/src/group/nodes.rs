//! The nodes of a group that a target has joined.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ifunc_exec::services::now;

use super::dial::{Dialed, Dialer, Dialing};
use super::{Group, GroupError, Place, check};
use crate::Source;
use crate::driver::biased::{BiasedGuard, BiasedMutex};
use crate::rendezvous::Published;
use crate::source::connection::Service;
use crate::source::shared::SharedConnection;
use crate::travel::Travels;

/// The nodes of the group that a target has joined: see [`Target::join`](crate::Target::join). Clones are the same.
#[derive(Clone)]
pub struct Nodes(Arc<Shared>);

struct Shared {
    number: u32,
    /// Used for each message to a node, by the thread that serves.
    state: BiasedMutex<State>,
    dialer: Dialer,
    travels: Arc<Travels>,
}

/// A target's being a node of a group. Ends with the target, also if [`Nodes`] stays.
pub(crate) struct Membership {
    pub(crate) nodes: Nodes,
    /// Others find the address as long as this lives.
    _published: Option<Published>,
}

impl Membership {
    pub(crate) fn new(
        group: &Group,
        published: Option<Published>,
        dialer: Dialer,
        travels: Arc<Travels>,
    ) -> Self {
        Self {
            nodes: Nodes::new(group, dialer, travels),
            _published: published,
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.nodes.0.dialer.close();
    }
}

#[derive(Default)]
struct State {
    members: BTreeMap<u32, Place>,
    /// By node, with the numbers of the connections, in the order in which they were found to lead to it: the first one is used.
    links: BTreeMap<u32, Vec<(u64, Source)>>,
    /// Nodes to which a connection is being made.
    dialing: BTreeSet<u32>,
    /// Why the last attempt to connect to a node failed.
    failures: BTreeMap<u32, GroupError>,
}

impl Nodes {
    fn new(group: &Group, dialer: Dialer, travels: Arc<Travels>) -> Self {
        travels.with(|node| group.members.keys().for_each(|&member| node.add(member)));
        Self(Arc::new(Shared {
            number: group.number,
            state: BiasedMutex::new(State {
                members: group.members.clone(),
                ..State::default()
            }),
            dialer,
            travels,
        }))
    }

    /// The number of this node.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// The numbers of the other nodes: those whose address is known, and those that have connected.
    #[must_use]
    pub fn others(&self) -> Vec<u32> {
        let state = self.state();
        let all: BTreeSet<u32> = state.members.keys().chain(state.links.keys()).copied().collect();
        all.into_iter().collect()
    }

    /// The numbers of the nodes to which there is a link now.
    #[must_use]
    pub fn linked(&self) -> Vec<u32> {
        self.state().links.keys().copied().collect()
    }

    /// Adds a node that listens at an address, or says where a node listens that was restarted elsewhere. A link is made
    /// when it is needed, or by the new node when it joins.
    ///
    /// # Errors
    /// The address does not parse; no node can have the number, or this one has it.
    pub fn add(&self, number: u32, address: &str) -> Result<(), GroupError> {
        check(number)?;
        if number == self.0.number {
            let problem = "is this node; help: give each node of the group its own number";
            return Err(GroupError::Number { number, problem });
        }
        let place = Place::Address(address.parse()?);
        self.state().members.insert(number, place);
        self.0.travels.with(|node| node.add(number));
        Ok(())
    }

    /// A source that sends over the link to a node; `None`: there is no link to it now. After the link has ended, its
    /// operations end with [`Error::PeerGone`](crate::Error::PeerGone), and a later link has another source. The thread
    /// that serves polls the link: see [`Target::connect`](crate::Target::connect).
    ///
    /// What is invoked with it may travel on, as from any source. It does not wait while the outbox of the other node is half
    /// full: what then sends or forwards more than the outbox holds is told that the node is busy.
    #[must_use]
    pub fn source(&self, node: u32) -> Option<Source> {
        let state = self.state();
        let (_, source) = state.links.get(&node)?.first()?;
        Some(source.clone())
    }

    /// The connection whose link is used to a node.
    pub(crate) fn connection_to(&self, node: u32) -> Option<Arc<SharedConnection>> {
        let state = self.state();
        let (_, source) = state.links.get(&node)?.first()?;
        Some(Arc::clone(source.shared()))
    }

    /// Connects to a node on another thread, unless that is under way, or the address is unknown. Returns whether it is
    /// under way now.
    pub(crate) fn dial(&self, node: u32, service: Service, until: Instant) -> bool {
        let mut state = self.state();
        let Some(place) = state.members.get(&node).cloned() else {
            return false;
        };
        if state.dialing.insert(node) {
            state.failures.remove(&node);
            drop(state);
            self.0.dialer.dial(Dialing {
                node,
                place,
                service,
                until,
            });
        }
        true
    }

    /// The connections that were made since the last call, or why they were not.
    pub(crate) fn take_dialed(&self) -> Vec<Dialed> {
        let done = self.0.dialer.take_done();
        if !done.is_empty() {
            let mut state = self.state();
            for dialed in &done {
                state.dialing.remove(&dialed.node);
            }
        }
        done
    }

    /// No connection to the node could be made.
    pub(crate) fn dial_failed(&self, node: u32, why: GroupError) {
        self.state().failures.insert(node, why);
        if self.source(node).is_none() {
            self.0.travels.with(|state| state.lose(node, now(), |_| true));
        }
    }

    /// Whether a connection is being made.
    pub(crate) fn is_dialing(&self) -> bool {
        !self.state().dialing.is_empty()
    }

    /// Why a connection could not be made to one of the nodes to which there is none.
    pub(crate) fn take_failure(&self) -> Option<GroupError> {
        let mut state = self.state();
        let state = &mut *state;
        let node = *state
            .failures
            .keys()
            .find(|node| !state.links.contains_key(node))?;
        state.failures.remove(&node)
    }

    pub(crate) fn link_up(&self, node: u32, connection: u64, source: Source) {
        tracing::info!(node, connection, "linked to a node of the group");
        let mut state = self.state();
        let links = state.links.entry(node).or_default();
        let first = links.first().map(|(_, first)| first.clone());
        // One link is used at a time. A link to a process that was started again replaces that to the earlier one.
        let epoch = |source: &Source| source.shared().lock().connection.peer_epoch();
        let replaces = match &first {
            None => true,
            Some(first) => epoch(first) != epoch(&source),
        };
        if replaces && first.is_some() {
            links.clear();
        }
        links.push((connection, source.clone()));
        drop(state);
        if let Some(first) = first.filter(|_| replaces) {
            first.shared().lock().connection.leave_node();
        }
        if replaces {
            let connection = &mut source.shared().lock().connection;
            connection.serve_node(node, &self.0.travels);
        }
    }

    /// A link ended. The caller drops its source without this list's lock.
    pub(crate) fn link_down(&self, node: u32, connection: u64) -> Option<Source> {
        let mut state = self.state();
        let links = &mut state.links;
        let of_node = links.get_mut(&node)?;
        let at = of_node.iter().position(|(number, _)| *number == connection);
        let source = at.map(|at| of_node.remove(at).1);
        let next = of_node.first().map(|(_, next)| next.clone());
        if of_node.is_empty() {
            links.remove(&node);
        }
        drop(state);
        if let Some(next) = next {
            let connection = &mut next.shared().lock().connection;
            if !connection.is_member() {
                connection.serve_node(node, &self.0.travels);
            }
        }
        source
    }

    /// The nodes of known addresses to which there is no link.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let state = self.state();
        let members = state.members.keys().copied();
        members.filter(|node| !state.links.contains_key(node)).collect()
    }

    fn state(&self) -> BiasedGuard<'_, State> {
        self.0.state.lock()
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes")
            .field("number", &self.0.number)
            .field("others", &self.others())
            .field("linked", &self.linked())
            .finish()
    }
}
