//! Gathering: what one poll of a target sends to a peer goes in few messages.
//!
//! A poll progresses UCX once, and then runs what has arrived on all connections. While more of that is left, a short frame (1 KiB) that the
//! polling thread sends is added to the peer's open message; the last of a poll is sent at once, with what was gathered for its peer, and the
//! end of the poll sends the rest. What is gathered waits for frames that are there, and not for a time to pass.
//!
//! An invocation may take long, and what was gathered before it would wait. So it is gathered for [`HOLD`] at most: after an invocation
//! that took longer, everything is sent, and answers of invocations that all take longer are never gathered. If one takes long after others
//! that did not, the [sweeper](Sweeper) sends what was gathered, after [`SWEEP`] to two of it.
//!
//! Everything else that uses the worker sends it first: each progress, a longer frame or a notice to the same peer, a close.
//!
//! Short frames are gathered outside of polls, too:
//!
//! * Those of one call of the application's that has several.
//! * Calls of a source that has answers which arrived last and were not taken: the application will likely take them, and send more. The next
//!   call that is made with none of them left is sent with those before it, and any progress of UCX sends them, as a thread makes that
//!   waits. While a thread sleeps that receives for the source, none waits. The same [`HOLD`] and the same sweeper bound the wait where
//!   the application does something else.
//! * Those to a peer whose last message UCX has not sent, because the peer takes no more at this moment. These go when UCX has sent it;
//!   until then they could not go either.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use ::ucx::Flags;

use super::credits::message_of;
use super::engine::{Engine, Locked, Visited};
use super::handshake::Mode;
use super::header::{Head, Name};
use super::packed::{self, MAX_ENTRIES, MAX_GATHERED, NAME};
use super::packet::Packet;
use super::requests::Parts;
use super::table::ConnectionId;
use crate::driver::biased::this_thread;
use crate::os::{EventFd, EventFlags};
use crate::transport::PollScope;
use crate::transport::watch::{Token, Watch, Watched, Watcher};
use crate::transport::window::Credits;

/// How long frames are gathered, beside the invocation that runs. Tests wait for other threads meanwhile.
const HOLD: Duration = if cfg!(test) {
    Duration::from_secs(600)
} else {
    Duration::from_micros(20)
};
/// Longest body that is gathered; gathering copies it.
const MAX_GATHERED_BODY: usize = 1024;
/// Time between two calls of the sweeper, while frames are gathered now and then.
const SWEEP: Duration = Duration::from_millis(2);
/// Polls of rings between two that make progress, too: what UCX has to say is not urgent where it does not bring the frames.
const RING_POLLS: u32 = 3;
/// Calls of the sweeper in which nothing was gathered, after which it rests.
const IDLE_SWEEPS: u32 = 50;

#[cfg(test)]
thread_local! {
    /// Frames that this thread has sent in messages that were open for others.
    pub(crate) static GATHERED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What follows a frame, as far as its sender knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    #[default]
    Unknown,
    /// Probably more: the application has answers to take.
    MoreLikely,
    /// More, at once.
    MoreAtOnce,
}

impl Next {
    /// What follows this frame. `MoreLikely` is said of one frame, `MoreAtOnce` of all until a flush.
    pub(super) fn take(&mut self) -> Self {
        let next = *self;
        if next == Self::MoreLikely {
            *self = Self::Unknown;
        }
        next
    }
}

/// A message that is open for more frames.
pub(super) struct Pack {
    packet: Packet,
    /// Bytes of the message.
    end: usize,
    frames: usize,
    sent: Credits,
}

#[cfg(test)]
impl Pack {
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    pub(super) fn sent(&self) -> Credits {
        self.sent
    }
}

/// What an engine gathers.
#[derive(Default)]
pub(super) struct Gather {
    /// Connections whose open message is sent by the next progress or at the end of the poll. Those of others wait for UCX.
    open: Vec<ConnectionId>,
    /// Number of open messages.
    packs: usize,
    /// Since when nothing has been gathered that is not sent.
    since: Option<Instant>,
    /// How often a first message was opened.
    opened: u64,
    /// `opened` at the last sweep.
    swept: u64,
    /// Sweeps are going on.
    is_swept: bool,
}

