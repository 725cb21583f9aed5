//! Requests for the target's counters, page by page.

use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::stats::{MAX_BYTES, PageHead, Stats, VERSION};
use ifunc_abi::status::{Rejection, Status};

use super::Source;
use super::error::Error;
use crate::driver::backoff::after;

/// Name of the request in errors.
pub(super) const STATS: &str = "the question for what the target has counted";

/// Why the target's counters cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// The target does not share them.
    #[error("{0}")]
    NotShared(String),
    /// The target's snapshot has another version.
    #[error(
        "the target counts in version {theirs}, this program reads version {ours}; help: use the `cargo ifunc` and `ifunc-rt` of one release on both sides"
    )]
    Version {
        /// [`VERSION`] of this side.
        ours: u16,
        /// The target's version.
        theirs: u16,
    },
    /// The counters exceed one answer or one snapshot.
    #[error("the target cannot send its counters: {0}")]
    TooLarge(String),
    /// The answer is no snapshot.
    #[error("the target sent a malformed snapshot of its counters: {0}")]
    Malformed(String),
    /// The request could not be sent, or has no answer.
    #[error(transparent)]
    Source(#[from] Error),
}

/// Longest pause before the source asks a rate-limited target again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The pages received so far.
#[derive(Default)]
struct Reading {
    bytes: Vec<u8>,
    snapshot: u64,
    /// Length of the snapshot.
    total: usize,
}

impl Source {
    /// The target's counters so far: per source, per ifunc, in all. The request travels after everything that this
    /// source has sent, so the counters include it. For the other sources they are a snapshot of one moment. Waits at
    /// most `timeout`.
    ///
    /// The target takes a new snapshot for one connection at most every 50 ms, and less often if the list is very
    /// long. A caller that asks more often waits.
    ///
    /// # Errors
    /// The target does [not share](crate::TargetBuilder::share_stats) its counters or has another version; it is gone
    /// or does not answer in time.
    pub fn target_stats(&self, timeout: Duration) -> Result<Stats, StatsError> {
        let deadline = after(timeout);
        let mut reading = Reading::default();
        loop {
            // Less than 16 MiB.
            let offset = reading.bytes.len() as u32;
            let page = self
                .shared
                .request(deadline, STATS, |connection| connection.try_stats(offset))?;
            if let Some(pause) = reading.page(page.status, page.bytes())? {
                let left = deadline.saturating_duration_since(Instant::now());
                thread::sleep(pause.min(LONGEST_PAUSE).min(left));
            } else if reading.bytes.len() >= reading.total {
                return Stats::decode(&reading.bytes).map_err(malformed);
            }
        }
    }
}

fn malformed(why: impl std::fmt::Display) -> StatsError {
    StatsError::Malformed(why.to_string())
}

impl Reading {
    /// Adds a page. If it is of a snapshot that the target took for an earlier request, without what was sent since, the
    /// result is the pause until the target takes another.
    fn page(&mut self, status: Status, body: &[u8]) -> Result<Option<Duration>, StatsError> {
        let detail = || String::from_utf8_lossy(body).into_owned();
        match status {
            Status::Executed => {}
            Status::Rejected(Rejection::Policy) => return Err(StatsError::NotShared(detail())),
            Status::Rejected(Rejection::TooLarge) => return Err(StatsError::TooLarge(detail())),
            other => return Err(StatsError::Malformed(format!("{other}; {}", detail()))),
        }
        let (head, part) = PageHead::split(body).map_err(malformed)?;
        if head.version != VERSION {
            return Err(StatsError::Version {
                ours: VERSION,
                theirs: head.version.get(),
            });
        }
        let total = head.total.get() as usize;
        if total > MAX_BYTES {
            return Err(malformed(format!("a snapshot of {total} bytes")));
        }
        if head.offset == 0 {
            // The first page, or the target has started a new snapshot, as after a restart.
            self.bytes.clear();
            if head.cached_for_us != 0 {
                return Ok(Some(Duration::from_micros(head.cached_for_us.get().into())));
            }
            self.snapshot = head.snapshot.get();
        } else if head.snapshot != self.snapshot || head.offset.get() as usize != self.bytes.len() {
            return Err(malformed("a page of another snapshot"));
        }
        self.bytes.extend_from_slice(part);
        self.total = total;
        Ok(None)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    #[test]
    fn what_is_no_page_of_these_counters_is_an_error() {
        let read = |status, body: &[u8]| Reading::default().page(status, body).unwrap_err();
        let page = |version, total: usize, offset: u32| {
            let head = PageHead {
                version: u16::into(version),
                reserved: 0.into(),
                total: (total as u32).into(),
                offset: offset.into(),
                cached_for_us: 0.into(),
                snapshot: 1.into(),
            };
            read(Status::Executed, &[head.as_bytes(), b"part"].concat())
        };
        let error = page(VERSION + 1, 4, 0);
        assert!(
            matches!(error, StatsError::Version { theirs, .. } if theirs == VERSION + 1),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("help: use the `cargo ifunc` and `ifunc-rt` of one release"),
            "{error}"
        );

        let error = read(
            Status::Rejected(Rejection::TooLarge),
            b"the metrics are too large to be sent",
        );
        assert!(matches!(error, StatsError::TooLarge(_)), "{error}");
        assert!(
            error
                .to_string()
                .contains("cannot send its counters: the metrics are too large"),
            "{error}"
        );

        for error in [
            page(VERSION, MAX_BYTES + 1, 0),
            page(VERSION, 8, 4),
            read(Status::Executed, b"short"),
            read(Status::Rejected(Rejection::Unbound), b""),
        ] {
            assert!(matches!(error, StatsError::Malformed(_)), "{error}");
            assert!(
                error
                    .to_string()
                    .starts_with("the target sent a malformed snapshot"),
                "{error}"
            );
        }
    }
}
