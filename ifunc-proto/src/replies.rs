//! Replies: answers, failures and reports that this side owes the peer.

use std::collections::VecDeque;

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::refusal::AnswerBytes;
use ifunc_abi::status::Status;

use crate::buffer::AlignedBuffer;
use crate::closed::Closed;
use crate::gathered::Gathered;
use crate::host::Answers;
use crate::link::{LinkError, Outbound};
use crate::long::{Long, Owed, Sent};

#[cfg(test)]
mod tests;

/// Bytes of a failure's detail that are sent even where answers are smaller.
const DETAIL: usize = 1024;

/// Most memory that an invocation is lent for its answer. Longer answers lie in memory of their own, and travel in fragments if they
/// are larger than a frame.
pub const ANSWER_ROOM: usize = 64 << 10;

/// Calls that may be under way in one direction of a link that carries invocations both ways. It bounds what
/// the serving half keeps while the send window is closed.
pub const DUPLEX_CALLS: usize = 64;

/// Reports kept beyond that while the send window is closed. Later ones are dropped, as the peer drops those that nothing
/// reads.
const DUPLEX_REPORTS: usize = 64;

/// The status of an answer, in a header.
const EXECUTED: u32 = Status::Executed.code();

/// The replies of one connection.
///
/// On a link that carries invocations one way, a request that may be answered is processed only when its reply can be sent;
/// until then its frame stays where it is. On a link that carries invocations both ways that could block both sides for
/// ever, each on a request that lies before the other's credits. There, replies that find the send window closed are kept
/// in an outbox, bounded by the number of calls that the peer may have under way.
#[derive(Debug)]
pub(crate) struct Replies {
    /// Memory that an invocation is lent for its answer.
    max_answer: usize,
    /// Length of the longest answer.
    longest: usize,
    /// Longest body of a completion: an answer or a detail. This much is reserved before a call is processed, because what
    /// ran cannot run again for want of a reply.
    max_reply: usize,
    /// Answers are written to private memory first, where the peer cannot change them while they are written.
    is_private: bool,
    private: AlignedBuffer,
    /// Completions of batches' entries, not sent yet.
    gathered: Gathered,
    /// A report that found the window closed. It is sent after what is gathered.
    report: Option<(Header, Vec<u8>)>,
    outbox: VecDeque<Owed>,
    /// Replies to invocations that traveled. The node that holds their slots bounds them.
    late: VecDeque<Owed>,
    /// The long answer that is being sent. No other reply is sent before its last fragment.
    sending: Option<Long>,
    /// Counts what was sent of long answers.
    progress: u64,
    is_duplex: bool,
    /// Something is gathered, in the outbox, late, or a report.
    owes: bool,
    /// The peer left. What it sent is processed all the same; replies are dropped.
    is_peer_gone: bool,
}

/// Where the answer to an invocation that runs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The peer wants no answer, or is gone.
    Nowhere,
    /// Into the frame that will carry it.
    Frame,
    /// Into private memory, from where it is copied.
    Private,
}

/// Where an answer goes, and memory for it there.
type AnswerPlace<'a> = (Destination, Option<&'a mut [u8]>);

impl Replies {
    /// Answers have at most `longest` bytes. `is_private`: the peer must not see half-written answers.
    pub(crate) fn new(max_body: usize, longest: usize, is_private: bool, is_duplex: bool) -> Self {
        let max_answer = longest.min(max_body).min(ANSWER_ROOM);
        let max_reply = max_answer.max(DETAIL).min(max_body);
        Self {
            max_answer,
            longest,
            max_reply,
            is_private,
            private: AlignedBuffer::default(),
            gathered: Gathered::new(max_body, max_reply),
            report: None,
            outbox: VecDeque::new(),
            late: VecDeque::new(),
            sending: None,
            progress: 0,
            is_duplex,
            owes: false,
            is_peer_gone: false,
        }
    }

