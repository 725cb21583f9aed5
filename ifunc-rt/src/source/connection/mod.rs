//! The source's end of a connection: what was bound, what is under way, what came back, and what becomes of it all when
//! the target goes away.

mod at_once;
mod batch;
mod driven;
mod pending;
mod receiving;
mod sending;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ifunc_abi::frame::{Header, Kind};
use rustix::time::{ClockId, Timespec, clock_gettime};

use batch::Batch;
use pending::{Again, Outcome, Pendings, What};
use sending::Job;

use super::completion::Completion;
use super::error::Error;
use super::library::Library;
use super::options::{Progress, SourceOptions};
use crate::driver::backoff::{RETRY, after};
use crate::driver::doorbell::EventFd;
use crate::driver::driven::{Config, Signals};
use crate::transport::{ConnectError, Link, Outbound, Route, Waiter};
use crate::wire::order::Order;

#[derive(Debug)]
pub(super) struct Connection {
    route: Route,
    options: SourceOptions,
    link: Option<Link>,
    /// Counts connections: what was installed over an earlier one is not installed over this one.
    generation: u64,
    /// When it was last asked whether the target is still there, by the coarse clock.
    asked: Timespec,
    /// A thread is making a new link.
    pub(super) connecting: bool,
    order: Order,
    handles: Vec<Slot>,
    unbind: Vec<u32>,
    /// What travels together and was not sent yet.
    batch: Batch,
    /// Something may wait to be sent: `job`, `resend`, `unbind`, a batch that closes.
    has_more: bool,
    pending: Pendings,
    /// A body that travels in fragments; nothing else is sent before it is through.
    job: Option<Job>,
    bodies: u32,
    /// Calls of idempotent ifuncs that died with the connection before.
    resend: VecDeque<u64>,
    /// The last fire-and-forget frame: its sequence and its handle.
    last_send: Option<(u32, u32)>,
    reports: VecDeque<Report>,
    /// What a frame held that held many, while it is taken in.
    many: Vec<(u64, Completion)>,
    /// What the driver is told.
    signals: Signals,
    /// Wakes the thread that sleeps on the link's doorbell.
    local: Arc<EventFd>,
}

/// What became of a send that did not end well.
#[derive(Debug)]
pub(super) enum Report {
    /// This side found it out.
    Known(Error),
    /// The target told it, of an ifunc of this library.
    Told {
        library: Arc<Library>,
        detail: Completion,
    },
}

/// A handle.
#[derive(Debug)]
struct Slot {
    library: Arc<Library>,
    users: usize,
    /// The open batch is one of them.
    batched: bool,
    /// The generation it was installed in, with [`AGAIN`](Self::AGAIN); 0: in none.
    installed: u64,
}

impl Slot {
    /// In [`installed`](Self::installed): it is there, and an invocation that carries its code sends it again. A bit of
    /// that number, so that who looks whether everything is there looks at nothing more.
    const AGAIN: u64 = 1 << 63;

    /// Whether the target has it, in a connection.
    fn is_bound(&self, generation: u64) -> bool {
        self.installed & !Self::AGAIN == generation
    }

    fn is_due_again(&self) -> bool {
        self.installed & Self::AGAIN != 0
    }
}

/// What is to be sent.
pub(super) struct Submission<'a> {
    pub(super) handle: u32,
    /// Most bytes of the payload.
    pub(super) bound: usize,
    pub(super) align: usize,
    /// Whether a completion is wanted.
    pub(super) wants: bool,
    /// Whether it may travel with others.
    pub(super) aggregated: bool,
    /// Whether the image travels ahead of it, wherever it is already.
    pub(super) carries_code: bool,
    /// Writes the payload.
    pub(super) encode: &'a mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
}

impl Connection {
    pub(super) fn connect(route: Route, options: SourceOptions) -> Result<Self, ConnectError> {
        let until = after(options.connect_timeout);
        let mut said = None;
        let link = loop {
            match route.connect(&options.connect_config(), until) {
                Ok(link) => break link,
                // The two are often started at once, and the target is not there yet.
                Err(error) if error.may_pass() && Instant::now() < until => {
                    if !matches!(error, ConnectError::Timeout { .. }) {
                        said = Some(error);
                    }
                    std::thread::sleep(RETRY)
                }
                // The last attempt has little time left: what the target said to an earlier one tells more.
                Err(error @ ConnectError::Timeout { .. }) => return Err(said.unwrap_or(error)),
                Err(error) => return Err(error),
            }
        };
        Self::of_link(route, link, options)
    }

