//! The source's end of a connection: what was bound, what is under way, what came back, and what becomes of it all when
//! the target goes away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use ifunc_abi::status::Status;
use zerocopy::IntoBytes;

use super::Source;
use super::call::{Completion, explain};
use super::error::Error;
use super::library::Library;
use super::options::SourceOptions;
use crate::transports::address::Address;
use crate::transports::{Arrived, ConnectError, Gone, Link, connect};
use crate::wire::order::{Order, Turn};

/// Most failures of sends that are kept until somebody asks.
const MAX_REPORTS: usize = 64;

#[derive(Debug)]
pub(super) struct Connection {
    address: Address,
    options: SourceOptions,
    link: Option<Link>,
    /// Counts connections: what was installed over an earlier one is not installed over this one.
    generation: u64,
    reconnecting_since: Option<Instant>,
    order: Order,
    handles: Vec<Slot>,
    unbind: Vec<u32>,
    pending: Vec<Pending>,
    free: Vec<u32>,
    /// A body that travels in fragments; nothing else is sent before it is through.
    job: Option<Job>,
    bodies: u32,
    /// Calls of idempotent ifuncs that died with the connection before.
    resend: VecDeque<u64>,
    /// The last fire-and-forget frame: its sequence and its handle.
    last_send: Option<(u32, u32)>,
    reports: VecDeque<Error>,
}

/// A handle.
#[derive(Debug)]
struct Slot {
    library: Arc<Library>,
    users: usize,
    /// The generation it was installed in; 0: in none.
    installed: u64,
}

/// A completion that is waited for. Its place and `serial` make the token.
#[derive(Debug)]
struct Pending {
    serial: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting {
        what: What,
        /// Sequence of the frame.
        sequence: u32,
        /// The payload, if it may be run again.
        again: Option<Vec<u8>>,
    },
    Done(Result<Completion, Error>),
    /// Nobody waits any more.
    Abandoned,
}

/// What a completion is of.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Everything sent before.
    Flush,
    /// An invocation of this handle's image.
    Ifunc(u32),
}

#[derive(Debug)]
struct Job {
    header: Header,
    body: Vec<u8>,
    sent: usize,
    number: u32,
}

/// What is to be sent.
pub(super) struct Submission<'a> {
    pub(super) handle: u32,
    /// Most bytes of the payload.
    pub(super) bound: usize,
    pub(super) align: usize,
    /// Whether a completion is wanted.
    pub(super) wants: bool,
    /// Writes the payload.
    pub(super) encode: &'a mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
}

impl Connection {
    pub(super) fn connect(address: Address, options: SourceOptions) -> Result<Self, ConnectError> {
        let until = Instant::now() + options.connect_timeout;
        let link = loop {
            match connect(&address, until) {
                Ok(link) => break link,
                // The two are often started at once, and the target is not there yet.
                Err(error) if error.may_pass() && Instant::now() < until => {
                    std::thread::sleep(Backoff::RETRY)
                }
                Err(error) => return Err(error),
            }
        };
        Ok(Self {
            address,
            options,
            link: Some(link),
            generation: 1,
            reconnecting_since: None,
            order: Order::new(),
            handles: Vec::new(),
            unbind: Vec::new(),
            pending: Vec::new(),
            free: Vec::new(),
            job: None,
            bodies: 0,
            resend: VecDeque::new(),
            last_send: None,
            reports: VecDeque::new(),
        })
    }

    pub(super) fn options(&self) -> SourceOptions {
        self.options
    }

    /// A handle for an image. Nothing is sent before its first use.
    pub(super) fn bind(&mut self, library: Arc<Library>) -> u32 {
        let same = self
            .handles
            .iter()
            .position(|slot| slot.users > 0 && slot.library.id == library.id);
        let unused = || self.handles.iter().position(|slot| slot.users == 0);
        let index = match same.or_else(unused) {
            Some(index) => {
                let slot = &mut self.handles[index];
                if slot.library.id != library.id {
                    slot.installed = 0;
                }
                slot.library = library;
                slot.users += 1;
                index
            }
            None => {
                self.handles.push(Slot {
                    library,
                    users: 1,
                    installed: 0,
                });
                self.handles.len() - 1
            }
        };
        self.unbind.retain(|&handle| handle as usize != index);
        index as u32
    }

