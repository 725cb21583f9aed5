//! What the driver needs of a connection, and what the connection reports.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::queue::Ticket;
use super::state::Shared;

/// What the sleeper of a connection sleeps on: until the link's peer rings, the waker is woken, or the given time. It may return
/// early.
pub(crate) type Doorbell = (Waker, Box<dyn FnOnce(Instant)>);

/// A connection. It knows no waker, lock or thread: it reports what happened through its [`Signals`], and the driver decides
/// which waiters are woken.
pub(crate) trait Driven: Sized + Send + 'static {
    fn signals(&mut self) -> &mut Signals;

    /// Receives what has arrived and sends what waits for credit. `false`: some of it still waits.
    fn try_drain(&mut self) -> bool;

    /// When this token completes, the connection reports this waiter (0: none).
    fn watch(&mut self, token: u64, waiter: Ticket);

    /// Whether there is credit for a frame of `bytes`, or as much as a frame may have.
    fn has_credit(&mut self, bytes: usize) -> bool;

    /// When the open batch is to be sent, if one is open.
    fn batch_due(&self) -> Option<Instant>;

    /// Sends the open batch if it is due. `false`: there is no credit or no link.
    fn send_due_batch(&mut self) -> bool;

    /// Whether a body or a batch was sent in part, and continues when credits arrive.
    fn is_sending(&self) -> bool;

    /// Whether the calling thread is the one that polls the link for a target, so that it must not wait for the link.
    fn is_polled_here(&self) -> bool {
        false
    }

    /// Whether a thread that does not wait polls the link and wakes those that do.
    fn is_polled_elsewhere(&self) -> bool {
        false
    }

    /// Announces sleep: from here on the peer rings.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// The link's doorbell; `None`: there is no link.
    fn doorbell(&self) -> Option<Doorbell>;

    fn is_connected(&self) -> bool;

    /// One attempt to replace a lost link, until `until`; the lock is not held meanwhile. `false`: not now, but maybe before
    /// `window` ends. An error says why no further attempt succeeds.
    fn reconnect(shared: &Shared<Self>, until: Instant, window: Instant) -> Result<bool, String>;

    /// Whether the last attempt may have left frames that arrived: then no thread sleeps on the doorbell.
    fn has_more(&self) -> bool;

    /// The link is not replaced any longer: what waits for it has failed.
    fn give_up(&mut self, why: &str);

    /// Ends the link.
    fn close(&mut self);
}

/// How a connection is driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// How long a wait lasts, unless its caller says so.
    pub(crate) timeout: Duration,
    /// For how long a lost link is replaced.
    pub(crate) reconnect: Duration,
    /// A thread polls all the time, not only while futures wait.
    pub(crate) always: bool,
    /// How long a waiter polls before it parks.
    pub(crate) spin: Duration,
    /// Why the driver may start no thread; `None`: it may.
    pub(crate) no_thread: Option<&'static str>,
}

/// What a connection reports, which the driver reads before each unlock, and what the driver says about the caller.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Events since the driver last took them.
    events: u8,
    /// Waiters whose token completed.
    completed: Vec<Ticket>,
    /// Completions and reports received, in all.
    pub(crate) received: u64,
    /// Bytes that the last attempt had no credit for.
    pub(crate) lacking: usize,
    /// Until so many frames were sent over the link, the connection need not check whether waiters for credit exist, and whether its peer
    /// lives.
    pub(crate) examined_until: u64,
    /// A stream need not poll for replies before so many frames were sent; at most `examined_until`.
    pub(crate) polled_until: u64,
    /// Waiters for credit exist.
    pub(crate) is_crowded: bool,
    /// The caller must leave credit to them.
    is_refused: bool,
    /// A thread sends open batches in time; otherwise callers do.
    pub(crate) is_timed: bool,
}

impl Signals {
    /// What others had to wait for has been sent: the first waiter for credit may try.
    pub(crate) const UNBLOCKED: u8 = 1;
    /// The caller took credit that others wait for.
    pub(super) const OVERTOOK: u8 = 2;
    /// There is another link, or none.
    pub(crate) const LINK_CHANGED: u8 = 4;
    /// A batch was opened, or the open one was sent.
    pub(crate) const DUE_CHANGED: u8 = 8;
    const COMPLETED: u8 = 16;

    pub(crate) fn raise(&mut self, event: u8) {
        self.events |= event;
    }

    /// A token completed that this waiter waits for.
    pub(crate) fn completed(&mut self, waiter: Ticket) {
        if waiter != 0 {
            self.raise(Self::COMPLETED);
            self.completed.push(waiter);
        }
    }

    /// Whether waiters for credit exist, and whether the caller must leave credit to them.
    pub(super) fn crowd(&mut self, is_crowded: bool, is_refused: bool) {
        (self.is_crowded, self.is_refused) = (is_crowded, is_refused);
        if is_crowded {
            self.examine_next();
        }
    }

    /// Makes the next submission examine the connection and poll for replies.
    pub(crate) fn examine_next(&mut self) {
        (self.examined_until, self.polled_until) = (0, 0);
    }

    /// Whether the caller may take credit for so many bytes, whatever other waiters need.
    #[inline]
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        if self.is_refused {
            self.lacking = bytes;
        }
        !self.is_refused
    }

    /// The caller has taken credit.
    #[inline]
    pub(crate) fn took_credit(&mut self) {
        if self.is_crowded {
            self.raise(Self::OVERTOOK);
        }
    }

    #[inline(always)]
    pub(crate) fn is_raised(&self) -> bool {
        self.events != 0
    }

    /// Whether the last attempt took credit that others wait for.
    pub(super) fn take_overtook(&mut self) -> bool {
        let overtook = self.events & Self::OVERTOOK != 0;
        self.events &= !Self::OVERTOOK;
        overtook
    }

    /// The events, and the waiters whose token completed.
    pub(super) fn take(&mut self) -> (u8, Vec<Ticket>) {
        (
            std::mem::take(&mut self.events),
            std::mem::take(&mut self.completed),
        )
    }
}
