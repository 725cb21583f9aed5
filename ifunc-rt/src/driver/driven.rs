//! What the driver needs of a connection, and what the connection reports.

use std::time::{Duration, Instant};

use super::doorbell::Doorbell;
use super::queue::Ticket;
use super::state::Shared;

/// A connection. It knows no waker, lock or thread: it reports what happened through its [`Signals`], and the driver decides
/// which waiters are woken.
pub(crate) trait Driven: Sized + Send + 'static {
    /// What a thread sleeps on until the link's peer rings.
    type Doorbell: Doorbell + Send;

    fn signals(&mut self) -> &mut Signals;

    /// Receives what has come, and sends on what waits for credit.
    fn poll(&mut self);

    /// When this token completes, the connection reports this waiter (0: none).
    fn watch(&mut self, token: u64, waiter: Ticket);

    /// Whether there is credit for a frame of `bytes`, or as much as a frame may have.
    fn has_credit(&mut self, bytes: usize) -> bool;

    /// When the open batch is to be sent, if one is open.
    fn batch_due(&self) -> Option<Instant>;

    /// Sends the open batch if it is due. `false`: there is no credit or no link.
    fn send_due_batch(&mut self) -> bool;

    /// Whether something is half sent, which goes on when credits come.
    fn is_sending(&self) -> bool;

    /// Announces sleep: from here on the peer rings.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// The link's doorbell; `None`: there is no link.
    fn doorbell(&self) -> Option<Self::Doorbell>;

    fn is_connected(&self) -> bool;

    /// One attempt to replace a lost link, until `until`; the lock is not held meanwhile. `false`: not now, but maybe before
    /// `window` ends. An error says why no further attempt succeeds.
    fn reconnect(shared: &Shared<Self>, until: Instant, window: Instant) -> Result<bool, String>;

    /// The link is not replaced any longer: what waits for it has failed.
    fn give_up(&mut self, why: &str);

    /// Ends the link.
    fn close(&mut self);
}

/// How a connection is driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// How long a future waits that does not say so itself.
    pub(crate) timeout: Duration,
    /// For how long a lost link is replaced.
    pub(crate) reconnect: Duration,
    /// A thread polls all the time, not only while futures wait.
    pub(crate) always: bool,
    /// Why the driver may start no thread; `None`: it may.
    pub(crate) no_thread: Option<&'static str>,
}

/// What a connection reports, which the driver reads before each unlock, and what the driver says about the caller.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Anything was reported.
    raised: bool,
    reported: Reported,
    /// Completions and reports received.
    received: u64,
    /// Bytes that the last attempt had no credit for.
    lacking: usize,
    /// Waiters for credit exist.
    crowded: bool,
    /// The caller must leave credit to them.
    refused: bool,
    /// A thread sends open batches in time; otherwise callers do.
    pub(crate) is_timed: bool,
}

/// See [`Signals`].
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Waiters whose token completed.
    pub(super) completed: Vec<Ticket>,
    /// What others had to wait for has been sent.
    pub(super) unblocked: bool,
    /// The caller took credit that others wait for.
    pub(super) overtook: bool,
    pub(super) link_changed: bool,
    pub(super) due_changed: bool,
}

impl Signals {
    fn report(&mut self) -> &mut Reported {
        self.raised = true;
        &mut self.reported
    }

    /// A token completed that this waiter waits for.
    pub(crate) fn completed(&mut self, waiter: Ticket) {
        if waiter != 0 {
            self.report().completed.push(waiter);
        }
    }

    /// What others had to wait for has been sent: the first waiter for credit may try.
    pub(crate) fn unblocked(&mut self) {
        self.report().unblocked = true;
    }

    /// There is another link, or none.
    pub(crate) fn link_changed(&mut self) {
        self.report().link_changed = true;
    }

    /// A batch was opened, or the open one was sent.
    pub(crate) fn due_changed(&mut self) {
        self.report().due_changed = true;
    }

    /// So many completions and reports were received in all.
    #[inline]
    pub(crate) fn set_received(&mut self, received: u64) {
        self.received = received;
    }

    /// There is no credit for so many bytes.
    #[inline]
    pub(crate) fn lacks(&mut self, bytes: usize) {
        self.lacking = bytes;
    }

    /// Whether waiters for credit exist.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether the caller may take credit for so many bytes, whatever other waiters need.
    #[inline]
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        if self.refused {
            self.lacking = bytes;
        }
        !self.refused
    }

    /// The caller has taken credit.
    #[inline]
    pub(crate) fn took_credit(&mut self) {
        if self.crowded {
            self.report().overtook = true;
        }
    }

    #[inline(always)]
    pub(super) fn is_raised(&self) -> bool {
        self.raised
    }

    pub(super) fn count(&self) -> u64 {
        self.received
    }

    pub(super) fn lacking(&self) -> usize {
        self.lacking
    }

    pub(super) fn set_admission(&mut self, crowded: bool, admitted: bool) {
        (self.crowded, self.refused) = (crowded, !admitted);
    }

    /// Whether the last attempt took credit that others wait for.
    pub(super) fn take_overtook(&mut self) -> bool {
        std::mem::take(&mut self.reported.overtook)
    }

    /// What was reported, if anything was.
    pub(super) fn take(&mut self) -> Option<Reported> {
        std::mem::take(&mut self.raised).then(|| std::mem::take(&mut self.reported))
    }
}