    /// Of a link that was made; the route is how another one is.
    pub(super) fn of_link(route: Route, link: Link, options: SourceOptions) -> Result<Self, ConnectError> {
        let local = EventFd::new().map_err(|source| ConnectError::Io {
            doing: "making what threads of this process are woken by".into(),
            source,
        })?;
        let batch = Batch::new(options.aggregation, &link);
        Ok(Self {
            route,
            options,
            link: Some(link),
            generation: 1,
            asked: clock_gettime(ClockId::MonotonicCoarse),
            connecting: false,
            order: Order::new(),
            handles: Vec::new(),
            unbind: Vec::new(),
            batch,
            has_more: false,
            pending: Pendings::default(),
            job: None,
            bodies: 0,
            resend: VecDeque::new(),
            last_send: None,
            reports: VecDeque::new(),
            many: Vec::new(),
            signals: Signals::default(),
            local: Arc::new(local),
        })
    }

    /// The link's own account of itself, if there is one.
    pub(super) fn waiter(&self) -> Option<Arc<dyn Waiter>> {
        self.link.as_ref().map(|link| Arc::clone(&link.waiter))
    }

    pub(super) fn options(&self) -> SourceOptions {
        self.options
    }

    /// How this connection is driven.
    pub(super) fn driver_config(&self) -> Config {
        let any_thread = self
            .link
            .as_ref()
            .is_none_or(|link| link.waiter.serves_any_thread());
        Config {
            timeout: self.options.timeout,
            reconnect: self.options.reconnect,
            always: self.options.progress == Progress::Thread,
            no_thread: (!any_thread).then_some(
                "the source is of a UCX worker that one thread alone may use; help: receive for its futures by `Source::driver` on that thread",
            ),
        }
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
                    batched: false,
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
        self.release(handle);
        // At once, if there is room: the target may need the image's.
        self.drive();
    }

    /// It has one user less.
    fn release(&mut self, handle: u32) {
        let slot = &mut self.handles[handle as usize];
        slot.users -= 1;
        if slot.users == 0 && slot.is_bound(self.generation) {
            self.unbind.push(handle);
            self.has_more = true;
        }
    }

    /// Sends, or puts it into the open batch, if there is room now; `None` if there is not. With `wants` the result is the
    /// token, otherwise 0.
    #[inline]
    pub(super) fn try_submit(&mut self, submission: &mut Submission<'_>) -> Result<Option<u64>, Error> {
        if submission.aggregated {
            self.try_append(submission)
        } else {
            self.try_send(submission)
        }
    }

