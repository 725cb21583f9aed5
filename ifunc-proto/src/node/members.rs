//! The other nodes of the group: which are known, to which there are links, and which were lost.

use std::collections::{BTreeSet, VecDeque};

use ifunc_abi::ImageId;
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::Rejection;
use ifunc_abi::status::{Failure, Status};
use ifunc_abi::travel::LostNode;

use super::outbox::{Control, Message, Sendable, Sent};
use super::{Event, MAX_LOST, MAX_STRANGERS, Node};
use crate::host::MalformedFrame;

/// What this node knows of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no link.
    Known,
    Linked,
    /// There is no link, and no invocation is sent until there is one. Replies and weights ask for a link: the node may live,
    /// and only the link be cut.
    Lost,
}

/// The handles of images on a node's connection.
#[derive(Debug, Default)]
pub(super) struct Handles {
    /// By image and entry, and when each was last used.
    pub(super) bound: Vec<((ImageId, u8), u32, u64)>,
    /// Counts the uses.
    pub(super) uses: u64,
}

/// Another node.
#[derive(Debug)]
pub(super) struct Member<I> {
    state: State,
    /// The driver was asked for a link.
    is_asked: bool,
    /// Its window was closed when something was last sent to it.
    pub(super) is_blocked: bool,
    /// 0: not known.
    epoch: u64,
    /// The epoch in which it was lost last.
    lost_epoch: Option<u64>,
    /// Invocations that were not sent.
    pub(super) queue: VecDeque<Message<I>>,
    /// Other frames that were not sent.
    pub(super) control: VecDeque<Control>,
    /// Invocations that were sent and may not have been consumed, oldest first.
    pub(super) sent: VecDeque<Sent>,
    /// How many of these there are when those are next forgotten that it has consumed.
    pub(super) pruned_at: usize,
    pub(super) handles: Handles,
    /// Weights are sent to it as soon as its window is open.
    pub(super) are_returns_due: bool,
    /// Its scopes to which weight is to be returned.
    pub(super) owed: usize,
    /// It left more unread than it may: its link is to be closed.
    pub(super) is_overflowing: bool,
    /// The nodes that it reported as lost and that were unknown here.
    strangers: BTreeSet<u32>,
}

impl<I> Member<I> {
    fn new() -> Self {
        Self {
            state: State::Known,
            is_asked: false,
            is_blocked: false,
            epoch: 0,
            lost_epoch: None,
            queue: VecDeque::new(),
            control: VecDeque::new(),
            sent: VecDeque::new(),
            pruned_at: 0,
            handles: Handles::default(),
            are_returns_due: false,
            owed: 0,
            is_overflowing: false,
            strangers: BTreeSet::new(),
        }
    }

    /// More is to be sent to it than it may leave unread. Without a link nothing is to be closed.
    pub(super) fn overflow(&mut self) {
        self.is_overflowing = self.is_linked();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    pub(super) fn is_linked(&self) -> bool {
        self.state == State::Linked
    }

    /// Asks the driver for a link to this node, which has the number `node`: once, and if there is none.
    pub(super) fn ask_for_link<O>(&mut self, node: u32, events: &mut VecDeque<Event<O>>) {
        if self.state != State::Linked && !std::mem::replace(&mut self.is_asked, true) {
            events.push_back(Event::Connect { node });
        }
    }

    /// Whether something waits for it.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.control.is_empty() || self.are_returns_due || self.is_overflowing
    }

    /// Whether something waits for it that can be sent, as far as is known, or its link is to be closed.
    pub(super) fn is_ready(&self) -> bool {
        self.is_linked() && (self.is_overflowing || !self.is_blocked && self.has_work())
    }

