//! The oracle of a group: which invocation was sent, ran and ended, whatever the nodes remember of it.

use std::fmt;

use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::ScopeReport;
use ifunc_proto::calls::{Lost, Outcome};

use crate::image::SentImage;
use crate::ledger::Violation;

/// An invocation.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The call that it is to answer.
    pub(super) call: Option<u32>,
    pub(super) scope: Option<u32>,
    /// The node on which it is to run.
    pub(super) to: usize,
    pub(super) len: usize,
    pub(super) depth: u32,
    pub(super) image: SentImage,
    /// It may travel on.
    pub(super) travels: bool,
    pub(super) runs: u32,
    /// It must not run any more: its call or scope ended without it, or it was never sent.
    pub(super) is_closed: bool,
}

/// How the last invocation of a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer that holds the invocation's number.
    Answer(usize),
    Fail(Status),
}

/// A call of a source.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The invocation that is to answer it.
    pub(super) current: u32,
    pub(super) end: Option<End>,
    /// Nodes, with their epochs, on which it was.
    pub(super) visited: Vec<(usize, u64)>,
    pub(super) deadline: u64,
    pub(super) is_streamed: bool,
    pub(super) window: u32,
    /// Partial answers that were sent, and that the source took.
    pub(super) partials: u32,
    pub(super) taken: u32,
    pub(super) is_over: bool,
    /// Its source dropped it.
    pub(super) is_dropped: bool,
}

/// A scope of a source.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) number: u32,
    pub(super) records: u64,
    pub(super) ended: u64,
    pub(super) token: Option<u64>,
    pub(super) is_over: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) records: Vec<Record>,
    pub(super) calls: Vec<Call>,
    pub(super) scopes: Vec<Scope>,
    /// The nodes that died or whose link was cut, with their epochs.
    pub(super) lost: Vec<(usize, u64)>,
    /// Nodes know only those of which they were told, or to which they had a link.
    pub(super) is_sparse: bool,
    /// Which nodes were told of which others, or had a link to them, since they last started.
    pub(super) met: std::collections::BTreeSet<(usize, usize)>,
    pub(super) runs: u64,
    /// Frames that returned weights.
    pub(super) weight_frames: u64,
    pub(super) violation: Option<Violation>,
}

impl Ledger {
    pub(super) fn fail(&mut self, rule: &'static str, detail: impl fmt::Display) {
        if self.violation.is_none() {
            self.violation = Some(Violation::new(rule, detail));
        }
    }

    /// A new invocation. Its number.
    pub(super) fn add(&mut self, record: Record) -> u32 {
        if let Some(scope) = record.scope {
            self.scopes[scope as usize].records += 1;
        }
        self.records.push(record);
        (self.records.len() - 1) as u32
    }

    /// The last invocation that was added was not sent after all.
    pub(super) fn take_back(&mut self, id: u32) {
        let record = &mut self.records[id as usize];
        record.is_closed = true;
        if let Some(scope) = record.scope.take() {
            self.scopes[scope as usize].records -= 1;
        }
    }

    /// An invocation runs.
    pub(super) fn run(&mut self, node: usize, epoch: u64, image: SentImage, payload: &[u8]) -> Option<u32> {
        self.runs += 1;
        let id = payload.first_chunk().map(|first| u32::from_le_bytes(*first))?;
        let Some(record) = self.records.get_mut(id as usize) else {
            self.fail("a payload arrives as it was sent", "an unknown number");
            return None;
        };
        record.runs += 1;
        let problem = if payload.len() != record.len || payload[4..].iter().any(|&byte| byte != id as u8) {
            Some("a payload arrives as it was sent")
        } else if record.runs > 1 {
            Some("an invocation runs at most once")
        } else if record.image.key() != image.key() {
            Some("an invocation runs the entry that it was sent to")
        } else if record.to != node {
            Some("an invocation runs on the node that it was sent to")
        } else if record.is_closed {
            Some("nothing runs after its scope has ended, or without having been sent")
        } else {
            None
        };
        let detail = format!("number {id} on node {node}: {record:?}");
        if let Some(call) = record.call {
            self.calls[call as usize].visited.push((node, epoch));
        }
        if let Some(problem) = problem {
            self.fail(problem, detail);
        }
        Some(id)
    }

    /// Whether a node does not know another one.
    pub(super) fn is_stranger(&self, node: usize, other: usize) -> bool {
        self.is_sparse && node != other && !self.met.contains(&(node, other))
    }

    /// Whether a node died, or a link of it, since a call began on it.
    fn is_lost(&self, (node, epoch): (usize, u64)) -> bool {
        self.lost.contains(&(node, epoch))
    }

    /// Whether a node died, or a link of it.
    pub(super) fn is_lost_node(&self, node: usize) -> bool {
        self.lost.iter().any(|&(other, _)| other == node)
    }

