//! Slots, which await the answers of calls that were forwarded, and the windows of their streams.

use std::collections::BTreeMap;

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::{NO_DEADLINE, NOT_STREAMED, ReplyHead, SlotRef, WindowHead};
use zerocopy::little_endian::{U32, U64};

use super::outbox::{Control, Message, Sendable};
use super::visit::too_long;
use super::{Event, MAX_CANCELLED, Node, Timer};

/// A call that was forwarded from here.
#[derive(Debug)]
pub(super) struct Slot<O> {
    origin: O,
    connection: u64,
    token: u64,
    max_answer: u32,
    deadline: u64,
    /// How many nodes were lost before the call began.
    lost_before: u64,
    stream: Option<Stream>,
    /// The last reply; it waits for partial answers before it.
    last: Option<(u32, Last)>,
}

/// How a call ends, and which node reported it.
#[derive(Debug)]
struct Last {
    node: u32,
    outcome: Result<Vec<u8>, Box<Failed>>,
}

/// The partial answers of a call.
#[derive(Debug)]
struct Stream {
    /// Number of the next one for the source.
    next: u32,
    /// All before this number may be sent.
    limit: u32,
    /// Those that arrived ahead of their turn.
    early: BTreeMap<u32, Vec<u8>>,
    /// The invocation that waits for the window: its node, its number there, and its next partial answer.
    waiter: Option<(u32, u64, u32)>,
}

impl<O> Slot<O> {
    pub(super) fn new(
        origin: O,
        connection: u64,
        token: u64,
        max_answer: u32,
        deadline: u64,
        lost_before: u64,
    ) -> Self {
        Self {
            origin,
            connection,
            token,
            max_answer,
            deadline,
            lost_before,
            stream: None,
            last: None,
        }
    }
}

/// An invocation that waits for the window of its stream.
#[derive(Debug)]
pub(super) struct Waiting<I> {
    message: Message<I>,
}

impl<I> Waiting<I> {
    /// The node that opens the window.
    pub(super) fn holder(&self) -> u32 {
        self.message.head.reply_to.node.get()
    }
}

impl<I: Sendable, O: Clone> Node<I, O> {
    /// Opens a slot. `next`: number of the next partial answer; `window`: how many may follow.
    pub(super) fn open_slot(&mut self, mut slot: Slot<O>, next: u32, window: u32) -> SlotRef {
        let nonce = self.nonces.next();
        let (connection, token, deadline) = (slot.connection, slot.token, slot.deadline);
        let is_streamed = next != NOT_STREAMED;
        slot.stream = is_streamed.then(|| Stream {
            next,
            limit: next.saturating_add(window),
            early: BTreeMap::new(),
            waiter: None,
        });
        let index = self.slots.insert(nonce, slot);
        self.calls.insert((connection, token), (index, nonce));
        if deadline != NO_DEADLINE {
            self.timers.insert((deadline, Timer::Slot(index, nonce)));
        }
        SlotRef::new(self.me(), index, nonce)
    }

    /// Removes a slot, and what belongs to it.
    fn close_slot(&mut self, index: u32, nonce: u64) -> Option<Slot<O>> {
        let mut slot = self.slots.remove(index, nonce)?;
        self.timers.remove(&(slot.deadline, Timer::Slot(index, nonce)));
        self.calls.remove(&(slot.connection, slot.token));
        if let Some(stream) = slot.stream.take()
            && let Some((node, waiter, _)) = stream.waiter
        {
            self.grant_waiter(node, waiter, nonce, 0);
        }
        Some(slot)
    }

    /// A reply arrived. One to a slot that is no more is dropped.
    pub(super) fn replied(&mut self, nonce: u64, head: &ReplyHead, status: Status, body: &[u8]) {
        let (slot_index, index) = (head.slot.get(), head.index.get());
        let Some(slot) = self.slots.get_mut(slot_index, nonce) else {
            return;
        };
        let is_partial = head.is_last.get() == 0;
        if is_partial {
            let Some(stream) = &mut slot.stream else { return };
            let is_in_window = index >= stream.next && index < stream.limit;
            if is_in_window && body.len() <= slot.max_answer as usize {
                stream.early.entry(index).or_insert_with(|| body.to_vec());
            }
        } else if slot.last.is_none() {
            let outcome = match status {
                Status::Executed if body.len() > slot.max_answer as usize => {
                    Err(too_long(body.len(), slot.max_answer))
                }
                Status::Executed => Ok(body.to_vec()),
                status => Err(Box::new(Failed {
                    status,
                    detail: body.to_vec(),
                    answer: None,
                })),
            };
            let node = head.node.get();
            slot.last = Some((index, Last { node, outcome }));
        }
        let mut next = 0;
        if let Some(stream) = &mut slot.stream {
            while let Some(answer) = stream.early.remove(&stream.next) {
                self.events.push_back(Event::Partial {
                    origin: slot.origin.clone(),
                    number: stream.next,
                    answer,
                });
                stream.next += 1;
            }
            next = stream.next;
        }
        let is_over = slot
            .last
            .as_ref()
            .is_some_and(|(before, _)| *before <= next || slot.stream.is_none());
        if is_over
            && let Some(Slot {
                origin,
                last: Some((_, Last { node, outcome })),
                ..
            }) = self.close_slot(slot_index, nonce)
        {
            self.events.push_back(Event::Answer {
                origin,
                node,
                outcome,
            });
        }
    }

