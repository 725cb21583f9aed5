//! What a target counts, and how it is read: [`Target::stats`](crate::Target::stats), and, from another process,
//! [`Source::target_stats`](crate::Source::target_stats) and `cargo ifunc top`.

mod counters;
mod invocation;
mod log_limit;
mod metrics;
mod pages;

use std::sync::Arc;

pub(crate) use counters::HandleCounters;
pub(crate) use invocation::run_observed;
pub use log_limit::SUPPRESSED;
pub(crate) use log_limit::{LogLimit, limited};
pub(crate) use metrics::{About, HandleMetrics, Metrics, SourceMetrics};
pub(crate) use pages::Pages;

use ifunc_abi::ImageId;
use ifunc_abi::stats::Stats;

/// What is counted as one ifunc: an entry of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IfuncKey {
    pub(crate) id: ImageId,
    /// Its index in the image's table.
    pub(crate) entry: u8,
}

/// Reads what a target has counted, from any thread, while it serves elsewhere; and after it is gone. Clones read the same.
///
/// ```
/// # let name = format!("loopback:doc-stats-{}", std::process::id());
/// // SAFETY: only this process connects.
/// let builder = unsafe { ifunc_rt::Target::builder().accept_code() };
/// let target = builder.listen(&name)?;
/// let stats = target.stats_handle();
/// let serving = target.spawn(0u64)?;
///
/// let source = ifunc_rt::Source::connect(&name)?;
/// source.flush()?;
///
/// let now = stats.read();
/// println!("{} frames from {} sources", now.total.frames, now.sources.len());
/// for ifunc in &now.ifuncs {
///     println!("{}: {} hits, median {:?} ns", ifunc.name, ifunc.counts.hits, ifunc.counts.times.quantile_ns(0.5));
/// }
/// # assert_eq!(now.total.frames, 1);
/// # serving.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StatsHandle(pub(crate) Arc<Metrics>);

impl StatsHandle {
    /// What was counted so far. It costs as much as what it lists, and the target's threads go on meanwhile.
    #[must_use]
    pub fn read(&self) -> Stats {
        self.0.snapshot(0)
    }
}
