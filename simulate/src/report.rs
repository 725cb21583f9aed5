//! What a run prints.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::Options;
use crate::ledger::Violation;
use crate::mesh::flood;
use crate::run::{reduce, run};

/// What runs met: schedules that are drawn by chance, and must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// Groups, and those in which two nodes flood each other.
    pub(crate) groups: u64,
    pub(crate) floods: u64,
    /// Floods in which the outboxes of both nodes were more than half full; in which the window was closed both ways besides.
    pub(crate) full_floods: u64,
    pub(crate) closed_floods: u64,
    /// Groups in which one scope has many invocations, and how many ran there.
    pub(crate) fans: u64,
    pub(crate) fan_runs: u64,
    /// In groups: invocations that do not travel, and those that a node sent to a source which is a target, too.
    pub(crate) plain: u64,
    pub(crate) to_sources: u64,
    /// In groups: invocations of nodes' programs over the links of their nodes.
    pub(crate) of_programs: u64,
    /// In groups: invocations of sources that were not admitted, and invocations that a host took.
    pub(crate) held: u64,
    pub(crate) taken: u64,
}

impl Coverage {
    fn add(&mut self, other: &Self) {
        for (own, other) in self.counts_mut().into_iter().zip(other.clone().counts_mut()) {
            *own.1 += *other.1;
        }
    }

    fn counts_mut(&mut self) -> [(&'static str, &mut u64); 11] {
        [
            ("groups", &mut self.groups),
            ("floods", &mut self.floods),
            ("floods with full outboxes", &mut self.full_floods),
            ("and closed windows", &mut self.closed_floods),
            ("fans", &mut self.fans),
            ("their invocations", &mut self.fan_runs),
            ("plain invocations", &mut self.plain),
            ("invocations of sources", &mut self.to_sources),
            ("invocations of programs", &mut self.of_programs),
            ("held sources", &mut self.held),
            ("taken invocations", &mut self.taken),
        ]
    }
}

/// Seeds that meet everything.
const ENOUGH: u64 = 1000;

/// Failing seeds after which no more are run.
const MAX_FAILED: usize = 10;

/// A line as cargo prints it.
fn status(verb: &str, text: &str) {
    eprintln!("{verb:>12} {text}");
}

/// How a failing seed is replayed.
fn command(seed: u64, steps: u64) -> String {
    format!("cargo xtask simulate --seed {seed} --steps {steps}")
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let escaped = text.chars().flat_map(char::escape_default).collect::<String>();
    format!("\"{}\"", escaped.replace("\\'", "'"))
}

fn json_violation(seed: u64, steps: u64, violation: &Violation) -> String {
    format!(
        r#"{{"seed":{seed},"rule":{},"detail":{},"command":{}}}"#,
        quoted(violation.rule),
        quoted(&violation.detail),
        quoted(&command(seed, steps)),
    )
}

/// Runs many seeds on all cores.
pub(crate) fn many(options: &Options) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let Options {
        seeds,
        steps,
        has_only_floods,
        ..
    } = *options;
    status(
        "Simulating",
        &format!("{seeds} seeds of {steps} steps on {threads} threads"),
    );
    let (next, taken, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let met = Mutex::new(Coverage::default());
    let started = Instant::now();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            let seed = if has_only_floods { flood(seed) } else { seed };
            let outcome = run(seed, steps, None, false);
            taken.fetch_add(outcome.steps, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
            met.lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .add(&outcome.coverage);
            if let Some(violation) = outcome.violation {
                let mut failed = failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                eprintln!("error: seed {seed}: {violation}\nhelp: {}", command(seed, steps));
                failed.push((seed, violation));
                if failed.len() >= MAX_FAILED {
                    next.store(seeds, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let seconds = started.elapsed().as_secs_f64();
    let (taken, done) = (taken.into_inner(), done.into_inner());
    let mut failed = failed
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    failed.sort_by_key(|&(seed, _)| seed);
    let mut met = met.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let counts = met.counts_mut().map(|(name, count)| format!("{count} {name}"));
    status("Met", &counts.join(", "));
    let is_never_met = met.counts_mut().into_iter().find(|(_, count)| **count == 0);
    let unmet = is_never_met
        .map(|(name, _)| name)
        .filter(|_| seeds >= ENOUGH && !has_only_floods);
    if let Some(name) = unmet {
        eprintln!("error: no seed met {name}\nhelp: change what `simulate/src/mesh/draw.rs` draws");
    }
    let rate = taken as f64 / seconds;
    let summary = format!(
        "{taken} steps of {done} seeds in {seconds:.1} s, {:.2} million steps per second, {} violations",
        rate / 1e6,
        failed.len(),
    );
    status("Finished", &summary);
    if options.is_json {
        let violations: Vec<String> = failed
            .iter()
            .map(|(seed, violation)| json_violation(*seed, steps, violation))
            .collect();
        println!(
            r#"{{"seeds":{done},"steps":{taken},"seconds":{seconds:.3},"steps_per_second":{rate:.0},"violations":[{}]}}"#,
            violations.join(","),
        );
    } else {
        println!("{summary}");
    }
    if failed.is_empty() && unmet.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs one seed and prints its steps. Of a run with a violation it prints those steps that are needed for it.
pub(crate) fn one(seed: u64, options: &Options) -> ExitCode {
    let outcome = run(seed, options.steps, None, true);
    let Some(violation) = outcome.violation else {
        if options.is_json {
            println!(r#"{{"seed":{seed},"steps":{},"violation":null}}"#, outcome.steps);
        } else {
            outcome.trace.iter().for_each(|line| println!("{line}"));
            status(
                "Finished",
                &format!("seed {seed}: {} steps, no violation", outcome.steps),
            );
        }
        return ExitCode::SUCCESS;
    };
    status("Reducing", &format!("seed {seed}: {violation}"));
    let kept = reduce(seed, options.steps, violation.rule);
    let reduced = run(seed, 0, Some(&kept), true);
    let shown = reduced.violation.as_ref().unwrap_or(&violation);
    if options.is_json {
        println!("{}", json_violation(seed, options.steps, shown));
    } else {
        reduced.trace.iter().for_each(|line| println!("{line}"));
        println!(
            "error: seed {seed}, {} of {} steps: {shown}",
            kept.len(),
            options.steps
        );
    }
    ExitCode::FAILURE
}

/// Runs seeds on one core until one violates a promise, and prints one line: steps until then, seed, and violation. Plain
/// connections, whose seeds are even, and groups have half of the steps each.
pub(crate) fn find(budget: u64, steps: u64) -> ExitCode {
    let mut taken = [0; 2];
    let mut seeds = [0, 1];
    while taken.iter().sum::<u64>() < budget {
        let kind = usize::from(taken[1] < taken[0]);
        let seed = seeds[kind];
        let outcome = run(seed, steps, None, false);
        taken[kind] += outcome.steps;
        seeds[kind] += 2;
        if let Some(Violation { rule, detail }) = outcome.violation {
            let (taken, detail) = (taken[0] + taken[1], detail.replace(['\t', '\n'], " "));
            println!("{taken}\t{seed}\t{rule}\t{detail}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