    /// The deadline of a call passed.
    pub(super) fn slot_expired(&mut self, index: u32, nonce: u64) {
        let Some(slot) = self.close_slot(index, nonce) else {
            return;
        };
        let lost: Vec<String> = self
            .lost_since(slot.lost_before)
            .iter()
            .map(u32::to_string)
            .collect();
        let failed = Failed {
            status: Status::Failed(Failure::Indeterminate),
            detail: lost.join(" ").into_bytes(),
            answer: None,
        };
        self.end_here(slot, failed);
    }

    /// Ends the call of a slot that was closed.
    fn end_here(&mut self, slot: Slot<O>, failed: Failed) {
        let node = self.me();
        self.events.push_back(Event::Answer {
            origin: slot.origin,
            node,
            outcome: Err(Box::new(failed)),
        });
    }

    /// A source dropped a call: nothing awaits its answer. The call ends, so that the source learns that no more of it arrives;
    /// one that runs here now ends when it is forwarded. One that has ended, or was not forwarded, is not known any more.
    pub fn cancel(&mut self, connection: u64, token: u64) {
        let Some(&(index, nonce)) = self.calls.get(&(connection, token)) else {
            if self.visits > 0 {
                if self.cancelled.len() == MAX_CANCELLED {
                    self.cancelled.pop_front();
                }
                self.cancelled.push_back((connection, token));
            }
            return;
        };
        if let Some(slot) = self.close_slot(index, nonce) {
            let failed = Failed {
                status: Status::Failed(Failure::Cancelled),
                detail: Vec::new(),
                answer: None,
            };
            self.end_here(slot, failed);
        }
    }

    /// A node was lost: calls without a deadline get one.
    pub(super) fn slots_after_loss(&mut self, now: u64) {
        let at = now.saturating_add(self.config.grace);
        for (index, nonce, slot) in self.slots.iter_mut() {
            if slot.deadline == NO_DEADLINE {
                slot.deadline = at;
                self.timers.insert((at, Timer::Slot(index, nonce)));
            }
        }
    }

    pub(super) fn forget_slots(&mut self, connection: u64) {
        let slots = self.slots.iter_mut();
        let own = slots.filter(|(_, _, slot)| slot.connection == connection);
        let closed: Vec<(u32, u64)> = own.map(|(index, nonce, _)| (index, nonce)).collect();
        for (index, nonce) in closed {
            self.close_slot(index, nonce);
        }
    }

    /// Whether a source's connection has at least `count` calls that travelled on and await their answers.
    #[must_use]
    pub fn has_calls(&self, connection: u64, count: usize) -> bool {
        let calls = self.calls.range((connection, 0)..=(connection, u64::MAX));
        calls.take(count).count() == count
    }

    /// A source took so many partial answers of a call: its window opens by as many.
    pub fn grant(&mut self, connection: u64, token: u64, count: u32) {
        let Some(&(index, nonce)) = self.calls.get(&(connection, token)) else {
            return;
        };
        let max_window = self.config.max_window;
        let Some(stream) = self
            .slots
            .get_mut(index, nonce)
            .and_then(|slot| slot.stream.as_mut())
        else {
            return;
        };
        let limit = stream.limit.saturating_add(count);
        stream.limit = limit
            .min(stream.next.saturating_add(max_window))
            .max(stream.limit);
        self.serve_waiter(index, nonce);
    }

