//! Sending to a node what waits for it, as its window allows.

use ifunc_abi::ImageId;
use ifunc_abi::frame::BODY_ALIGN;
use ifunc_abi::status::{Rejection, Status};
use zerocopy::little_endian::U64;

use super::Node;
use super::members::{Handles, Member};
use super::outbox::{Control, Sendable, Sent};
use super::visit::left;
use crate::caller::{Image, NotSent, Submission, SubmitError};
use crate::calls::Lost;
use crate::connection::Connection;
use crate::link::{Link, Outbound};

/// Images that stay bound on a node's connection.
const MAX_HANDLES: usize = 64;

/// Most invocations of which the transport does not know whether they were consumed: no send window is larger.
const MAX_UNCONSUMED: usize = 4096;

/// Invocations that were sent to a node before it is first asked which of them it has consumed.
const PRUNED: usize = 64;

impl<I: Sendable, O: Clone> Node<I, O> {
    /// Whether something waits for a node that there is a link to, or its window was found closed: the rest of a frame in fragments waits
    /// in the connection.
    #[must_use]
    pub fn has_work_for(&self, node: u32) -> bool {
        let has_work = |member: &Member<I>| member.is_blocked || member.has_work();
        self.members.get(node).is_some_and(has_work)
    }

    /// The nodes for which something waits that can be sent: their windows were not found closed. When such a window opens, its
    /// link reports it, and the driver of the link calls [`drive`](Self::drive).
    pub fn ready_peers(&self) -> impl Iterator<Item = u32> + '_ {
        let ready = self.members.iter().filter(|(_, member)| member.is_ready());
        ready.map(|(node, _)| node)
    }

    /// Sends what waits for a node over its link, until the window is closed. Returns whether nothing waits any more. Closes the
    /// link of a node that left more unread than it may: [`NodeConfig::max_unread`](super::NodeConfig::max_unread).
    pub fn drive<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I::Image, U, B>,
        link: &mut L,
        now: u64,
    ) -> bool {
        self.now = now;
        if self.members.get(node).is_some_and(|member| member.is_overflowing) {
            self.forget_unread(node);
            connection.refuse(link, "it receives nothing while too many replies wait for it");
        }
        let is_done = self.send_all(node, connection, link, now);
        if let Some(member) = self.members.get_mut(node) {
            member.is_blocked = !is_done;
            // Not before: what is sent is on its way meanwhile.
            if connection.is_linked() {
                let (tx, _) = link.split();
                member.prune(|sequence| tx.is_unconsumed(sequence));
            }
        }
        is_done
    }

    fn send_all<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I::Image, U, B>,
        link: &mut L,
        now: u64,
    ) -> bool {
        while connection.is_linked() {
            if connection.caller.has_outgoing() && !connection.drive(link) {
                return false;
            }
            let Some(member) = self.members.get_mut(node).filter(|member| member.is_linked()) else {
                return true;
            };
            if let Some(sent) = member.sent.back_mut() {
                sent.sequence.get_or_insert(connection.caller.last_fragmented());
            }
            let is_sent = if let Some(control) = member.control.front() {
                if matches!(control, Control::Reply(..)) {
                    failpoint!("node.reply");
                }
                let (header, head, rest) = control.frame();
                let is_sent = connection.submit_to_node(link, header, head, rest).is_some();
                if is_sent {
                    let sent = match member.control.pop_front() {
                        Some(Control::Reply(..)) => &mut self.traffic.replies,
                        _ => &mut self.traffic.others,
                    };
                    *sent += 1;
                }
                is_sent
            } else if member.are_returns_due {
                self.send_weights(node, connection, link)
            } else {
                match member.send_next(connection, link, now) {
                    Sending::Nothing => return true,
                    Sending::Blocked => return false,
                    Sending::Again => {}
                    Sending::Sent => {
                        if let Some(message) = member.queue.pop_front() {
                            self.bytes -= message.size();
                            self.spare.keep(message.payload);
                        }
                        self.traffic.invocations += 1;
                    }
                    Sending::Refused(reason, detail) => {
                        if let Some(message) = member.queue.pop_front() {
                            self.drop_message(message, Status::Rejected(reason), detail.as_bytes(), now);
                        }
                    }
                }
                true
            };
            if !is_sent {
                return false;
            }
        }
        false
    }

    fn send_weights<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I::Image, U, B>,
        link: &mut L,
    ) -> bool {
        let Some((header, body, scopes)) = self.weights_for(node) else {
            if let Some(member) = self.members.get_mut(node) {
                member.are_returns_due = false;
            }
            return true;
        };
        let is_sent = connection.submit_to_node(link, header, &body, &[]).is_some();
        if is_sent {
            self.weights_sent(&scopes);
        }
        is_sent
    }
}

