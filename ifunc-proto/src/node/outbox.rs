//! What is sent to nodes: invocations, and the frames that reply to them.

use ifunc_abi::ImageId;
use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::{LostNode, ReplyHead, SlotRef, TravelHead, WindowHead};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::Node;
use crate::caller::Image;

/// Bytes that a message counts beside its payload.
const OVERHEAD: usize = 192;

/// Bytes that a payload takes in the outbox.
pub(super) fn size_of(payload: usize) -> usize {
    payload.saturating_add(OVERHEAD)
}

/// What a node sends: an entry of an image, and what the driver keeps beside it until an invocation was sent or is run.
pub trait Sendable {
    /// What a handle of a link is bound to.
    type Image: Image + Clone;
    /// The [id](Image::id) of the image, and its [entry](Image::entry).
    fn key(&self) -> (&ImageId, u8);
    /// The image, to be bound to a handle. It stays bound after the invocation was sent.
    fn image(&self) -> Self::Image;
}

impl<T: Image + Clone> Sendable for T {
    type Image = T;

    fn key(&self) -> (&ImageId, u8) {
        (self.id(), self.entry())
    }

    fn image(&self) -> T {
        self.clone()
    }
}

/// An invocation for a node.
#[derive(Debug)]
pub(super) struct Message<I> {
    pub(super) image: I,
    /// Its deadline is computed again when it is sent.
    pub(super) head: TravelHead,
    /// On the driver's clock.
    pub(super) deadline: u64,
    pub(super) payload: Vec<u8>,
}

impl<I> Message<I> {
    pub(super) fn size(&self) -> usize {
        size_of(self.payload.len())
    }
}

/// What an invocation sends, and to which nodes.
pub(super) type Outgoing<I> = Vec<(u32, Message<I>)>;

/// Memory of messages that were sent, for the next ones.
#[derive(Debug)]
pub(super) struct Spare<I> {
    payloads: Vec<Vec<u8>>,
    lists: Vec<Outgoing<I>>,
}

impl<I> Spare<I> {
    /// Most pieces of memory of a kind that are kept.
    const KEPT: usize = 64;
    /// The largest payload whose memory is kept, and the most messages of a list.
    const LARGEST: usize = 4096;
    const LONGEST: usize = 64;

    pub(super) fn new() -> Self {
        Self {
            payloads: Vec::new(),
            lists: Vec::new(),
        }
    }

    /// A copy of a payload.
    pub(super) fn copy(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut copy = self.payloads.pop().unwrap_or_default();
        copy.extend_from_slice(payload);
        copy
    }

    /// The payload was sent.
    pub(super) fn keep(&mut self, mut payload: Vec<u8>) {
        if payload.capacity() <= Self::LARGEST && self.payloads.len() < Self::KEPT {
            payload.clear();
            self.payloads.push(payload);
        }
    }

    /// An empty list.
    pub(super) fn list(&mut self) -> Outgoing<I> {
        self.lists.pop().unwrap_or_default()
    }

    /// The messages of the list were posted.
    pub(super) fn keep_list(&mut self, list: Outgoing<I>) {
        debug_assert!(list.is_empty(), "a list of messages that were posted");
        if (1..=Self::LONGEST).contains(&list.capacity()) && self.lists.len() < Self::KEPT {
            self.lists.push(list);
        }
    }
}

/// A frame for a node that is no invocation.
#[derive(Debug)]
pub(super) enum Control {
    Reply(Header, ReplyHead, Vec<u8>),
    Window(Header, WindowHead),
    Lost(LostNode),
    Bounce(Header, TravelHead),
}

/// An invocation that was sent and may not have been consumed: what is needed to report that it was lost.
#[derive(Debug)]
pub(super) struct Sent {
    /// `None`: it is being sent in fragments.
    pub(super) sequence: Option<u32>,
    pub(super) reply_to: SlotRef,
    pub(super) stream_next: u32,
}

impl<I: Sendable, O: Clone> Node<I, O> {
    /// Adds an invocation for a node. It counts in the outbox already.
    pub(super) fn post(&mut self, to: u32, message: Message<I>, now: u64) {
        if Some(to) == self.config.number {
            if message.head.is_streamed() && message.head.stream_window == 0 {
                self.await_window(message);
            } else {
                self.local.push_back(message);
            }
            return;
        }
        match self.members.get_mut(to) {
            Some(member) if !member.is_lost() => {
                member.queue.push_back(message);
                member.ask_for_link(to, &mut self.events);
            }
            _ => {
                let reason = if self.members.contains(to) {
                    Rejection::NodeLost
                } else {
                    Rejection::NoNode
                };
                self.drop_message(message, Status::Rejected(reason), to.to_string().as_bytes(), now);
            }
        }
    }

    /// Asks the driver for a link to a node, once.
    pub(super) fn ask_for_link(&mut self, to: u32) {
        if let Some(member) = self.members.get_mut(to) {
            member.ask_for_link(to, &mut self.events);
        }
    }

    /// Adds a frame that is no invocation. For a node that was lost, too: perhaps only the link was cut.
    pub(super) fn post_control(&mut self, to: u32, control: Control) {
        if let Some(member) = self.members.get_mut(to) {
            if member.control.len() >= self.config.max_unread {
                member.overflow();
                return;
            }
            member.control.push_back(control);
            member.ask_for_link(to, &mut self.events);
        }
    }

