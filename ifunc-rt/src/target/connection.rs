//! One source, as its target sees it: frames in order, handles, completions.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use ifunc_abi::image::Flags;
use ifunc_abi::status::{Rejection, Status};

use super::Host;
use super::invoke::{Failed, Invocation, invoke, invoke_watched};
use super::policy::{ImageInfo, SourceInfo};
use super::replies::Replies;
use super::stats::{About, HandleBook, Pages, SourceBook};
use crate::exec::entry::Session;
use crate::load::Refusal;
use crate::load::install::{Installed, TargetType, judge, resolve};
use crate::transports::{Arrived, Gone, Inbound, Key, Link, Waiter};
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

// Boxed: what nearly never happens travels in a register through what happens for every frame.
impl From<Gone> for Box<End> {
    fn from(gone: Gone) -> Self {
        Box::new(match gone {
            Gone::Closed => End::Left,
            Gone::Malformed(what) => End::Broke(what.into()),
        })
    }
}

/// An `Exec` that has no answer.
enum Unwell {
    /// The source is told why.
    Told(Status, Vec<u8>),
    /// The connection is over.
    Over(Box<End>),
}

impl From<Refusal> for Box<Unwell> {
    fn from(refusal: Refusal) -> Self {
        Box::new(Unwell::Told(
            Status::Rejected(refusal.reason),
            refusal.detail.as_bytes().to_vec(),
        ))
    }
}

/// What a handle stands for.
#[derive(Debug)]
enum Binding {
    Free,
    Bound(Bound),
    /// `Exec`s on it complete with the reason.
    Refused(Refusal),
}

/// An image, and what is counted of it.
#[derive(Debug)]
struct Bound {
    image: Arc<Installed>,
    book: HandleBook,
}

/// What invocations run on.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub(super) target_type: TargetType,
    pub(super) target: *mut c_void,
    /// Others run on it at the same time.
    pub(super) shared: bool,
}

/// How much of a connection is looked at before the next one has its turn: so many frames, or bodies of
/// [`SHARE_BYTES`] bytes.
const SHARE: usize = 64;
/// How many frames an image counts for, however small it is.
const INSTALL: usize = 8;
/// Bytes of bodies in a turn: as many as a processor copies in the time that 64 small invocations take.
const SHARE_BYTES: usize = 256 << 10;

pub(super) struct Connection {
    rx: Box<dyn Inbound>,
    replies: Replies,
    /// Holds the transport's end of the connection open.
    waiter: Arc<dyn Waiter>,
    order: Order,
    state: State,
    /// The last look found a frame that has to wait for room.
    stalled: bool,
    key: Key,
    /// A frame was found since [`take_busy`](Self::take_busy) asked.
    busy: bool,
}

/// What frames act on.
struct State {
    source: SourceInfo,
    bindings: Vec<Binding>,
    assembly: Assembly,
    scratch: AlignedBuffer,
    copy_payloads: bool,
    /// Whether it may ask what was counted.
    may_ask: bool,
    pages: Pages,
    /// Parent of the spans of its invocations.
    span: tracing::Span,
    /// Behind the bindings, which are given back to it.
    book: SourceBook,
}

impl Connection {
    pub(super) fn new(number: u64, link: Link, host: &Host) -> Self {
        let me = rustix::process::geteuid().as_raw();
        let foreign = link.peer.uid != Some(me);
        let copy_payloads = host.copy_payloads || foreign;
        // Where nobody knows whose a peer is, whoever reaches the address is trusted with more than numbers.
        let may_ask = host
            .share_stats
            .unwrap_or(link.peer.uid.is_none_or(|uid| uid == me));
        let source = SourceInfo::new(number, &link.peer);
        let carried_by = link.waiter.carried_by();
        let lanes = carried_by.split_whitespace().map(Into::into).collect();
        let span = tracing::info_span!(
            "connection",
            source = number,
            uid = source.uid,
            pid = source.pid,
            over = carried_by
        );
        tracing::info!(parent: &span, "source connected");
        Self {
            rx: link.rx,
            replies: Replies::new(link.tx, host.limits.max_answer, copy_payloads),
            waiter: link.waiter,
            order: Order::new(),
            state: State {
                source,
                bindings: Vec::new(),
                assembly: Assembly::default(),
                scratch: AlignedBuffer::default(),
                copy_payloads,
                may_ask,
                pages: Pages::default(),
                span,
                book: host.book.connected(source, lanes),
            },
            stalled: false,
            key: link.key,
            busy: true,
        }
    }