    /// Opens the window for the invocation that waits, if it can be.
    fn serve_waiter(&mut self, index: u32, nonce: u64) {
        let Some(stream) = self
            .slots
            .get_mut(index, nonce)
            .and_then(|slot| slot.stream.as_mut())
        else {
            return;
        };
        let Some((node, waiter, next)) = stream.waiter else {
            return;
        };
        let count = stream.limit.saturating_sub(next);
        if count > 0 {
            stream.waiter = None;
            self.grant_waiter(node, waiter, nonce, count);
        }
    }

    /// Grants a window to an invocation that waits; 0: its call is over.
    fn grant_waiter(&mut self, node: u32, waiter: u64, nonce: u64, count: u32) {
        if node == self.me() {
            self.window_granted(waiter, nonce, count);
            return;
        }
        let head = WindowHead {
            slot: U32::ZERO,
            count: U32::new(count),
            waiter: U64::new(waiter),
        };
        let header = Header::new(Kind::Window, 1, nonce);
        self.post_control(node, Control::Window(header, head));
    }

    /// A node asks for the window of a stream.
    pub(super) fn window_asked(&mut self, from: u32, nonce: u64, head: &WindowHead) {
        let (index, waiter, next) = (head.slot.get(), head.waiter.get(), head.count.get());
        let slot = self.slots.get_mut(index, nonce);
        let Some(stream) = slot.and_then(|slot| slot.stream.as_mut()) else {
            self.grant_waiter(from, waiter, nonce, 0);
            return;
        };
        stream.waiter = Some((from, waiter, next));
        self.serve_waiter(index, nonce);
    }

    /// An invocation goes to its own node, and the window of its stream is closed: it waits.
    pub(super) fn await_window(&mut self, message: Message<I>) {
        let waiter = self.next_waiter;
        self.next_waiter += 1;
        let (holder, next) = (message.head.reply_to, message.head.stream_next);
        if message.deadline != NO_DEADLINE {
            self.timers.insert((message.deadline, Timer::Waiting(waiter)));
        }
        self.waiting_bytes += message.size();
        self.waiting.insert(waiter, Waiting { message });
        let head = WindowHead {
            slot: holder.slot,
            count: next,
            waiter: U64::new(waiter),
        };
        if holder.node.get() == self.me() {
            self.window_asked(self.me(), holder.nonce.get(), &head);
            return;
        }
        let header = Header::new(Kind::Window, 0, holder.nonce.get());
        if self.members.contains(holder.node.get()) {
            self.post_control(holder.node.get(), Control::Window(header, head));
        } else {
            self.window_granted(waiter, holder.nonce.get(), 0);
        }
    }

    /// The window of a stream opened for an invocation that waits here; 0: its call is over.
    pub(super) fn window_granted(&mut self, waiter: u64, nonce: u64, count: u32) {
        let is_own = self
            .waiting
            .get(&waiter)
            .is_some_and(|waiting| waiting.message.head.reply_to.nonce == nonce);
        if !is_own {
            return;
        }
        let Some(mut message) = self.stop_waiting(waiter) else {
            return;
        };
        if count == 0 {
            self.drop_message(message, Status::Rejected(Rejection::TooLate), b"", self.now);
            return;
        }
        message.head.stream_window = U32::new(count);
        self.local.push_back(message);
    }

    /// The deadline of an invocation passed that waits for its window.
    pub(super) fn waiting_expired(&mut self, waiter: u64, now: u64) {
        if let Some(message) = self.stop_waiting(waiter) {
            self.drop_message(message, Status::Rejected(Rejection::TooLate), b"", now);
        }
    }

    /// Takes an invocation that waits.
    fn stop_waiting(&mut self, waiter: u64) -> Option<Message<I>> {
        let Waiting { message } = self.waiting.remove(&waiter)?;
        self.waiting_bytes -= message.size();
        self.timers.remove(&(message.deadline, Timer::Waiting(waiter)));
        Some(message)
    }

    /// A node was lost: the calls whose slots it held are over, and what waited on it waits no more.
    pub(super) fn waiting_after_loss(&mut self, node: u32, now: u64) {
        for (_, _, slot) in self.slots.iter_mut() {
            if let Some(stream) = &mut slot.stream {
                stream.waiter = stream.waiter.filter(|waiter| waiter.0 != node);
            }
        }
        let waiting = self.waiting.iter();
        let over: Vec<u64> = waiting
            .filter(|(_, waiting)| waiting.holder() == node)
            .map(|(&waiter, _)| waiter)
            .collect();
        for waiter in over {
            if let Some(message) = self.stop_waiting(waiter) {
                self.drop_message(
                    message,
                    Status::Rejected(Rejection::NodeLost),
                    node.to_string().as_bytes(),
                    now,
                );
            }
        }
    }
}