/// What became of the next invocation for a node.
enum Sending {
    /// There is none.
    Nothing,
    Sent,
    /// The window is closed for it.
    Blocked,
    /// It may be sent now.
    Again,
    /// It cannot be sent.
    Refused(Rejection, String),
}

impl<I: Sendable> Member<I> {
    /// Sends the next invocation, which stays the next one.
    fn send_next<L: Link, U, B>(
        &mut self,
        connection: &mut Connection<I::Image, U, B>,
        link: &mut L,
        now: u64,
    ) -> Sending {
        let Some(message) = self.queue.front() else {
            return Sending::Nothing;
        };
        if message.deadline <= now {
            return Sending::Refused(Rejection::TooLate, String::new());
        }
        let mut head = message.head;
        head.deadline = U64::new(left(message.deadline, now));
        let (handle, is_new) = self.handles.of(&message.image, connection);
        let submission = Submission {
            handle,
            bound: message.payload.len(),
            align: BODY_ALIGN,
            wants_completion: false,
            carries_code: false,
        };
        let mut encode = |memory: &mut [u8]| {
            let len = message.payload.len();
            memory[..len].copy_from_slice(&message.payload);
            Ok::<_, std::convert::Infallible>(len)
        };
        failpoint!("node.outbox");
        let lost = match connection.submit_travel(link, submission, &head, &mut encode) {
            Ok(accepted) => {
                failpoint!("node.forwarded");
                if head.reply_to.is_some() {
                    self.sent.push_back(Sent {
                        sequence: accepted.sequence,
                        reply_to: head.reply_to,
                        stream_next: head.stream_next.get(),
                    });
                }
                return Sending::Sent;
            }
            Err(NotSent::Blocked) => return Sending::Blocked,
            Err(NotSent::Failed(error)) => match *error {
                // The node reported on an invocation that nothing awaits.
                SubmitError::Earlier(_) => return Sending::Again,
                // What was bound before may hold less than this message does.
                SubmitError::Lost(Lost::NoSlice { .. }) if !is_new => {
                    self.handles.forget(handle, connection);
                    return Sending::Again;
                }
                SubmitError::Lost(Lost::NoSlice { why }) => {
                    return Sending::Refused(Rejection::Architecture, why);
                }
                SubmitError::Lost(lost) => lost.to_string(),
                SubmitError::Unfinished(_) | SubmitError::Link(_) => return Sending::Blocked,
                SubmitError::Encode(never) => match never {},
            },
        };
        Sending::Refused(Rejection::TooLarge, lost)
    }

    /// Forgets the invocations that the node has consumed, if there are twice as many as were left the last time: a node that sends
    /// nothing itself says seldom what it has consumed.
    pub(super) fn prune(&mut self, mut is_unconsumed: impl FnMut(u32) -> bool) {
        if self.sent.len() < self.pruned_at.max(PRUNED) {
            return;
        }
        // A node consumes in order.
        let is_consumed = |sent: &Sent| sent.sequence.is_some_and(|sequence| !is_unconsumed(sequence));
        let consumed = self.sent.partition_point(is_consumed);
        let too_many = self.sent.len().saturating_sub(MAX_UNCONSUMED);
        self.sent.drain(..consumed.max(too_many));
        self.pruned_at = (2 * self.sent.len()).min(MAX_UNCONSUMED);
    }
}

impl Handles {
    /// The handle of an image, and whether it was bound just now.
    fn of<I: Sendable, U, B>(
        &mut self,
        sent: &I,
        connection: &mut Connection<I::Image, U, B>,
    ) -> (u32, bool) {
        self.uses += 1;
        let uses = self.uses;
        let (image, entry) = sent.key();
        let is_of = |(id, index): &(ImageId, u8)| *index == entry && id == image;
        if let Some((_, handle, used)) = self.bound.iter_mut().find(|(key, ..)| is_of(key)) {
            *used = uses;
            return (*handle, false);
        }
        if self.bound.len() >= MAX_HANDLES
            && let Some(oldest) = (0..self.bound.len()).min_by_key(|&index| self.bound[index].2)
        {
            let (_, handle, _) = self.bound.swap_remove(oldest);
            connection.caller.unbind(handle);
        }
        let handle = connection.caller.bind(sent.image());
        self.bound.push(((*image, entry), handle, uses));
        (handle, true)
    }

    /// The next use of what this handle is bound to binds it anew.
    #[cold]
    fn forget<I: Image + Clone, U, B>(&mut self, handle: u32, connection: &mut Connection<I, U, B>) {
        self.bound.retain(|(_, bound, _)| *bound != handle);
        connection.caller.unbind(handle);
    }
}
