//! One source, as its target sees it: frames in order, handles, completions.

use std::sync::Arc;

use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use ifunc_abi::status::{Rejection, Status};

use super::Host;
use super::invoke::{Invocation, Outcome, invoke};
use super::policy::{ImageInfo, SourceInfo};
use crate::exec::entry::Session;
use crate::load::Refusal;
use crate::load::install::{Installed, TargetType, judge};
use crate::transports::{Arrived, Gone, Inbound, Link, Outbound, Waiter};
use crate::wire::assembly::Assembly;
use crate::wire::buffer::AlignedBuffer;
use crate::wire::order::{Order, Turn};

/// A connection that is over, and why.
#[derive(Debug)]
pub(super) enum End {
    /// The source left; everything it had sent was run.
    Left,
    /// The source broke the protocol.
    Broke(String),
}

impl From<Gone> for End {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Closed => Self::Left,
            Gone::Malformed(what) => Self::Broke(what.into()),
        }
    }
}

/// Whether a frame was dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// There is no room for what would have to be answered: the same frame again, later.
    Stalled,
}

/// What a handle stands for.
#[derive(Debug)]
enum Binding {
    Free,
    Bound(Arc<Installed>),
    /// `Exec`s on it complete with the reason.
    Refused(Refusal),
}

/// A report that found no room yet.
#[derive(Debug)]
struct Report {
    sequence: u32,
    handle: u32,
    status: Status,
    detail: Vec<u8>,
}

pub(super) struct Connection {
    tx: Box<dyn Outbound>,
    rx: Box<dyn Inbound>,
    /// Holds the transport's end of the connection open.
    _waiter: Box<dyn Waiter>,
    order: Order,
    state: State,
    /// The last look found a frame that has to wait for room.
    stalled: bool,
}

/// Everything but the ways in and out, so that a frame can be looked at where it lies.
struct State {
    source: SourceInfo,
    bindings: Vec<Binding>,
    assembly: Assembly,
    scratch: AlignedBuffer,
    copy_payloads: bool,
    max_answer: usize,
    /// What is reserved before anything runs that may have to be answered: an answer or the reason why there is none.
    room: usize,
    report: Option<Report>,
}

/// Room for the reason why there is no answer, where answers themselves are smaller.
const DETAIL_ROOM: usize = 1024;

impl Connection {
    pub(super) fn new(number: u64, link: Link, host: &Host) -> Self {
        let foreign = link.peer.uid != Some(rustix::process::geteuid().as_raw());
        let max_body = link.tx.max_body();
        let max_answer = usize::try_from(host.limits.max_answer)
            .unwrap_or(usize::MAX)
            .min(max_body);
        Self {
            tx: link.tx,
            rx: link.rx,
            _waiter: link.waiter,
            order: Order::new(),
            state: State {
                source: SourceInfo::new(number, &link.peer),
                bindings: Vec::new(),
                assembly: Assembly::default(),
                scratch: AlignedBuffer::default(),
                copy_payloads: host.copy_payloads || foreign,
                max_answer,
                room: max_answer.max(DETAIL_ROOM).min(max_body),
                report: None,
            },
            stalled: false,
        }
    }

    pub(super) fn source(&self) -> &SourceInfo {
        &self.state.source
    }

    /// Looks at up to `budget` frames and returns how many were dealt with.
    pub(super) fn poll(
        &mut self,
        host: &mut Host,
        session: &mut Session<'_>,
        target: (TargetType, *mut std::ffi::c_void),
        budget: usize,
    ) -> Result<usize, End> {
        let Self {
            tx,
            rx,
            order,
            state,
            stalled,
            ..
        } = self;
        let mut done = 0;
        *stalled = false;
        while done < budget {
            if let Some(parked) = order.take_next() {
                let step = state.frame(&mut **tx, host, session, target, &parked.arrived(order.next()))?;
                if step == Step::Stalled {
                    order.park_again(parked);
                    *stalled = true;
                    break;
                }
                order.advance();
                done += 1;
                continue;
            }
            let Some(arrived) = rx.peek()? else { break };
            match order.turn(arrived.sequence) {
                Turn::Now => {
                    if state.frame(&mut **tx, host, session, target, &arrived)? == Step::Stalled {
                        *stalled = true;
                        break;
                    }
                    order.advance();
                    done += 1;
                }
                Turn::Later => order.park(&arrived).map_err(|_| {
                    End::Broke("more frames ahead of their turn than there are credits".into())
                })?,
                Turn::Past => {}
            }
            rx.release();
        }
        if done < budget {
            rx.settle();
        }
        Ok(done)
    }

