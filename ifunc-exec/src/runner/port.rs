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

#[cfg(test)]
impl<F: AsFd, S: AsRef<Segment>> Port<F, S> {
    /// How many messages this side has sent.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Sends a message that no version defines.
    pub(super) fn send_malformed(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        let segment = self.segment.as_ref();
        segment.send_malformed(self.side, self.sent);
        let _ = rustix::io::write(&self.peer, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::runner::segment::{Kind, Lens, Setting};

    type Either = Port<Arc<OwnedFd>, Arc<Segment>>;

    fn ports() -> [Either; 2] {
        let lens = Lens {
            payload: 0,
            target: 0,
            answer: 0,
        };
        let segment = Arc::new(Segment::create(lens).unwrap().0);
        let [target, runner] = [(); 2].map(|()| Arc::new(event().unwrap()));
        [
            Port::new(
                Arc::clone(&segment),
                Side::Target,
                Arc::clone(&target),
                Arc::clone(&runner),
            ),
            Port::new(segment, Side::Runner, runner, target),
        ]
    }

    fn message(number: u64) -> Message {
        Message::new(Kind::Run, [number])
    }

    fn received(waited: &Waited, number: u64) -> bool {
        matches!(waited, Waited::Received(received) if *received == message(number))
    }

    fn after(milliseconds: u64) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(milliseconds))
    }

    #[test]
    fn messages_arrive_in_turns() {
        let [mut target, mut runner] = ports();
        for round in 0..3 {
            target.send(&message(round));
            let waited = runner.wait(None, after(30_000));
            assert!(received(&waited, round), "{waited:?}");
            runner.send(&message(round + 100));
            let waited = target.wait(None, after(30_000));
            assert!(received(&waited, round + 100), "{waited:?}");
        }
    }

    #[test]
    fn a_wait_ends_by_its_deadline_and_not_before() {
        let [mut target, _] = ports();
        for milliseconds in [0, 30] {
            let (began, deadline) = (Instant::now(), after(milliseconds));
            assert!(matches!(target.wait(None, deadline), Waited::TimedOut));
            assert!(began.elapsed() >= Duration::from_millis(milliseconds));
        }
        // Nobody sleeps any more: nobody is woken.
        assert!(!target.segment.send(Side::Runner, 7, &message(1)));
    }

    #[test]
    fn a_side_that_sleeps_is_woken_by_a_message_and_by_the_end_of_the_other() {
        for is_end in [false, true] {
            let [mut target, mut runner] = ports();
            let ended = event().unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| target.wait(Some(ended.as_fd()), after(30_000)));
                std::thread::sleep(Duration::from_millis(20));
                match is_end {
                    false => runner.send(&message(5)),
                    true => drop(rustix::io::write(&ended, &1_u64.to_ne_bytes()).unwrap()),
                }
                let waited = waiting.join().unwrap();
                match is_end {
                    false => assert!(received(&waited, 5), "{waited:?}"),
                    true => assert!(matches!(waited, Waited::Ended), "{waited:?}"),
                }
            });
            // The wake-up is used up: the next wait sleeps.
            let began = Instant::now();
            if !is_end {
                assert!(matches!(
                    target.wait(Some(ended.as_fd()), after(20)),
                    Waited::TimedOut
                ));
                assert!(began.elapsed() >= Duration::from_millis(20));
            }
            // What was sent before the end counts.
            runner.send(&message(6));
            let waited = target.wait(Some(ended.as_fd()), after(30_000));
            assert!(received(&waited, 6), "{waited:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_malformed() {
        let [mut target, mut runner] = ports();
        runner.send_malformed();
        assert!(matches!(target.wait(None, after(30_000)), Waited::Malformed));
        assert_eq!(target.segment.get(Setting::Payload), 0);
    }

    #[test]
    fn what_wakes_a_side_is_never_waited_for_and_not_inherited() {
        let event = event().unwrap();
        assert!(fcntl_getfl(&event).unwrap().contains(OFlags::NONBLOCK));
        assert_eq!(fcntl_getfd(&event).unwrap(), FdFlags::CLOEXEC);
    }
}