    /// A source's call ended.
    pub(super) fn call_ended(&mut self, index: u32, outcome: &Outcome, now: u64, first: usize) {
        let call = &self.calls[index as usize];
        let record = &self.records[call.current as usize];
        let is_late = now >= call.deadline;
        let visited_lost: Vec<usize> = call
            .visited
            .iter()
            .filter(|&&visited| self.is_lost(visited))
            .map(|&(node, _)| node)
            .collect();
        let is_target_lost = self.is_lost_node(record.to);
        let as_failed = |status: Status, detail: &[u8], node: usize| match status {
            Status::Failed(Failure::NodeLost) => {
                // A transport that does not know what was consumed may report a node that sent it on before.
                let names = named(detail);
                let is_named = visited_lost.iter().any(|node| names.contains(node))
                    || is_target_lost && names.contains(&record.to);
                (!is_named).then_some("the node that it was forwarded to was not lost, or is not named")
            }
            Status::Rejected(Rejection::NodeLost | Rejection::NoNode) => {
                (!is_target_lost || record.runs > 0).then_some("its node was not lost, or it ran")
            }
            Status::Failed(Failure::Indeterminate) => {
                let names = named(detail);
                let is_named = visited_lost.iter().any(|node| names.contains(node))
                    || is_target_lost && names.contains(&record.to);
                (!is_late && !is_named).then_some("no node was lost that had it, or it is not named")
            }
            Status::Rejected(Rejection::TooLate) => (!is_late).then_some("its deadline had not passed"),
            Status::Rejected(Rejection::Policy) => {
                let is_refused = record.image.image.is_refused;
                (!is_refused || record.runs > 0).then_some("its image is accepted")
            }
            Status::Rejected(Rejection::HopLimit | Rejection::NodeBusy) => None,
            Status::Rejected(Rejection::UnknownNode) => {
                let is_right = self.is_sparse && node == record.to && record.runs == 0;
                (!is_right || named(detail).len() != 1)
                    .then_some("its node knew the one that awaits the answer, or it ran")
            }
            status => {
                let is_own = call.end == Some(End::Fail(status)) && record.to == node;
                (!is_own).then_some("no invocation of it ended so")
            }
        };
        let problem = match outcome {
            Ok(completion) if completion.status == Status::Executed => {
                let expected = call.end.clone();
                let bytes = completion.bytes();
                let is_own = match expected {
                    Some(End::Answer(len)) => {
                        bytes.len() == len && bytes.iter().all(|&byte| byte == call.current as u8)
                    }
                    _ => false,
                };
                if !is_own {
                    Some("it is another answer")
                } else if call.is_streamed && call.taken != call.partials {
                    Some("partial answers are missing")
                } else {
                    None
                }
            }
            Ok(completion) => as_failed(completion.status, completion.bytes(), first),
            Err(lost) => match &**lost {
                Lost::AtNode { node, status, detail } => as_failed(*status, detail, *node as usize),
                Lost::Indeterminate | Lost::NotSent { .. } => {
                    let is_first_lost = self.is_lost_node(first);
                    (!is_first_lost).then_some("the link to its first node did not die")
                }
                _ => Some("it was accepted"),
            },
        };
        let is_twice = call.is_over;
        let detail = format!("call {index} ended with {outcome:?}: {problem:?}: {call:?}, {record:?}");
        self.calls[index as usize].is_over = true;
        if is_twice {
            self.fail("a call ends once", &detail);
        }
        if problem.is_some() {
            self.fail("a traveling call ends with its own status", detail);
        }
    }

    /// A node accepted a partial answer.
    pub(super) fn partial_sent(&mut self, index: usize) {
        let call = &mut self.calls[index];
        call.partials += 1;
        if call.partials - call.taken.min(call.partials) > call.window {
            let detail = format!("call {index}: {call:?}");
            self.fail(
                "no more partial answers are under way than the window holds",
                detail,
            );
        }
    }

    /// A source received a partial answer.
    pub(super) fn partial(&mut self, index: u32, answer: &[u8]) {
        let call = &mut self.calls[index as usize];
        let number = call.taken;
        call.taken += 1;
        let is_next = answer
            .first_chunk()
            .is_some_and(|first| u32::from_le_bytes(*first) == number);
        if !is_next || call.taken > call.partials {
            let detail = format!("call {index}: number {number} is {answer:?}: {call:?}");
            self.fail("partial answers arrive in order, each once", detail);
        }
    }

    /// A scope ended.
    pub(super) fn scope_ended(&mut self, index: u32, outcome: &Outcome, first: usize) {
        let scope = self.scopes[index as usize].clone();
        self.scopes[index as usize].is_over = true;
        let problem = match outcome {
            Ok(completion) if completion.status == Status::Executed => {
                match ScopeReport::parse(completion.bytes()) {
                    None => Some("it has no report"),
                    Some(report) if report.lost.is_empty() => {
                        let counted = report.executed + report.failed;
                        for record in &mut self.records {
                            if record.scope == Some(index) && record.runs == 0 {
                                record.is_closed = true;
                            }
                        }
                        if counted != scope.records {
                            Some("it counts other invocations than were sent")
                        } else if report.executed > scope.ended {
                            Some("it counts invocations that have not ended")
                        } else {
                            None
                        }
                    }
                    Some(report) => {
                        let lost = &self.lost;
                        let is_lost = |node: &u32| lost.iter().any(|&(other, _)| other == *node as usize);
                        (!report.lost.iter().all(is_lost)).then_some("it names a node that was not lost")
                    }
                }
            }
            Ok(_) => Some("it is refused"),
            Err(_) => {
                let is_first_lost = self.is_lost_node(first);
                (!is_first_lost).then_some("the link to its first node did not die")
            }
        };
        if let Some(problem) = problem {
            let detail = format!("scope {index} ended with {outcome:?}: {problem}: {scope:?}");
            self.fail("a scope ends when everything in it has ended", detail);
        }
    }
}

/// The numbers in a detail.
fn named(detail: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(detail);
    text.split(' ').filter_map(|number| number.parse().ok()).collect()
}
