//! The other nodes of the group: which are known, to which there are links, and which were lost.

use std::collections::VecDeque;

use ifunc_abi::ImageId;
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::Rejection;
use ifunc_abi::status::{Failure, Status};
use ifunc_abi::travel::LostNode;

use super::outbox::{Control, Message, Sent};
use super::{Event, MAX_LOST, Node};
use crate::caller::Image;

/// What this node knows of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no link.
    Known,
    /// There is no link, and the driver was asked for one.
    Asked,
    Linked,
    /// There is no link, and the node is not sent to until there is one.
    Lost,
}

/// Another node.
#[derive(Debug)]
pub(super) struct Member<I> {
    state: State,
    /// 0: not known.
    epoch: u64,
    /// Invocations that were not sent.
    pub(super) queue: VecDeque<Message<I>>,
    /// Other frames that were not sent.
    pub(super) control: VecDeque<Control>,
    /// Invocations that were sent and may not have been consumed, oldest first.
    pub(super) sent: VecDeque<Sent>,
    /// The handles of images on the node's connection, and when each was last used.
    pub(super) handles: Vec<(ImageId, u32, u64)>,
    /// Counts the uses of handles.
    pub(super) uses: u64,
    /// Weights are sent to it as soon as its window is open.
    pub(super) are_returns_due: bool,
}

impl<I> Member<I> {
    fn new() -> Self {
        Self {
            state: State::Known,
            epoch: 0,
            queue: VecDeque::new(),
            control: VecDeque::new(),
            sent: VecDeque::new(),
            handles: Vec::new(),
            uses: 0,
            are_returns_due: false,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    pub(super) fn is_linked(&self) -> bool {
        self.state == State::Linked
    }

    /// Whether the driver is to be asked for a link, now.
    pub(super) fn needs_link(&mut self) -> bool {
        let needs = self.state == State::Known;
        if needs {
            self.state = State::Asked;
        }
        needs
    }

    pub(super) fn unconsumed(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn replies(&self) -> usize {
        self.control.len()
    }
}

impl<I: Image + Clone, O: Clone> Node<I, O> {
    /// A node belongs to the group. One that was lost may be sent to again: the driver is asked for a link.
    pub fn add(&mut self, node: u32) {
        if Some(node) == self.config.number {
            return;
        }
        let member = self.members.entry(node).or_insert_with(Member::new);
        if member.is_lost() {
            member.state = State::Known;
        }
    }

    /// There is a link to a node, with a [`Connection`](crate::Connection) that had none before.
    pub fn linked(&mut self, node: u32, epoch: u64, now: u64) {
        let known = self
            .members
            .get(&node)
            .map(|member| (member.epoch, member.is_linked()));
        if let Some((before, is_linked)) = known
            && (is_linked || before != 0 && before != epoch)
        {
            // It started again, and this node has not noticed: what the earlier one held is lost.
            self.lose(node, now, |_| true);
        }
        self.add(node);
        if let Some(member) = self.members.get_mut(&node) {
            member.state = State::Linked;
            member.epoch = epoch;
        }
    }

    /// The numbers of the other nodes that may be sent to, in ascending order.
    pub fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        let members = self.members.iter();
        members
            .filter(|(_, member)| !member.is_lost())
            .map(|(&node, _)| node)
    }

    /// Whether there is a link to a node, as far as this one knows.
    #[must_use]
    pub fn is_linked(&self, node: u32) -> bool {
        self.members.get(&node).is_some_and(Member::is_linked)
    }

    /// The link to a node died, or no link could be made. `is_unconsumed` tells whether the node may not have consumed a
    /// frame of the link: [`Outbound::is_unconsumed`](crate::link::Outbound::is_unconsumed).
    ///
    /// What was not consumed is reported to the slots that await it, and every node that there is a link to learns of the
    /// loss. The node may be [linked](Self::linked) again.
    pub fn lose(&mut self, node: u32, now: u64, mut is_unconsumed: impl FnMut(u32) -> bool) {
        self.now = now;
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if member.is_lost() {
            return;
        }
        member.state = State::Lost;
        member.are_returns_due = false;
        member.handles.clear();
        member.control.clear();
        let epoch = member.epoch;
        let (sent, queue) = (
            std::mem::take(&mut member.sent),
            std::mem::take(&mut member.queue),
        );
        self.record_loss(node, epoch, now);
        let detail = node.to_string();
        for Sent {
            sequence,
            reply_to,
            stream_next,
        } in sent
        {
            // Its weight may return from where the node sent it on: the scope ends without it.
            if sequence.is_none_or(&mut is_unconsumed) {
                let failed = Failed {
                    status: Status::Failed(Failure::NodeLost),
                    detail: detail.clone().into_bytes(),
                };
                self.reply(reply_to, stream_next, Err(&failed));
            }
        }
        for message in queue {
            let status = Status::Rejected(Rejection::NodeLost);
            self.drop_message(message, status, detail.as_bytes(), now);
        }
    }

    /// A node reports that another one was lost.
    pub(super) fn reported_lost(&mut self, node: u32, epoch: u64, now: u64) {
        if Some(node) == self.config.number {
            return;
        }
        let is_news = match self.members.get(&node) {
            // What this node knows itself counts more.
            Some(member) => !member.is_lost() && !member.is_linked() && member.epoch <= epoch.max(1),
            None => false,
        };
        if is_news {
            if let Some(member) = self.members.get_mut(&node) {
                member.epoch = epoch;
            }
            self.lose(node, now, |_| true);
        }
    }

    /// Records a loss, and tells it to all that must know.
    fn record_loss(&mut self, node: u32, epoch: u64, now: u64) {
        if self.lost.len() == MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((self.lost_count, node));
        self.lost_count += 1;
        let lost = LostNode::new(node, epoch);
        let linked: Vec<u32> = self
            .members
            .iter()
            .filter(|(_, member)| member.is_linked())
            .map(|(&other, _)| other)
            .collect();
        for other in linked {
            self.post_control(other, Control::Lost(lost));
        }
        let connections = self.slots_after_loss(node, now);
        self.waiting_after_loss(node, now);
        self.scopes_after_loss(node, now);
        self.returns.retain(|scope, _| scope.node != node);
        self.events.push_back(Event::NodeLost {
            node: lost,
            connections,
        });
    }
}
