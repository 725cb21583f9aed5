//! The runtime against itself, with images made by hand; these tests need neither the builder nor a second process.

mod aggregation;
mod batches;
mod both_ways;
mod cancelling;
#[cfg(not(loom))]
mod companions;
#[cfg(not(loom))]
mod contained;
mod crowds;
mod departures;
mod entries;
#[cfg(not(loom))]
mod exports;
#[cfg(not(loom))]
mod futures;
#[cfg(not(loom))]
mod groups;
mod hostile_frames;
mod hostile_images;
#[cfg(not(loom))]
mod hostile_sources;
#[cfg(not(loom))]
mod hostile_targets;
pub(crate) mod images;
mod interfaces;
pub(crate) mod logs;
pub(crate) mod machine;
#[cfg(not(loom))]
mod mappings;
#[cfg(not(loom))]
mod nodes;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
mod policy_changes;
mod progress;
#[cfg(not(loom))]
mod raw;
#[cfg(not(loom))]
#[path = "../../../ifunc-exec/src/tests/refuse.rs"]
pub(crate) mod refuse;
#[cfg(not(loom))]
mod refused;
#[cfg(not(loom))]
mod refused_everywhere;
mod reports;
mod running;
#[cfg(not(loom))]
mod sent_on;
mod sent_together;
mod serving;
mod sessions;
mod shared;
#[cfg(not(loom))]
mod speed;
#[cfg(not(loom))]
mod starved;
mod stats;
mod threads;
#[cfg(not(loom))]
#[path = "../../../ifunc-exec/src/exports/tests/version.rs"]
mod version;
#[cfg(not(loom))]
mod wakers;

/// Prints the tally of a test's mutants past the harness, which captures what a macro prints.
fn tell(tally: &str) {
    use std::io::Write as _;
    // A closed standard output has no reader to report the error to.
    let _ = std::io::stdout().write_all(tally.as_bytes());
}
