//! Invocations on this node: how they arrive, what they may do, and how they end.

use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::{NOT_STREAMED, ScopeReport, SlotRef, TravelError, TravelHead};
use zerocopy::little_endian::{U16, U32, U64};

use super::outbox::{Message, Outgoing, Sendable, size_of};
use super::slots::Slot;
use super::{Event, Node, NodeConfig};

/// Where an invocation comes from.
#[derive(Debug)]
pub enum Arrival<O> {
    /// From a source, over a link of its own or over that of a node to whose process it belongs
    /// ([`TravelHead::is_of_source`]). Of its head count the scope, the deadline, the hop limit and the stream.
    Source {
        /// The driver's number of its connection.
        connection: u64,
        /// The call's [token](crate::host::ReplyTo::token).
        token: u64,
        /// What ends the call; `None`: the source wants no completion.
        origin: Option<O>,
        /// Length of the longest answer.
        max_answer: usize,
    },
    /// From a node.
    Node(u32),
}

/// Where the answer goes.
#[derive(Debug)]
enum Answers<O> {
    Nowhere,
    /// To the source's link.
    Source {
        connection: u64,
        token: u64,
        origin: O,
    },
    Slot(SlotRef),
}

/// An invocation on this node, from [`Node::arrive`] to [`Node::end`].
#[derive(Debug)]
pub struct Visit<I, O> {
    answers: Answers<O>,
    is_from_source: bool,
    scope: SlotRef,
    weight: u64,
    deadline: u64,
    hops: u16,
    hop_limit: u16,
    max_answer: u32,
    stream_next: u32,
    stream_window: u32,
    /// What it sent and forwarded, and for which node.
    sent: Outgoing<I>,
    /// Which of these was forwarded.
    forwarded: Option<usize>,
    partials: Vec<Vec<u8>>,
}

impl<I, O> Visit<I, O> {
    /// How many nodes forwarded or sent before.
    #[must_use]
    pub fn hops(&self) -> u16 {
        self.hops
    }

    /// How many more may.
    #[must_use]
    pub fn hops_left(&self) -> u16 {
        self.hop_limit.saturating_sub(self.hops)
    }

    /// When the call is over, on the driver's clock; [`NO_DEADLINE`](ifunc_abi::travel::NO_DEADLINE).
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Length of the longest answer; `None`: nothing awaits one.
    #[must_use]
    pub fn max_answer(&self) -> Option<usize> {
        (!matches!(self.answers, Answers::Nowhere)).then_some(self.max_answer as usize)
    }

    /// Whether it was forwarded.
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.forwarded.is_some()
    }
}

/// An invocation that this node sent itself.
#[derive(Debug)]
pub struct Local<I, O> {
    /// Its image.
    pub image: I,
    /// Its payload.
    pub payload: Vec<u8>,
    /// To be run, and ended.
    pub visit: Visit<I, O>,
}

/// How an invocation ended on this node.
#[derive(Debug)]
pub enum Ended<O> {
    /// The source receives its completion now, over its own link: `failed`, or the answer of the run.
    Here {
        /// What ends the call; `None`: the source wants no completion, and receives a report of a failure.
        origin: Option<O>,
        /// Why it has no answer.
        failed: Option<Box<Failed>>,
    },
    /// It ends on another node, or later, or was answered from here: nothing is to be done.
    Elsewhere,
}

