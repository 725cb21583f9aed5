//! Groups of nodes: targets that know each other by number.
//!
//! A *node* is a process that serves and sends. A [`Group`] gives each of its nodes a number and says where the others
//! listen; [`Target::join`](crate::Target::join) makes a target one of them. The numbers are small and chosen by the
//! application, such as the ranks of a launcher.
//!
//! ```no_run
//! use ifunc_rt::group::Group;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: the processes of this group, which are trusted with this one's memory.
//! let policy = unsafe { ifunc_rt::Policy::trust_every_peer() };
//! let mut target = ifunc_rt::Target::builder().policy(policy).listen("ucx://10.0.0.7:7000")?;
//! // Node 0 of three. The other two do the same with their own numbers.
//! let group = Group::new(0).node(1, "ucx://10.0.0.8:7000")?.node(2, "ucx://10.0.0.9:7000")?;
//! let nodes = target.join(group)?;
//! target.serve(&mut 0u64)?;
//! # Ok(()) }
//! ```
//!
//! Where a launcher starts the processes, [`Group::launched`] finds numbers and addresses by
//! [`rendezvous`](crate::rendezvous).
//!
//! **Starting.** All nodes may join at the same time, in any order, over every transport: a node that connects to others accepts
//! theirs meanwhile. `join` returns when there is a link to each node of the group. Between two nodes there is one
//! link, which carries invocations both ways; the node with the higher number makes it. A node whose peer with a higher
//! number does not connect within half a second, because that peer joined earlier, connects itself. So a node that was restarted
//! joins under its number again.
//!
//! **Later.** [`Nodes::add`] adds a node that the others did not know when they joined. A node that connects is a node
//! of the group for those to which it connects, also if they were not given its address.
//!
//! **What an invocation may do.** An ifunc that uses [`ifunc::travel`] is sent with its deadline and the number of hops that it may make.
//! On a node it may *send* other invocations, of any entry of its image, to any node, this one included; *forward* itself, and with
//! it the obligation to answer; and answer in parts ([`Handle::call_stream`](crate::Handle::call_stream)). What it sends leaves when it has
//! ended well. The node that ends a forwarded invocation answers the first node of the call, which passes the answer to its source. A
//! node sends the code ahead of its first use over a link: it keeps the code that it received, so no other node needs the library. A
//! failure is reported with the number of its node.
//!
//! **Waiting for everything.** [`Source::finish`](crate::Source::finish) returns when everything has ended that was sent in a scope, and all
//! that that sent, wherever it ran.
//!
//! **Full outboxes.** No invocation waits for another node. What it sends goes into the node's outbox, which is bounded
//! ([`TargetBuilder::outbox`](crate::TargetBuilder::outbox)). While more than half of it is used, invocations of sources that may travel wait where
//! they are, and their sources for credit; what other nodes send is always received. Over the bound, sending and forwarding
//! return [`TravelError::Busy`](ifunc::TravelError::Busy). So nodes that send to each other cannot wait for each other.
//!
//! **Nodes that do not know each other.** A node runs an invocation only if it knows the node that awaits the answer, by an address or a
//! link; otherwise the call ends with [`Rejection::UnknownNode`](crate::Rejection::UnknownNode), which names both. So every node to which a
//! call may travel is given the addresses of the nodes to which sources connect, or is connected to by them. If such an address is wrong,
//! the call ends at its deadline.
//!
//! **Several threads.** With [`Target::serve_shared`](crate::Target::serve_shared), what one node sends to another runs in its order, one at
//! a time, and what different nodes send runs in parallel. Only shareable ifuncs run there.
//!
//! **Death.** When a node dies or leaves, its links end, and it has no [`Nodes::source`] any more. Its number
//! stays known if its address is known. A forwarded invocation that it had not received is reported at once by the node that forwarded it.
//! One that it had received ends with its call's deadline, as indeterminate, with the numbers of the nodes that were lost since the
//! call began; a call without a deadline gets one of a minute then. A scope that lost a node ends with
//! [`Error::Incomplete`](crate::Error::Incomplete). A node that joins again under the number is sent to again.

mod dial;
mod nodes;

use std::collections::BTreeMap;
use std::time::Duration;

pub use nodes::Nodes;

pub(crate) use dial::{Dialed, Dialer};
pub(crate) use nodes::Membership;

use crate::SourceError;
use crate::rendezvous::{Launched, Rendezvous, RendezvousError};
use crate::transport::ConnectError;
use crate::transport::address::{Address, AddressError};

