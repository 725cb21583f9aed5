//! The connections of a target: which are polled, and which are parked until something happens to them.
//!
//! A poll of a connection costs some ten nanoseconds, which hundreds of idle ones make microseconds. Connections that had
//! nothing for a while are *parked*: their listener names them when something happens ([`Listener::ready`]). To park one takes a
//! barrier, and to name it costs its source a little. So a few are always active, and the others for some tens of
//! microseconds; a target that has only a few never parks one while it polls.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Host;
use super::connection::{Connection, ConnectionEnded};
use super::duplex::Duplex;
use super::pauses::{Pauses, Round};
use super::rotation::Rotation;
use super::served::Execution;
use super::tasks::Tasks;
use crate::driver::backoff::Backoff;
use crate::source::connection as source;
use crate::ticks::ticks;
use crate::transport::{Key, Link, Listener, PollScope};
use crate::{Source, SourceError};

/// Idle connections that stay active.
const FEW: usize = 8;
/// Polls of connections between two reviews: they take longer than the barrier that a review needs.
const REVIEW: usize = 4096;
/// Longest time in which what a connection sent before the policy ended it is refused.
const ENDING: Duration = Duration::from_secs(1);
/// The generation of no policy.
const BEFORE: u64 = u64::MAX;
/// Polls between two calls of [`tend`](Links::tend), which may miss the cache. After a sleep, and after a poll of the links that finds
/// nothing, or more than this many frames, the next one begins with a call: invocations may be slow. Where a listener looks for all links, a
/// poll that finds nothing ends with the call.
const TEND: u32 = 8;
/// Polls that may leave out the links, where the listener finds nothing for them, between two that do not: a poll in vain takes half as
/// long. They look for what another thread has found, which is rare.
const SKIPPABLE: u32 = 15;

/// By the keys of connections. A listener counts them, and no peer chooses one.
type KeyMap<T> = HashMap<Key, T, BuildHasherDefault<KeyHasher>>;

/// Spreads numbers that are counted: nearly always there are few, and looking one up costs less than any other part of a wake-up.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: neighbours come far apart, in the high bits, too.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The connections of a target, and what reports new ones.
pub(super) struct Links {
    active: Rotation<Box<Connection>>,
    parked: KeyMap<Box<Connection>>,
    pub(super) listener: Box<dyn Listener>,
    /// What the listener wants around each poll of this thread.
    scope: Option<Arc<dyn PollScope>>,
    /// Where polls read slots that sources write.
    pauses: Option<Pauses>,
    /// Links that the target made and that its listener does not name.
    connected: Vec<Key>,
    /// Polls since the last review.
    polls: usize,
    /// Polls until the listener is asked again. 0 after a sleep, and after a poll that found nothing, or much.
    until_tended: u32,
    /// Polls from now on that may leave out the links. 0 after a sleep, and after a poll that found something.
    skippable_polls: u32,
    /// Number of the last connection.
    last: u64,
    keys: Vec<Key>,
    /// When all connections were last [looked after](Links::look_after).
    looked_after: Instant,
    /// One of the connections is the node's [tasks](Tasks).
    has_tasks: bool,
    /// The generation of the policy that all connections follow, and none is left that it ends.
    applied: u64,
    /// Until when what was received from connections that the policy ends is refused.
    ending_until: Option<Instant>,
}

impl Links {
    /// No connections yet.
    pub(super) fn new(listener: Box<dyn Listener>) -> Self {
        Self {
            active: Rotation::new(),
            parked: KeyMap::default(),
            pauses: listener.reads_slots().then(Pauses::default),
            scope: listener.poll_scope(),
            listener,
            connected: Vec::new(),
            polls: 0,
            until_tended: 0,
            skippable_polls: 0,
            last: 0,
            keys: Vec::new(),
            looked_after: Instant::now(),
            has_tasks: false,
            applied: 0,
            ending_until: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.active.len() + self.parked.len() - usize::from(self.has_tasks)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        let all = self.active.iter().chain(self.parked.values());
        let all = all.map(|connection| &**connection);
        all.filter(|connection| !connection.is_tasks())
    }

    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active
            .iter()
            .filter(|connection| !connection.is_tasks())
            .count()
    }