    /// Whether a request that wants a reply (`token` is not 0) can be processed now.
    #[inline]
    pub(crate) fn admits(&mut self, tx: &mut impl Outbound, token: u64) -> Result<bool, Box<Closed>> {
        if self.owes && !self.flush(tx)? {
            return self.admits_owing();
        }
        Ok(token == 0 || self.is_duplex || self.can_send(tx, self.max_reply)?)
    }

    #[cold]
    fn admits_owing(&self) -> Result<bool, Box<Closed>> {
        if self.outbox.len() > DUPLEX_CALLS + DUPLEX_REPORTS {
            return Err(Closed::broke("more calls under way than the connection allows"));
        }
        Ok(self.is_duplex)
    }

    /// Whether an entry of a batch can be processed now. Its reply is gathered, so the send window does not matter.
    pub(crate) fn admits_entry(&mut self, tx: &mut impl Outbound) -> Result<bool, Box<Closed>> {
        if self.report.is_none() && !self.gathered.is_full() && self.sending.is_none() {
            return Ok(true);
        }
        Ok(self.flush(tx)? || self.admits_owing()?)
    }

    /// Longest body of a completion.
    pub(crate) fn max_reply(&self) -> usize {
        self.max_reply
    }

    /// Whether replies wait to be sent.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes
    }

    /// Number of replies in the outbox.
    pub(crate) fn kept(&self) -> usize {
        self.outbox.len()
    }

    /// Number of replies that wait and whose requests traveled.
    pub(crate) fn late(&self) -> usize {
        self.late.len()
    }

    /// Replies to a request that was processed long ago, or sends a part of a reply.
    #[cold]
    pub(crate) fn send_late(
        &mut self,
        tx: &mut impl Outbound,
        header: Header,
        mut body: Vec<u8>,
    ) -> Result<(), Box<Closed>> {
        if body.len() > self.max_reply && header.kind == Kind::Completion && header.handle == EXECUTED {
            self.late.push_back(Owed::Long(header.token, Box::new(body)));
            self.owes = true;
            self.flush(tx)?;
            return Ok(());
        }
        body.truncate(self.max_reply);
        if self.owes || !self.send(tx, header, &body)? {
            self.late.push_back(Owed::Frame(header, body));
            self.owes = true;
        }
        Ok(())
    }

    /// Replies to an admitted request with an answer in memory of its own.
    #[cold]
    pub(crate) fn complete_long(
        &mut self,
        tx: &mut impl Outbound,
        token: u64,
        answer: Box<dyn AnswerBytes>,
    ) -> Result<(), Box<Closed>> {
        if token == 0 || self.is_peer_gone {
            return Ok(());
        }
        let len = answer.bytes().len();
        let owed = if len <= self.longest {
            Owed::Long(token, answer)
        } else {
            let detail = format!("an answer of {len} bytes, the limit is {}", self.longest);
            Owed::failed(token, detail)
        };
        self.outbox.push_back(owed);
        self.owes = true;
        self.flush(tx)?;
        Ok(())
    }

    /// Counts what was sent of long answers, if any waits to be sent.
    pub(crate) fn unsent(&self) -> Option<u64> {
        let is_long = |owed: &Owed| matches!(owed, Owed::Long(..));
        let waits = self.sending.is_some() || self.outbox.iter().chain(&self.late).any(is_long);
        waits.then_some(self.progress)
    }

    /// Drops the long answers that wait to be sent. Their calls fail with this reason.
    pub(crate) fn refuse_unsent(&mut self, why: &str) {
        for owed in self.outbox.iter_mut().chain(&mut self.late) {
            if let &mut Owed::Long(token, _) = owed {
                *owed = Owed::failed(token, why.to_owned());
            }
        }
        if let Some(long) = self.sending.take() {
            self.outbox.push_front(Owed::failed(long.token(), why.to_owned()));
        }
    }

    /// Whether the window is still closed for what waits. Asked before this side sleeps.
    pub(crate) fn is_blocked(&mut self, tx: &mut impl Outbound) -> bool {
        let max_body = tx.max_body();
        let first = self.outbox.front().or_else(|| self.late.front());
        let len = match (&self.sending, first, self.gathered.next(), &self.report) {
            (Some(long), ..) => long.next_len(max_body),
            (None, Some(owed), ..) => owed.next_len(max_body),
            (None, None, Some((_, body)), _) => body.len(),
            (None, None, None, Some((_, body))) => body.len(),
            (None, None, None, None) => self.max_reply,
        };
        matches!(tx.reserve(len, 8), Ok(None))
    }

    /// Memory for the answer to an invocation, in the frame that carries it. `None`: [`begin_answer`](Self::begin_answer) says where it goes.
    #[inline(always)]
    pub(crate) fn usual_answer<'a>(&self, tx: &'a mut impl Outbound, token: u64) -> Option<&'a mut [u8]> {
        if token == 0 || self.owes | self.is_peer_gone | self.is_private {
            return None;
        }
        let memory = tx.reserve(self.max_reply, 8).ok()??;
        Some(&mut memory[..self.max_answer])
    }

    /// Sends the answer that was written to the memory of [`usual_answer`](Self::usual_answer).
    #[inline(always)]
    pub(crate) fn send_usual(&self, tx: &mut impl Outbound, token: u64, len: usize) {
        tx.commit(Header::new(Kind::Completion, Status::Executed.code(), token), len);
    }

    /// Where the answer to an invocation goes, and memory for it: in the frame that carries it where possible. `None`: the send window is
    /// closed, and the invocation must wait.
    pub(crate) fn begin_answer<'a>(
        &'a mut self,
        tx: &'a mut impl Outbound,
        token: u64,
    ) -> Result<Option<AnswerPlace<'a>>, Box<Closed>> {
        let nowhere = Some((Destination::Nowhere, None));
        let is_owing = self.owes && !self.flush(tx)?;
        if is_owing && !self.admits_owing()? {
            return Ok(None);
        }
        if token == 0 || self.is_peer_gone {
            return Ok(nowhere);
        }
        if !is_owing {
            match tx.reserve(self.max_reply, 8) {
                Ok(Some(memory)) if !self.is_private => {
                    return Ok(Some((Destination::Frame, Some(&mut memory[..self.max_answer]))));
                }
                Ok(Some(_)) => {}
                Ok(None) if self.is_duplex => {}
                Ok(None) => return Ok(None),
                Err(LinkError::Closed) => {
                    self.is_peer_gone = true;
                    return Ok(nowhere);
                }
                Err(error @ LinkError::Malformed(_)) => return Err(error.into()),
            }
        }
        self.private.resize(self.max_answer);
        Ok(Some((Destination::Private, Some(self.private.as_mut_slice()))))
    }

    /// Sends the answer that was written to the memory of [`begin_answer`](Self::begin_answer).
    pub(crate) fn send_answer(
        &mut self,
        tx: &mut impl Outbound,
        destination: Destination,
        token: u64,
        len: usize,
    ) -> Result<(), Box<Closed>> {
        match destination {
            Destination::Nowhere => Ok(()),
            Destination::Frame => {
                self.send_usual(tx, token, len);
                Ok(())
            }
            Destination::Private => self.send_private(tx, token, len),
        }
    }

    fn send_private(&mut self, tx: &mut impl Outbound, token: u64, len: usize) -> Result<(), Box<Closed>> {
        let private = std::mem::take(&mut self.private);
        let sent = self.complete(tx, token, Status::Executed, &private.as_slice()[..len]);
        self.private = private;
        sent
    }

    /// The memory that the answer of a batch's entry is written to.
    pub(crate) fn entry_answer(&mut self, token: u64) -> Option<&mut [u8]> {
        if token == 0 || self.is_peer_gone {
            return None;
        }
        Some(&mut self.gathered.reserve()[..self.max_answer])
    }

    /// Gathers the answer that was written to [`entry_answer`](Self::entry_answer).
    pub(crate) fn gather_answer(
        &mut self,
        tx: &mut impl Outbound,
        token: u64,
        len: usize,
    ) -> Result<(), Box<Closed>> {
        if token == 0 || self.is_peer_gone {
            return Ok(());
        }
        self.gather(tx, token, Status::Executed, len)
    }

    /// The memory that the answers of a run of entries are written to.
    pub(crate) fn run_answers(&mut self, token: u64) -> Option<Answers<'_>> {
        if token == 0 || self.is_peer_gone {
            return None;
        }
        Some(self.gathered.reserve_run(self.max_answer))
    }

    /// Gathers the first `count` answers that were written to [`run_answers`](Self::run_answers).
    pub(crate) fn gather_run(
        &mut self,
        tx: &mut impl Outbound,
        token: u64,
        count: usize,
    ) -> Result<(), Box<Closed>> {
        if token == 0 || self.is_peer_gone || count == 0 {
            return Ok(());
        }
        self.gathered.push_run(token, count);
        self.gathered(tx)
    }

    /// Replies to an admitted request that wants a reply.
    pub(crate) fn complete(
        &mut self,
        tx: &mut impl Outbound,
        token: u64,
        status: Status,
        body: &[u8],
    ) -> Result<(), Box<Closed>> {
        debug_assert!(!self.owes || self.is_duplex, "replies are sent in order");
        let body = &body[..body.len().min(self.max_reply)];
        let header = Header::new(Kind::Completion, status.code(), token);
        if self.owes || !self.send(tx, header, body)? {
            self.outbox.push_back(Owed::Frame(header, body.to_vec()));
            self.owes = true;
        }
        Ok(())
    }

    /// Replies to a request whether or not it wants a reply: without a token, only failures are reported.
    #[cold]
    pub(crate) fn conclude(
        &mut self,
        tx: &mut impl Outbound,
        sequence: u32,
        (handle, token): (u32, u64),
        status: Status,
        detail: &[u8],
    ) -> Result<(), Box<Closed>> {
        if token != 0 {
            return self.complete(tx, token, status, detail);
        }
        if status != Status::Executed {
            let most = self.max_reply.saturating_sub(size_of::<u32>());
            let mut body = handle.to_le_bytes().to_vec();
            body.extend_from_slice(&detail[..detail.len().min(most)]);
            let header = Header::new(Kind::Report, status.code(), sequence.into());
            self.report = Some((header, body));
            self.owes = true;
            self.flush(tx)?;
        }
        Ok(())
    }

    /// Like [`conclude`](Self::conclude), for an entry of a batch.
    #[cold]
    pub(crate) fn conclude_entry(
        &mut self,
        tx: &mut impl Outbound,
        sequence: u32,
        (handle, token): (u32, u64),
        status: Status,
        detail: &[u8],
    ) -> Result<(), Box<Closed>> {
        if token == 0 {
            return self.conclude(tx, sequence, (handle, token), status, detail);
        }
        if self.is_peer_gone {
            return Ok(());
        }
        self.gathered.push_failure(token, status, detail);
        self.gathered(tx)
    }

    fn gather(
        &mut self,
        tx: &mut impl Outbound,
        token: u64,
        status: Status,
        len: usize,
    ) -> Result<(), Box<Closed>> {
        self.gathered.push(token, status, len);
        self.gathered(tx)
    }

    /// Sends what is gathered if that is a full frame.
    fn gathered(&mut self, tx: &mut impl Outbound) -> Result<(), Box<Closed>> {
        self.owes = true;
        if self.gathered.is_full() {
            self.flush(tx)?;
        }
        Ok(())
    }

    /// Sends what waits. `false`: the window is closed for some of it.
    #[inline(never)]
    pub(crate) fn flush(&mut self, tx: &mut impl Outbound) -> Result<bool, Box<Closed>> {
        loop {
            if self.sending.is_some() && !self.send_long(tx)? {
                self.spill();
                return Ok(false);
            }
            let Some((owed, is_late)) = self.next_owed() else {
                break;
            };
            match owed {
                Owed::Long(token, answer) => self.sending = Some(Long::new(token, answer)),
                Owed::Frame(header, body) => {
                    if !self.send(tx, header, &body)? {
                        let queue = if is_late { &mut self.late } else { &mut self.outbox };
                        queue.push_front(Owed::Frame(header, body));
                        self.spill();
                        return Ok(false);
                    }
                }
            }
        }
        while let Some((header, body)) = self.gathered.next() {
            if !send(tx, &mut self.is_peer_gone, header, body)? {
                self.spill();
                return Ok(false);
            }
            self.gathered.sent();
        }
        if let Some((header, body)) = self.report.take()
            && !self.send(tx, header, &body)?
        {
            self.report = Some((header, body));
            self.spill();
            return Ok(false);
        }
        self.owes = false;
        Ok(true)
    }

    /// Takes the reply that is to be sent next, and whether it is a late one.
    fn next_owed(&mut self) -> Option<(Owed, bool)> {
        let next = self.outbox.pop_front().map(|owed| (owed, false));
        next.or_else(|| Some((self.late.pop_front()?, true)))
    }

    /// Sends the long answer that is being sent. `false`: the window is closed for some of it, or other connections shall have
    /// their turn.
    #[cold]
    fn send_long(&mut self, tx: &mut impl Outbound) -> Result<bool, Box<Closed>> {
        let Some(long) = &mut self.sending else {
            return Ok(true);
        };
        if !self.is_peer_gone {
            let before = long.sent();
            let sent = long.send(tx);
            self.progress += u64::from(long.sent() != before);
            match sent {
                Ok(Sent::All) => self.progress += 1,
                Ok(Sent::Part) => return Ok(false),
                Err(LinkError::Closed) => self.is_peer_gone = true,
                Err(error @ LinkError::Malformed(_)) => return Err(error.into()),
            }
        }
        self.sending = None;
        Ok(true)
    }

    /// Moves what waits to the outbox, so that the next requests can be processed.
    #[cold]
    fn spill(&mut self) {
        if !self.is_duplex {
            return;
        }
        while let Some((header, body)) = self.gathered.next() {
            self.outbox.push_back(Owed::Frame(header, body.to_vec()));
            self.gathered.sent();
        }
        let is_report = |owed: &&Owed| matches!(owed, Owed::Frame(header, _) if header.kind == Kind::Report);
        if let Some((header, body)) = self.report.take()
            && self.outbox.iter().filter(is_report).count() < DUPLEX_REPORTS
        {
            self.outbox.push_back(Owed::Frame(header, body));
        }
    }

    fn can_send(&mut self, tx: &mut impl Outbound, len: usize) -> Result<bool, Box<Closed>> {
        can_send(tx, &mut self.is_peer_gone, len)
    }

    fn send(&mut self, tx: &mut impl Outbound, header: Header, body: &[u8]) -> Result<bool, Box<Closed>> {
        send(tx, &mut self.is_peer_gone, header, body)
    }
}

/// Whether a body of `len` bytes can be sent now, or nothing is left to receive it.
#[inline]
fn can_send(tx: &mut impl Outbound, is_peer_gone: &mut bool, len: usize) -> Result<bool, Box<Closed>> {
    if *is_peer_gone {
        return Ok(true);
    }
    match tx.reserve(len, 8) {
        Ok(memory) => Ok(memory.is_some()),
        Err(LinkError::Closed) => {
            *is_peer_gone = true;
            Ok(true)
        }
        Err(error @ LinkError::Malformed(_)) => Err(error.into()),
    }
}

/// Sends a frame. `false`: the window is closed. A frame to a peer that left counts as sent.
fn send(
    tx: &mut impl Outbound,
    is_peer_gone: &mut bool,
    header: Header,
    body: &[u8],
) -> Result<bool, Box<Closed>> {
    if *is_peer_gone {
        return Ok(true);
    }
    match tx.reserve(body.len(), 8) {
        Ok(Some(memory)) => {
            memory[..body.len()].copy_from_slice(body);
            tx.commit(header, body.len());
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(LinkError::Closed) => {
            *is_peer_gone = true;
            Ok(true)
        }
        Err(error @ LinkError::Malformed(_)) => Err(error.into()),
    }
}
