//! A connection is tried for again where an attempt gets nowhere.
//!
//! What is lost on the way while a connection is made, the kernel sends again after 1 s, 3 s, 7 s, 15 s …: an attempt that began
//! while the link was down may need half as long again as it was down, and UCX ends none by itself. A fresh one is answered at
//! once when the link is up.

use std::time::{Duration, Instant};

use super::tcp_watch;
use crate::transport::{ConnectError, Link};

/// How long the first attempt goes on without being looked at. A way there and back takes less, on any link.
const FIRST: Duration = Duration::from_millis(1500);
/// The longest until one is looked at: what may be lost of the time since the link came up again.
const LONGEST: Duration = Duration::from_secs(4);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// How long the first attempt may take of which the kernel knows nothing bad: the other side may be busy, and what is sent
/// again may be its own.
const PATIENCE: Duration = Duration::from_secs(8);

/// One of several attempts.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) deadline: Instant,
    /// When it is looked at next.
    look: Instant,
    /// When it is over, whatever it looks like.
    end: Instant,
    slice: Duration,
    patience: Duration,
}

/// Tries until it is known what becomes of the connection, or until `deadline`.
pub(super) fn until(
    deadline: Instant,
    mut attempt: impl FnMut(&mut Attempt) -> Result<Link, ConnectError>,
) -> Result<Link, ConnectError> {
    let mut one = Attempt::new(deadline, Instant::now(), FIRST, PATIENCE);
    loop {
        match attempt(&mut one) {
            Err(ConnectError::Timeout { .. }) if Instant::now() < deadline => {
                one = one.next(Instant::now());
                tracing::debug!("an attempt to connect got nowhere, and another one is made");
            }
            result => return result,
        }
    }
}

impl Attempt {
    fn new(deadline: Instant, now: Instant, slice: Duration, patience: Duration) -> Self {
        Self {
            deadline,
            look: now + slice,
            end: now + patience,
            slice,
            patience,
        }
    }

    /// It may take longer than the one before it, so that slow ways and slow peers are reached.
    fn next(&self, now: Instant) -> Self {
        let slice = (self.slice * 2).min(LONGEST);
        Self::new(self.deadline, now, slice, self.patience * 2)
    }

    /// Whether another one is better.
    pub(super) fn is_hopeless(&mut self) -> bool {
        self.is_over(Instant::now(), tcp_watch::resends)
    }

    fn is_over(&mut self, now: Instant, resends: impl FnOnce() -> bool) -> bool {
        if now < self.look {
            return false;
        }
        self.look = now + LOOK;
        now >= self.end || resends()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_which_something_is_lost_are_short_and_others_are_left_alone() {
        let mut now = Instant::now();
        let deadline = now + Duration::from_secs(60);
        let mut one = Attempt::new(deadline, now, FIRST, PATIENCE);
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
        let mut one = Attempt::new(deadline, now, FIRST, PATIENCE);
        assert!(!one.is_over(now, || true) && !one.is_over(now + FIRST, || false));
        assert!(one.is_over(now + PATIENCE, || false));
    }

    #[test]
    fn what_says_something_is_the_last() {
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