    /// Announces sleep; `false` if there is something to do.
    pub(super) fn arm(&mut self) -> bool {
        let nothing_arrived = self.rx.arm();
        if self.stalled {
            // What waits is known; what matters is room for its answer.
            return matches!(self.tx.reserve(self.state.room, 8), Ok(None));
        }
        nothing_arrived
    }

    pub(super) fn disarm(&mut self) {
        self.rx.disarm();
    }
}

impl State {
    fn frame(
        &mut self,
        tx: &mut dyn Outbound,
        host: &mut Host,
        session: &mut Session<'_>,
        target: (TargetType, *mut std::ffi::c_void),
        arrived: &Arrived<'_>,
    ) -> Result<Step, End> {
        if !self.flush_report(tx)? {
            return Ok(Step::Stalled);
        }
        let header = Header::parse(arrived.words).map_err(|error| End::Broke(error.to_string()))?;
        match header.kind {
            Kind::Exec => self.exec(tx, host, session, target, header, arrived),
            Kind::Install => self.install(tx, host, target.0, header, arrived),
            Kind::Unbind => {
                if let Some(binding) = self.bindings.get_mut(header.handle as usize) {
                    *binding = Binding::Free;
                }
                Ok(Step::Done)
            }
            Kind::Fragment => {
                let limit = host.limits.max_payload.max(
                    host.limits
                        .max_image
                        .saturating_add(InstallHead::SIZE as u64 + 1024),
                );
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                self.assembly
                    .part(header.handle, header.token, &arrived.body, limit)
                    .map_err(|error| End::Broke(error.to_string()))?;
                Ok(Step::Done)
            }
            Kind::Sync => self.complete(tx, header.token, Status::Executed, b""),
            Kind::Completion | Kind::Report => Err(End::Broke(format!("a source sent a {:?}", header.kind))),
        }
    }