    pub(super) fn unconsumed(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn replies(&self) -> usize {
        self.control.len()
    }
}

/// The other nodes, by their numbers, in ascending order.
#[derive(Debug)]
pub(super) struct Members<I>(Vec<(u32, Member<I>)>);

impl<I> Members<I> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Where a node is, or belongs.
    #[inline]
    fn find(&self, node: u32) -> Result<usize, usize> {
        // The nodes of a group are numbered from 0, nearly always, and this one is not among the others.
        let guess = node as usize;
        let is_there = |at: usize| self.0.get(at).is_some_and(|(number, _)| *number == node);
        if is_there(guess) {
            return Ok(guess);
        }
        match guess.checked_sub(1) {
            Some(guess) if is_there(guess) => Ok(guess),
            _ => self.0.binary_search_by_key(&node, |(number, _)| *number),
        }
    }

    #[inline]
    pub(super) fn get(&self, node: u32) -> Option<&Member<I>> {
        self.find(node).ok().map(|at| &self.0[at].1)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, node: u32) -> Option<&mut Member<I>> {
        self.find(node).ok().map(|at| &mut self.0[at].1)
    }

    pub(super) fn contains(&self, node: u32) -> bool {
        self.find(node).is_ok()
    }

    /// The node, which is added if it is not there.
    fn get_or_add(&mut self, node: u32) -> &mut Member<I> {
        let at = self.find(node).unwrap_or_else(|at| {
            self.0.insert(at, (node, Member::new()));
            at
        });
        &mut self.0[at].1
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Member<I>)> {
        self.0.iter().map(|(node, member)| (*node, member))
    }
}

impl<I: Sendable, O: Clone> Node<I, O> {
    /// A node belongs to the group. One that was lost may be sent to again: the driver is asked for a link.
    pub fn add(&mut self, node: u32) {
        if Some(node) == self.config.number {
            return;
        }
        let member = self.members.get_or_add(node);
        if member.is_lost() {
            member.state = State::Known;
        }
    }

    /// There is a link to a node, with a [`Connection`](crate::Connection) that had none before.
    pub fn linked(&mut self, node: u32, epoch: u64, now: u64) {
        let known = self.members.get(node).filter(|member| !member.is_lost());
        if let Some(member) = known
            && (member.is_linked() || member.epoch != 0 && member.epoch != epoch)
        {
            // It started again, and this node has not noticed: what the earlier one held is lost.
            self.lose(node, now, |_| true);
        }
        self.add(node);
        if let Some(member) = self.members.get_mut(node) {
            member.state = State::Linked;
            member.is_asked = false;
            member.is_blocked = false;
            member.is_overflowing = false;
            member.epoch = epoch;
        }
    }

