//! Repeated attempts to connect.
//!
//! The kernel retransmits lost packets of a new connection after 1 s, 3 s, 7 s, 15 s …: an attempt that began while the link was
//! down may take half as long again as it was down, and UCX has no timeout. A new attempt is answered at once when the link is
//! up.

use std::time::{Duration, Instant};

use super::tcp_watch;
use crate::transport::{ConnectError, Link};

/// Time before the first check of the first attempt. A round trip takes less, on any link.
const FIRST: Duration = Duration::from_millis(1500);
/// Longest time before the first check of an attempt: the time that may be lost after the link came up again.
const LONGEST: Duration = Duration::from_secs(4);
/// Time between two checks.
const CHECK: Duration = Duration::from_millis(500);
/// Time limit of the first attempt without retransmissions: the target may be busy.
const TIMEOUT: Duration = Duration::from_secs(8);

/// One of several attempts.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) deadline: Instant,
    next_check: Instant,
    end: Instant,
    slice: Duration,
    timeout: Duration,
}

/// Tries until an attempt has a result, or until `deadline`.
pub(super) fn until(
    deadline: Instant,
    mut attempt: impl FnMut(&mut Attempt) -> Result<Link, ConnectError>,
) -> Result<Link, ConnectError> {
    let mut one = Attempt::first(deadline);
    loop {
        match attempt(&mut one) {
            Err(ConnectError::Timeout { .. }) if Instant::now() < deadline => {
                one = one.next(Instant::now());
                tracing::debug!("an attempt to connect has no result, and another one is made");
            }
            result => return result,
        }
    }
}

impl Attempt {
    /// The first of those until `deadline`.
    pub(super) fn first(deadline: Instant) -> Self {
        Self::new(deadline, Instant::now(), FIRST, TIMEOUT)
    }

    fn new(deadline: Instant, now: Instant, slice: Duration, timeout: Duration) -> Self {
        Self {
            deadline,
            next_check: now + slice,
            end: now + timeout,
            slice,
            timeout,
        }
    }

    /// Takes longer than the attempt before, so that slow links and slow peers are reached.
    fn next(&self, now: Instant) -> Self {
        let slice = (self.slice * 2).min(LONGEST);
        Self::new(self.deadline, now, slice, self.timeout * 2)
    }

    /// Whether to begin another attempt.
    pub(super) fn is_hopeless(&mut self) -> bool {
        self.is_over(Instant::now(), tcp_watch::resends)
    }

    fn is_over(&mut self, now: Instant, resends: impl FnOnce() -> bool) -> bool {
        if now < self.next_check {
            return false;
        }
        self.next_check = now + CHECK;
        now >= self.end || resends()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_with_lost_packets_are_short_and_others_are_long() {
        let mut now = Instant::now();
        let deadline = now + Duration::from_secs(60);
        let mut one = Attempt::new(deadline, now, FIRST, TIMEOUT);
        let mut took = |resends: bool| {
            let began = now;
            while !one.is_over(now, || resends) {
                now += Duration::from_millis(100);
            }
            one = one.next(now);
            (now - began).as_millis()
        };
        assert_eq!([(); 4].map(|()| took(true)), [1500, 3000, 4000, 4000]);
        assert_eq!(took(false), 128_000);
        let mut one = Attempt::new(deadline, now, FIRST, TIMEOUT);
        assert!(!one.is_over(now, || true) && !one.is_over(now + FIRST, || false));
        assert!(one.is_over(now + TIMEOUT, || false));
    }

    #[test]
    fn lost_packets_are_looked_for_twice_a_second() {
        let now = Instant::now();
        let mut one = Attempt::new(now + Duration::from_secs(60), now, FIRST, TIMEOUT);
        let looks = (0..40).filter(|&n| {
            let mut looked = false;
            let over = one.is_over(now + FIRST + n * Duration::from_millis(50), || {
                looked = true;
                false
            });
            assert!(!over);
            looked
        });
        assert!(looks.eq([0, 10, 20, 30]));
        // By the clock: one whose time is over.
        let mut late = Attempt::new(now, now, Duration::ZERO, Duration::ZERO);
        assert!(late.is_hopeless());
    }

    #[test]
    fn no_attempt_begins_after_the_deadline() {
        let mut tried = 0;
        let result = until(Instant::now(), |_| {
            tried += 1;
            assert!(tried < 10, "another attempt");
            Err(ConnectError::Timeout {
                address: String::from("ucx://there:1"),
                waiting_for: "nothing",
            })
        });
        assert_eq!(tried, 1);
        assert!(matches!(result, Err(ConnectError::Timeout { .. })));
    }

    #[test]
    fn an_attempt_with_a_result_is_the_last() {
        let (deadline, mut tried) = (Instant::now() + Duration::from_secs(60), 0);
        let result = until(deadline, |_| {
            tried += 1;
            let address = String::from("ucx://there:1");
            Err(match tried {
                1 | 2 => ConnectError::Timeout {
                    address,
                    waiting_for: "nothing",
                },
                _ => ConnectError::NobodyListens { address, path: None },
            })
        });
        assert_eq!(tried, 3);
        assert!(matches!(result, Err(ConnectError::NobodyListens { .. })));
    }
}
