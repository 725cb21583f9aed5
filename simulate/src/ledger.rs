//! The oracle: what was submitted, sent and run, whatever the connections remember of it.

use std::fmt;

use ifunc_abi::frame::Kind;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_proto::DUPLEX_CALLS;
use ifunc_proto::caller::Image;
use ifunc_proto::calls::{Completion, Lost, Outcome};

use crate::image::SentImage;
use crate::link::Commit;
use crate::rng::mix;

/// Why a target gives up the answers that wait.
pub(crate) const GIVEN_UP: &str = "too slow";

/// Whether a target gave up the answer of a call.
pub(crate) fn is_given_up(completion: &Completion) -> bool {
    completion.status == Status::Failed(Failure::Answer) && completion.bytes() == GIVEN_UP.as_bytes()
}

/// What a connection promised and did not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The promise.
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        Self { rule, detail }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// Whether an invocation that reaches its target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Runs,
    /// The target refuses the image.
    Refused,
    /// The target binds no such handle.
    NoHandle,
}

/// What the host makes of an invocation. A function of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Answers with this many bytes, or as many as are allowed.
    Answer(usize),
    /// Ends with this status, and a detail of this many bytes.
    Fail(Status, usize),
}

impl Plan {
    pub(crate) fn of(id: u32) -> Self {
        let hash = mix(u64::from(id) ^ 0xabcd);
        let len = match hash >> 8 & 7 {
            0 | 1 => 0,
            2 | 3 => 8,
            4 => 30,
            5 => 700,
            6 => 90,
            _ => usize::MAX,
        };
        match hash & 15 {
            0 => Self::Fail(Status::Failed(Failure::Payload), 4 + len.min(40)),
            1 => Self::Fail(Status::Failed(Failure::HostPanic), 4),
            2 => Self::Fail(Status::Rejected(Rejection::Resources), 4 + len.min(2000)),
            _ => Self::Answer(len),
        }
    }
}

/// Writes the payload, answer or detail of an invocation: its number, as far as it fits, and a pattern.
pub(crate) fn write_bytes(out: &mut [u8], id: u32) {
    let (head, rest) = out.split_at_mut(out.len().min(4));
    head.copy_from_slice(&id.to_le_bytes()[..head.len()]);
    let first = mix(u64::from(id)) as usize;
    for (at, byte) in rest.iter_mut().enumerate() {
        *byte = (first + at * 5 + (at >> 8)) as u8;
    }
}

/// Whether the bytes are what [`write_bytes`] writes.
pub(crate) fn are_bytes(bytes: &[u8], id: u32) -> bool {
    let (head, rest) = bytes.split_at(bytes.len().min(4));
    let first = mix(u64::from(id)) as usize;
    head == &id.to_le_bytes()[..head.len()]
        && rest
            .iter()
            .enumerate()
            .all(|(at, &byte)| byte == (first + at * 5 + (at >> 8)) as u8)
}

/// An invocation.
#[derive(Debug)]
pub(crate) struct Record {
    /// The port that submitted it.
    pub(crate) port: usize,
    pub(crate) image: SentImage,
    pub(crate) len: usize,
    pub(crate) wants_completion: bool,
    /// The connection took it.
    pub(crate) is_accepted: bool,
    /// How often it was sent, and last over which link, in which frame.
    pub(crate) sent: u8,
    pub(crate) link: usize,
    sequence: u32,
    pub(crate) admission: Admission,
    pub(crate) runs: u8,
    run_links: [usize; 2],
    /// Length of the answer, or of the detail, that its last run gave over `link`.
    answer: Option<usize>,
    /// Its target gave its answer up before it was sent.
    may_be_given_up: bool,
    /// A report named it.
    is_reported: bool,
    /// It ended, and was not sent.
    is_over: bool,
}

/// One direction of a link, as a source's requests pass it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Handles that the target binds.
    pub(crate) max_handles: usize,
    /// Memory that an invocation is lent for its answer.
    pub(crate) answer_room: usize,
    /// Length of the longest answer.
    pub(crate) max_answer: usize,
    pub(crate) is_duplex: bool,
    pub(crate) is_dead: bool,
    /// Invocations that were sent: frame and number.
    sent: Vec<(u32, u32)>,
    /// So many of them were consumed when the last flush completed.
    confirmed: usize,
    last_run: Option<u32>,
    /// Calls without a completion.
    tokens: Vec<u64>,
    /// Sends among `sent`, and the last one.
    sends: usize,
    last_send: Option<u32>,
    /// Rejected sends among the confirmed ones.
    rejected: usize,
}