/// Numbers and places of the nodes of a group, as one of them sees it: see the [module](self).
#[derive(Clone, Debug)]
#[must_use]
pub struct Group {
    pub(crate) number: u32,
    pub(crate) members: BTreeMap<u32, Place>,
    /// Where this node publishes its own address.
    pub(crate) rendezvous: Option<Rendezvous>,
    pub(crate) timeout: Duration,
    pub(crate) is_on_demand: bool,
}

/// Where a node listens.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(Address),
    /// It publishes its address under its number.
    Published(Rendezvous),
}

/// Why a target cannot join a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A number that no node can have here.
    #[error("node {number} {problem}")]
    Number {
        /// The number.
        number: u32,
        /// Why, and what to do.
        problem: &'static str,
    },
    /// An address does not parse.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The nodes do not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The target is a node of a group already.
    #[error("this target is node {number} of a group already; help: a target joins one group, once")]
    Joined {
        /// Its number.
        number: u32,
    },
    /// A node cannot be reached.
    #[error("cannot connect to node {node}: {why}")]
    Connect {
        /// The node.
        node: u32,
        /// Why.
        #[source]
        why: Box<ConnectError>,
    },
    /// Another node listens at the address of this one.
    #[error(
        "node {found} listens at `{address}`, where node {node} was expected; help: give each node of the group its own number and address"
    )]
    OtherNode {
        /// The node that was expected.
        node: u32,
        /// The number that the target there has.
        found: u32,
        /// The address.
        address: String,
    },
    /// Nodes have not joined in time.
    #[error("no link to {} of the group within {:.1} s; help: has every node been started, and does it call `join` with this group?", listed(nodes), waited.as_secs_f64())]
    Missing {
        /// Their numbers.
        nodes: Vec<u32>,
        /// Time spent waiting.
        waited: Duration,
    },
}

/// Names nodes in a message.
pub(crate) fn listed(nodes: &[u32]) -> String {
    let numbers: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    let what = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{what} {}", numbers.join(", "))
}

impl Group {
    /// A group in which this node has a number, and no other node is known yet.
    pub fn new(number: u32) -> Self {
        Self {
            number,
            members: BTreeMap::new(),
            rendezvous: None,
            timeout: Duration::from_secs(60),
            is_on_demand: false,
        }
    }

    /// Adds a node that listens at an address. This node's own number may be among them: a list may be the same on all nodes.
    ///
    /// # Errors
    /// The address does not parse; no node can have the number.
    pub fn node(mut self, number: u32, address: &str) -> Result<Self, GroupError> {
        check(number)?;
        if number != self.number {
            self.members.insert(number, Place::Address(address.parse()?));
        }
        Ok(self)
    }

    /// The group of `size` processes whose numbers are 0 to `size - 1`, and which find each other's addresses by
    /// `rendezvous`. Joining publishes the target's own address as long as the target lives.
    pub fn meeting(rendezvous: &Rendezvous, number: u32, size: u32) -> Self {
        let others = (0..size).filter(|&other| other != number);
        Self {
            members: others
                .map(|other| (other, Place::Published(rendezvous.clone())))
                .collect(),
            rendezvous: Some(rendezvous.clone()),
            ..Self::new(number)
        }
    }

    /// The group of the processes that a launcher started: numbers are its ranks, and the environment says where
    /// addresses are found ([`Rendezvous::from_env`]).
    ///
    /// # Errors
    /// As [`Launched::from_env`] and [`Rendezvous::from_env`].
    pub fn launched() -> Result<Self, RendezvousError> {
        let launched = Launched::from_env()?;
        let rendezvous = Rendezvous::from_env(&launched.job)?;
        Ok(Self::meeting(&rendezvous, launched.rank, launched.size))
    }

    /// How long joining waits for the other nodes. Default 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Joins without waiting for the others: a link is made when something is sent to its node first. For large groups
    /// in which each node sends to a few.
    pub fn on_demand(mut self) -> Self {
        self.is_on_demand = true;
        self
    }

    /// The number of this node.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Checks that a node can have the number.
fn check(number: u32) -> Result<(), GroupError> {
    if number == u32::MAX {
        let problem = "cannot be: the largest number stands for no node; help: choose a smaller one";
        return Err(GroupError::Number { number, problem });
    }
    Ok(())
}

impl GroupError {
    pub(crate) fn unreachable(node: u32, error: SourceError) -> Self {
        match error {
            SourceError::Address(error) => Self::Address(error),
            SourceError::Connect(why) => Self::Connect {
                node,
                why: Box::new(why),
            },
        }
    }
}

impl Group {
    pub(crate) fn check(&self) -> Result<(), GroupError> {
        check(self.number)
    }
}