    /// What carries it, by the transport's own account.
    pub(super) fn carried_by(&self) -> String {
        self.waiter.carried_by()
    }

    pub(super) fn source(&self) -> &SourceInfo {
        &self.state.source
    }

    /// Says why it is over.
    pub(super) fn ended(&self, end: &End) {
        match end {
            End::Left => tracing::info!(parent: &self.state.span, "source left"),
            End::Broke(what) => {
                tracing::warn!(parent: &self.state.span, %what, "source broke the protocol; closed")
            }
        }
    }

    /// By which the listener names it.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Whether a frame was found since the last time this was asked.
    pub(super) fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.busy)
    }

    /// Whether a look would find something. If not, the source gets its credits.
    pub(super) fn has_work(&mut self) -> bool {
        let some = self.order.has_parked() || !matches!(self.rx.peek(), Ok(None));
        if !some {
            self.rx.settle();
        }
        some
    }

    /// Looks at a fair share of what has arrived, and returns how many frames were dealt with.
    pub(super) fn poll(
        &mut self,
        host: &Host,
        session: &mut Session<'_>,
        argument: Argument,
    ) -> Result<usize, Box<End>> {
        let Self {
            rx,
            replies,
            order,
            state,
            stalled,
            busy,
            ..
        } = self;
        let mut done = 0;
        let mut share = Share::default();
        *stalled = false;
        while !share.is_used_up() {
            if let Some(parked) = order.take_next() {
                let header = Header::parse(parked.words).map_err(broke)?;
                if !replies.admit(header.token)? {
                    order.park_again(parked);
                    *stalled = true;
                    break;
                }
                let sequence = order.advance();
                let arrived = parked.arrived(sequence);
                share.take(header, arrived.body.len(), &state.assembly);
                state.frame(replies, host, session, argument, header, &arrived)?;
                done += 1;
                continue;
            }
            let Some(arrived) = rx.peek()? else { break };
            match order.turn(arrived.sequence) {
                Turn::Now => {
                    let header = Header::parse(arrived.words).map_err(broke)?;
                    if !replies.admit(header.token)? {
                        *stalled = true;
                        break;
                    }
                    // Before it runs: whatever happens then, it is not run twice.
                    order.advance();
                    share.take(header, arrived.body.len(), &state.assembly);
                    state.frame(replies, host, session, argument, header, &arrived)?;
                    done += 1;
                }
                Turn::Later => order
                    .park(&arrived)
                    .map_err(|_| broke("more frames ahead of their turn than there are credits"))?,
                Turn::Past => {}
            }
            rx.release();
        }
        if !share.is_used_up() {
            rx.settle();
        }
        if *stalled || state.book.link.stalled.load(Relaxed) {
            state.book.link.stalled(*stalled);
        }
        *busy |= done > 0;
        Ok(done)
    }

    /// Announces that nobody looks here until the listener says so. It holds behind the listener's fence.
    pub(super) fn rest(&mut self) {
        self.rx.rest();
    }

    /// Whether there is nothing to do. Asked behind the fence.
    pub(super) fn is_quiet(&mut self) -> bool {
        // What waits is known; what matters is room for its answer.
        if self.stalled {
            self.replies.is_full()
        } else {
            self.rx.is_quiet()
        }
    }

    /// It is looked at again.
    pub(super) fn wake(&mut self) {
        self.rx.disarm();
        self.busy = true;
    }
}

/// What a connection has used of its turn, in frames.
#[derive(Default)]
struct Share(usize);

