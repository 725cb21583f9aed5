//! One side of a segment: sends, waits, sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use super::segment::{Malformed, Message, Segment, Side};

/// The descriptor of the segment in a runner process.
pub(super) const SEGMENT: i32 = 0;
/// That which wakes the runner.
pub(super) const OWN_EVENT: i32 = 1;
/// That which wakes the target.
pub(super) const PEER_EVENT: i32 = 2;

/// How long a side polls before it sleeps: to wake a sleeper takes about as long.
const SPIN: Duration = Duration::from_micros(50);
/// Polls between two looks at the clock.
const POLLS: u32 = 64;

/// Whether it helps to wait without sleeping: the other side needs a processor of its own.
static SPINS: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));

/// Finds out what later uses ask for: it takes files, which a runner gives up.
pub(super) fn prepare() {
    LazyLock::force(&SPINS);
}

/// What wakes a side that sleeps.
pub(super) fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// One side of a segment.
#[derive(Debug)]
pub(super) struct Port<F, S> {
    pub(super) segment: S,
    side: Side,
    own: F,
    peer: F,
    sent: u32,
    received: u32,
}

/// What a wait ended with.
#[derive(Debug)]
pub(super) enum Waited {
    Received(Message),
    /// The other side sent what it may not send.
    Malformed,
    /// The descriptor that was watched is readable.
    Ended,
    TimedOut,
}

impl<F: AsFd, S: AsRef<Segment>> Port<F, S> {
    /// `own` wakes this side, `peer` the other one.
    pub(super) fn new(segment: S, side: Side, own: F, peer: F) -> Self {
        Self {
            segment,
            side,
            own,
            peer,
            sent: 0,
            received: 0,
        }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &Message) {
        self.sent = self.sent.wrapping_add(1);
        if self.segment.as_ref().send(self.side, self.sent, message) {
            // It fails if the other side was woken so often that the counter is full.
            let _ = rustix::io::write(&self.peer, &1_u64.to_ne_bytes());
        }
    }

    fn poll(&mut self) -> Option<Result<Message, Malformed>> {
        let turn = self.received.wrapping_add(1);
        let message = self.segment.as_ref().poll(self.side.other(), turn)?;
        self.received = turn;
        Some(message)
    }

    /// Waits for a message until a deadline, or until `ended` is readable.
    pub(super) fn wait(&mut self, ended: Option<BorrowedFd<'_>>, deadline: Option<Instant>) -> Waited {
        let received =
            |message: Result<Message, Malformed>| message.map_or(Waited::Malformed, Waited::Received);
        let begin = Instant::now();
        loop {
            for _ in 0..POLLS {
                if let Some(message) = self.poll() {
                    return received(message);
                }
                std::hint::spin_loop();
            }
            if !*SPINS || begin.elapsed() >= SPIN {
                break;
            }
        }
        let side = self.side;
        loop {
            self.segment.as_ref().set_sleeps(side, true);
            let message = self.poll();
            if let Some(message) = message {
                self.segment.as_ref().set_sleeps(side, false);
                return received(message);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                self.segment.as_ref().set_sleeps(side, false);
                return Waited::TimedOut;
            }
            let slept = self.sleep(ended, left);
            self.segment.as_ref().set_sleeps(side, false);
            // What was sent before the end counts.
            if let Some(message) = self.poll() {
                return received(message);
            }
            if slept {
                return Waited::Ended;
            }
        }
    }

    /// Sleeps until it is woken, or for a time. Returns whether the watched descriptor is readable.
    fn sleep(&self, ended: Option<BorrowedFd<'_>>, left: Option<Duration>) -> bool {
        let own = self.own.as_fd();
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut both = [
            PollFd::from_borrowed_fd(own, PollFlags::IN),
            PollFd::from_borrowed_fd(ended.unwrap_or(own), PollFlags::IN),
        ];
        let polled = if ended.is_some() {
            &mut both[..]
        } else {
            &mut both[..1]
        };
        // A signal is a reason to look, too.
        let _ = poll(polled, left.as_ref());
        let is_ended = ended.is_some() && !both[1].revents().is_empty();
        if !both[0].revents().is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(own, &mut count);
        }
        is_ended
    }
}