    /// Sends it by itself.
    fn try_send(&mut self, submission: &mut Submission<'_>) -> Result<Option<u64>, Error> {
        self.progress();
        self.ask();
        if !submission.wants
            && let Some(report) = self.take_report()
        {
            return Err(Error::Earlier(Box::new(report.explain())));
        }
        let handle = submission.handle;
        if !self.signals.admits(submission.bound) {
            return Ok(None);
        }
        if !self.ready(handle, submission.carries_code)? {
            return Ok(None);
        }
        let Some(link) = &mut self.link else {
            return Ok(None);
        };
        let library = &self.handles[handle as usize].library;
        let limit = link.hello.limits.max_payload;
        let too_large = |len: usize| library.too_large(len, limit);
        let repeatable = submission.wants && library.is_idempotent();
        let again = |payload: &[u8]| repeatable.then(|| Again::new(handle, payload));

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
                self.pending.wait_for(What::Ifunc(handle), again(&body))
            } else {
                0
            };
            self.signals.took_credit();
            self.start(Header::new(Kind::Exec, handle, token), body);
            self.carried(submission);
            self.drive();
            return Ok(Some(token));
        }
        let room = match link.tx.reserve(submission.bound, submission.align) {
            Ok(Some(room)) => room,
            Ok(None) => {
                self.signals.lacks(submission.bound);
                return Ok(None);
            }
            Err(gone) => {
                self.lost(&gone);
                return Ok(None);
            }
        };
        let len = (submission.encode)(room)?;
        if len as u64 > limit {
            return Err(too_large(len));
        }
        self.signals.took_credit();
        if !submission.wants {
            self.commit(Header::new(Kind::Exec, handle, 0), len);
            self.carried(submission);
            return Ok(Some(0));
        }
        let again = again(&room[..len]);
        let token = self.pending.wait_for(What::Ifunc(handle), again);
        self.commit(Header::new(Kind::Exec, handle, token), len);
        self.carried(submission);
        Ok(Some(token))
    }

    /// It was sent, with its code if it carries it: the next one that does sends it again.
    #[inline]
    fn carried(&mut self, submission: &Submission<'_>) {
        if submission.carries_code {
            self.carry(submission.handle);
        }
    }

    /// The next invocation that carries its code sends it, wherever it is already.
    pub(super) fn carry(&mut self, handle: u32) {
        self.handles[handle as usize].installed |= Slot::AGAIN;
    }

    /// Asks for a completion when everything before was consumed.
    pub(super) fn try_sync(&mut self) -> Result<Option<u64>, Error> {
        self.progress();
        if self.link.is_none() && self.resend.is_empty() && self.job.is_none() && self.batch.is_empty() {
            // Nothing is under way; what was lost has been reported.
            let token = self.pending.wait_for(What::Flush, None);
            self.pending
                .complete(token, Ok(Completion::executed()), &mut self.signals);
            return Ok(Some(token));
        }
        self.question(Kind::Sync, 0, What::Flush)
    }

    /// Asks for the page of what the target has counted that begins at `offset`.
    pub(super) fn try_ask(&mut self, offset: u32) -> Result<Option<u64>, Error> {
        self.progress();
        self.question(Kind::Stats, offset, What::Stats)
    }

    /// Sends a frame without a body that wants a completion.
    fn question(&mut self, kind: Kind, handle: u32, what: What) -> Result<Option<u64>, Error> {
        self.close_soon();
        if !self.drive() {
            return Ok(None);
        }
        let Some(link) = &mut self.link else {
            return Ok(None);
        };
        match link.tx.reserve(0, 1) {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.signals.lacks(0);
                return Ok(None);
            }
            Err(gone) => {
                self.lost(&gone);
                return Ok(None);
            }
        }
        let token = self.pending.wait_for(what, None);
        self.commit(Header::new(kind, handle, token), 0);
        Ok(Some(token))
    }

    /// Whether nothing waits to be sent. A batch that is open waits for others.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.has_more
    }

    /// Whether something is still to be sent of what was accepted: something large, or a batch.
    pub(super) fn has_unsent(&self) -> bool {
        self.job.is_some() || !self.batch.is_empty()
    }

    /// Whether nothing large is still on its way out.
    pub(super) fn try_drain(&mut self) -> bool {
        self.progress();
        self.close_for(0);
        self.drive()
    }

    /// What is known of a token: taken, if it is done.
    pub(super) fn try_take(&mut self, token: u64) -> Option<Outcome> {
        self.progress_for(token);
        self.close_for(token);
        self.drive();
        self.pending.take(token)
    }

    /// Tokens that are not free.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.pending.taken()
    }

    /// Nobody waits for the token any more.
    pub(super) fn abandon(&mut self, token: u64) {
        let again = self.resend.contains(&token);
        self.resend.retain(|&other| other != token);
        // A completion comes only over the link that the frame was sent over, or will be.
        let comes = self.link.is_some() && !again || self.pending.is_in_batch(token);
        self.pending.abandon(token, comes);
    }

    /// Every failure of a send that nobody has heard of.
    pub(super) fn take_reports(&mut self) -> VecDeque<Report> {
        std::mem::take(&mut self.reports)
    }

    /// The oldest failure of a send that nobody has heard of.
    pub(super) fn take_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn name(&self, what: What) -> String {
        name_in(&self.handles, what)
    }
}

fn name_in(handles: &[Slot], what: What) -> String {
    match what {
        What::Flush => "flush".into(),
        What::Stats => super::stats::STATS.into(),
        What::Ifunc(handle) => handles[handle as usize].library.name.clone(),
    }
}