impl Share {
    fn take(&mut self, header: Header, bytes: usize, assembly: &Assembly) {
        let install = header.kind == Kind::Install;
        let bytes = match (install, header.flags.has(FrameFlags::ASSEMBLED)) {
            // Hashed, judged and copied as a whole.
            (true, true) => bytes + assembly.len(),
            _ => bytes,
        };
        self.0 += if install { INSTALL } else { 1 } + bytes / (SHARE_BYTES / SHARE);
    }

    fn is_used_up(&self) -> bool {
        self.0 >= SHARE
    }
}

fn broke(error: impl std::fmt::Display) -> Box<End> {
    Box::new(End::Broke(error.to_string()))
}

impl State {
    /// Deals with a frame that was admitted.
    fn frame(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        session: &mut Session<'_>,
        argument: Argument,
        header: Header,
        arrived: &Arrived<'_>,
    ) -> Result<(), Box<End>> {
        match header.kind {
            Kind::Exec => match self.exec(replies, host, session, argument, header, arrived) {
                Ok(answer_len) => replies.answer(header.token, answer_len),
                Err(unwell) => match *unwell {
                    Unwell::Told(status, detail) => {
                        self.count_unwell(status, arrived.body.len(), detail.len());
                        replies.conclude(arrived.sequence, header, status, &detail)
                    }
                    Unwell::Over(end) => Err(end),
                },
            },
            _ => self.other_frame(replies, host, argument, header, arrived),
        }
    }

    /// Deals with a frame that is no `Exec`.
    fn other_frame(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        argument: Argument,
        header: Header,
        arrived: &Arrived<'_>,
    ) -> Result<(), Box<End>> {
        self.book.link.other_frames.add(1);
        match header.kind {
            Kind::Install => {
                let (status, detail) = match self.install(host, argument, header, arrived)? {
                    Ok(()) => (Status::Executed, "".into()),
                    Err(refusal) => (Status::Rejected(refusal.reason), refusal.detail),
                };
                // Without a token nothing is said: the frames that want the image will be told.
                if header.token == 0 {
                    Ok(())
                } else {
                    self.book.link.bytes_out.add(detail.len() as u64);
                    replies.complete(header.token, status, detail.as_bytes())
                }
            }
            Kind::Unbind => {
                if let Some(binding) = self.bindings.get_mut(header.handle as usize) {
                    *binding = Binding::Free;
                }
                Ok(())
            }
            Kind::Fragment => {
                let image = host
                    .limits
                    .max_image
                    .saturating_add(InstallHead::SIZE as u64 + 1024);
                let limit = usize::try_from(host.limits.max_payload.max(image)).unwrap_or(usize::MAX);
                self.assembly
                    .part(header.handle, header.token, &arrived.body, limit)
                    .map_err(broke)?;
                failpoint!("target.fragment");
                Ok(())
            }
            Kind::Sync => replies.complete(header.token, Status::Executed, b""),
            Kind::Stats => {
                if header.token == 0 {
                    return Err(broke("a question that wants no answer"));
                }
                let (status, page) = if self.may_ask {
                    let (book, room) = (self.book.book(), replies.room());
                    self.pages.page(book, self.source.connection, header.handle, room)
                } else {
                    let why = "this target does not tell what it counts; help: `Target::builder().share_stats(true)` on the target";
                    (Status::Rejected(Rejection::Policy), why.into())
                };
                self.book.link.bytes_out.add(page.len() as u64);
                replies.complete(header.token, status, &page)
            }
            Kind::Exec | Kind::Completion | Kind::Report => {
                Err(broke(format!("a source sent a {:?}", header.kind)))
            }
        }
    }

    /// Counts an `Exec` that has no answer.
    #[cold]
    fn count_unwell(&self, status: Status, payload: usize, detail: usize) {
        let link = &self.book.link;
        match status {
            // Its handle has counted the rest.
            Status::Failed(why) => link.failed.count(why),
            Status::Rejected(why) => {
                link.rejected.count(why);
                link.bytes_in.add(payload as u64);
            }
            Status::Executed => {}
        }
        link.bytes_out.add(detail as u64);
    }