impl<I: Sendable, O: Clone> Node<I, O> {
    /// An invocation arrived. To be run, and then [ended](Self::end).
    ///
    /// # Errors
    /// It is not run. The failure has been reported, or is to be, as [`Ended`] says.
    pub fn arrive(&mut self, from: Arrival<O>, head: &TravelHead, now: u64) -> Result<Visit<I, O>, Ended<O>> {
        self.now = now;
        if let Arrival::Node(from) = from
            && let Some(unknown) = self.unknown_to_reply(head)
        {
            self.bounce(from, head, unknown);
            return Err(Ended::Elsewhere);
        }
        let is_from_source = matches!(from, Arrival::Source { .. });
        self.visits += usize::from(is_from_source);
        let mut is_full = false;
        let window = head.stream_window.get().min(self.config.max_window);
        let mut visit = Visit {
            answers: Answers::Nowhere,
            is_from_source,
            scope: SlotRef::NONE,
            weight: 0,
            deadline: Self::deadline_of(head, now),
            hops: head.hops.get(),
            hop_limit: head.hop_limit.get(),
            max_answer: head.max_answer.get(),
            stream_next: head.stream_next.get(),
            stream_window: window,
            sent: Vec::new(),
            forwarded: None,
            partials: Vec::new(),
        };
        match from {
            Arrival::Source {
                connection,
                token,
                origin,
                max_answer,
            } => {
                visit.hops = 0;
                visit.max_answer = visit
                    .max_answer
                    .min(u32::try_from(max_answer).unwrap_or(u32::MAX));
                if let Some(origin) = origin {
                    visit.answers = Answers::Source {
                        connection,
                        token,
                        origin,
                    };
                    if head.is_streamed() {
                        visit.stream_next = 0;
                    }
                } else {
                    visit.stream_next = NOT_STREAMED;
                }
                if head.scope.is_some() {
                    match self.issue_weight(connection, head.scope.slot.get(), now) {
                        Some(issued) => (visit.scope, visit.weight) = issued,
                        None => is_full = true,
                    }
                }
            }
            Arrival::Node(_) => {
                visit.scope = head.scope;
                visit.weight = super::scopes::checked(head.weight.get());
                if head.reply_to.is_some() {
                    visit.answers = Answers::Slot(head.reply_to);
                } else {
                    visit.stream_next = NOT_STREAMED;
                }
                self.count_work(head.scope);
            }
        }
        let reason = if is_full {
            Rejection::NodeBusy
        } else if visit.hops > visit.hop_limit {
            Rejection::HopLimit
        } else if visit.deadline <= now {
            Rejection::TooLate
        } else {
            return Ok(visit);
        };
        let failed = Failed {
            status: Status::Rejected(reason),
            detail: Vec::new(),
            answer: None,
        };
        Err(self.end(visit, Err(Box::new(failed)), now))
    }

    /// An invocation cannot run: the connection or the driver rejects it.
    pub fn reject(&mut self, from: Arrival<O>, head: &TravelHead, failed: Box<Failed>, now: u64) -> Ended<O> {
        match self.arrive(from, head, now) {
            Ok(visit) => self.end(visit, Err(failed), now),
            Err(ended) => ended,
        }
    }

    /// The next invocation that this node sent itself, to be run.
    pub fn next_local(&mut self, now: u64) -> Option<Local<I, O>> {
        while let Some(message) = self.local.pop_front() {
            self.bytes -= message.size();
            let Message {
                image,
                mut head,
                deadline,
                payload,
            } = message;
            head.deadline = U64::new(left(deadline, now));
            if let Ok(visit) = self.arrive(Arrival::Node(self.me()), &head, now) {
                return Some(Local {
                    image,
                    payload,
                    visit,
                });
            }
        }
        None
    }

    /// Whether [`next_local`](Self::next_local) has an invocation.
    #[must_use]
    pub fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Sends another invocation, of an image. It leaves when the visit ends.
    ///
    /// # Errors
    /// Why it is not sent. The visit goes on.
    pub fn send(
        &mut self,
        visit: &mut Visit<I, O>,
        to: u32,
        image: I,
        payload: &[u8],
    ) -> Result<(), TravelError> {
        self.may_post(visit, to, payload.len())?;
        self.add_message(visit, to, image, payload);
        Ok(())
    }

    /// Forwards the invocation: another one takes over the obligation to answer. It leaves when the visit ends.
    ///
    /// # Errors
    /// Why it is not forwarded. The visit goes on, with its obligation.
    pub fn forward(
        &mut self,
        visit: &mut Visit<I, O>,
        to: u32,
        image: I,
        payload: &[u8],
    ) -> Result<(), TravelError> {
        if visit.is_forwarded() {
            return Err(TravelError::Ended);
        }
        if matches!(visit.answers, Answers::Source { .. }) && self.slots.len() >= self.config.max_slots {
            return Err(TravelError::Busy);
        }
        self.may_post(visit, to, payload.len())?;
        visit.forwarded = Some(visit.sent.len());
        self.add_message(visit, to, image, payload);
        Ok(())
    }

    /// Sends a partial answer. It leaves when the visit ends.
    ///
    /// # Errors
    /// Why it is not sent. After `Window` the invocation may forward itself to its own node: it goes on when the source has
    /// taken enough.
    pub fn reply_partially(&mut self, visit: &mut Visit<I, O>, answer: &[u8]) -> Result<(), TravelError> {
        if visit.is_forwarded() {
            return Err(TravelError::Ended);
        }
        if visit.stream_next == NOT_STREAMED || visit.stream_window as usize <= visit.partials.len() {
            return Err(TravelError::Window);
        }
        if answer.len() > self.config.max_answer.min(visit.max_answer as usize) {
            return Err(TravelError::TooLarge);
        }
        visit.partials.push(answer.to_vec());
        Ok(())
    }

