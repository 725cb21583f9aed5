//! A connection as something that is waited on: who is woken by what.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Connection;
use super::room::Rooms;
use crate::source::bell::{Bells, Handbell};
use crate::source::driver::Outside;
use crate::source::helm::{Helm, Ticket};
use crate::source::waiting::{Waited, Want};
use crate::transport::{Outbound, Park, Waiter};

/// Everybody who waits.
#[derive(Debug)]
pub(super) struct Waiting {
    helm: Helm,
    /// Rings whoever sleeps on the link's bell.
    hand: Arc<Handbell>,
    pub(super) rooms: Rooms,
    /// Who makes the attempt that is being made.
    pub(super) turn: Ticket,
    /// Bytes that the last attempt found no room for.
    pub(super) lacking: usize,
    /// Completions and reports taken in.
    pub(super) received: u64,
    given_up: u64,
    why: String,
    /// Since when an event loop tries to make the lost link again.
    tried_since: Option<Instant>,
    tasks: Tasks,
    receiver: Receiver,
    /// Wakes the thread that receives for futures, if it sleeps until a deadline.
    others: Option<Waker>,
    /// It receives all the time.
    always: bool,
    outside: Option<Arc<Outside>>,
    closed: bool,
}

/// Futures that wait, and until when.
#[derive(Debug, Default)]
struct Tasks {
    waiting: BTreeMap<Ticket, (Instant, Waker)>,
    /// No deadline is earlier.
    earliest: Option<Instant>,
}

/// The thread that receives for futures.
#[derive(Debug, Default)]
enum Receiver {
    #[default]
    Absent,
    Busy,
    /// It sleeps until this wakes it.
    Idle(Waker),
}

impl Waiting {
    /// `always`: a thread receives all the time.
    pub(super) fn new(always: bool) -> io::Result<Self> {
        Ok(Self {
            helm: Helm::default(),
            hand: Arc::new(Handbell::new()?),
            rooms: Rooms::default(),
            turn: 0,
            lacking: 0,
            received: 0,
            given_up: 0,
            why: String::new(),
            tried_since: None,
            tasks: Tasks::default(),
            receiver: Receiver::default(),
            others: None,
            always,
            outside: None,
            closed: false,
        })
    }
}

impl Waited for Connection {
    type Bell = Bells;

    fn helm(&mut self) -> &mut Helm {
        &mut self.waiting.helm
    }

    fn set_turn(&mut self, ticket: Ticket) {
        self.waiting.turn = ticket;
    }

    fn watch(&mut self, ticket: Ticket, want: Want, waker: Option<&Waker>) {
        match want {
            Want::Completion(token) => self.pending.watch(token, waker.cloned()),
            Want::Room => self.waiting.rooms.wait(ticket, self.waiting.lacking, true, waker),
            Want::Others => self.waiting.others = waker.cloned(),
        }
    }

    fn unwatch(&mut self, ticket: Ticket, want: Want) {
        match want {
            Want::Completion(token) => self.pending.watch(token, None),
            Want::Room => {
                let next = self.waiting.rooms.leave(ticket);
                self.pending.woken.extend(next);
            }
            Want::Others => self.waiting.others = None,
        }
    }

    fn tend(&mut self) -> Option<Instant> {
        if let Some(need) = self.waiting.rooms.wanted() {
            self.drive();
            let room = self.link.as_mut().map(|link| {
                link.tx
                    .reserve(need.min(link.tx.max_body()), 1)
                    .map(|room| room.is_some())
            });
            match room {
                Some(Ok(true)) => self.wake_sender(),
                Some(Err(gone)) => self.lost(&gone),
                Some(Ok(false)) | None => {}
            }
        }
        let due = self.waiting.tasks.expire(&mut self.pending.woken);
        due.into_iter().chain(self.batch_due()).min()
    }

    fn others_wait(&self) -> bool {
        self.is_watched()
    }

    fn received(&self) -> u64 {
        self.waiting.received
    }

    fn arm(&mut self) {
        if let Some(link) = &mut self.link {
            link.rx.arm();
        }
    }

    fn disarm(&mut self) {
        if let Some(link) = &mut self.link {
            link.rx.disarm();
        }
    }