    /// Whether all connections are parked. The node's tasks never are.
    pub(super) fn is_idle(&self) -> bool {
        self.active.iter().all(|connection| connection.is_tasks())
    }

    /// The connections, those that are parked included.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        let all = self.active.iter_mut().chain(self.parked.values_mut());
        all.map(|connection| &mut **connection)
    }

    /// How a thread waits that finds nothing.
    pub(super) fn backoff(&self, host: &Host) -> Backoff {
        Backoff::new(self.listener.pace(), host.spin)
    }

    /// Adds a connection over a link that the target made. It `reconnects`, or ends with the link.
    pub(super) fn connect(
        &mut self,
        connection: source::Connection,
        reconnects: bool,
        host: &Host,
    ) -> Result<Source, SourceError> {
        let (source, duplex) = Duplex::connected(self.last + 1, connection, reconnects, host)?;
        self.last += 1;
        if !duplex.is_named() {
            self.connected.push(duplex.key);
        }
        let connection = Connection::Duplex(Box::new(duplex));
        self.active.push_back(Box::new(connection));
        Ok(source)
    }

    /// Adds what a node does beside its connections.
    #[cold]
    fn add_tasks(&mut self, host: &Host) {
        self.has_tasks = true;
        self.last += 1;
        let tasks = Tasks::new(self.last, host);
        let tasks = Connection::Tasks(Box::new(tasks));
        self.active.push_back(Box::new(tasks));
    }

    /// Activates connections that are parked.
    fn unpark(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(mut connection) = self.parked.remove(key) {
                connection.unpark();
                self.active.push_back(connection);
            }
        }
    }

    /// Accepts new connections, and activates those that are parked no more. Returns whether there were any.
    #[inline]
    pub(super) fn gather(&mut self, host: &Host) -> bool {
        let before = self.active.len();
        if host.travels.is_used() && !self.has_tasks {
            self.add_tasks(host);
        }
        if let Some(nodes) = host.nodes() {
            self.gather_dialed(host, nodes);
        }
        while let Some(link) = self.listener.accept() {
            self.activate(link, host);
        }
        if !self.parked.is_empty() {
            self.unpark_ready(host);
        }
        if host.policy.generation() != self.applied {
            self.apply_policy(host);
        }
        self.active.len() > before
    }

    /// Activates a connection that was accepted.
    #[cold]
    #[inline(never)]
    fn activate(&mut self, link: Link, host: &Host) {
        self.last += 1;
        let mut connection = Connection::new(self.last, link, host);
        if host.policy.generation() != 0 {
            // The one before it may have admitted the peer.
            connection.review(host);
            self.applied = BEFORE;
        }
        self.active.push_back(Box::new(connection));
        if let Some(pauses) = &mut self.pauses {
            pauses.forget();
        }
    }

    /// Activates the parked connections that are ready.
    #[inline(never)]
    fn unpark_ready(&mut self, host: &Host) {
        if host.travels.is_waking() {
            self.unpark_travels(host);
        }
        let mut keys = std::mem::take(&mut self.keys);
        self.listener.ready(&mut keys);
        self.unpark(&keys);
        keys.clear();
        self.keys = keys;
    }

    /// Applies a policy that replaced another one to every connection, and ends those that it does not admit once what they sent before was
    /// refused.
    #[cold]
    #[inline(never)]
    fn apply_policy(&mut self, host: &Host) {
        let (generation, now) = (host.policy.generation(), Instant::now());
        for connection in self.iter_mut() {
            if connection
                .reviewed()
                .is_some_and(|reviewed| reviewed != generation)
            {
                connection.review(host);
            }
        }
        let parked = self
            .parked
            .iter()
            .filter(|(_, connection)| connection.is_ending());
        let parked: Vec<Key> = parked.map(|(&key, _)| key).collect();
        self.unpark(&parked);
        let until = *self.ending_until.get_or_insert(now + ENDING);
        let mut is_left = false;
        for at in (0..self.active.len()).rev() {
            let Some(connection) = self
                .active
                .get_mut(at)
                .filter(|connection| connection.is_ending())
            else {
                continue;
            };
            if !connection.has_work(host) || now >= until {
                self.forget(host, at);
            } else {
                is_left = true;
            }
        }
        if !is_left {
            self.ending_until = None;
            self.applied = generation;
        }
    }

    /// Polls each active connection once. Returns how many frames they handled. While polls find a few, only one of several first
    /// gathers connections. `IN_SCOPE`: as [`has_scope`](Self::has_scope) says.
    #[inline(always)]
    pub(super) fn poll<const IN_SCOPE: bool>(&mut self, execution: Execution<'_>) -> usize {
        if !IN_SCOPE {
            return self.poll_links(execution);
        }
        let host = execution.host;
        let skips = self.begin(host);
        let polled = EndsOnPanic(self);
        let handled = if skips { 0 } else { polled.0.poll_links(execution) };
        polled.0.end(skips, handled, host);
        std::mem::forget(polled);
        handled
    }

    /// Whether the listener looks for what has arrived once for all connections.
    #[inline]
    pub(super) fn has_scope(&self) -> bool {
        self.scope.is_some()
    }

    /// Begins a poll in which the listener looks for what has arrived. Returns whether the poll skips the connections.
    #[inline(never)]
    fn begin(&mut self, host: &Host) -> bool {
        let has_some = self.scope.as_ref().is_none_or(|scope| scope.begin());
        let skips = !has_some && self.skippable_polls > 0 && !self.has_other_work(host);
        if skips {
            self.skippable_polls -= 1;
            self.polls += 1;
        } else if host.policy.generation() != self.applied {
            // What is to run is admitted by the policy that there is now.
            self.until_tended = 0;
        }
        skips
    }

    /// Ends a poll that [`begin`](Self::begin) began.
    #[inline(never)]
    fn end(&mut self, skips: bool, handled: usize, host: &Host) {
        if !skips {
            self.skippable_polls = if handled == 0 { SKIPPABLE } else { 0 };
        }
        if handled == 0 && self.until_tended == 0 {
            // The next poll, which may find a frame, does not begin with it.
            self.tend(host);
        }
        if let Some(scope) = &self.scope {
            scope.end();
        }
    }

    /// Whether a poll may find what its listener does not look for: over links of other listeners, of the node's, or what a new policy asks for.
    #[inline]
    fn has_other_work(&self, host: &Host) -> bool {
        !self.connected.is_empty() || host.travels.is_busy() || host.policy.generation() != self.applied
    }

    #[inline(always)]
    fn poll_links(&mut self, mut execution: Execution<'_>) -> usize {
        let host = execution.host;
        let (until_tended, is_due) = self.until_tended.overflowing_sub(1);
        self.until_tended = until_tended;
        if is_due {
            self.tend(host);
        }
        self.polls += 1;
        let handled = match self.active.only_mut() {
            Some(connection) => {
                let polled = connection.poll(execution);
                polled.unwrap_or_else(|ConnectionEnded| {
                    self.forget(host, 0);
                    0
                })
            }
            None => self.poll_all(execution.reborrow()),
        };
        if handled == 0 || handled > TEND as usize {
            self.until_tended = 0;
        }
        handled
    }

    /// Polls all connections, and sends what nodes reported for sources of other connections. Rotates the connections so that none
    /// is always served first. Returns how many frames they handled.
    #[inline(never)]
    fn poll_all(&mut self, mut execution: Execution<'_>) -> usize {
        let host = execution.host;
        let (mut round, mut at) = (Round::default(), 0);
        if let Some(pauses) = &mut self.pauses {
            pauses.before_round(ticks);
        }
        loop {
            // Frames come from other cores while this one works for the connections before them: first the slot, then the body.
            if let Some(second) = self.active.get_mut(at + 2) {
                second.prefetch_frame();
            }
            if let Some(next) = self.active.get_mut(at + 1) {
                next.prefetch_body();
            }
            let Some(connection) = self.active.get_mut(at) else {
                break;
            };
            match connection.poll(execution.reborrow()) {
                Ok(frames) => {
                    round.add(frames);
                    at += 1;
                }
                Err(ConnectionEnded) => self.forget(host, at),
            }
        }
        if let Some(pauses) = &mut self.pauses {
            pauses.after_round(round, ticks);
        }
        let handled = round.frames();
        // The first one is counted already.
        self.polls += at.saturating_sub(1);
        if handled > 0 {
            self.deliver(host);
            self.active.rotate();
        }
        handled
    }

    /// Sends what nodes reported for sources.
    fn deliver(&mut self, host: &Host) {
        if host.travels.has_mail() {
            for connection in self.active.iter_mut() {
                connection.deliver(host);
            }
        }
    }

    /// Removes a connection that ended.
    #[cold]
    fn forget(&mut self, host: &Host, at: usize) {
        if let Some(connection) = self.active.remove(at) {
            host.forget(connection.source().connection);
            let key = connection.key();
            self.connected.retain(|&connected| connected != key);
        }
    }

    /// Activates parked connections for which there is something, or that were held back and are admitted now.
    #[cold]
    fn unpark_travels(&mut self, host: &Host) {
        let admits = host.travels.take_held();
        let is_wanted = |connection: &Connection| {
            admits && connection.is_held() || host.travels.has_mail_for(connection.source().connection)
        };
        let parked = self.parked.iter().filter(|(_, connection)| is_wanted(connection));
        let keys: Vec<Key> = parked.map(|(&key, _)| key).collect();
        self.unpark(&keys);
    }

    /// Gathers connections, and parks those that had nothing, if there may be something to do: nearly always there is nothing.
    #[inline(always)]
    fn tend(&mut self, host: &Host) {
        self.until_tended = TEND - 1;
        // A group has nodes to dial, and its first task comes to this thread.
        let has_group = host.nodes().is_some() || host.travels.is_used() && !self.has_tasks;
        let has_links = !self.parked.is_empty() || self.listener.has_waiting();
        let has_news = host.policy.generation() != self.applied || host.travels.has_mail();
        if has_group || has_links || has_news || self.polls >= REVIEW {
            self.tend_now(host);
        }
    }

    /// As [`tend`](Self::tend), which knows each reason to call it: what is added here needs its condition there.
    #[inline(never)]
    fn tend_now(&mut self, host: &Host) {
        if self.polls >= REVIEW {
            self.review(host);
            host.executor.drop_replaced();
        }
        self.gather(host);
        self.deliver(host);
    }

    /// Takes the next active connection, for a thread to have for itself.
    pub(super) fn take_next(&mut self, host: &Host) -> Option<Box<Connection>> {
        self.polls += 1;
        if self.polls >= REVIEW {
            self.review(host);
        }
        let mut next = self.active.pop_front()?;
        let generation = host.policy.generation();
        // Another thread had it when the others were reviewed.
        if generation != 0 && next.reviewed().is_some_and(|reviewed| reviewed != generation) {
            next.review(host);
            self.applied = BEFORE;
        }
        Some(next)
    }

    /// Takes a connection back, after all others.
    pub(super) fn put_back(&mut self, connection: Box<Connection>) {
        self.active.push_back(connection);
    }

    /// What a poll does not see to, for every connection, idle ones too: drops bodies that take too long to arrive, and finds
    /// parked connections that their listener was kept from naming.
    #[cold]
    fn look_after(&mut self, host: &Host) {
        let look = self.listener.look_interval();
        let interval = look.into_iter().chain(host.unfinished.interval()).min();
        host.doorbell.set_look_interval(interval);
        let Some(interval) = interval else { return };
        let now = Instant::now();
        if now < self.looked_after + interval {
            return;
        }
        self.looked_after = now;
        for connection in self.active.iter_mut().chain(self.parked.values_mut()) {
            connection.refuse_overdue(host, now);
        }
        if look.is_some() {
            let is_ready = |connection: &mut Box<Connection>| !connection.is_quiet(host);
            let ready = self
                .parked
                .iter_mut()
                .filter_map(|(key, parked)| is_ready(parked).then_some(*key));
            let ready: Vec<Key> = ready.collect();
            self.unpark(&ready);
        }
    }

    /// Parks connections that had nothing, if there are many.
    #[cold]
    fn review(&mut self, host: &Host) {
        self.polls = 0;
        self.look_after(host);
        let spare = self.active.len().saturating_sub(FEW);
        let mut idle = Vec::new();
        for _ in 0..self.active.len() {
            let Some(mut connection) = self.active.pop_front() else {
                break;
            };
            if !connection.take_ready() && idle.len() < spare {
                idle.push(connection);
            } else {
                self.active.push_back(connection);
            }
        }
        let first = self.active.len();
        self.active.extend(idle);
        self.park_from(first, host);
    }

    /// Announces sleep. `all`: parks all connections first, ready ones too: a parked connection wakes the target. Returns
    /// whether there is nothing to do.
    pub(super) fn arm(&mut self, host: &Host, all: bool) -> bool {
        self.look_after(host);
        if let Some(pauses) = &mut self.pauses {
            pauses.interrupt();
        }
        host.executor.drop_replaced();
        self.listener.arm();
        let is_quiet = !all || self.park_from(0, host);
        // What ends the sleep is something for a parked connection: the next poll asks which.
        (self.until_tended, self.skippable_polls) = (0, 0);
        // Another thread may have made the node busy; but if it has taken the tasks, it sees to that.
        let are_tasks_here = self.active.iter().any(|connection| connection.is_tasks());
        !self.gather(host) && is_quiet && !(all && are_tasks_here && host.travels.is_busy())
    }

    /// Withdraws the announcement.
    pub(super) fn disarm(&mut self) {
        self.listener.disarm();
        let connected = std::mem::take(&mut self.connected);
        self.unpark(&connected);
        self.connected = connected;
    }

    /// Whether a poll would find nothing, since the last one ran all that there was, and what follows from the frames that it sent cannot be
    /// there yet. Says so once: the next poll looks.
    #[inline]
    pub(super) fn passes(&self) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.passes())
    }

    /// Parks the active connections from the one at `first` on. Returns whether none of them has anything; those that have stay active, and
    /// so do the tasks, which no listener names.
    fn park_from(&mut self, first: usize, host: &Host) -> bool {
        let count = self.active.len() - first;
        if count == 0 {
            return true;
        }
        let parked = self.active.iter_mut().skip(first);
        parked.for_each(|connection| connection.park());
        self.listener.fence();
        let mut is_quiet = true;
        let mut at = first;
        for _ in 0..count {
            let Some(connection) = self.active.get_mut(at) else {
                break;
            };
            let has_some = !connection.is_quiet(host);
            if has_some {
                is_quiet = false;
                connection.unpark();
            }
            if has_some || connection.is_tasks() {
                at += 1;
            } else if let Some(parked) = self.active.remove(at) {
                self.parked.insert(parked.key(), parked);
            }
        }
        is_quiet
    }
}

/// Ends the listener's scope if a poll of the links panics. Later polls have none.
struct EndsOnPanic<'a>(&'a mut Links);

impl Drop for EndsOnPanic<'_> {
    fn drop(&mut self) {
        if let Some(scope) = self.0.scope.take() {
            scope.end();
        }
    }
}