    /// Whether a message may be added, and counts it in the outbox.
    fn may_post(&mut self, visit: &Visit<I, O>, to: u32, payload: usize) -> Result<(), TravelError> {
        let number = self.config.number.ok_or(TravelError::NoGroup)?;
        if to != number && self.members.get(to).is_none_or(|member| member.is_lost()) {
            return Err(TravelError::NoNode);
        }
        if visit.hops >= visit.hop_limit {
            return Err(TravelError::HopLimit);
        }
        if payload > self.config.max_payload {
            return Err(TravelError::TooLarge);
        }
        let size = size_of(payload);
        let sent = visit.sent.len() - usize::from(visit.is_forwarded());
        let needs_scope = visit.scope.is_some() && visit.weight < sent as u64 + 3;
        if self.bytes.saturating_add(size) > self.config.outbox_bytes
            || needs_scope && self.scopes.len() >= self.config.max_scopes
        {
            return Err(TravelError::Busy);
        }
        self.bytes += size;
        Ok(())
    }

    /// Adds a message to what the visit sends when it ends.
    fn add_message(&mut self, visit: &mut Visit<I, O>, to: u32, image: I, payload: &[u8]) {
        let head = TravelHead {
            reply_to: SlotRef::NONE,
            scope: SlotRef::NONE,
            weight: U64::ZERO,
            deadline: U64::MAX_VALUE,
            hops: U16::new(visit.hops + 1),
            hop_limit: U16::new(visit.hop_limit),
            max_answer: U32::new(visit.max_answer),
            stream_next: U32::new(NOT_STREAMED),
            stream_window: U32::ZERO,
        };
        if visit.sent.capacity() == 0 {
            visit.sent = self.spare.list();
        }
        let message = Message {
            image,
            head,
            deadline: visit.deadline,
            payload: self.spare.copy(payload),
        };
        visit.sent.push((to, message));
    }

    /// The invocation ended. What it sent leaves, and its outcome: an answer, `None` without one, or a failure.
    ///
    /// One that was forwarded has no answer; if it has one all the same, or failed, the call ends with that failure and what
    /// was forwarded is dropped.
    pub fn end(
        &mut self,
        visit: Visit<I, O>,
        outcome: Result<Option<&[u8]>, Box<Failed>>,
        now: u64,
    ) -> Ended<O> {
        self.now = now;
        let Visit {
            answers,
            is_from_source,
            scope,
            weight,
            deadline,
            max_answer,
            stream_next,
            stream_window,
            mut sent,
            mut forwarded,
            partials,
            ..
        } = visit;
        let answers = match answers {
            Answers::Source { connection, .. } if self.ended_connections.contains(&connection) => {
                Answers::Nowhere
            }
            answers => answers,
        };
        let mut outcome = match outcome {
            Ok(Some(_)) if forwarded.is_some() => Err(ended_twice()),
            Ok(Some(answer)) if answer.len() > max_answer as usize => Err(too_long(answer.len(), max_answer)),
            Ok(Some(answer))
                if matches!(answers, Answers::Slot(_)) && answer.len() > self.config.max_answer =>
            {
                Err(too_long_for_nodes(answer.len(), &self.config))
            }
            outcome => outcome,
        };
        if outcome.is_err()
            && let Some(dropped) = forwarded.take()
        {
            self.bytes -= sent.remove(dropped).1.size();
        }
        let next = if stream_next == NOT_STREAMED {
            NOT_STREAMED
        } else {
            stream_next + partials.len() as u32
        };
        let status = outcome
            .as_ref()
            .err()
            .map(|failed| (failed.status, &failed.detail[..]));
        let has_failed = status.is_some();
        let mut report = ScopeReport::default();
        match status {
            None => report.executed = 1,
            Some((status, detail)) => report.fail(self.me(), status, detail),
        }
        let mut forwarded = forwarded.map(|index| &mut sent[index].1);
        let has_forwarded = forwarded.is_some();
        let ended = match (&mut forwarded, answers) {
            (_, Answers::Nowhere) => match outcome {
                Err(failed) if is_from_source && !scope.is_some() => Ended::Here {
                    origin: None,
                    failed: Some(failed),
                },
                _ if is_from_source && !has_forwarded => Ended::Here {
                    origin: None,
                    failed: None,
                },
                _ => Ended::Elsewhere,
            },
            (
                Some(forwarded),
                Answers::Source {
                    connection,
                    token,
                    origin,
                },
            ) => {
                let window = stream_window - partials.len() as u32;
                self.partial_events(&origin, stream_next, partials);
                let slot = Slot::new(origin, connection, token, max_answer, deadline, self.lost_count);
                forwarded.head.reply_to = self.open_slot(slot, next, window);
                set_stream(&mut forwarded.head, next, window);
                if self.cancelled.contains(&(connection, token)) {
                    self.cancel(connection, token);
                }
                Ended::Elsewhere
            }
            (Some(forwarded), Answers::Slot(slot)) => {
                let window = stream_window - partials.len() as u32;
                self.reply_partials(slot, stream_next, &partials);
                forwarded.head.reply_to = slot;
                set_stream(&mut forwarded.head, next, window);
                Ended::Elsewhere
            }
            (None, Answers::Source { origin, .. }) if partials.is_empty() => Ended::Here {
                origin: Some(origin),
                failed: outcome.err(),
            },
            (None, Answers::Source { origin, .. }) => {
                self.partial_events(&origin, stream_next, partials);
                let answer = outcome.map(|answer| answer.unwrap_or_default().to_vec());
                let node = self.me();
                self.events.push_back(Event::Answer {
                    origin,
                    node,
                    outcome: answer,
                });
                Ended::Elsewhere
            }
            (None, Answers::Slot(slot)) => {
                self.reply_partials(slot, stream_next, &partials);
                let answer = outcome.as_mut().map(|answer| answer.unwrap_or_default());
                self.reply(slot, next, answer.map_err(|failed| &**failed));
                Ended::Elsewhere
            }
        };
        if is_from_source {
            self.visits = self.visits.saturating_sub(1);
            if self.visits == 0 {
                self.cancelled.clear();
            }
        }
        debug_assert!(!has_failed || !has_forwarded, "a failure is not forwarded");
        self.divide(scope, weight, &mut sent, &report, now);
        for (to, message) in sent.drain(..) {
            self.post(to, message, now);
        }
        self.spare.keep_list(sent);
        ended
    }

