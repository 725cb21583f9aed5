//! Invocations that may travel on, on a connection of a target.

use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use ifunc_exec::services::now;
use ifunc_proto::ANSWER_ROOM;
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::host::{Event, Failed, Invocation, Refusal, ReplyTo};
use ifunc_proto::link::Body;
use ifunc_proto::node::{Arrival, Ended};

use super::Host;
use super::served::{Counted, Served, State};
use crate::source::connection::Protocol;
use crate::travel::{Mail, Origin, Visit, services};

/// An invocation that was taken out of its link.
pub(super) struct TakenVisit {
    pub(super) counted: Counted,
    pub(super) head: TravelHead,
    pub(super) reply_to: ReplyTo,
    /// Whether there was memory for its payload.
    pub(super) has_memory: Result<(), Refusal>,
}

impl<const TAKES: bool> Served<'_, '_, TAKES> {
    /// Where an invocation comes from.
    fn arrival(&self, head: &TravelHead, reply_to: &ReplyTo) -> Arrival<Origin> {
        self.state.arrival(head, reply_to)
    }

    /// Runs an invocation that has arrived. `Ok(Some)`: the length of the answer, which the peer receives over this link;
    /// `Ok(None)`: it ends elsewhere or later.
    pub(super) fn visit<B: Body>(
        &mut self,
        counted: &Counted,
        invocation: Invocation<'_, B>,
        head: &TravelHead,
        reply_to: &ReplyTo,
        answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        if let Err(refusal) = self.admits_visit(head, counted) {
            return self
                .reject_visit(head, reply_to, refusal.into())
                .map_or(Ok(None), Err);
        }
        let arrival = self.arrival(head, reply_to);
        let travels = &self.execution.host.travels;
        let visit = match travels.arrive(arrival, head) {
            Ok(visit) => visit,
            Err(ended) => return ended_here(ended, 0),
        };
        self.run_visit(counted, visit, invocation, answer)
    }

    /// Whether the source may have another invocation in flight. Nodes of the group are not asked.
    fn admits_visit(&self, head: &TravelHead, counted: &Counted) -> Result<(), Refusal> {
        let (state, travels) = (&*self.state, &self.execution.host.travels);
        if state.node_of(head).is_some() {
            return Ok(());
        }
        let connection = state.source.connection;
        let admitted = state
            .meter
            .admits_call(|count| travels.with(|node| node.has_calls(connection, count)));
        admitted.inspect_err(|refusal| state.refuse(counted, None, refusal))
    }

    /// Runs an invocation, and ends it.
    pub(super) fn run_visit<B: Body>(
        &mut self,
        counted: &Counted,
        visit: Visit,
        invocation: Invocation<'_, B>,
        mut answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Box<Failed>> {
        let (travels, size) = (&self.execution.host.travels, invocation.payload.len());
        let (visit, outcome) = services::during(travels, visit, counted.terms(), || {
            self.run(counted, invocation, answer.as_deref_mut())
        });
        let mut answered = 0;
        let mut long = None;
        let outcome = match outcome {
            Ok(len) => {
                answered = len;
                // Without a byte it says nothing beside what was forwarded.
                let is_answer = !visit.is_forwarded() || len > 0;
                let answer = answer.as_deref().filter(|_| is_answer);
                Ok(answer.and_then(|answer| answer.get(..len)))
            }
            Err(mut failed) => match failed.answer.take() {
                Some(answer) => Ok(Some(long.insert(answer).bytes())),
                None => Err(failed),
            },
        };
        let refused = outcome.as_ref().err().and_then(|failed| refused(failed));
        let ended = travels.with(|node| node.end(visit, outcome, now()));
        let ended = ended_here(ended, answered);
        self.report_elsewhere(refused, size, ended.is_err());
        match (ended, long) {
            (Ok(Some(_)), Some(answer)) => Err(Box::new(Failed::answered(answer))),
            (ended, _) => ended,
        }
    }

    /// An invocation cannot run. Returns the failure if the peer receives it over this link.
    pub(super) fn reject_visit(
        &mut self,
        head: &TravelHead,
        reply_to: &ReplyTo,
        failed: Box<Failed>,
    ) -> Option<Box<Failed>> {
        let arrival = self.arrival(head, reply_to);
        let refused = refused(&failed);
        let ended = self
            .execution
            .host
            .travels
            .with(|node| node.reject(arrival, head, failed, now()));
        let failed = ended_here(ended, 0).err();
        self.report_elsewhere(refused, reply_to.payload_len(), failed.is_some());
        failed
    }

    /// Counts and reports a refusal that is not sent over this link, and no bytes of it: another node is told, or a scope's report says so. One
    /// that is sent is counted and reported then.
    fn report_elsewhere(&self, refused: Option<(Rejection, Vec<u8>)>, payload: usize, is_sent_here: bool) {
        if let Some((reason, detail)) = refused.filter(|_| !is_sent_here) {
            let (status, state) = (Status::Rejected(reason), &*self.state);
            state.observe(Event::Failed {
                status,
                payload,
                detail: 0,
            });
            state.refused(reason, &detail);
        }
    }

    /// Runs the invocation that was taken. `None`: nothing is to be sent over this link.
    pub(super) fn run_taken_visit(
        &mut self,
        taken: TakenVisit,
        payload: &[u8],
        answer: &mut AlignedBuffer,
    ) -> Option<(ReplyTo, Result<usize, Box<Failed>>)> {
        let TakenVisit {
            counted,
            head,
            reply_to,
            has_memory,
        } = taken;
        if let Err(refusal) = has_memory {
            let failed = self.reject_visit(&head, &reply_to, refusal.into())?;
            return Some((reply_to, Err(failed)));
        }
        let invocation = reply_to.invocation(payload);
        // What nodes send has no completion over this link: the answer goes to a slot.
        let limit = self.execution.host.travels.max_answer();
        let max_answer = match self.state.node_of(&head) {
            Some(_) => head
                .reply_to
                .is_some()
                .then(|| limit.min(head.max_answer.get() as usize).min(ANSWER_ROOM)),
            None => reply_to.max_answer(),
        };
        answer.resize(max_answer.unwrap_or(0));
        let room = max_answer.map(|_| answer.as_mut_slice());
        let outcome = self.visit(&counted, invocation, &head, &reply_to, room);
        match outcome {
            Ok(Some(len)) => Some((reply_to, Ok(len))),
            Ok(None) => None,
            Err(failed) => Some((reply_to, Err(failed))),
        }
    }
}

/// What a peer receives over its own link.
fn ended_here(ended: Ended<Origin>, answered: usize) -> Result<Option<usize>, Box<Failed>> {
    match ended {
        Ended::Here { failed: None, .. } => Ok(Some(answered)),
        Ended::Here {
            failed: Some(failed), ..
        } => Err(failed),
        Ended::Elsewhere => Ok(None),
    }
}

impl State {
    /// The node that sent or forwarded an invocation; `None`: a source did, also over the link of a node to whose process it
    /// belongs.
    fn node_of(&self, head: &TravelHead) -> Option<u32> {
        self.node.filter(|_| !head.is_of_source())
    }