    fn exec(
        &mut self,
        tx: &mut dyn Outbound,
        host: &mut Host,
        session: &mut Session<'_>,
        (target_type, target): (TargetType, *mut std::ffi::c_void),
        header: Header,
        arrived: &Arrived<'_>,
    ) -> Result<Step, End> {
        // Room first: what ran cannot be run again for want of an answer's place. The rest happens at most once.
        let wants_answer = header.token != 0;
        if wants_answer && tx.reserve(self.room, 8)?.is_none() {
            return Ok(Step::Stalled);
        }
        let refusal = match self.bindings.get(header.handle as usize) {
            Some(Binding::Bound(image)) if image.target == 0 || image.target == target_type.fingerprint => {
                None
            }
            Some(Binding::Bound(_)) => Some(Refusal::new(Rejection::TargetType, target_type.text)),
            Some(Binding::Refused(refusal)) => Some(refusal.clone()),
            None | Some(Binding::Free) => Some(Refusal::new(
                Rejection::Unbound,
                format!("handle {}", header.handle),
            )),
        };
        if let Some(refusal) = refusal {
            if header.flags.has(FrameFlags::ASSEMBLED) {
                self.assembly.clear();
            }
            return self.conclude(
                tx,
                arrived.sequence,
                header,
                Status::Rejected(refusal.reason),
                refusal.detail.as_bytes(),
            );
        }
        let Some(Binding::Bound(image)) = self.bindings.get(header.handle as usize) else {
            return Ok(Step::Done);
        };
        let image = Arc::clone(image);

        let assembled = header.flags.has(FrameFlags::ASSEMBLED);
        let (payload, size) = if assembled {
            let whole = self
                .assembly
                .finish(&arrived.body)
                .map_err(|error| End::Broke(error.to_string()))?;
            (whole.as_slice().as_ptr(), whole.len())
        } else if self.copy_payloads || !arrived.body.as_ptr().addr().is_multiple_of(image.payload_align) {
            self.scratch.resize(arrived.body.len());
            arrived.body.copy_to_slice(self.scratch.as_mut_slice());
            (self.scratch.as_slice().as_ptr(), self.scratch.len())
        } else {
            (arrived.body.as_ptr(), arrived.body.len())
        };
        if size as u64 > host.limits.max_payload {
            let detail = format!(
                "a payload of {size} bytes, the limit is {}",
                host.limits.max_payload
            );
            return self.conclude(
                tx,
                arrived.sequence,
                header,
                Status::Rejected(Rejection::TooLarge),
                detail.as_bytes(),
            );
        }

        let room = if wants_answer {
            tx.reserve(self.room, 8)?
        } else {
            None
        };
        let room = room.map(|room| &mut room[..self.max_answer]);
        let invocation = Invocation {
            image: &image,
            payload,
            size,
            target,
            sender: self.source.connection,
        };
        let outcome = invoke(session, &invocation, room);
        if assembled {
            self.assembly.clear();
        }
        match outcome {
            Outcome::Executed { answer_len } => {
                if wants_answer {
                    tx.commit(
                        Header::new(Kind::Completion, Status::Executed.code(), header.token),
                        answer_len,
                    );
                }
                Ok(Step::Done)
            }
            Outcome::Failed { why, detail } => {
                tracing::debug!(ifunc = %image.name, source = self.source.connection, %why, "invocation failed");
                self.conclude(tx, arrived.sequence, header, Status::Failed(why), &detail)
            }
        }
    }

    fn install(
        &mut self,
        tx: &mut dyn Outbound,
        host: &mut Host,
        target_type: TargetType,
        header: Header,
        arrived: &Arrived<'_>,
    ) -> Result<Step, End> {
        if header.token != 0 && tx.reserve(self.room, 8)?.is_none() {
            return Ok(Step::Stalled);
        }
        let handle = header.handle as usize;
        let mut body = Vec::new();
        if header.flags.has(FrameFlags::ASSEMBLED) {
            let whole = self
                .assembly
                .finish(&arrived.body)
                .map_err(|error| End::Broke(error.to_string()))?;
            body.extend_from_slice(whole.as_slice());
            self.assembly.clear();
        } else if self.rebinds_the_same(handle, arrived) {
            return self.conclude(tx, arrived.sequence, header, Status::Executed, b"");
        } else {
            // Out of the transport's memory: what is hashed, judged and run from here on is this copy.
            arrived.body.copy_to(&mut body);
        }
        if handle >= host.max_handles {
            let detail = format!("handle {handle}, the limit is {} handles", host.max_handles);
            return self.conclude(
                tx,
                arrived.sequence,
                header,
                Status::Rejected(Rejection::TooLarge),
                detail.as_bytes(),
            );
        }
        let (head, _signature, image) =
            InstallHead::split(&body).map_err(|error| End::Broke(error.to_string()))?;
        if self.bindings.len() <= handle {
            self.bindings.resize_with(handle + 1, || Binding::Free);
        }
        // What the handle stood for goes first: its room may be what the new image needs.
        self.bindings[handle] = Binding::Free;
        let bound = self.accept(host, target_type, &head.id, image);
        let (status, detail) = match &bound {
            Ok(_) => (Status::Executed, String::new()),
            Err(refusal) => (Status::Rejected(refusal.reason), refusal.detail.clone()),
        };
        if let Err(refusal) = &bound {
            tracing::warn!(source = self.source.connection, reason = %refusal.reason, detail = %refusal.detail, "image refused");
        }
        self.bindings[handle] = match bound {
            Ok(image) => Binding::Bound(image),
            Err(refusal) => Binding::Refused(refusal),
        };
        // Without a token nothing is reported: the frames that want the image will say it.
        if header.token == 0 {
            Ok(Step::Done)
        } else {
            self.complete(tx, header.token, status, detail.as_bytes())
        }
    }

