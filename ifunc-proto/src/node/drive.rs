//! Sending to a node what waits for it, as its window allows.

use ifunc_abi::ImageId;
use ifunc_abi::frame::BODY_ALIGN;
use ifunc_abi::status::{Rejection, Status};
use zerocopy::little_endian::U64;

use super::Node;
use super::members::{Handles, Member};
use super::outbox::{Control, Sent};
use super::visit::left;
use crate::caller::{Image, NotSent, Submission, SubmitError};
use crate::connection::Connection;
use crate::link::{Link, Outbound};

/// Images that stay bound on a node's connection.
const MAX_HANDLES: usize = 64;

/// Most invocations of which the transport does not know whether they were consumed: no send window is larger.
const MAX_UNCONSUMED: usize = 4096;

impl<I: Image + Clone, O: Clone> Node<I, O> {
    /// Whether something waits for a node that there is a link to.
    #[must_use]
    pub fn has_work_for(&self, node: u32) -> bool {
        self.members.get(&node).is_some_and(Member::has_work)
    }

    /// The nodes for which something waits that can be sent: their windows were not found closed. When such a window opens, its
    /// link reports it, and the driver of the link calls [`drive`](Self::drive).
    pub fn ready_peers(&self) -> impl Iterator<Item = u32> + '_ {
        let ready = self.members.iter().filter(|(_, member)| member.is_ready());
        ready.map(|(&node, _)| node)
    }

    /// Sends what waits for a node over its link, until the window is closed. Returns whether nothing waits any more. Closes the
    /// link of a node that left more unread than it may: [`NodeConfig::max_unread`](super::NodeConfig::max_unread).
    pub fn drive<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I, U, B>,
        link: &mut L,
        now: u64,
    ) -> bool {
        self.now = now;
        if self
            .members
            .get(&node)
            .is_some_and(|member| member.is_overflowing)
        {
            self.forget_unread(node);
            connection.refuse(link, "it receives nothing while too many replies wait for it");
        }
        let is_done = self.send_all(node, connection, link, now);
        // Not before: what is sent is on its way meanwhile.
        self.prune(node, connection, link);
        if let Some(member) = self.members.get_mut(&node) {
            member.is_blocked = !is_done;
        }
        is_done
    }

    fn send_all<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I, U, B>,
        link: &mut L,
        now: u64,
    ) -> bool {
        while connection.is_linked() {
            if connection.caller.has_outgoing() && !connection.drive(link) {
                return false;
            }
            let Some(member) = self.members.get_mut(&node).filter(|member| member.is_linked()) else {
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
            } else if !member.queue.is_empty() {
                self.send_next(node, connection, link, now)
            } else {
                return true;
            };
            if !is_sent {
                return false;
            }
        }
        false
    }

    /// Forgets the invocations that a node has consumed.
    fn prune<L: Link, U, B>(&mut self, node: u32, connection: &mut Connection<I, U, B>, link: &mut L) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let (tx, _) = link.split();
        while let Some(&Sent {
            sequence: Some(sequence),
            ..
        }) = member.sent.front()
            && connection.is_linked()
            && (member.sent.len() > MAX_UNCONSUMED || !tx.is_unconsumed(sequence))
        {
            member.sent.pop_front();
        }
    }

    fn send_weights<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I, U, B>,
        link: &mut L,
    ) -> bool {
        let Some((header, body, scopes)) = self.weights_for(node) else {
            if let Some(member) = self.members.get_mut(&node) {
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

    /// Sends the next invocation for a node. `false`: the window is closed.
    fn send_next<L: Link, U, B>(
        &mut self,
        node: u32,
        connection: &mut Connection<I, U, B>,
        link: &mut L,
        now: u64,
    ) -> bool {
        let Some(member) = self.members.get_mut(&node) else {
            return true;
        };
        let Some(message) = member.queue.front() else {
            return true;
        };
        let is_too_late = message.deadline <= now;
        let mut head = message.head;
        head.deadline = U64::new(left(message.deadline, now));
        if is_too_late {
            if let Some(message) = member.queue.pop_front() {
                self.drop_message(message, Status::Rejected(Rejection::TooLate), b"", now);
            }
            return true;
        }
        let handle = member.handles.of(&message.image, connection);
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
                    member.sent.push_back(Sent {
                        sequence: accepted.sequence,
                        reply_to: head.reply_to,
                        stream_next: head.stream_next.get(),
                    });
                }
                if let Some(message) = member.queue.pop_front() {
                    self.bytes -= message.size();
                }
                self.traffic.invocations += 1;
                return true;
            }
            Err(NotSent::Blocked) => return false,
            Err(NotSent::Failed(error)) => match *error {
                // The node reported on an invocation that nothing awaits.
                SubmitError::Earlier(_) => return true,
                SubmitError::Lost(lost) => lost.to_string(),
                SubmitError::Unfinished(_) | SubmitError::Link(_) => return false,
                SubmitError::Encode(never) => match never {},
            },
        };
        if let Some(message) = member.queue.pop_front() {
            self.drop_message(
                message,
                Status::Rejected(Rejection::TooLarge),
                lost.as_bytes(),
                now,
            );
        }
        true
    }
}

impl Handles {
    /// The handle of an image.
    fn of<I: Image + Clone, U, B>(&mut self, image: &I, connection: &mut Connection<I, U, B>) -> u32 {
        self.uses += 1;
        let uses = self.uses;
        let is_of = |(id, entry): &(ImageId, u8)| *entry == image.entry() && id == image.id();
        if let Some((_, handle, used)) = self.bound.iter_mut().find(|(key, ..)| is_of(key)) {
            *used = uses;
            return *handle;
        }
        if self.bound.len() >= MAX_HANDLES
            && let Some(oldest) = (0..self.bound.len()).min_by_key(|&index| self.bound[index].2)
        {
            let (_, handle, _) = self.bound.swap_remove(oldest);
            connection.caller.unbind(handle);
        }
        let handle = connection.caller.bind(image.clone());
        self.bound.push(((*image.id(), image.entry()), handle, uses));
        handle
    }
}