    /// Gives a handle back.
    pub(super) fn unbind(&mut self, handle: u32) {
        let slot = &mut self.handles[handle as usize];
        slot.users -= 1;
        if slot.users == 0 && slot.installed == self.generation {
            self.unbind.push(handle);
        }
    }

    /// Sends, if there is room now; `None` if there is not. With `wants` the result is the token, otherwise 0.
    pub(super) fn try_submit(&mut self, submission: &mut Submission<'_>) -> Result<Option<u64>, Error> {
        self.progress();
        if !submission.wants
            && let Some(report) = self.take_report()
        {
            return Err(Error::Earlier(Box::new(report)));
        }
        let handle = submission.handle;
        if !self.ready(handle)? {
            return Ok(None);
        }
        let Some(link) = &mut self.link else {
            return Ok(None);
        };
        let library = &self.handles[handle as usize].library;
        let limit = link.limits.max_payload;
        let too_large = |len: usize| Error::PayloadTooLarge {
            ifunc: library.name.clone(),
            len: len as u64,
            limit,
        };
        let again = submission.wants && library.is_idempotent();

        if submission.bound > link.tx.max_body() {
            // In fragments, from a buffer of its own.
            let mut body = Vec::new();
            body.try_reserve_exact(submission.bound)
                .map_err(|_| too_large(submission.bound))?;
            body.resize(submission.bound, 0);
            let len = (submission.encode)(&mut body)?;
            body.truncate(len);
            if len as u64 > limit {
                return Err(too_large(len));
            }
            let wants = submission.wants;
            let token = if wants {
                self.wait_for(What::Ifunc(handle), again.then(|| body.clone()))
            } else {
                0
            };
            self.start(Header::new(Kind::Exec, handle, token), body);
            self.drive();
            return Ok(Some(token));
        }
        let room = match link.tx.reserve(submission.bound, submission.align) {
            Ok(Some(room)) => room,
            Ok(None) => return Ok(None),
            Err(gone) => {
                self.lost(&gone);
                return Ok(None);
            }
        };
        let len = (submission.encode)(room)?;
        if len as u64 > limit {
            return Err(too_large(len));
        }
        if !submission.wants {
            self.commit(Header::new(Kind::Exec, handle, 0), len);
            return Ok(Some(0));
        }
        let payload = again.then(|| room[..len].to_vec());
        let token = self.wait_for(What::Ifunc(handle), payload);
        self.commit(Header::new(Kind::Exec, handle, token), len);
        Ok(Some(token))
    }

