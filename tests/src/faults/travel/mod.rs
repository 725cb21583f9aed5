//! The cells of groups: what becomes of a call that travels when a node on its way is killed, stopped or restarted.
//!
//! A cell is four processes: the nodes 0, 1 and 2, and a source. The call goes to node 0, its first target, is forwarded to node 1
//! and on to node 2, which answers. [`scene`] starts them and brings the call to a stage; [`act`] applies the fault to the victim, and
//! checks the call and the other nodes.

pub mod act;
pub mod scene;

use std::fmt;

use super::cell::{Fault, Transport};

names! {
    /// The victim, by its part in the call.
    Part {
        /// It forwards the call.
        Forwarder = "forwarder",
        /// The call, or its answer, goes through it.
        Relay = "relay",
        /// It answers the call.
        Answerer = "answerer",
    }
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCell {
    /// What carries the links.
    pub transport: Transport,
    /// The part of the victim.
    pub part: Part,
    /// What happens to the victim.
    pub fault: Fault,
}

/// Where the call is when the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Node 1 ran it. What it forwarded is in its outbox.
    Queued,
    /// Node 1 has sent it to node 2.
    Forwarded,
    /// It runs on node 1.
    Passing,
    /// The reply of node 2 has arrived at node 0, which has not sent it to the source.
    Returning,
    /// It runs on node 2.
    Answering,
    /// Node 2 ran it, and has not sent its reply.
    Answered,
}

impl Part {
    /// The stages at which it is the victim.
    pub fn stages(self) -> &'static [Stage] {
        match self {
            Self::Forwarder => &[Stage::Queued, Stage::Forwarded],
            Self::Relay => &[Stage::Passing, Stage::Returning],
            Self::Answerer => &[Stage::Answering, Stage::Answered],
        }
    }
}

impl Stage {
    /// The failpoint.
    pub fn point(self) -> &'static str {
        match self {
            Self::Queued => "node.outbox",
            Self::Forwarded => "node.forwarded",
            Self::Passing | Self::Answering => "main",
            Self::Returning => "node.relay",
            Self::Answered => "node.reply",
        }
    }

    /// The node that stands still there: the victim.
    pub fn node(self) -> usize {
        match self {
            Self::Returning => 0,
            Self::Queued | Self::Forwarded | Self::Passing => 1,
            Self::Answering | Self::Answered => 2,
        }
    }

    /// The visit that stands still by itself.
    pub fn visit(self) -> u32 {
        match self {
            Self::Passing => 1,
            Self::Answering => 2,
            _ => u32::MAX,
        }
    }
}

impl GroupCell {
    /// All of them. UCX's puts differ from its active messages in how frames travel, which the other cells cover.
    pub fn all() -> impl Iterator<Item = Self> {
        let transports = [Transport::Shm, Transport::Ucx].into_iter();
        let parts = |transport| Part::ALL.iter().map(move |&part| (transport, part));
        let faults = |(transport, part)| {
            Fault::ALL.iter().map(move |&fault| Self {
                transport,
                part,
                fault,
            })
        };
        transports.flat_map(parts).flat_map(faults)
    }

    /// The parts of the name.
    pub fn names(self) -> [&'static str; 3] {
        [self.transport.name(), self.part.name(), self.fault.name()]
    }

    /// Whether it runs with every commit: each part and each fault once.
    pub fn is_quick(self) -> bool {
        let pairs = [
            (Part::Forwarder, Fault::Kill),
            (Part::Relay, Fault::Restart),
            (Part::Answerer, Fault::Stop),
        ];
        self.transport == Transport::Shm && pairs.contains(&(self.part, self.fault))
    }
}

impl fmt::Display for GroupCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.names().join("/"))
    }
}