    fn arrival(&self, head: &TravelHead, reply_to: &ReplyTo) -> Arrival<Origin> {
        match self.node_of(head) {
            Some(node) => Arrival::Node(node),
            None => Arrival::Source {
                connection: self.source.connection,
                token: reply_to.token(),
                origin: reply_to.max_answer().map(|_| self.origin(reply_to.clone())),
                max_answer: reply_to.longest_answer(),
            },
        }
    }

    pub(super) fn origin(&self, reply_to: ReplyTo) -> Origin {
        Origin {
            connection: self.source.connection,
            link: self.link,
            reply_to,
        }
    }
}

/// Sends over a source's connection what other nodes reported for it.
pub(super) fn deliver<L: ifunc_proto::link::Link>(
    protocol: &mut Protocol,
    link: &mut L,
    state: &State,
    mail: Vec<Mail>,
) {
    let mut counts = super::served::Counts(state);
    for mail in mail {
        let is_current = |origin: &Origin| origin.link == state.link && protocol.is_linked();
        match mail {
            Mail::Answer {
                origin,
                node,
                outcome,
            } if is_current(&origin) => {
                failpoint!("node.relay");
                match node {
                    None => {
                        let (answer, failed) = match outcome {
                            Ok(answer) => (answer, None),
                            Err(failed) => (Vec::new(), Some(failed)),
                        };
                        let outcome = failed.map_or(Ok(&answer[..]), Err);
                        protocol.answer(link, &mut counts, &origin.reply_to, outcome);
                    }
                    Some(node) => {
                        let outcome = match &outcome {
                            Ok(answer) => Ok(&answer[..]),
                            Err(failed) => Err(&**failed),
                        };
                        protocol.relay(link, &mut counts, &origin.reply_to, node, outcome);
                    }
                }
            }
            Mail::Partial {
                origin,
                number,
                answer,
            } if is_current(&origin) => {
                protocol.answer_partially(link, &origin.reply_to, number, answer);
            }
            Mail::Finished { origin, report } if is_current(&origin) => {
                let mut bytes = Vec::new();
                report.encode_to(&mut bytes, origin.reply_to.max_answer().unwrap_or(usize::MAX));
                protocol.answer(link, &mut counts, &origin.reply_to, Ok(&bytes));
            }
            // Of an earlier link.
            _ => {}
        }
    }
}

impl Host {
    /// A source's connection ended.
    #[cold]
    pub(super) fn forget(&self, connection: u64) {
        self.travels.forget(connection);
    }
}

/// Why an invocation was refused, if it was.
fn refused(failed: &Failed) -> Option<(Rejection, Vec<u8>)> {
    match failed.status {
        Status::Rejected(reason) => Some((reason, failed.detail.clone())),
        _ => None,
    }
}