    /// Asks for a completion when everything before was consumed.
    pub(super) fn try_sync(&mut self) -> Result<Option<u64>, Error> {
        self.progress();
        if self.link.is_none() && self.resend.is_empty() && self.job.is_none() {
            // Nothing is under way; what was lost has been reported.
            let token = self.wait_for(What::Flush, None);
            self.complete(token, Ok(Completion::executed()));
            return Ok(Some(token));
        }
        if !self.connected(What::Flush)? || !self.drive() {
            return Ok(None);
        }
        let Some(link) = &mut self.link else {
            return Ok(None);
        };
        match link.tx.reserve(0, 1) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(gone) => {
                self.lost(&gone);
                return Ok(None);
            }
        }
        let token = self.wait_for(What::Flush, None);
        self.commit(Header::new(Kind::Sync, 0, token), 0);
        Ok(Some(token))
    }

    /// Whether nothing large is still on its way out.
    pub(super) fn try_drain(&mut self) -> bool {
        self.progress();
        self.drive()
    }

    /// What is known of a token: taken, if it is done.
    pub(super) fn try_take(&mut self, token: u64) -> Option<Result<Completion, Error>> {
        self.progress();
        let what = match &self.pending(token)?.state {
            State::Waiting { what, .. } => Some(*what),
            _ => None,
        };
        if let Some(what) = what {
            // Also brings back a lost connection, if something is to be sent again over it.
            let again = !self.resend.is_empty() || self.job.is_some();
            if again && self.link.is_none() {
                if let Err(error) = self.connected(what) {
                    self.complete(token, Err(error));
                }
            } else if again {
                self.drive();
            }
        }
        let pending = self.pending(token)?;
        if !matches!(pending.state, State::Done(_)) {
            return None;
        }
        let State::Done(result) = std::mem::replace(&mut pending.state, State::Free) else {
            return None;
        };
        self.free.push(index_of(token));
        Some(result)
    }

    /// Nobody waits for the token any more.
    pub(super) fn abandon(&mut self, token: u64) {
        self.resend.retain(|&again| again != token);
        let lost = self.link.is_none();
        let Some(pending) = self.pending(token) else {
            return;
        };
        if matches!(pending.state, State::Waiting { .. }) && !lost {
            pending.state = State::Abandoned;
        } else if !matches!(pending.state, State::Free | State::Abandoned) {
            pending.state = State::Free;
            self.free.push(index_of(token));
        }
    }

    /// The oldest failure of a send that nobody has heard of.
    pub(super) fn take_report(&mut self) -> Option<Error> {
        self.reports.pop_front()
    }

    // ---- sending -------------------------------------------------------------------------------------------------

    /// Connected, nothing large under way, and the handle's image installed. `false`: not now.
    fn ready(&mut self, handle: u32) -> Result<bool, Error> {
        Ok(self.connected(What::Ifunc(handle))? && self.drive() && self.installed(handle)? && self.drive())
    }

    /// Connected, if need be again. `false`: not yet.
    fn connected(&mut self, what: What) -> Result<bool, Error> {
        if self.link.is_some() {
            return Ok(true);
        }
        let what = self.name(what);
        let gone = |why: String| Error::PeerGone {
            what: what.clone(),
            why,
        };
        if self.options.reconnect.is_zero() {
            return Err(gone("reconnecting is switched off".into()));
        }
        let since = *self.reconnecting_since.get_or_insert_with(Instant::now);
        let give_up = since + self.options.reconnect;
        match connect(
            &self.address,
            give_up.min(Instant::now() + self.options.connect_timeout),
        ) {
            Ok(link) => {
                tracing::info!(address = %self.address, "connected again");
                self.link = Some(link);
                self.generation += 1;
                self.order = Order::new();
                self.reconnecting_since = None;
                self.unbind.clear();
                Ok(true)
            }
            Err(error) if Instant::now() >= give_up || !error.may_pass() => {
                self.reconnecting_since = None;
                let why = error.to_string();
                while let Some(token) = self.resend.pop_front() {
                    self.complete(token, Err(gone(why.clone())));
                }
                Err(gone(why))
            }
            Err(_) => Ok(false),
        }
    }

    /// The handle's image is installed or on its way, in order. `false`: no room now.
    fn installed(&mut self, handle: u32) -> Result<bool, Error> {
        let slot = &mut self.handles[handle as usize];
        if slot.installed == self.generation {
            return Ok(true);
        }
        let library = Arc::clone(&slot.library);
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        let limit = link.limits.max_image;
        if library.image.len() as u64 > limit {
            return Err(Error::ImageTooLarge {
                ifunc: library.name.clone(),
                len: library.image.len() as u64,
                limit,
            });
        }
        let head = InstallHead::unsigned(library.id);
        let len = InstallHead::SIZE + library.image.len();
        let header = Header::new(Kind::Install, handle, 0);
        if len > link.tx.max_body() {
            self.handles[handle as usize].installed = self.generation;
            let mut body = head.as_bytes().to_vec();
            body.extend_from_slice(&library.image);
            self.start(header, body);
            return Ok(true);
        }
        match link.tx.reserve(len, 8) {
            Ok(Some(room)) => {
                let (to_head, to_image) = room[..len].split_at_mut(InstallHead::SIZE);
                to_head.copy_from_slice(head.as_bytes());
                to_image.copy_from_slice(&library.image);
                link.tx.commit(header, len);
                self.handles[handle as usize].installed = self.generation;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(gone) => {
                self.lost(&gone);
                Ok(false)
            }
        }
    }

    /// Publishes what was reserved, and remembers its place for the day the target goes away.
    fn commit(&mut self, header: Header, len: usize) {
        let Some(link) = &mut self.link else { return };
        let place = link.tx.commit(header, len);
        if header.kind == Kind::Exec && header.token == 0 {
            self.last_send = Some((place, header.handle));
        } else if let Some(Pending {
            state: State::Waiting { sequence, .. },
            ..
        }) = self.pending(header.token)
        {
            *sequence = place;
        }
    }

    /// Begins to send a body in fragments.
    fn start(&mut self, header: Header, body: Vec<u8>) {
        self.bodies = self.bodies.wrapping_add(1);
        self.job = Some(Job {
            header,
            body,
            sent: 0,
            number: self.bodies,
        });
    }

    /// Sends on what is under way: fragments, calls to be sent again, handles to be released. `false`: no room for all
    /// of it now.
    fn drive(&mut self) -> bool {
        if self.job.is_none() && self.resend.is_empty() && self.unbind.is_empty() {
            return true;
        }
        match self.try_drive() {
            Ok(done) => done,
            Err(gone) => {
                self.lost(&gone);
                false
            }
        }
    }

    fn try_drive(&mut self) -> Result<bool, Gone> {
        loop {
            let Some(link) = &mut self.link else {
                return Ok(false);
            };
            if let Some(job) = &mut self.job {
                let left = job.body.len() - job.sent;
                let most = link.tx.max_body();
                let len = left.min(most);
                let Some(room) = link.tx.reserve(len, ifunc_abi::frame::BODY_ALIGN)? else {
                    return Ok(false);
                };
                room[..len].copy_from_slice(&job.body[job.sent..job.sent + len]);
                if left > most {
                    let header = Header::new(Kind::Fragment, job.number, job.body.len() as u64);
                    link.tx.commit(header, len);
                    job.sent += len;
                    continue;
                }
                let flags = if job.sent > 0 {
                    FrameFlags::ASSEMBLED
                } else {
                    FrameFlags::NONE
                };
                let header = Header { flags, ..job.header };
                self.job = None;
                self.commit(header, len);
            } else if let Some(&token) = self.resend.front() {
                let again = match self.pending(token).map(|pending| &pending.state) {
                    Some(State::Waiting {
                        what: What::Ifunc(handle),
                        again: Some(payload),
                        ..
                    }) => Some((*handle, payload.clone())),
                    _ => None,
                };
                if let Some((handle, payload)) = again {
                    match self.installed(handle) {
                        Ok(true) => {}
                        Ok(false) => return Ok(false),
                        Err(error) => {
                            self.resend.pop_front();
                            self.complete(token, Err(error));
                            continue;
                        }
                    }
                    if self.job.is_some() {
                        continue;
                    }
                    self.start(Header::new(Kind::Exec, handle, token), payload);
                }
                self.resend.pop_front();
            } else if let Some(handle) = self.unbind.pop() {
                if link.tx.reserve(0, 1)?.is_none() {
                    self.unbind.push(handle);
                    return Ok(false);
                }
                link.tx.commit(Header::new(Kind::Unbind, handle, 0), 0);
                self.handles[handle as usize].installed = 0;
            } else {
                return Ok(true);
            }
        }
    }

    // ---- receiving -----------------------------------------------------------------------------------------------

    /// Takes in what has come back, and notices a target that went away.
    fn progress(&mut self) {
        let Some(link) = &mut self.link else { return };
        let gone = link.waiter.is_gone();
        match self.receive() {
            Err(gone) => self.lost(&gone),
            // Known to be gone, and everything it had sent has been taken in.
            Ok(()) if gone => self.lost(&Gone::Closed),
            Ok(()) => {}
        }
    }

    fn receive(&mut self) -> Result<(), Gone> {
        let mut received = false;
        loop {
            if let Some(parked) = self.order.take_next() {
                let next = self.order.next();
                let read = read(&parked.arrived(next))?;
                self.order.advance();
                self.take_in(read);
                continue;
            }
            let Some(link) = &mut self.link else { return Ok(()) };
            let Some(arrived) = link.rx.peek()? else {
                if received {
                    link.rx.settle();
                }
                return Ok(());
            };
            received = true;
            let read = match self.order.turn(arrived.sequence) {
                Turn::Now => {
                    let read = read(&arrived)?;
                    self.order.advance();
                    Some(read)
                }
                Turn::Later => {
                    self.order
                        .park(&arrived)
                        .map_err(|_| Gone::Malformed("completions too far ahead of their turn"))?;
                    None
                }
                Turn::Past => None,
            };
            link.rx.release();
            if let Some(read) = read {
                self.take_in(read);
            }
        }
    }

    fn take_in(&mut self, (kind, token, completion): (Kind, u64, Completion)) {
        if kind == Kind::Completion {
            self.complete(token, Ok(completion));
            return;
        }
        let (handle, detail) = completion.split_report();
        if let Some(slot) = self.handles.get(handle as usize)
            && self.reports.len() < MAX_REPORTS
        {
            self.reports
                .push_back(explain(&slot.library.name, Some(&slot.library.about()), &detail));
        }
    }

    fn complete(&mut self, token: u64, result: Result<Completion, Error>) {
        let Some(pending) = self.pending(token) else {
            return;
        };
        match pending.state {
            State::Waiting { .. } => pending.state = State::Done(result),
            State::Abandoned => {
                pending.state = State::Free;
                self.free.push(index_of(token));
            }
            State::Free | State::Done(_) => {}
        }
    }

    /// The target went away: every completion ends or is asked for again.
    fn lost(&mut self, gone: &Gone) {
        let Some(mut link) = self.link.take() else { return };
        tracing::info!(address = %self.address, %gone, "the target went away");
        let unsent = self.job.take().map(|job| job.header);
        if let Some((sequence, handle)) = self.last_send.take()
            && link.tx.is_unconsumed(sequence)
        {
            self.report(Error::Indeterminate {
                what: self.name(What::Ifunc(handle)),
            });
        }
        if let Some(Header {
            kind: Kind::Exec,
            handle,
            token: 0,
            ..
        }) = unsent
        {
            self.report(Error::PeerGone {
                what: self.name(What::Ifunc(handle)),
                why: gone.to_string(),
            });
        }
        self.resend.clear();
        for index in 0..self.pending.len() {
            let pending = &mut self.pending[index];
            let token = token_of(index as u32, pending.serial);
            match &mut pending.state {
                State::Waiting { again: Some(_), .. } => self.resend.push_back(token),
                State::Waiting {
                    what, again: None, ..
                } => {
                    let what = name_in(&self.handles, *what);
                    let never_sent = unsent.is_some_and(|header| header.token == token);
                    pending.state = State::Done(Err(if never_sent {
                        Error::PeerGone {
                            what,
                            why: gone.to_string(),
                        }
                    } else {
                        Error::Indeterminate { what }
                    }));
                }
                State::Abandoned => {
                    pending.state = State::Free;
                    self.free.push(index as u32);
                }
                State::Free | State::Done(_) => {}
            }
        }
    }

    fn report(&mut self, error: Error) {
        if self.reports.len() < MAX_REPORTS {
            self.reports.push_back(error);
        }
    }

    fn name(&self, what: What) -> String {
        name_in(&self.handles, what)
    }

    // ---- tokens --------------------------------------------------------------------------------------------------

    fn wait_for(&mut self, what: What, again: Option<Vec<u8>>) -> u64 {
        let state = State::Waiting {
            what,
            sequence: 0,
            again,
        };
        let index = match self.free.pop() {
            Some(index) => {
                let pending = &mut self.pending[index as usize];
                pending.serial = pending.serial.wrapping_add(1).max(1);
                pending.state = state;
                index
            }
            None => {
                self.pending.push(Pending { serial: 1, state });
                (self.pending.len() - 1) as u32
            }
        };
        token_of(index, self.pending[index as usize].serial)
    }

    fn pending(&mut self, token: u64) -> Option<&mut Pending> {
        let pending = self.pending.get_mut(index_of(token) as usize)?;
        (pending.serial == (token >> 32) as u32).then_some(pending)
    }
}