    /// An invocation in the outbox cannot be sent: ends it.
    pub(super) fn drop_message(&mut self, message: Message<I>, status: Status, detail: &[u8], now: u64) {
        self.bytes -= message.size();
        self.end_unsent(&message.head, self.me(), status, detail, now);
    }

    /// Ends an invocation that runs nowhere: `node` reports why.
    fn end_unsent(&mut self, head: &TravelHead, node: u32, status: Status, detail: &[u8], now: u64) {
        let &TravelHead {
            reply_to,
            scope,
            weight,
            stream_next,
            ..
        } = head;
        let failed = Failed {
            status,
            detail: detail.to_vec(),
            answer: None,
        };
        self.reply_from(node, reply_to, stream_next.get(), Err(&failed));
        if scope.is_some() {
            let mut report = ifunc_abi::travel::ScopeReport::default();
            report.fail(node, status, detail);
            self.return_weight(scope, super::scopes::checked(weight.get()), &report, now);
        }
    }

    /// A node that awaits the answer of an invocation, or holds its scope, and that this one does not know.
    pub(super) fn unknown_to_reply(&self, head: &TravelHead) -> Option<u32> {
        let awaiting = [head.reply_to, head.scope].into_iter().filter(SlotRef::is_some);
        let mut nodes = awaiting.map(|slot| slot.node.get());
        nodes.find(|&node| node != self.me() && !self.members.contains(node))
    }

    /// Sends an invocation back to the node that sent it, which knows the nodes in its head: it received it with them, or wrote
    /// them.
    pub(super) fn bounce(&mut self, to: u32, head: &TravelHead, unknown: u32) {
        let header = Header::new(Kind::Bounce, unknown, 0);
        self.post_control(to, Control::Bounce(header, *head));
    }

    /// A node sent an invocation back. It did not run there.
    pub(super) fn bounced(&mut self, from: u32, unknown: u32, head: &TravelHead, now: u64) {
        let status = Status::Rejected(Rejection::UnknownNode);
        self.end_unsent(head, from, status, unknown.to_string().as_bytes(), now);
    }

    /// Replies to a slot, on whatever node. `index`: number of partial answers before.
    pub(super) fn reply(&mut self, to: SlotRef, index: u32, outcome: Result<&[u8], &Failed>) {
        self.reply_from(self.me(), to, index, outcome);
    }

    /// As [`reply`](Self::reply), for another node.
    fn reply_from(&mut self, node: u32, to: SlotRef, index: u32, outcome: Result<&[u8], &Failed>) {
        let (status, body) = match outcome {
            Ok(answer) => (Status::Executed, answer),
            Err(failed) => (failed.status, &failed.detail[..]),
        };
        let index = if index == ifunc_abi::travel::NOT_STREAMED {
            0
        } else {
            index
        };
        self.send_reply(node, to, index, true, status, body);
    }

    /// Sends a reply: the last one of its call, or a partial answer.
    pub(super) fn reply_with(&mut self, to: SlotRef, index: u32, is_last: bool, status: Status, body: &[u8]) {
        self.send_reply(self.me(), to, index, is_last, status, body);
    }

    fn send_reply(&mut self, node: u32, to: SlotRef, index: u32, is_last: bool, status: Status, body: &[u8]) {
        if !to.is_some() {
            return;
        }
        let head = ReplyHead {
            slot: to.slot,
            node: U32::new(node),
            index: U32::new(index),
            is_last: U32::new(is_last.into()),
        };
        if to.node.get() == self.me() {
            self.replied(to.nonce.get(), &head, status, body);
            return;
        }
        let header = Header::new(Kind::Reply, status.code(), to.nonce.get());
        self.post_control(to.node.get(), Control::Reply(header, head, body.to_vec()));
    }
}

impl Control {
    /// Header and body of the frame.
    pub(super) fn frame(&self) -> (Header, &[u8], &[u8]) {
        match self {
            Self::Reply(header, head, body) => (*header, head.as_bytes(), body),
            Self::Window(header, head) => (*header, head.as_bytes(), &[]),
            Self::Lost(node) => (Header::new(Kind::NodesLost, 0, 0), node.as_bytes(), &[]),
            Self::Bounce(header, head) => (*header, head.as_bytes(), &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_is_kept_is_bounded() {
        let mut spare = Spare::<()>::new();
        for len in [1, Spare::<()>::LARGEST, Spare::<()>::LARGEST + 1] {
            spare.keep(Vec::with_capacity(len));
        }
        assert_eq!(spare.payloads.len(), 2);
        for _ in 0..2 * Spare::<()>::KEPT {
            spare.keep(vec![1]);
        }
        assert_eq!(spare.payloads.len(), Spare::<()>::KEPT);
        assert!(spare.payloads.iter().all(Vec::is_empty));
        assert_eq!(spare.copy(b"ab"), b"ab");
        for len in [0, 1, Spare::<()>::LONGEST, Spare::<()>::LONGEST + 1] {
            spare.keep_list(Vec::with_capacity(len));
        }
        assert_eq!(spare.lists.len(), 2);
        assert!(spare.list().capacity() >= Spare::<()>::LONGEST);
        for _ in 0..2 * Spare::<()>::KEPT {
            spare.keep_list(Vec::with_capacity(1));
        }
        assert_eq!(spare.lists.len(), Spare::<()>::KEPT);
    }
}