/// Reports that a port may expect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// Most that may have been made.
    pub(crate) made: usize,
    pub(crate) taken: usize,
    /// More may have been kept than a connection keeps: some may be missing.
    pub(crate) may_miss: bool,
    /// Links that died with sends that may have been lost, and those on which one certainly was.
    lost_allowed: usize,
    lost_owed: usize,
    lost_seen: usize,
    /// Reports of rejected images and handles.
    rejected_seen: usize,
    rejected_allowed: usize,
}

impl Reports {
    fn make(&mut self) {
        self.made += 1;
        self.may_miss |= self.made - self.taken.min(self.made) >= 64;
    }
}

/// A port, as far as the oracle knows it.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Accepted invocations that were not sent.
    pub(crate) unsent: Vec<u32>,
    pub(crate) reports: Reports,
}

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) records: Vec<Record>,
    /// Two for each link: requests of side 0, requests of side 1.
    pub(crate) lanes: Vec<Lane>,
    /// One for each port.
    pub(crate) accounts: Vec<Account>,
    pub(crate) violation: Option<Violation>,
}

/// The lane of the requests that a side of a link sends.
pub(crate) fn lane(link: usize, side: usize) -> usize {
    2 * link + side
}

impl Ledger {
    #[cold]
    pub(crate) fn fail(&mut self, rule: &'static str, detail: impl fmt::Display) {
        if self.violation.is_none() {
            self.violation = Some(Violation::new(rule, detail));
        }
    }

    pub(crate) fn add_lane(
        &mut self,
        max_handles: usize,
        answer_room: usize,
        max_answer: usize,
        is_duplex: bool,
    ) {
        self.lanes.push(Lane {
            max_handles,
            answer_room,
            max_answer,
            is_duplex,
            is_dead: false,
            sent: Vec::new(),
            confirmed: 0,
            last_run: None,
            tokens: Vec::new(),
            sends: 0,
            last_send: None,
            rejected: 0,
        });
    }

    /// An invocation is about to be submitted. Returns its number.
    pub(crate) fn add(&mut self, port: usize, image: SentImage, len: usize, wants_completion: bool) -> u32 {
        self.records.push(Record {
            port,
            image,
            len,
            wants_completion,
            is_accepted: false,
            sent: 0,
            link: usize::MAX,
            sequence: 0,
            admission: Admission::Runs,
            runs: 0,
            run_links: [usize::MAX; 2],
            answer: None,
            may_be_given_up: false,
            is_reported: false,
            is_over: false,
        });
        (self.records.len() - 1) as u32
    }

    pub(crate) fn accept(&mut self, id: u32) {
        let record = &mut self.records[id as usize];
        record.is_accepted = true;
        let account = &mut self.accounts[record.port];
        account.unsent.push(id);
        // A batch may hold more sends than a connection keeps reports: some are missing if it is never sent.
        account.reports.may_miss |= account.unsent.len() >= 64;
    }

    /// A port sent a frame over side `side` of a link.
    pub(crate) fn sent(&mut self, port: usize, link: usize, side: usize, commit: &Commit) {
        match commit.kind {
            Kind::Exec => self.sent_invocation(port, link, side, commit),
            Kind::Sync | Kind::Stats => self.began(lane(link, side), commit.token),
            Kind::Completion => {
                let tokens = &mut self.lanes[lane(link, 1 - side)].tokens;
                match tokens.iter().position(|&token| token == commit.token) {
                    Some(index) => drop(tokens.swap_remove(index)),
                    None => self.fail("a call completes once", format_args!("{commit:?}")),
                }
            }
            _ => {}
        }
    }

    fn began(&mut self, lane: usize, token: u64) {
        let lane = &mut self.lanes[lane];
        lane.tokens.push(token);
        let under_way = lane.tokens.len();
        if lane.is_duplex && under_way > DUPLEX_CALLS {
            self.fail("calls under way are bounded", format_args!("{under_way} calls"));
        }
    }

