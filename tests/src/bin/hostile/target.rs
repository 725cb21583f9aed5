//! The target: a counter, until its standard input ends.

use std::time::Duration;

use ifunc_rt::{Level, Policy, Target};
use ifunc_tests::State;

use crate::{Result, next_line, say};

/// Most connections. The attackers would take more.
pub(crate) const CONNECTIONS: usize = 128;
/// Bytes of all bodies that are not complete, and of a ring.
pub(crate) const UNFINISHED: usize = 16 << 20;
pub(crate) const RING: u32 = 1 << 18;

pub(crate) fn run(address: &str) -> Result {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    // SAFETY: the driver starts every process that connects, and the code of those that attack is harmless: what they may not do is to
    // harm the target without code.
    let policy = unsafe { Policy::trust_every_peer() }
        .level(Level::Contained)
        .max_run_time(Duration::from_secs(5));
    let builder = Target::builder()
        .policy(policy)
        .max_connections(CONNECTIONS)
        .unfinished_bodies(UNFINISHED, Duration::from_secs(2))
        .ring(RING);
    let mut target = builder.listen(address)?;
    let stop = target.stop_handle();
    std::thread::spawn(move || {
        while next_line().is_some() {}
        stop.stop();
    });
    say(&format!("ready {}", target.address()));
    let mut state = State::default();
    target.serve(&mut state)?;
    say(&format!(
        "stopped counter={} changes={}",
        state.counter, state.changes
    ));
    Ok(())
}