    /// An `Install` of the id that the handle already stands for; its image is not looked at.
    fn rebinds_the_same(&self, handle: usize, arrived: &Arrived<'_>) -> bool {
        let Some(Binding::Bound(image)) = self.bindings.get(handle) else {
            return false;
        };
        let mut id = [0; 32];
        arrived.body.prefix(&mut id) && id == image.id
    }

    fn accept(
        &self,
        host: &mut Host,
        target_type: TargetType,
        id: &[u8; 32],
        bytes: &[u8],
    ) -> Result<Arc<Installed>, Refusal> {
        if bytes.len() as u64 > host.limits.max_image {
            let detail = format!(
                "an image of {} bytes, the limit is {}",
                bytes.len(),
                host.limits.max_image
            );
            return Err(Refusal::new(Rejection::TooLarge, detail));
        }
        if blake3::hash(bytes) != *id {
            return Err(Refusal::new(
                Rejection::IdMismatch,
                "the bytes were changed on the way, or the source is wrong",
            ));
        }
        let (image, got) = judge(bytes, &host.names, host.max_image_memory)?;
        if image.target() != 0 && image.target() != target_type.fingerprint {
            return Err(Refusal::new(Rejection::TargetType, target_type.text));
        }
        host.policy
            .accepts(
                &self.source,
                &ImageInfo {
                    name: image.name(),
                    id,
                    len: bytes.len(),
                },
            )
            .map_err(|why| Refusal::new(Rejection::Policy, why))?;
        match host.cache.get(id) {
            Some(installed) => Ok(installed),
            None => host.cache.insert(*id, &image, &got),
        }
    }

    /// Tells the source what became of a request, if it asked or if it did not end well.
    fn conclude(
        &mut self,
        tx: &mut dyn Outbound,
        sequence: u32,
        header: Header,
        status: Status,
        detail: &[u8],
    ) -> Result<Step, End> {
        if header.token != 0 {
            return self.complete(tx, header.token, status, detail);
        }
        if status != Status::Executed {
            self.report = Some(Report {
                sequence,
                handle: header.handle,
                status,
                detail: detail.to_vec(),
            });
            self.flush_report(tx)?;
        }
        Ok(Step::Done)
    }

    /// Sends a completion.
    fn complete(
        &mut self,
        tx: &mut dyn Outbound,
        token: u64,
        status: Status,
        detail: &[u8],
    ) -> Result<Step, End> {
        let detail = &detail[..detail.len().min(self.room)];
        let Some(room) = tx.reserve(detail.len(), 8)? else {
            return Ok(Step::Stalled);
        };
        room[..detail.len()].copy_from_slice(detail);
        tx.commit(Header::new(Kind::Completion, status.code(), token), detail.len());
        Ok(Step::Done)
    }

    /// Sends the report that waits, if one does; `false` while there is no room for it.
    fn flush_report(&mut self, tx: &mut dyn Outbound) -> Result<bool, End> {
        let Some(report) = &self.report else {
            return Ok(true);
        };
        let detail = &report.detail[..report.detail.len().min(self.room - 4)];
        let Some(room) = tx.reserve(4 + detail.len(), 8)? else {
            return Ok(false);
        };
        room[..4].copy_from_slice(&report.handle.to_le_bytes());
        room[4..4 + detail.len()].copy_from_slice(detail);
        let header = Header::new(Kind::Report, report.status.code(), report.sequence.into());
        tx.commit(header, 4 + detail.len());
        self.report = None;
        Ok(true)
    }
}