/// How many frames have arrived on an engine's connections and were not taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<AtomicUsize>);

impl Unread {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// By what has the handler.
    pub(super) fn set(&self, frames: usize) {
        self.0.store(frames, Ordering::Relaxed);
    }
}

impl Gather {
    /// Whether no message is open.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packs == 0
    }

    /// A poll begins, with frames for several invocations.
    fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Whether a frame may wait for the ones after it: not after a long invocation, and not for long.
    fn may_hold(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let may = now.saturating_duration_since(since) <= HOLD;
        if !may {
            self.since = Some(now);
        }
        may
    }

    /// The verdict of a sweep. `is_last`: the sweeper rests if nothing is gathered.
    fn sweep(&mut self, is_last: bool) -> Sweep {
        let is_new = std::mem::replace(&mut self.swept, self.opened) != self.opened;
        if is_new {
            return Sweep::GoesOn;
        }
        if !self.open.is_empty() {
            return Sweep::Overdue;
        }
        self.is_swept = !is_last;
        match self.is_swept {
            true => Sweep::GoesOn,
            false => Sweep::Rests,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    GoesOn,
    /// What is gathered was gathered before the last sweep.
    Overdue,
    /// Nothing was gathered for long.
    Rests,
}

/// Polls of a target, which gather.
#[derive(Default)]
pub(super) struct Polling {
    /// The thread that polls; 0: none does.
    thread: AtomicUsize,
    /// Something is gathered. Written under the lock.
    is_gathered: Arc<AtomicBool>,
    /// When the poll began, there were connections to be accepted.
    has_waiting: AtomicBool,
    /// The last frame was sent in a poll, and UCX has nothing under way after it.
    has_sent: AtomicBool,
    /// The last poll began without progress.
    has_passed: AtomicBool,
    /// Polls of rings from now on that make no progress.
    ring_polls: AtomicU32,
    /// `None` inside: the system refuses what it takes.
    sweeper: OnceLock<Option<Arc<Sweeper>>>,
}

impl Polling {
    /// This thread has sent a frame. `all_out`: UCX has nothing under way after it.
    #[inline]
    pub(super) fn sent(&self, all_out: bool) {
        if self.is_here() {
            self.has_sent.store(all_out, Ordering::Relaxed);
        }
    }

    /// Whether a poll that begins makes no progress: frames are left, or the last thing that happened is that a frame was sent, and what
    /// follows from that cannot be there yet. The next one does: what is left may wait for it.
    fn passes(&self, unread: usize) -> bool {
        let has_sent = self.has_sent.load(Ordering::Relaxed);
        self.has_sent.store(false, Ordering::Relaxed);
        let passes = (has_sent || unread > 0) && !self.has_passed.load(Ordering::Relaxed);
        self.has_passed.store(passes, Ordering::Relaxed);
        passes
    }

    /// Whether a poll of rings, in which puts land by themselves, makes no progress: to look into the rings costs less.
    fn polls_rings(&self) -> bool {
        let left = self.ring_polls.load(Ordering::Relaxed);
        let next = left.checked_sub(1).unwrap_or(RING_POLLS);
        self.ring_polls.store(next, Ordering::Relaxed);
        left > 0
    }

    /// A sleep begins: the first poll after it progresses.
    pub(super) fn before_sleep(&self) {
        self.has_sent.store(false, Ordering::Relaxed);
        self.ring_polls.store(0, Ordering::Relaxed);
    }

    /// Whether this thread is in a poll: its links make no progress of their own.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether something is gathered, which any progress of UCX sends.
    #[inline]
    pub(super) fn is_gathered(&self) -> bool {
        self.is_gathered.load(Ordering::Relaxed)
    }

    /// Whether this thread is in a poll, and there is nothing to accept in it.
    #[inline]
    pub(super) fn accepts_none(&self) -> bool {
        self.is_here() && !self.has_waiting.load(Ordering::Relaxed)
    }
}

impl PollScope for Engine {
    #[inline]
    fn begin(&self) -> bool {
        let mut locked = self.lock();
        let lands = locked.state.mode == Mode::Puts && !locked.state.has_put_over_tcp;
        let passes = match lands {
            true => self.polling.polls_rings(),
            false => self.polling.passes(self.unread.get()),
        };
        let some = !passes && locked.progress();
        let state = &mut locked.state;
        let acceptor = state.acceptor.as_ref();
        let has_waiting = acceptor.is_some_and(|acceptor| !acceptor.waiting.is_empty());
        self.polling.has_waiting.store(has_waiting, Ordering::Relaxed);
        let unread = self.unread.get();
        if unread > 1 {
            state.gather.begin(Instant::now());
        }
        self.polling.thread.store(this_thread(), Ordering::Relaxed);
        // Frames that are put land without an event.
        some || has_waiting || unread > 0 || !state.ready.is_empty() || state.mode == Mode::Puts
    }

    fn end(&self) {
        self.polling.thread.store(0, Ordering::Relaxed);
        if self.polling.is_gathered() {
            self.lock().send_gathered();
        }
    }

    fn passes(&self) -> bool {
        self.unread.get() == 0 && self.polling.passes(0)
    }
}

impl Locked<'_> {
    /// Whether a frame is sent with others, now or later. `false`: it is to be sent by itself. `joins`: as `Connection::joins` says.
    pub(super) fn gathers(
        &mut self,
        id: ConnectionId,
        head: &Head,
        body: &[u8],
        joins: bool,
        next: Next,
    ) -> bool {
        if !(joins || next != Next::Unknown || self.is_gathering()) {
            return false;
        }
        if self.attached().is_some() {
            // The application may progress its worker and call nothing of ours, which would send what was gathered.
            return false;
        }
        let holds = self.holds()
            || match next {
                Next::Unknown => false,
                Next::MoreAtOnce => self.is_swept(),
                Next::MoreLikely => self.holds_call(),
            };
        if !holds && !joins || !self.gather(id, head, body) {
            return false;
        }
        if !holds {
            self.send_unless_busy(id);
        }
        true
    }

    /// Whether what this thread sends may wait for what it sends next.
    #[inline]
    pub(super) fn is_gathering(&self) -> bool {
        self.engine().polling.is_here() && self.state.unread.get() > 0
    }

    /// Whether what this thread sends waits for what it sends next.
    fn holds(&mut self) -> bool {
        if !self.is_gathering() {
            return false;
        }
        self.holds_at(Instant::now())
    }

    /// Whether a call that is made while there are answers to take waits for what follows it.
    fn holds_call(&mut self) -> bool {
        let (now, gather) = (Instant::now(), &mut self.state.gather);
        if gather.is_empty() {
            gather.begin(now);
        }
        self.holds_at(now)
    }

    /// Whether a frame waits that may, because not too much time has passed. Otherwise sends what was gathered before it.
    fn holds_at(&mut self, now: Instant) -> bool {
        let holds = self.state.gather.may_hold(now) && self.is_swept();
        if !holds {
            self.send_gathered();
        }
        holds
    }

    /// Whether something is gathered that the next progress sends.
    pub(super) fn has_gathered(&self) -> bool {
        !self.state.gather.open.is_empty()
    }

    /// Adds a frame to the peer's open message. `false`: it is sent by itself.
    fn gather(&mut self, id: ConnectionId, head: &Head, body: &[u8]) -> bool {
        if body.len() > MAX_GATHERED_BODY || !self.has_peer(id) {
            return false;
        }
        if self.append(id, head, body) {
            return true;
        }
        self.send_pack(id);
        self.open_pack(id);
        self.append(id, head, body)
    }

    /// Whether there is an endpoint, and a name for packed messages to it.
    fn has_peer(&self, id: ConnectionId) -> bool {
        let connection = self.state.connections.get(&id);
        connection.is_some_and(|connection| connection.endpoint.is_some() && connection.peer != Name::NONE)
    }

    /// `false`: there is no open message, or it has no room.
    fn append(&mut self, id: ConnectionId, head: &Head, body: &[u8]) -> bool {
        let connection = self.state.connections.get_mut(&id);
        let Some(pack) = connection.and_then(|connection| connection.pack.as_mut()) else {
            return false;
        };
        if pack.frames == MAX_ENTRIES {
            return false;
        }
        let Some(end) = packed::append(&mut pack.packet.bytes_mut()[..MAX_GATHERED], pack.end, head, body)
        else {
            return false;
        };
        pack.end = end;
        pack.frames += 1;
        let Credits { frames, data } = message_of(body.len());
        pack.sent.frames += frames;
        pack.sent.data += data;
        true
    }

    fn open_pack(&mut self, id: ConnectionId) {
        let mut packet = self.packet(MAX_GATHERED);
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return self.give(packet);
        };
        packet.bytes_mut()[..NAME].copy_from_slice(&connection.peer.0.to_le_bytes());
        connection.pack = Some(Pack {
            packet,
            end: NAME,
            frames: 0,
            sent: Credits::default(),
        });
        let gather = &mut self.state.gather;
        gather.opened += u64::from(gather.open.is_empty());
        gather.open.push(id);
        gather.packs += 1;
        self.engine().polling.is_gathered.store(true, Ordering::Relaxed);
    }

    /// Sends what was gathered for all peers.
    #[inline]
    pub(super) fn send_gathered(&mut self) {
        if !self.state.gather.open.is_empty() {
            while let Some(id) = self.state.gather.open.pop() {
                self.send_unless_busy(id);
            }
            self.engine().polling.is_gathered.store(false, Ordering::Relaxed);
        }
    }

    /// As [`send_pack`](Self::send_pack), unless UCX has not sent an earlier one: then the end of that sends this one.
    pub(super) fn send_unless_busy(&mut self, id: ConnectionId) {
        let connection = self.state.connections.get(&id);
        if connection.is_some_and(|connection| connection.pack.is_some() && !connection.is_busy()) {
            self.send_pack(id);
        }
    }

    /// Sends what was gathered for a peer.
    pub(super) fn send_pack(&mut self, id: ConnectionId) {
        let Some(pack) = self.take_pack(id) else { return };
        #[cfg(test)]
        GATHERED.set(GATHERED.get() + pack.frames);
        let message = Parts {
            header: 0..0,
            data: 0..pack.end,
            flags: Flags::EAGER,
            sent: pack.sent,
        };
        if let Some(packet) = self.post_message(id, pack.packet, message) {
            self.give(packet);
        }
    }

    /// Closes the open message of a connection, and does not send it.
    pub(super) fn take_pack(&mut self, id: ConnectionId) -> Option<Pack> {
        let pack = self.state.connections.get_mut(&id)?.pack.take()?;
        let gather = &mut self.state.gather;
        gather.packs -= 1;
        gather.open.retain(|&open| open != id);
        if gather.open.is_empty() {
            self.engine().polling.is_gathered.store(false, Ordering::Relaxed);
        }
        Some(pack)
    }

    /// Drops what was gathered for a peer that is gone.
    pub(super) fn drop_pack(&mut self, id: ConnectionId) {
        if let Some(pack) = self.take_pack(id) {
            self.give(pack.packet);
        }
    }

    /// Begins sweeps, unless they are going on. `false`: there is no thread for them.
    fn is_swept(&mut self) -> bool {
        if !self.state.gather.is_swept {
            self.state.gather.is_swept = self.engine().sweeper().is_some_and(|sweeper| sweeper.begin());
        }
        self.state.gather.is_swept
    }
}

