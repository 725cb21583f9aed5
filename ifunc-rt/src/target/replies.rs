//! What a source is told: answers, reasons, reports. And where it goes when nobody is left to be told.

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::Status;

use self::gathered::Gathered;
use super::connection::End;
use crate::transport::{LinkError, Outbound, Outgoing};
use ifunc_proto::buffer::AlignedBuffer;

mod gathered;

/// Room for the reason why there is no answer, where answers themselves are smaller.
const DETAIL_ROOM: usize = 1024;

/// The way back to a source.
pub(super) struct Replies {
    way: Way,
    max_answer: usize,
    /// What must be there before anything runs that may have to be answered: an answer, or the reason why there is
    /// none. What ran cannot be run again for want of it.
    room: usize,
    /// Answers are written here first, where the source cannot change them while they are written.
    private: Option<AlignedBuffer>,
    /// What became of entries of batches, not sent yet.
    gathered: Gathered,
    /// A report that found no room yet. It goes behind what is gathered.
    report: Option<Report>,
    /// Something is gathered, or a report waits.
    owes: bool,
}

/// Frames back.
struct Way {
    tx: Outgoing,
    /// The source left. What it had sent is run all the same; what it would be told goes nowhere.
    nobody_listens: bool,
}

#[derive(Debug)]
struct Report {
    sequence: u32,
    handle: u32,
    status: Status,
    detail: Vec<u8>,
}

impl Report {
    /// Bytes of its body.
    fn len(&self) -> usize {
        size_of::<u32>() + self.detail.len()
    }
}

impl Replies {
    /// Answers of at most `max_answer` bytes over `tx`; `private`ly written for a source that is not trusted with
    /// half-written ones.
    pub(super) fn new(tx: Outgoing, max_answer: u64, private: bool) -> Self {
        let max_body = tx.max_body();
        let max_answer = usize::try_from(max_answer).unwrap_or(usize::MAX).min(max_body);
        let room = max_answer.max(DETAIL_ROOM).min(max_body);
        Self {
            way: Way {
                tx,
                nobody_listens: false,
            },
            max_answer,
            room,
            private: private.then(AlignedBuffer::default),
            gathered: Gathered::new(max_body, room),
            report: None,
            owes: false,
        }
    }

    /// Whether a frame that wants to be told something (`token` is not 0) can be looked at now.
    #[inline]
    pub(super) fn admit(&mut self, token: u64) -> Result<bool, Box<End>> {
        Ok((!self.owes || self.flush()?) && (token == 0 || self.way.reserve(self.room)?))
    }

    /// Whether an entry of a batch can be looked at now, whatever it wants to be told. It needs no room on the way: what
    /// becomes of it is gathered.
    pub(super) fn admit_entry(&mut self) -> Result<bool, Box<End>> {
        Ok((self.report.is_none() && !self.gathered.is_full()) || self.flush()?)
    }

