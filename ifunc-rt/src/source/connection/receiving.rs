//! The way back: completions, reports, and the end of the target.

use ifunc_proto::link::Body as _;
use std::sync::Arc;

use ifunc_abi::batch::EntryHead;
use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::Status;

use rustix::time::{ClockId, clock_gettime};

use super::pending::What;
use super::{Completion, Connection, Error, Report, name_in};
use crate::source::completion::explain;
use crate::transport::{Body, Frame, Inbound, LinkError, Outbound};
use crate::wire::order::Turn;

/// Most failures of sends that are kept until somebody asks.
const MAX_REPORTS: usize = 64;

/// Most completions that memory is kept for, from one frame that holds many to the next.
const MAX_KEPT: usize = 1024;

impl Connection {
    /// Takes in what has come back, and notices a target that went away.
    pub(super) fn progress(&mut self) {
        self.progress_for(0);
    }

    /// As [`progress`](Self::progress); what came behind this token's completion may stay where it is. To look for it would
    /// be to wait for a cache line that the target is about to write.
    #[inline]
    pub(super) fn progress_for(&mut self, token: u64) {
        let Some(link) = &mut self.link else { return };
        if link.rx.is_empty() {
            link.rx.settle();
            return;
        }
        let gone = link.waiter.is_gone();
        match self.receive(token) {
            Err(gone) => self.lost(&gone),
            // Known to be gone, and everything it had sent has been taken in.
            Ok(()) if gone => self.lost(&LinkError::Closed),
            Ok(()) => {}
        }
    }

    /// Asks whether the target is still there, once per tick of the coarse clock (some milliseconds): no target is
    /// restarted in less, so that what is sent after a restart goes to the new one.
    pub(super) fn ask(&mut self) {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        if now == self.asked {
            return;
        }
        self.asked = now;
        if self.link.as_ref().is_some_and(|link| link.waiter.ask_gone()) {
            self.lost(&LinkError::Closed);
        }
    }

    fn receive(&mut self, token: u64) -> Result<(), LinkError> {
        loop {
            if let Some(parked) = self.order.take_next() {
                let next = self.order.next();
                let read = read(&parked.arrived(next), &mut self.many)?;
                self.order.advance();
                self.take_in(read);
                continue;
            }
            let Some(link) = &mut self.link else { return Ok(()) };
            let Some(arrived) = link.rx.peek()? else {
                link.rx.settle();
                return Ok(());
            };
            let read = match self.order.turn(arrived.sequence) {
                Turn::Now => {
                    let read = read(&arrived, &mut self.many)?;
                    self.order.advance();
                    Some(read)
                }
                Turn::Later => {
                    self.order
                        .park(&arrived)
                        .map_err(|_| LinkError::Malformed("completions too far ahead of their turn"))?;
                    None
                }
                Turn::Past => None,
            };
            link.rx.release();
            let enough = link.rx.first_quantum() == 1;
            if let Some(read) = read {
                let done = matches!(read, Read::Completion(of, _) if of == token);
                self.take_in(read);
                if done && enough {
                    return Ok(());
                }
            }
        }
    }

    fn take_in(&mut self, read: Read) {
        match read {
            Read::Completion(token, completion) => self.completed(token, completion),
            Read::Many => {
                let mut many = std::mem::take(&mut self.many);
                for (token, completion) in many.drain(..) {
                    self.completed(token, completion);
                }
                if many.capacity() <= MAX_KEPT {
                    self.many = many;
                }
            }
            Read::Report(completion) => self.told(&completion),
        }
    }

    fn completed(&mut self, token: u64, completion: Completion) {
        self.signals.received();
        // Frames are run in order: what was sent before this one was consumed.
        if let Some(sequence) = self.pending.complete(token, Ok(completion), &mut self.signals)
            && self
                .last_send
                .is_some_and(|(last, _)| (sequence.wrapping_sub(last) as i32) > 0)
        {
            self.last_send = None;
        }
    }

    fn told(&mut self, completion: &Completion) {
        self.signals.received();
        // What it means is found out by whoever asks, and never if nobody does: there may be one for every frame.
        if self.reports.len() >= MAX_REPORTS {
            return;
        }
        let (handle, detail) = completion.split_report();
        if let Some(slot) = self.handles.get(handle as usize) {
            let library = Arc::clone(&slot.library);
            self.report(Report::Told { library, detail });
        }
    }