    fn exec(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        session: &mut Session<'_>,
        argument: Argument,
        header: Header,
        arrived: &Arrived<'_>,
    ) -> Result<usize, Box<Unwell>> {
        let Self {
            source,
            bindings,
            assembly,
            scratch,
            copy_payloads,
            span,
            ..
        } = self;
        let assembled = header.flags.has(FrameFlags::ASSEMBLED);
        // Borrowed, not cloned: a reference count costs as much as the rest of a small invocation.
        let bound = match bound(bindings, host, argument, header.handle) {
            Ok(bound) => bound,
            Err(refusal) => {
                if assembled {
                    assembly.clear();
                }
                return Err(refusal.into());
            }
        };
        let (image, counters) = (&*bound.image, &*bound.book.counters);
        let (payload, size) = if assembled {
            let whole = assembly
                .finish(&arrived.body)
                .map_err(|error| Box::new(Unwell::Over(broke(error))))?;
            (whole.as_slice().as_ptr(), whole.len())
        } else if *copy_payloads || !arrived.body.as_ptr().addr().is_multiple_of(image.payload_align) {
            scratch.resize(arrived.body.len());
            arrived.body.copy_to_slice(scratch.as_mut_slice());
            (scratch.as_slice().as_ptr(), scratch.len())
        } else {
            (arrived.body.as_ptr(), arrived.body.len())
        };
        if size as u64 > host.limits.max_payload {
            let limit = host.limits.max_payload;
            let detail = format!("a payload of {size} bytes, the limit is {limit}");
            return Err(Refusal::new(Rejection::TooLarge, detail).into());
        }
        let invocation = Invocation {
            image,
            payload,
            size,
            target: argument.target,
            sender: source.connection,
        };
        let room = replies.answer_room(header.token);
        let watched = counters.is_due() || tracing::level_enabled!(tracing::Level::TRACE);
        let outcome = if watched {
            invoke_watched(span, counters, session, &invocation, arrived.sequence, room)
        } else {
            invoke(session, &invocation, room)
        };
        failpoint!("target.answer");
        if assembled {
            assembly.clear();
        }
        match outcome {
            Ok(answer_len) => {
                counters.executed(size, answer_len);
                Ok(answer_len)
            }
            Err(failed) => {
                counters.failed(size);
                let Failed { why, detail } = *failed;
                tracing::debug!(
                    parent: &*span, ifunc = %image.name, source = source.connection, %why, "invocation failed"
                );
                Err(Box::new(Unwell::Told(Status::Failed(why), detail)))
            }
        }
    }

    fn install(
        &mut self,
        host: &Host,
        argument: Argument,
        header: Header,
        arrived: &Arrived<'_>,
    ) -> Result<Result<(), Refusal>, Box<End>> {
        let handle = header.handle as usize;
        let mut body = Vec::new();
        if header.flags.has(FrameFlags::ASSEMBLED) {
            let whole = self.assembly.finish(&arrived.body).map_err(broke)?;
            body.extend_from_slice(whole.as_slice());
            self.assembly.clear();
        } else if self.rebinds_the_same(handle, arrived) {
            self.book.link.bytes_in.add(arrived.body.len() as u64);
            return Ok(Ok(()));
        } else {
            // Out of the transport's memory: what is hashed, judged and run from here on is this copy.
            arrived.body.copy_to(&mut body);
        }
        self.book.link.bytes_in.add(body.len() as u64);
        if handle >= host.max_handles {
            self.book.refused(Rejection::TooLarge, None);
            return Ok(Err(too_many_handles(host, header.handle)));
        }
        let (head, _signature, image) = InstallHead::split(&body).map_err(broke)?;
        if self.bindings.len() <= handle {
            self.bindings.resize_with(handle + 1, || Binding::Free);
        }
        // What the handle stood for goes first: its room may be what the new image needs.
        self.bindings[handle] = Binding::Free;
        let mut about = None;
        let (binding, result) = match self.accept(host, argument, &head.id, image, &mut about) {
            Ok(installed) => {
                let about = About {
                    id: &installed.id,
                    name: &installed.name,
                    size: image.len(),
                };
                let book = self.book.bound(header.handle, about);
                let image = installed;
                (Binding::Bound(Bound { image, book }), Ok(()))
            }
            Err(refusal) => {
                let (reason, detail) = (refusal.reason, &refusal.detail);
                let name = about.map(|about| about.name);
                tracing::warn!(parent: &self.span, source = self.source.connection, name, %reason, %detail, "image refused");
                self.book.refused(reason, about);
                (Binding::Refused(refusal.clone()), Err(refusal))
            }
        };
        failpoint!("target.install");
        self.bindings[handle] = binding;
        Ok(result)
    }