    /// Longest body of a completion.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Whether something waits to be sent: a report, or what is gathered.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.owes
    }

    /// Whether what stalled is still without room. Asked before sleep.
    pub(super) fn is_full(&mut self) -> bool {
        let room = match (self.gathered.next(), &self.report) {
            (Some((_, body)), _) => body.len(),
            (None, Some(report)) => report.len(),
            (None, None) => self.room,
        };
        matches!(self.way.tx.reserve(room, 8), Ok(None))
    }

    /// Where an invocation that was admitted writes its answer; `None` if nobody wants one.
    #[inline]
    pub(super) fn answer_room(&mut self, token: u64) -> Option<&mut [u8]> {
        if token == 0 || self.way.nobody_listens {
            return None;
        }
        match &mut self.private {
            Some(private) => {
                private.resize(self.max_answer);
                Some(private.as_mut_slice())
            }
            None => match self.way.tx.reserve(self.room, 8) {
                Ok(room) => room.map(|room| &mut room[..self.max_answer]),
                // It left since its frame was admitted.
                Err(_) => {
                    self.way.nobody_listens = true;
                    None
                }
            },
        }
    }

    /// Sends the answer that was written to [`answer_room`](Self::answer_room).
    #[inline]
    pub(super) fn answer(&mut self, token: u64, len: usize) -> Result<(), Box<End>> {
        if token == 0 || self.way.nobody_listens {
            return Ok(());
        }
        if let Some(private) = self.private.take() {
            let sent = self.complete(token, Status::Executed, &private.as_slice()[..len]);
            self.private = Some(private);
            return sent;
        }
        self.way
            .tx
            .commit(Header::new(Kind::Completion, Status::Executed.code(), token), len);
        Ok(())
    }

    /// As [`answer_room`](Self::answer_room), for an entry of a batch.
    pub(super) fn entry_room(&mut self, token: u64) -> Option<&mut [u8]> {
        if token == 0 || self.way.nobody_listens {
            return None;
        }
        Some(&mut self.gathered.room()[..self.max_answer])
    }

    /// Gathers the answer that was written to [`entry_room`](Self::entry_room).
    pub(super) fn gather_answer(&mut self, token: u64, len: usize) -> Result<(), Box<End>> {
        if token == 0 || self.way.nobody_listens {
            return Ok(());
        }
        self.gather(token, Status::Executed, len)
    }

    /// Tells the source what became of a request that was admitted, if it asked.
    pub(super) fn complete(&mut self, token: u64, status: Status, body: &[u8]) -> Result<(), Box<End>> {
        debug_assert!(!self.owes, "what came before was told before");
        let body = &body[..body.len().min(self.room)];
        self.way
            .send(Header::new(Kind::Completion, status.code(), token), &[body])
            .map(drop)
    }

    /// Tells the source what became of a request, whether it asked or not; unasked only if it did not end well.
    pub(super) fn conclude(
        &mut self,
        sequence: u32,
        request: Header,
        status: Status,
        detail: &[u8],
    ) -> Result<(), Box<End>> {
        if request.token != 0 {
            return self.complete(request.token, status, detail);
        }
        if status != Status::Executed {
            let detail = detail[..detail.len().min(self.room - 4)].to_vec();
            self.report = Some(Report {
                sequence,
                handle: request.handle,
                status,
                detail,
            });
            self.owes = true;
            self.flush()?;
        }
        Ok(())
    }

    /// As [`conclude`](Self::conclude), for an entry of a batch.
    pub(super) fn conclude_entry(
        &mut self,
        sequence: u32,
        entry: Header,
        status: Status,
        detail: &[u8],
    ) -> Result<(), Box<End>> {
        if entry.token == 0 {
            return self.conclude(sequence, entry, status, detail);
        }
        if self.way.nobody_listens {
            return Ok(());
        }
        let room = self.gathered.room();
        let len = detail.len().min(room.len());
        room[..len].copy_from_slice(&detail[..len]);
        self.gather(entry.token, status, len)
    }

    fn gather(&mut self, token: u64, status: Status, len: usize) -> Result<(), Box<End>> {
        self.gathered.push(token, status, len);
        self.owes = true;
        if self.gathered.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends what waits; `false` while there is no room for it.
    pub(super) fn flush(&mut self) -> Result<bool, Box<End>> {
        let Self {
            way,
            gathered,
            report,
            owes,
            ..
        } = self;
        while let Some((header, body)) = gathered.next() {
            if !way.send(header, &[body])? {
                return Ok(false);
            }
            gathered.sent();
        }
        if let Some(Report {
            sequence,
            handle,
            status,
            detail,
        }) = report
        {
            let header = Header::new(Kind::Report, status.code(), (*sequence).into());
            if !way.send(header, &[&handle.to_le_bytes(), detail])? {
                return Ok(false);
            }
            *report = None;
        }
        *owes = false;
        Ok(true)
    }
}

impl Way {
    /// Sends a frame; `false` if there is no room for it. To nobody, it is sent at once.
    fn send(&mut self, header: Header, parts: &[&[u8]]) -> Result<bool, Box<End>> {
        let len = parts.iter().map(|part| part.len()).sum();
        if !self.reserve(len)? {
            return Ok(false);
        }
        if self.nobody_listens {
            return Ok(true);
        }
        // The same room again, for the borrow: nothing was committed in between.
        match self.tx.reserve(len, 8) {
            Ok(Some(mut room)) => {
                for part in parts {
                    let (here, behind) = room.split_at_mut(part.len());
                    here.copy_from_slice(part);
                    room = behind;
                }
                self.tx.commit(header, len);
            }
            Ok(None) => return Ok(false),
            Err(_) => self.nobody_listens = true,
        }
        Ok(true)
    }

    /// Whether there is room for a body of `len` bytes, or nobody to need it.
    fn reserve(&mut self, len: usize) -> Result<bool, Box<End>> {
        if self.nobody_listens {
            return Ok(true);
        }
        match self.tx.reserve(len, 8) {
            Ok(room) => Ok(room.is_some()),
            Err(LinkError::Closed) => {
                self.nobody_listens = true;
                Ok(true)
            }
            Err(LinkError::Malformed(what)) => Err(Box::new(End::Broke(what.into()))),
        }
    }
}