    /// The numbers of the other nodes that may be sent to, in ascending order.
    pub fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        let members = self.members.iter();
        members
            .filter(|(_, member)| !member.is_lost())
            .map(|(node, _)| node)
    }

    /// The numbers of the other nodes to which there is a link, in ascending order.
    pub fn linked_peers(&self) -> impl Iterator<Item = u32> + '_ {
        let members = self.members.iter();
        members
            .filter(|(_, member)| member.is_linked())
            .map(|(node, _)| node)
    }

    /// Whether there is a link to a node, as far as this one knows.
    #[must_use]
    pub fn is_linked(&self, node: u32) -> bool {
        self.members.get(node).is_some_and(Member::is_linked)
    }

    /// The link to a node died, or no link could be made. `is_unconsumed` tells whether the node may not have consumed a
    /// frame of the link: [`Outbound::is_unconsumed`](crate::link::Outbound::is_unconsumed).
    ///
    /// What was not consumed is reported to the slots that await it, and every node that there is a link to learns of the
    /// loss. The node may be [linked](Self::linked) again.
    pub fn lose(&mut self, node: u32, now: u64, mut is_unconsumed: impl FnMut(u32) -> bool) {
        self.now = now;
        let Some(member) = self.members.get_mut(node) else {
            return;
        };
        member.is_asked = false;
        member.are_returns_due = false;
        member.is_overflowing = false;
        if member.is_lost() {
            // It was asked for again, for replies and weights, and cannot be reached.
            self.forget_unread(node);
            self.waiting_after_loss(node, now);
            return;
        }
        member.state = State::Lost;
        member.handles.bound.clear();
        member
            .control
            .retain(|control| matches!(control, Control::Reply(..)));
        let has_replies = !member.control.is_empty();
        let epoch = member.epoch;
        let (sent, queue) = (
            std::mem::take(&mut member.sent),
            std::mem::take(&mut member.queue),
        );
        self.record_loss(node, epoch, now, true);
        if has_replies {
            self.ask_for_link(node);
        }
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
                    answer: None,
                };
                self.reply(reply_to, stream_next, Err(&failed));
            }
        }
        for message in queue {
            let status = Status::Rejected(Rejection::NodeLost);
            self.drop_message(message, status, detail.as_bytes(), now);
        }
    }

    /// Forgets the replies and weights that wait for a node.
    pub(super) fn forget_unread(&mut self, node: u32) {
        if let Some(member) = self.members.get_mut(node) {
            member.control = VecDeque::new();
            member.owed = 0;
            member.is_overflowing = false;
        }
        self.returns.retain(|scope, _| scope.node != node);
        self.owed.retain(|(_, scope)| scope.node != node);
    }

    /// A node reports that another one was lost. It may report one of an epoch again: each time, a link died with what it carried.
    pub(super) fn reported_lost(
        &mut self,
        from: u32,
        node: u32,
        epoch: u64,
        now: u64,
    ) -> Result<(), MalformedFrame> {
        if Some(node) == self.config.number {
            return Ok(());
        }
        let Some(member) = self.members.get_mut(node) else {
            if let Some(member) = self.members.get_mut(from) {
                member.strangers.insert(node);
                if member.strangers.len() > MAX_STRANGERS {
                    member.strangers.clear();
                    return Err(MalformedFrame("the loss of more unknown nodes than a group has"));
                }
            }
            // This node had nothing to do with it. Its calls and scopes had, by way of others.
            self.record_loss(node, epoch, now, false);
            return Ok(());
        };
        if member.is_lost() {
            return Ok(());
        }
        if member.is_linked() {
            // It lives: only the link between the two died, with what it carried. Or it started again, and this node had no link
            // to the earlier process.
            if member.epoch == epoch || member.lost_epoch != Some(epoch) {
                self.record_loss(node, epoch, now, false);
            }
            return Ok(());
        }
        if member.epoch <= epoch.max(1) {
            member.epoch = epoch;
            self.lose(node, now, |_| true);
        }
        Ok(())
    }

    /// Remembers that a node was lost, as the last one. The oldest is forgotten, before those of the group that of a stranger.
    fn remember_loss(&mut self, node: u32) {
        if let Some(at) = self.lost.iter().position(|&(_, other)| other == node) {
            self.lost.remove(at);
        } else if self.lost.len() == MAX_LOST {
            let mut nodes = self.lost.iter().map(|(_, node)| node);
            let stranger = nodes.position(|&node| !self.members.contains(node));
            self.lost.remove(stranger.unwrap_or(0));
        }
        self.lost.push_back((self.lost_count, node));
        self.lost_count += 1;
    }

    /// Records a loss, and tells it to all that must know. `is_own`: this node cannot reach the other one.
    fn record_loss(&mut self, node: u32, epoch: u64, now: u64, is_own: bool) {
        self.remember_loss(node);
        if let Some(member) = self.members.get_mut(node) {
            member.lost_epoch = Some(epoch);
        }
        let lost = LostNode::new(node, epoch);
        let linked: Vec<u32> = self
            .members
            .iter()
            .filter(|(_, member)| is_own && member.is_linked())
            .map(|(other, _)| other)
            .collect();
        for other in linked {
            self.post_control(other, Control::Lost(lost));
        }
        self.slots_after_loss(now);
        if is_own {
            self.waiting_after_loss(node, now);
        }
        self.scopes_after_loss(node, now);
        self.events.push_back(Event::NodeLost { node });
    }
}