    /// An `Install` of the id that the handle already stands for; its image is not looked at.
    fn rebinds_the_same(&self, handle: usize, arrived: &Arrived<'_>) -> bool {
        let Some(Binding::Bound(bound)) = self.bindings.get(handle) else {
            return false;
        };
        let mut id = [0; 32];
        let same = arrived.body.prefix(&mut id) && id == bound.image.id;
        if same {
            self.book.bound_again(&bound.book);
        }
        same
    }

    /// Installs an image; `about` says what it is, once that is known to be true.
    fn accept<'a>(
        &self,
        host: &Host,
        argument: Argument,
        id: &'a [u8; 32],
        bytes: &'a [u8],
        about: &mut Option<About<'a>>,
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
        let image = judge(bytes, host.max_image_memory)?;
        *about = Some(About {
            id,
            name: image.name(),
            size: bytes.len(),
        });
        if image.target() != 0 && image.target() != argument.target_type.fingerprint {
            return Err(Refusal::new(Rejection::TargetType, argument.target_type.text));
        }
        if argument.shared && !image.flags().has(Flags::SHARED) {
            return Err(not_shareable());
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
        // What names stand for does not change while a target lives: what was resolved once need not be again.
        if let Some(installed) = host.cache().get(id) {
            return Ok(installed);
        }
        let got = resolve(&image, &host.names)?;
        // Meanwhile another thread may have installed it.
        let mut cache = host.cache();
        match cache.get(id) {
            Some(installed) => Ok(installed),
            None => cache.insert(*id, &image, &got),
        }
    }
}

fn too_many_handles(host: &Host, handle: u32) -> Refusal {
    Refusal::new(
        Rejection::TooLarge,
        format!("handle {handle}, the limit is {} handles", host.max_handles),
    )
}

fn not_shareable() -> Refusal {
    Refusal::new(
        Rejection::NotShareable,
        "this target serves on several threads, and the ifunc takes its data for itself alone; help: take `&T` of a type that is `Sync` (atomics, or an opaque type with host functions that take `&T`), in C say `IFUNC_SHAREABLE(name)`, or let the target `serve`",
    )
}

/// The image that a handle stands for, if it can run on these target arguments.
fn bound<'a>(
    bindings: &'a [Binding],
    host: &Host,
    argument: Argument,
    handle: u32,
) -> Result<&'a Bound, Refusal> {
    let Argument {
        target_type, shared, ..
    } = argument;
    match bindings.get(handle as usize) {
        Some(Binding::Bound(Bound { image, .. }))
            if image.target != 0 && image.target != target_type.fingerprint =>
        {
            Err(Refusal::new(Rejection::TargetType, target_type.text))
        }
        // Bound while the target served on one thread.
        Some(Binding::Bound(Bound { image, .. })) if shared && !image.flags.has(Flags::SHARED) => {
            Err(not_shareable())
        }
        Some(Binding::Bound(bound)) => Ok(bound),
        Some(Binding::Refused(refusal)) => Err(refusal.clone()),
        None if handle as usize >= host.max_handles => Err(too_many_handles(host, handle)),
        None | Some(Binding::Free) => Err(Refusal::new(Rejection::Unbound, format!("handle {handle}"))),
    }
}