    fn sent_invocation(&mut self, port: usize, link: usize, side: usize, commit: &Commit) {
        let unsent = &mut self.accounts[port].unsent;
        let records = &self.records;
        let position = match commit.id {
            Some(id) => unsent.iter().position(|&other| other == id),
            None => unsent.iter().position(|&id| {
                let record = &records[id as usize];
                record.len == commit.len && record.wants_completion == (commit.token != 0)
            }),
        };
        let id = match (position, commit.id) {
            (Some(index), _) => unsent.remove(index),
            (None, Some(id)) if (id as usize) < records.len() => id,
            _ => return self.fail("only what was accepted is sent", format_args!("{commit:?}")),
        };
        let at = lane(link, side);
        let lane = &mut self.lanes[at];
        let record = &mut self.records[id as usize];
        let is_first = record.sent == 0;
        let may_repeat = record.image.is_idempotent() && record.wants_completion && record.link != link;
        let is_known =
            record.is_accepted && !record.is_over && record.port == port && record.len == commit.len;
        let in_order = lane.sent.last().is_none_or(|&(_, last)| last < id);
        record.sent = record.sent.saturating_add(1);
        record.link = link;
        record.sequence = commit.sequence;
        record.answer = None;
        record.may_be_given_up = false;
        // The handles of an image are bound together, or none of them is.
        let SentImage { image, entry } = record.image;
        let end = commit.handle as usize + usize::from(image.entries - entry);
        record.admission = if end > lane.max_handles {
            Admission::NoHandle
        } else if image.is_refused {
            Admission::Refused
        } else {
            Admission::Runs
        };
        let sent = record.sent;
        let wants_completion = record.wants_completion;
        lane.sent.push((commit.sequence, id));
        if !wants_completion {
            lane.sends += 1;
            lane.last_send = Some(id);
            let fails = record.admission != Admission::Runs || matches!(Plan::of(id), Plan::Fail(..));
            let reports = &mut self.accounts[port].reports;
            if record.admission != Admission::Runs {
                reports.rejected_allowed += 1;
            }
            if fails {
                reports.make();
            }
        }
        if !is_known {
            self.fail(
                "only what was accepted is sent",
                format_args!("number {id}: {commit:?}"),
            );
        } else if sent > 2 || !is_first && !may_repeat {
            self.fail(
                "an invocation is sent once, and once more if it may run twice",
                format_args!("number {id}"),
            );
        } else if !in_order {
            self.fail("invocations are sent in order", format_args!("number {id}"));
        } else if wants_completion != (commit.token != 0) {
            self.fail(
                "an invocation has a token if it wants a completion",
                format_args!("number {id}"),
            );
        } else if wants_completion {
            self.began(at, commit.token);
        }
    }

    /// An image runs on a payload that came over the lane. Returns the invocation's number.
    pub(crate) fn run(
        &mut self,
        lane: usize,
        image: SentImage,
        sequence: u32,
        payload: &[u8],
    ) -> Option<u32> {
        let sent = &self.lanes[lane].sent;
        let id = match payload.first_chunk() {
            Some(head) => u32::from_le_bytes(*head),
            None => {
                // A payload that is too short for its number is found by its frame.
                let from = sent.partition_point(|&(frame, _)| frame < sequence);
                let mut here = sent[from..].iter().take_while(|&&(frame, _)| frame == sequence);
                let records = &self.records;
                let link = lane / 2;
                let next = here.find(|&&(_, id)| {
                    let record = &records[id as usize];
                    record.len == payload.len()
                        && record.image.key() == image.key()
                        && !record.run_links.contains(&link)
                });
                match next {
                    Some(&(_, id)) => id,
                    None => {
                        self.fail(
                            "only what was sent runs, and once",
                            format_args!("frame {sequence}"),
                        );
                        return None;
                    }
                }
            }
        };
        let Some(record) = self.records.get_mut(id as usize) else {
            self.fail(
                "a payload arrives as it was sent",
                format_args!("frame {sequence}"),
            );
            return None;
        };
        let is_sent_here = record.link == lane / 2 && record.sequence == sequence || record.sent > 1;
        let is_again = record.run_links.contains(&(lane / 2)) || record.runs >= record.sent;
        let is_whole = record.len == payload.len() && are_bytes(payload, id);
        let is_its_image = record.image.key() == image.key();
        let is_admitted = record.admission == Admission::Runs;
        record.runs = record.runs.saturating_add(1);
        record.run_links = [record.run_links[1], lane / 2];
        let last = self.lanes[lane].last_run.replace(id);
        if !is_sent_here || is_again {
            self.fail(
                "only what was sent runs, and once",
                format_args!("number {id}, frame {sequence}"),
            );
        } else if !is_whole {
            self.fail(
                "a payload arrives as it was sent",
                format_args!("number {id}, frame {sequence}"),
            );
        } else if !is_its_image {
            self.fail(
                "an invocation runs the entry that it was sent to",
                format_args!("number {id}"),
            );
        } else if !is_admitted {
            self.fail("what is refused does not run", format_args!("number {id}"));
        } else if last.is_some_and(|last| last >= id) {
            self.fail(
                "invocations run in order",
                format_args!("number {id} after {last:?}"),
            );
        }
        Some(id)
    }

