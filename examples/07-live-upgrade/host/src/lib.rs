//! A target whose functions are replaced while sources call ifuncs that use them: first how values are compressed, then how they
//! are found. No call fails, and no code is sent again.
//!
//! `cargo ifunc run 07-live-upgrade -- [--calls N] [--sources N]`

pub mod client;
pub mod compression;
pub mod store;

use std::thread;
use std::time::{Duration, Instant};

use example_servers::{Args, Bytes, Failure, moved};
use ifunc_rt::{Exports, Policy, Source, StatsHandle, Symbol, Target};

use client::{Phase, Tally};
use store::Store;

const USAGE: &str = "cargo ifunc run 07-live-upgrade -- [--calls N] [--sources N]";

/// The command line, the same for target and source.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Calls of all sources together.
    calls: u64,
    /// Connections that call at the same time.
    sources: u64,
}

impl Options {
    fn from_env() -> Result<Self, Failure> {
        let mut args = Args::from_env();
        let options = Self {
            calls: args.number("--calls", 30_000, 300, 1 << 24)?,
            sources: args.number("--sources", 3, 1, 16)?,
        };
        args.end(USAGE)?;
        Ok(options)
    }
}

/// Owns the records, and replaces its functions after a third and after two thirds of the calls.
///
/// # Errors
/// The target cannot listen on the address.
pub fn target(addr: &str) -> Result<(), Failure> {
    let options = Options::from_env()?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    let (exports, stats) = (target.exports(), target.stats_handle());
    // Ends with the process.
    thread::spawn(move || {
        if let Err(why) = upgrade(&exports, &stats, options.calls) {
            eprintln!("error: the functions are not replaced: {why}");
            std::process::exit(1);
        }
    });
    println!("ifunc: ready {}", target.address());
    target.serve(&mut Store::default())?;
    Ok(())
}

/// Replaces functions of a target that serves.
fn upgrade(exports: &Exports, stats: &StatsHandle, calls: u64) -> Result<(), Failure> {
    let version = |name: &str, of: &'static str| {
        let symbol = Symbol::exported(name).ok_or(format!("`{name}` is no export of this program"));
        symbol.map(|symbol| symbol.named(of))
    };
    wait_for(stats, calls / 3);
    let (compress, expand) = (
        version("compress_more", "compress")?,
        version("expand_both", "expand")?,
    );
    // Both at once: no invocation compresses in one version and expands in the other.
    exports.update(|update| {
        update.replace(compress);
        update.replace(expand);
    })?;
    println!(
        "replaced the compression after {} calls",
        stats.read().total.executed
    );

    wait_for(stats, calls * 2 / 3);
    exports.replace(version("find_by_index", "find_record")?)?;
    println!("replaced the index after {} calls", stats.read().total.executed);
    Ok(())
}

/// Waits until the target has run so many invocations.
fn wait_for(stats: &StatsHandle, calls: u64) {
    while stats.read().total.executed < calls {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stores and reads values over several connections, and checks every value that comes back.
///
/// # Errors
/// A call fails, or a value is not the one that was stored last.
pub fn source(addr: &str) -> Result<(), Failure> {
    let Options { calls, sources } = Options::from_env()?;
    let began = Instant::now();
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let threads: Vec<_> = (0..sources)
            .map(|number| scope.spawn(move || client::run(addr, number, calls / sources)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.map_err(|_| "a client panicked")?)
            .collect::<Result<_, Failure>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();

    let server = [Source::connect(addr)?];
    let installs = server[0].target_stats(Duration::from_secs(30))?.total.installs;
    let moved = moved(&server)?;
    println!("{:<24} {:>12} {:>14}", "after", "bytes/value", "time of a get");
    for phase in 0..3 {
        let all = tallies
            .iter()
            .map(|tally| tally.phases[phase])
            .fold(Phase::default(), Phase::with);
        let name = ["the start", "the first third", "the second third"][phase];
        println!(
            "{name:<24} {:>12.0} {:>11.1} µs",
            all.stored_per_put(),
            all.micros_per_get()
        );
    }
    let (values, bytes) = tallies.iter().fold((0, 0), |(values, bytes), tally| {
        (values + tally.last.len(), bytes + tally.last_bytes())
    });
    println!(
        "{} messages with {} moved in {seconds:.2} s; code was sent {installs} times, each ifunc once per source",
        moved.messages,
        Bytes(moved.bytes)
    );
    println!(
        "another process would have fetched {values} values with {} to go on",
        Bytes(bytes as u64)
    );
    let done: u64 = tallies.iter().map(|tally| tally.calls).sum();
    println!("checked: {done} calls, none failed, every value is the one that was stored last");
    Ok(())
}