impl Engine {
    /// Takes the descriptors that gathering needs, so that a target has all that it will have when it listens.
    pub(super) fn prepare_gathering(&self) {
        self.sweeper();
    }

    /// Made when it is needed first. `None`: the system refuses what it takes, and nothing is gathered.
    fn sweeper(&self) -> Option<&Sweeper> {
        let sweeper = &self.polling.sweeper;
        let is_gathered = &self.polling.is_gathered;
        let new = || Sweeper::new(&self.own, Arc::clone(is_gathered)).ok();
        sweeper.get_or_init(new).as_deref()
    }

    /// Sends what was gathered before the last sweep. `is_last`: the sweeper may rest. `false`: it rests.
    fn sweep(&self, is_last: bool) -> bool {
        // A thread has the lock. The next sweep looks again.
        let Some(mut locked) = self.try_lock() else {
            return true;
        };
        let sweep = locked.state.gather.sweep(is_last);
        if sweep == Sweep::Overdue {
            locked.send_gathered();
        }
        sweep != Sweep::Rests
    }
}

/// Sends what was gathered where an invocation takes long after it, or the application does something else: on the process's watching
/// thread. It uses the engine only if something is gathered, and before it rests: an engine whose last owner leaves meanwhile is ended by a
/// thread of its own, which may be too late for a process that exits.
struct Sweeper {
    engine: Weak<Engine>,
    /// That of [`Polling`], which can be read without the engine.
    is_gathered: Arc<AtomicBool>,
    /// Calls in succession in which nothing was gathered.
    idle: AtomicU32,
    event_fd: EventFd,
    watch: Watch,
}