    /// The run gave an answer or a detail of `len` bytes.
    pub(crate) fn answered(&mut self, id: u32, link: usize, len: usize) {
        let record = &mut self.records[id as usize];
        if record.link == link {
            record.answer = Some(len);
        }
    }

    /// The target of a lane gives up the answers that it has begun to send, or that wait.
    pub(crate) fn gave_up_answers(&mut self, lane: usize) {
        for &(_, id) in &self.lanes[lane].sent {
            let record = &mut self.records[id as usize];
            record.may_be_given_up |= record.link == lane / 2 && record.answer.is_some_and(|len| len > 0);
        }
    }

    fn was_processed(&self, id: u32, link: usize) -> bool {
        let record = &self.records[id as usize];
        record.admission != Admission::Runs || record.run_links.contains(&link)
    }

    /// A flush completed whose frame was `sequence`.
    pub(crate) fn flushed(&mut self, lane: usize, sequence: u32) {
        let link = lane / 2;
        let from = self.lanes[lane].confirmed;
        let before = self.lanes[lane].sent[from..]
            .iter()
            .take_while(|&&(frame, _)| frame < sequence)
            .count();
        let port = self.lanes[lane]
            .sent
            .first()
            .map(|&(_, id)| self.records[id as usize].port);
        for index in from..from + before {
            let (_, id) = self.lanes[lane].sent[index];
            let record = &self.records[id as usize];
            let may_miss = self.accounts[record.port].reports.may_miss;
            if !self.was_processed(id, link) {
                self.fail(
                    "a flush completes after everything before it",
                    format_args!("number {id} did not run"),
                );
            } else if !record.wants_completion {
                if record.admission != Admission::Runs {
                    self.lanes[lane].rejected += 1;
                } else if matches!(Plan::of(id), Plan::Fail(..))
                    && record.len >= 4
                    && !record.is_reported
                    && !may_miss
                {
                    self.fail(
                        "a flush completes after the reports before it",
                        format_args!("number {id}"),
                    );
                }
            }
        }
        self.lanes[lane].confirmed += before;
        if let Some(port) = port {
            let reports = &self.accounts[port].reports;
            if !reports.may_miss && reports.rejected_seen < self.lanes[lane].rejected {
                self.fail(
                    "a flush completes after the reports before it",
                    "a rejection is missing",
                );
            }
        }
    }

    /// A port lost its link.
    pub(crate) fn lost(&mut self, port: usize, link: usize, side: usize) {
        let at = lane(link, side);
        let lane = &mut self.lanes[at];
        lane.is_dead = true;
        let Some(last) = lane.last_send else { return };
        let is_processed = self.was_processed(last, link);
        let reports = &mut self.accounts[port].reports;
        reports.lost_allowed += 1;
        reports.lost_owed += usize::from(!is_processed);
        reports.make();
    }

    /// A call ended.
    pub(crate) fn ended(&mut self, id: u32, outcome: &Outcome) {
        let record = &self.records[id as usize];
        let is_lost_link = record.link != usize::MAX
            && (self.lanes[2 * record.link].is_dead || self.lanes[2 * record.link + 1].is_dead);
        let (runs, sent, len) = (record.runs, record.sent, record.len as u64);
        let problem = match outcome {
            Ok(completion) => self.completed(id, completion),
            Err(lost) => match &**lost {
                Lost::NotSent { .. } => (sent > 0 || runs > 0).then_some("it was sent"),
                Lost::Indeterminate => (sent == 0 || !is_lost_link).then_some("its link did not die"),
                Lost::PayloadTooLarge { len: stated, limit } => {
                    (*stated != len || len <= *limit).then_some("its payload is accepted")
                }
                Lost::ImageTooLarge { len: stated, limit } => {
                    (stated <= limit).then_some("its image is accepted")
                }
                Lost::NoSlice { .. } => Some("its image runs everywhere"),
                Lost::AtNode { .. } => Some("it did not travel"),
                Lost::AnswersTooLarge { .. } => Some("answers have no limit"),
            },
        };
        if let Some(problem) = problem {
            let detail = format!("number {id} ended with {outcome:?}: {problem}");
            self.fail("a call ends with its own status", detail);
        }
        if sent == 0 {
            self.records[id as usize].is_over = true;
            let port = self.records[id as usize].port;
            self.accounts[port].unsent.retain(|&other| other != id);
        }
    }