fn name_in(handles: &[Slot], what: What) -> String {
    match what {
        What::Flush => "flush".into(),
        What::Ifunc(handle) => handles[handle as usize].library.name.clone(),
    }
}

const fn token_of(index: u32, serial: u32) -> u64 {
    (serial as u64) << 32 | index as u64
}

const fn index_of(token: u64) -> u32 {
    token as u32
}

fn read(arrived: &Arrived<'_>) -> Result<(Kind, u64, Completion), Gone> {
    let header = Header::parse(arrived.words).map_err(|_| Gone::Malformed("words that are no header"))?;
    if !matches!(header.kind, Kind::Completion | Kind::Report) {
        return Err(Gone::Malformed("a target sent a request"));
    }
    let status = Status::from_code(header.handle).ok_or(Gone::Malformed("an unknown status"))?;
    Ok((header.kind, header.token, Completion::new(status, &arrived.body)))
}

/// Waits for a completion.
pub(super) fn wait(source: &Source, token: u64, deadline: Instant, what: &str) -> Result<Completion, Error> {
    let started = Instant::now();
    let mut backoff = Backoff::new();
    loop {
        let mut connection = source.lock();
        if let Some(result) = connection.try_take(token) {
            return result;
        }
        if !backoff.pause(&mut connection, deadline) {
            return Err(Error::Timeout {
                what: what.to_owned(),
                waited: started.elapsed(),
            });
        }
    }
}