    /// The target went away: every completion ends or is asked for again.
    pub(super) fn lost(&mut self, gone: &LinkError) {
        // What it had said before is heard first.
        let _ = self.receive(0);
        let Some(mut link) = self.link.take() else { return };
        tracing::info!(address = %self.route, %gone, "the target went away");
        // What was sent once may have run, however little of it was sent again.
        let unsent = self.job.take().filter(|job| !job.again).map(|job| job.header);
        if let Some((sequence, handle)) = self.last_send.take()
            && link.tx.is_unconsumed(sequence)
        {
            self.report(Report::Known(Error::Indeterminate {
                what: self.name(What::Ifunc(handle)),
            }));
        }
        if let Some(Header {
            kind: Kind::Exec,
            handle,
            token: 0,
            ..
        }) = unsent
        {
            self.report(Report::Known(Error::PeerGone {
                what: self.name(What::Ifunc(handle)),
                why: gone.to_string(),
            }));
        }
        let why = gone.to_string();
        let verdict = |token, what| {
            let what = name_in(&self.handles, what);
            if unsent.is_some_and(|header| header.token == token) {
                Error::PeerGone {
                    what,
                    why: why.clone(),
                }
            } else {
                Error::Indeterminate { what }
            }
        };
        self.resend = self.pending.lose(&mut self.signals, verdict).into();
        self.has_more = true;
        self.signals.link_changed();
        // Whoever sleeps on it has to make another one.
        link.waiter.close();
    }

    pub(super) fn report(&mut self, report: Report) {
        if self.reports.len() < MAX_REPORTS {
            self.reports.push_back(report);
        }
    }
}

impl Report {
    /// What went wrong. Of a panic this may read the ifunc's library, the first time.
    pub(in crate::source) fn explain(self) -> Error {
        match self {
            Self::Known(error) => error,
            Self::Told { library, detail } => explain(&library, &detail),
        }
    }
}

/// What a frame was.
enum Read {
    /// With its token.
    Completion(u64, Completion),
    /// Completions, which were read.
    Many,
    Report(Completion),
}

fn read(arrived: &Frame<Body<'_>>, many: &mut Vec<(u64, Completion)>) -> Result<Read, LinkError> {
    let header =
        Header::parse(arrived.words).map_err(|_| LinkError::Malformed("words that are no header"))?;
    let completion = || Ok(Completion::new(status(header.handle)?, &arrived.body));
    match header.kind {
        Kind::Completion => Ok(Read::Completion(header.token, completion()?)),
        Kind::Report => Ok(Read::Report(completion()?)),
        Kind::Completions => read_many(&arrived.body, many).map(|()| Read::Many),
        _ => Err(LinkError::Malformed("a target sent a request")),
    }
}

/// Reads the entries of a frame: each head once, whatever the target does to it meanwhile.
fn read_many(body: &Body<'_>, many: &mut Vec<(u64, Completion)>) -> Result<(), LinkError> {
    let cut_off = LinkError::Malformed("completions that are cut off");
    many.clear();
    let mut at = 0;
    while at < body.len() {
        let mut head = [0; EntryHead::SIZE];
        let part = body.slice(at, EntryHead::SIZE).ok_or_else(|| cut_off.clone())?;
        part.copy_to(&mut head);
        let entry: EntryHead = zerocopy::transmute!(head);
        let len = entry.len.get() as usize;
        let answer = body
            .slice(at + EntryHead::SIZE, len)
            .ok_or_else(|| cut_off.clone())?;
        many.push((
            entry.token.get(),
            Completion::new(status(entry.code.get())?, &answer),
        ));
        at += EntryHead::padded_len(len).ok_or_else(|| cut_off.clone())?;
    }
    // A body ends behind the zeros of its last entry.
    if at == body.len() { Ok(()) } else { Err(cut_off) }
}

fn status(code: u32) -> Result<Status, LinkError> {
    Status::from_code(code).ok_or(LinkError::Malformed("an unknown status"))
}