    fn partial_events(&mut self, origin: &O, first: u32, partials: Vec<Vec<u8>>) {
        for (answer, number) in partials.into_iter().zip(first..) {
            self.events.push_back(Event::Partial {
                origin: origin.clone(),
                number,
                answer,
            });
        }
    }

    fn reply_partials(&mut self, slot: SlotRef, first: u32, partials: &[Vec<u8>]) {
        for (answer, index) in partials.iter().zip(first..) {
            self.reply_with(slot, index, false, Status::Executed, answer);
        }
    }
}

/// Nanoseconds until a deadline.
pub(super) fn left(deadline: u64, now: u64) -> u64 {
    if deadline == u64::MAX {
        u64::MAX
    } else {
        deadline.saturating_sub(now)
    }
}

fn set_stream(head: &mut TravelHead, next: u32, window: u32) {
    if next != NOT_STREAMED {
        head.stream_next = U32::new(next);
        head.stream_window = U32::new(window);
    }
}

#[cold]
fn ended_twice() -> Box<Failed> {
    Box::new(Failed {
        status: Status::Failed(Failure::EndedTwice),
        detail: Vec::new(),
        answer: None,
    })
}

#[cold]
fn too_long_for_nodes(len: usize, config: &NodeConfig) -> Box<Failed> {
    let limit = config.max_answer;
    let help = if limit < config.outbox_bytes / 4 {
        "`answer_bytes` of the quotas in this target's policy"
    } else {
        "`Target::builder().outbox(..)`, of which an answer may have a quarter"
    };
    let detail = format!(
        "an answer of {len} bytes that goes to another node, the limit is {limit}; help: {help}, or answer in parts (`ctx.reply`)"
    );
    Box::new(Failed::new(Status::Failed(Failure::Answer), detail.into_bytes()))
}

/// An answer that is longer than the source takes, or than its first target lets it have.
#[cold]
pub(super) fn too_long(len: usize, limit: u32) -> Box<Failed> {
    let detail = format!(
        "an answer of {len} bytes, the limit is {limit}; help: `SourceOptions::max_answer` on the source, and `answer_bytes` of the quotas in \
         the policy of its target"
    );
    Box::new(Failed::new(Status::Failed(Failure::Answer), detail.into_bytes()))
}
