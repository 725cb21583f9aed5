//! The runtime against itself, with images made by hand: what needs neither the builder nor a second process.

mod aggregation;
mod batches;
mod both_ways;
mod cancelling;
mod crowds;
mod departures;
#[cfg(not(loom))]
mod futures;
mod hostile_frames;
mod hostile_images;
pub(crate) mod images;
mod logs;
mod progress;
mod reports;
mod running;
mod sent_together;
mod serving;
mod sessions;
mod shared;
#[cfg(not(loom))]
mod speed;
mod stats;
mod threads;
#[cfg(not(loom))]
mod wakers;

/// Says how far the mutants of a test came: past the harness, which keeps to itself what a macro prints.
fn tell(tally: &str) {
    use std::io::Write as _;
    // Nobody is left to be told that standard output is closed.
    let _ = std::io::stdout().write_all(tally.as_bytes());
}