/// Waiting without burning a core: looks again at once for a while, then sleeps until the target rings.
pub(super) struct Backoff {
    tries: u32,
    sleep_from: Option<Instant>,
}

impl Backoff {
    /// Longer than a wake-up takes, so that a short wait never sleeps.
    const SPIN: Duration = Duration::from_micros(60);
    /// How long the connection is kept from other threads while one sleeps on it.
    const SLICE: Duration = Duration::from_millis(5);
    /// Between two attempts to reach a target that is not there.
    const RETRY: Duration = Duration::from_millis(5);

    pub(super) fn new() -> Self {
        Self {
            tries: 0,
            sleep_from: None,
        }
    }

    /// Waits a little; `false` once `deadline` has passed.
    pub(super) fn pause(&mut self, connection: &mut Connection, deadline: Instant) -> bool {
        self.tries += 1;
        // The clock costs more than a look.
        if !self.tries.is_multiple_of(32) {
            std::hint::spin_loop();
            return true;
        }
        let now = Instant::now();
        if now >= deadline {
            return false;
        }
        if now < *self.sleep_from.get_or_insert(now + Self::SPIN) {
            return true;
        }
        self.tries = 31;
        match &mut connection.link {
            Some(link) => {
                if link.rx.arm() {
                    link.waiter.sleep(deadline.min(now + Self::SLICE));
                }
                link.rx.disarm();
            }
            None => std::thread::sleep(Self::RETRY.min(deadline - now)),
        }
        true
    }
}