    fn bell(&self) -> Option<Self::Bell> {
        self.link.as_ref().map(|link| Bells {
            link: Arc::clone(&link.waiter),
            hand: Arc::clone(&self.waiting.hand),
        })
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn given_up(&self) -> u64 {
        self.waiting.given_up
    }

    fn gone_since(&self, given_up: u64) -> Option<String> {
        (self.waiting.given_up != given_up && self.link.is_none()).then(|| self.waiting.why.clone())
    }

    fn window(&self) -> Duration {
        self.options.reconnect
    }

    fn give_up(&mut self, why: String) {
        self.resend_no_more();
        self.give_up_batch(&why);
        self.waiting.given_up += 1;
        self.waiting.why = why;
        self.waiting.tried_since = None;
        self.pending.woken.extend(self.waiting.rooms.wake_all());
        self.waiting.tasks.wake_all(&mut self.pending.woken);
    }

    #[inline]
    fn woken(&mut self) -> &mut Vec<Waker> {
        &mut self.pending.woken
    }
}

impl Connection {
    /// Wakes the first that waits for room.
    pub(super) fn wake_sender(&mut self) {
        let first = self.waiting.rooms.wake_first();
        self.pending.woken.extend(first);
    }

    /// The link is another one, or none.
    pub(super) fn link_changed(&mut self, old: Option<&dyn Waiter>) {
        self.waiting.tried_since = None;
        if let Some(outside) = &self.waiting.outside {
            outside.relink(old, self.link.as_ref().map(|link| &*link.waiter));
        }
    }

    /// A future waits, until `deadline`. `true`: a thread must be started that receives for it.
    #[must_use]
    pub(in crate::source) fn watch_task(
        &mut self,
        ticket: Ticket,
        want: Want,
        deadline: Instant,
        waker: &Waker,
    ) -> bool {
        match want {
            Want::Room => {
                let need = self.waiting.lacking;
                self.waiting.rooms.wait(ticket, need, false, Some(waker));
            }
            _ => self.watch(ticket, want, Some(waker)),
        }
        let first = self.waiting.tasks.watch(ticket, deadline, waker);
        match &self.waiting.outside {
            // It waits until a later time, or until something comes over a link that is not there.
            Some(outside) if first || self.link.is_none() => outside.ring(),
            None if first => self.pending.woken.extend(self.waiting.others.take()),
            _ => {}
        }
        self.call_receiver()
    }

    /// The future waits no more.
    pub(in crate::source) fn unwatch_task(&mut self, ticket: Ticket, want: Want) {
        self.unwatch(ticket, want);
        self.waiting.tasks.waiting.remove(&ticket);
    }

    /// Whether somebody must receive for those that do not.
    pub(in crate::source) fn is_watched(&self) -> bool {
        !self.waiting.tasks.waiting.is_empty()
            || ((self.job.is_some() || self.batch.closing || self.waiting.always) && self.link.is_some())
    }

    /// Whether anybody waits for anything over a link that has to be looked at whatever its bell says; how often.
    pub(in crate::source) fn attention(&self) -> Option<Duration> {
        let link = self.link.as_ref()?;
        self.is_watched().then(|| link.waiter.attention()).flatten()
    }

    /// See [`Source::remains`](crate::Source::remains).
    #[cfg(test)]
    pub(in crate::source) fn remains(&self) -> [usize; 4] {
        [
            self.pending.taken(),
            self.waiting.tasks.waiting.len(),
            self.waiting.rooms.len(),
            self.waiting.helm.len(),
        ]
    }

    /// Whether a future needs a link that is not there.
    pub(in crate::source) fn is_lost(&self) -> bool {
        self.link.is_none() && !self.waiting.tasks.waiting.is_empty()
    }

    /// Since when an event loop tries to make it again: since now, if it did not.
    pub(in crate::source) fn tried_since(&mut self) -> Instant {
        *self.waiting.tried_since.get_or_insert_with(Instant::now)
    }

    /// The earliest deadline of a future; it may have ended since.
    pub(in crate::source) fn earliest(&mut self) -> Option<Instant> {
        self.waiting.tasks.next(Instant::now())
    }

    /// Sees to it that somebody receives for futures. `true`: a thread must be started that does.
    fn call_receiver(&mut self) -> bool {
        if self.waiting.outside.is_some() {
            let next = self.waiting.helm.pass_on();
            self.pending.woken.extend(next);
            return false;
        }
        match std::mem::replace(&mut self.waiting.receiver, Receiver::Busy) {
            Receiver::Absent => true,
            Receiver::Busy => false,
            Receiver::Idle(waker) => {
                self.pending.woken.push(waker);
                false
            }
        }
    }