impl Sweeper {
    fn new(engine: &Weak<Engine>, is_gathered: Arc<AtomicBool>) -> std::io::Result<Arc<Self>> {
        let watcher = Watcher::of_this_process()?;
        let event_fd = EventFd::new()?;
        let watch = Watch::new(&watcher, event_fd.as_fd().try_clone_to_owned()?);
        let sweeper = Arc::new(Self {
            engine: Weak::clone(engine),
            is_gathered,
            idle: AtomicU32::new(0),
            event_fd,
            watch,
        });
        let watched = Arc::downgrade(&sweeper) as Weak<dyn Watched>;
        sweeper.watch.watch(EventFlags::IN, watched)?;
        Ok(sweeper)
    }

    /// Wakes the watching thread. `false`: this process has none.
    fn begin(&self) -> bool {
        let has_thread = !self.watch.is_forked();
        if has_thread {
            self.event_fd.wake();
        }
        has_thread
    }
}

impl Watched for Sweeper {
    fn ready(self: Arc<Self>, _: Token) {
        self.event_fd.clear();
        self.watch.call_in(SWEEP);
    }

    fn due(self: Arc<Self>, _: Token) {
        let idle = match self.is_gathered.load(Ordering::Relaxed) {
            true => 0,
            false => self.idle.load(Ordering::Relaxed) + 1,
        };
        let is_last = idle >= IDLE_SWEEPS;
        self.idle.store(if is_last { 0 } else { idle }, Ordering::Relaxed);
        let is_visited = idle == 0 || is_last;
        if !is_visited || Visited::of(&self.engine).is_some_and(|engine| engine.sweep(is_last)) {
            self.watch.call_in(SWEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_for_short_invocations_and_not_for_long() {
        let mut gather = Gather::default();
        let start = Instant::now();
        gather.begin(start);
        let mut holds = |after: Duration| gather.may_hold(start + after);
        assert!(holds(HOLD / 2) && holds(HOLD));
        // From then on, another while.
        let late = HOLD + Duration::from_nanos(1);
        assert!(!holds(late));
        assert!(holds(late + HOLD) && !holds(late * 2 + HOLD));
        // Each took longer.
        assert!((4..10).all(|n| !holds(late * 2 * n)));
    }

    #[test]
    fn sweeps_find_what_the_last_one_found_and_rest_where_there_is_nothing() {
        let mut gather = Gather {
            is_swept: true,
            ..Gather::default()
        };
        let open = |gather: &mut Gather| {
            gather.opened += 1;
            gather.open.push(ConnectionId(1));
        };
        open(&mut gather);
        assert_eq!(gather.sweep(true), Sweep::GoesOn, "it has just been opened");
        assert_eq!(gather.sweep(false), Sweep::Overdue);
        assert_eq!(gather.sweep(true), Sweep::Overdue, "until it is sent");
        gather.open.clear();
        open(&mut gather);
        assert_eq!(gather.sweep(true), Sweep::GoesOn, "another one");
        gather.open.clear();
        assert_eq!(gather.sweep(false), Sweep::GoesOn);
        assert!(gather.is_swept);
        assert_eq!(gather.sweep(true), Sweep::Rests);
        assert!(!gather.is_swept);
    }
}