    /// What is wrong with a completion.
    fn completed(&self, id: u32, completion: &Completion) -> Option<&'static str> {
        let record = &self.records[id as usize];
        if record.sent == 0 {
            return Some("it was not sent");
        }
        let planned = match record.admission {
            Admission::Runs if record.runs == 0 => return Some("it did not run"),
            Admission::Runs => Plan::of(id),
            Admission::Refused => Plan::Fail(Status::Rejected(Rejection::Policy), 0),
            Admission::NoHandle => Plan::Fail(Status::Rejected(Rejection::TooLarge), 0),
        };
        let bytes = completion.bytes();
        match planned {
            Plan::Answer(_) if record.may_be_given_up && is_given_up(completion) => None,
            Plan::Fail(status, _) if completion.status != status => Some("another status"),
            Plan::Fail(..) if record.admission != Admission::Runs => None,
            Plan::Fail(..) if !are_bytes(bytes, id) || bytes.len() < 4 => Some("another detail"),
            Plan::Fail(..) => None,
            Plan::Answer(_) if completion.status != Status::Executed => Some("another status"),
            Plan::Answer(_) if record.answer != Some(bytes.len()) => Some("another length"),
            Plan::Answer(_) => (!are_bytes(bytes, id)).then_some("another answer"),
        }
    }

    /// A port took a report.
    pub(crate) fn reported(&mut self, port: usize, image: SentImage, outcome: &Outcome) {
        let reports = &mut self.accounts[port].reports;
        reports.taken += 1;
        let problem = match outcome {
            Ok(completion) => match completion.status {
                Status::Executed => Some("nothing failed"),
                Status::Rejected(Rejection::Policy | Rejection::TooLarge) => {
                    reports.rejected_seen += 1;
                    (reports.rejected_seen > reports.rejected_allowed).then_some("nothing was rejected")
                }
                _ => self.reported_failure(port, image, completion),
            },
            Err(lost) => match &**lost {
                Lost::Indeterminate => {
                    reports.lost_seen += 1;
                    (reports.lost_seen > reports.lost_allowed).then_some("no send was lost")
                }
                Lost::PayloadTooLarge { len, .. } => self.reported_unsent(port, image, Some(*len as usize)),
                _ => self.reported_unsent(port, image, None),
            },
        };
        if let Some(problem) = problem {
            let detail = format!("entry {:?}, {outcome:?}: {problem}", image.key());
            self.fail("a report is about a send that failed", detail);
        }
    }

    fn reported_failure(
        &mut self,
        port: usize,
        image: SentImage,
        completion: &Completion,
    ) -> Option<&'static str> {
        let bytes = completion.bytes();
        let Some(head) = bytes.first_chunk() else {
            return Some("its detail is cut off");
        };
        let id = u32::from_le_bytes(*head);
        let Some(record) = self.records.get_mut(id as usize) else {
            return Some("its detail is not what the host said");
        };
        if record.port != port || record.wants_completion || !are_bytes(bytes, id) {
            return Some("its detail is not what the host said");
        }
        if record.image.key() != image.key() {
            return Some("it names another entry");
        }
        if !matches!(Plan::of(id), Plan::Fail(status, _) if status == completion.status) {
            return Some("it has another status");
        }
        std::mem::replace(&mut record.is_reported, true).then_some("it was reported before")
    }

    /// A send that was not sent: one that was accepted, with this image and this length, if it is known.
    fn reported_unsent(&mut self, port: usize, image: SentImage, len: Option<usize>) -> Option<&'static str> {
        let unsent = &mut self.accounts[port].unsent;
        let index = unsent.iter().position(|&id| {
            let record = &self.records[id as usize];
            !record.wants_completion
                && record.image.key() == image.key()
                && len.is_none_or(|len| len == record.len)
        });
        match index {
            Some(index) => {
                let id = unsent.remove(index);
                self.records[id as usize].is_over = true;
                None
            }
            None => Some("every send was sent"),
        }
    }

    /// A port has nothing under way, and took all reports.
    pub(crate) fn rested(&mut self, port: usize) {
        let account = &self.accounts[port];
        let unsent = account.unsent.iter().copied();
        let unsent = unsent
            .filter(|&id| !self.records[id as usize].wants_completion)
            .min();
        if account.reports.may_miss {
            return;
        }
        if account.reports.lost_seen < account.reports.lost_owed {
            self.fail("a send that is lost is reported", format_args!("port {port}"));
        } else if let Some(id) = unsent {
            self.fail(
                "what was accepted is sent or reported",
                format_args!("number {id}"),
            );
        }
    }
}