    /// Wakes the thread that receives, if it rests and there is something to receive from.
    pub(super) fn wake_receiver(&mut self) {
        if self.is_watched() && matches!(self.waiting.receiver, Receiver::Idle(_)) {
            let _ = self.call_receiver();
        }
    }

    /// The thread could not be started, or has died: the next future that has to wait starts another.
    pub(in crate::source) fn receiver_failed(&mut self) {
        self.waiting.receiver = Receiver::Absent;
        self.waiting.tasks.wake_all(&mut self.pending.woken);
    }

    /// A thread is started that receives.
    pub(in crate::source) fn receiver_starts(&mut self) {
        self.waiting.receiver = Receiver::Busy;
    }

    /// Whether the thread that receives for futures has nothing to do. It sleeps until `waker` wakes it, then.
    pub(in crate::source) fn rest(&mut self, waker: &Waker) -> bool {
        let rests = self.is_taken() || !self.is_watched();
        if rests && !self.waiting.closed {
            self.waiting.receiver = Receiver::Idle(waker.clone());
        }
        rests
    }

    /// Whether the user's event loop receives for futures.
    pub(in crate::source) fn is_taken(&self) -> bool {
        self.waiting.outside.is_some()
    }

    /// Whether the last who used the source has left.
    pub(in crate::source) fn is_closed(&self) -> bool {
        self.waiting.closed
    }

    /// The last who used the source has left: ends the link, and whoever sleeps on it wakes up.
    pub(in crate::source) fn close(&mut self) {
        self.waiting.closed = true;
        if let Some(link) = self.link.take() {
            link.waiter.close();
        }
        if let Receiver::Idle(waker) = std::mem::take(&mut self.waiting.receiver) {
            self.pending.woken.push(waker);
        }
        self.pending.woken.extend(self.waiting.others.take());
        self.pending.woken.extend(self.waiting.rooms.wake_all());
        self.stop_timer();
        // It may follow an event loop.
        let next = self.waiting.helm.pass_on();
        self.pending.woken.extend(next);
    }

    /// Hands the receiving for futures to an event loop; `None` if another one has it.
    pub(in crate::source) fn take_out(&mut self, outside: &Arc<Outside>) -> Option<Ticket> {
        if self.waiting.outside.is_some() {
            return None;
        }
        self.waiting.outside = Some(Arc::clone(outside));
        self.link_changed(None);
        Some(self.waiting.helm.ticket())
    }

    /// Takes it back. `true`: a thread must be started that does it.
    #[must_use]
    pub(in crate::source) fn take_back(&mut self) -> bool {
        self.waiting.outside = None;
        self.is_watched() && self.call_receiver()
    }
}

impl Tasks {
    /// `true`: no deadline was so early.
    fn watch(&mut self, ticket: Ticket, deadline: Instant, waker: &Waker) -> bool {
        self.waiting.insert(ticket, (deadline, waker.clone()));
        let first = self.earliest.is_none_or(|earliest| deadline < earliest);
        if first {
            self.earliest = Some(deadline);
        }
        first
    }

    /// Wakes those whose deadline has passed; the next deadline.
    fn expire(&mut self, woken: &mut Vec<Waker>) -> Option<Instant> {
        if self.waiting.is_empty() && self.earliest.is_none() {
            return None;
        }
        let now = Instant::now();
        if !self.waiting.is_empty() && self.earliest.is_some_and(|earliest| now >= earliest) {
            // Each is woken once, and asks for more if it wants to wait on.
            let past = self
                .waiting
                .extract_if(.., |_, (deadline, _)| now >= *deadline)
                .map(|(_, (_, waker))| waker);
            woken.extend(past);
            self.earliest = self.waiting.values().map(|(deadline, _)| *deadline).min();
        }
        self.next(now)
    }

    /// The next deadline. Where nobody waits, what is known of deadlines stays until it has passed: most later ones are later,
    /// and need not be told.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        if self.waiting.is_empty() && self.earliest.is_some_and(|earliest| earliest <= now) {
            self.earliest = None;
        }
        self.earliest
    }

    /// Wakes all of them: each asks for more if it wants to wait on.
    fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        let all = std::mem::take(&mut self.waiting);
        woken.extend(all.into_values().map(|(_, waker)| waker));
    }
}
