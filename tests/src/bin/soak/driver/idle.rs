//! An idle target costs nothing, and neither do idle sources. It is measured while the other parts run.

use std::time::Duration;

use ifunc_tests::role::Role;

use super::Found;
use super::observe::ticks;
use super::options::{Options, address};
use super::process;

/// Clock ticks that are nothing, in as long as nothing happens.
const NOTHING: u64 = 2;
/// Idle connections of the second target.
const CONNECTIONS: u64 = 8;
/// After this, what began has settled.
const SETTLING: Duration = Duration::from_millis(1000);

/// All transports at the same time, each without connections and with some: what is measured is each process's own time.
pub(super) fn run(options: &Options) -> Found {
    let mut watched: Vec<(String, Role)> = Vec::new();
    let mut sources = Vec::new();
    for transport in &options.transports {
        let (target, _) = process::target(options, transport, "idle-0", 16)?;
        watched.push((format!("{transport}, 0 connections"), target));
        let (target, at) = process::target(options, transport, "idle-8", 16)?;
        watched.push((format!("{transport}, {CONNECTIONS} connections"), target));
        let sources_of_it = process::start(
            options,
            "idler",
            &[("address", at), ("connections", CONNECTIONS.to_string())],
        )?;
        sources.push((format!("{transport}, {CONNECTIONS} sources"), sources_of_it));
    }
    let address = address("loopback", "idle").ok_or("there is no loopback")?;
    let both = process::start(
        options,
        "idler",
        &[("address", address), ("connections", CONNECTIONS.to_string())],
    )?;
    sources.push((format!("loopback, {CONNECTIONS} connections"), both));
    for (_, role) in &mut sources {
        role.wait_for("idle")?;
    }
    watched.append(&mut sources);

    std::thread::sleep(SETTLING);
    let before = watched
        .iter()
        .map(|(_, role)| ticks(role.pid()))
        .collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(options.idle);
    let mut figures = Vec::new();
    let mut busy = false;
    for ((name, role), before) in watched.iter().zip(before) {
        let used = ticks(role.pid())? - before;
        busy |= used > NOTHING;
        figures.push(format!("{name}: {used}"));
    }
    // Sources before their targets.
    while let Some((_, role)) = watched.pop() {
        role.end()?;
    }
    let figures = format!(
        "clock ticks in {:?} (at most {NOTHING}): {}",
        options.idle,
        figures.join("; ")
    );
    match busy {
        true => Err(figures),
        false => Ok(figures),
    }
}
