//! What the target has counted, asked for page by page.

use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::stats::{MAX_BYTES, PageHead, Stats, VERSION};
use ifunc_abi::status::{Rejection, Status};
use ifunc_proto::completion::Completion;

use super::Source;
use super::error::Error;
use crate::driver::backoff::after;
use crate::driver::state::Want;

/// What the question is called in errors.
pub(super) const STATS: &str = "the question for what the target has counted";

/// Why a target's counters are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// The target does not tell them.
    #[error("{0}")]
    NotShared(String),
    /// It told them in a way that this version does not read.
    #[error(
        "the target counts in version {theirs}, this program reads version {ours}; help: use the `cargo ifunc` and `ifunc-rt` of one release on both sides"
    )]
    Version {
        /// [`VERSION`] of this side.
        ours: u16,
        /// Of the target.
        theirs: u16,
    },
    /// It has more to tell than one answer or one snapshot holds.
    #[error("the target cannot tell what it has counted: {0}")]
    TooLarge(String),
    /// What it told is no snapshot.
    #[error("what the target says it has counted makes no sense: {0}")]
    Malformed(String),
    /// It could not be asked, or did not answer.
    #[error(transparent)]
    Source(#[from] Error),
}

/// Longest pause before a target that wants to be left alone is asked again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a page was.
enum Read {
    /// The last one: this is what they say.
    All(Box<Stats>),
    /// There are more.
    Part,
    /// The first of a snapshot that was taken for an earlier question, and does not hold what was sent since; how long to
    /// wait before the target takes another.
    TooSoon(Duration),
}

/// The pages that have come.
struct Reading {
    bytes: Vec<u8>,
    snapshot: u64,
}

impl Source {
    /// What the target has counted so far: per source, per ifunc, in all. It is asked behind everything that this source has sent, so
    /// that is in it; of a target that does nothing but serve others it is no more than a busy moment. Waits for `timeout` at most.
    ///
    /// A target counts up anew for one connection every 50 ms at most, less often if it has very much to list: whoever asks
    /// more often than that waits.
    ///
    /// # Errors
    /// A target that does [not share](crate::TargetBuilder::share_stats) what it counts, or has another version; one that is gone or does
    /// not answer in time.
    pub fn target_stats(&self, timeout: Duration) -> Result<Stats, StatsError> {
        let deadline = after(timeout);
        let shared = self.shared();
        let mut reading = Reading {
            bytes: Vec::new(),
            snapshot: 0,
        };
        loop {
            // Less than 16 MiB.
            let offset = reading.bytes.len() as u32;
            let token = shared.retry(deadline, STATS, Want::Credit, |connection| {
                Ok(connection.try_stats(offset))
            })?;
            let page = shared.complete(token, deadline, STATS);
            if matches!(page, Err(Error::Timeout { .. })) {
                self.lock().connection.abandon(token);
            }
            match reading.page(&page?)? {
                Read::All(stats) => return Ok(*stats),
                Read::Part => {}
                Read::TooSoon(pause) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    thread::sleep(pause.min(LONGEST_PAUSE).min(left));
                }
            }
        }
    }
}

impl Reading {
    /// Takes in a page.
    fn page(&mut self, completion: &Completion) -> Result<Read, StatsError> {
        let detail = || String::from_utf8_lossy(completion.bytes()).into_owned();
        match completion.status {
            Status::Executed => {}
            Status::Rejected(Rejection::Policy) => return Err(StatsError::NotShared(detail())),
            Status::Rejected(Rejection::TooLarge) => return Err(StatsError::TooLarge(detail())),
            other => return Err(StatsError::Malformed(format!("{other}; {}", detail()))),
        }
        let malformed = |why: &dyn std::fmt::Display| StatsError::Malformed(why.to_string());
        let (head, part) = PageHead::split(completion.bytes()).map_err(|error| malformed(&error))?;
        if head.version != VERSION {
            return Err(StatsError::Version {
                ours: VERSION,
                theirs: head.version.get(),
            });
        }
        let total = head.total.get() as usize;
        if total > MAX_BYTES {
            return Err(malformed(&format!("a snapshot of {total} bytes")));
        }
        if head.offset == 0 {
            // The first page, or the target has begun anew, as one does that was restarted.
            self.bytes.clear();
            if head.cached_for_us != 0 {
                return Ok(Read::TooSoon(Duration::from_micros(
                    head.cached_for_us.get().into(),
                )));
            }
            self.snapshot = head.snapshot.get();
        } else if head.snapshot != self.snapshot || head.offset.get() as usize != self.bytes.len() {
            return Err(malformed(&"a page of another snapshot"));
        }
        self.bytes.extend_from_slice(part);
        if self.bytes.len() < total {
            return Ok(Read::Part);
        }
        Stats::decode(&self.bytes)
            .map(|stats| Read::All(Box::new(stats)))
            .map_err(|error| malformed(&error))
    }
}
