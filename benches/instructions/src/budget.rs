//! The instruction budgets.

use std::error::Error;
use std::process::ExitCode;

use crate::count::{Instructions, instructions};
use crate::work::{BATCH, CONTAINED, TOGETHER, burned, burned_together};

/// A measured path and its budget.
struct Path {
    /// The name printed, and passed to `work`.
    what: &'static str,
    /// Number of messages per run.
    messages: u64,
    /// Instructions of the ifunc per message, which are not counted.
    own: fn() -> f64,
    /// Budget of instructions per message: the count plus 2 %. Lower it when a change shortens the path.
    usual: f64,
    /// The same for the first message in a new tick of the clock.
    first: f64,
}

/// The ifunc's own, of a message in a frame of its own.
fn alone() -> f64 {
    burned(LOOP_TURNS) as f64
}

/// The same for a message in a batch.
fn together() -> f64 {
    burned_together(TOGETHER) as f64 / TOGETHER as f64
}

/// The paths of a cached message of 8 bytes over `shm`, and of one that is an entry of a batch.
const PATHS: &[Path] = &[
    // The source: `send` of a typed handle.
    Path {
        what: "send",
        messages: 1,
        own: || 0.0,
        usual: 84.0,
        // Sent by the second attempt: the first one, which saves no registers, examines nothing.
        first: 468.0,
    },
    // The target: a `poll` that finds one message, as in a ping-pong.
    Path {
        what: "poll",
        messages: 1,
        own: alone,
        usual: 197.0,
        first: 306.0,
    },
    // The target: a `poll` that finds several messages.
    Path {
        what: "poll-many",
        messages: BATCH,
        own: alone,
        usual: 112.6,
        first: 112.6,
    },
    // Both: a call, from `call` to the return of `wait`.
    Path {
        what: "call",
        messages: 1,
        own: alone,
        usual: 768.0,
        first: 1200.0,
    },
    // The source: `send_many` with an aggregated handle, and the batch as a frame.
    Path {
        what: "batch-send",
        messages: TOGETHER,
        own: || 0.0,
        usual: 21.0,
        first: 22.6,
    },
    // The target: polls that run a batch.
    Path {
        what: "batch-poll",
        messages: TOGETHER,
        own: together,
        usual: 5.9,
        first: 5.9,
    },
    // The source: as `batch-send`, with `call_many`.
    Path {
        what: "batch-call",
        messages: TOGETHER,
        own: || 0.0,
        usual: 54.6,
        first: 56.3,
    },
    // The target: polls that run a batch and answer it.
    Path {
        what: "batch-answer",
        messages: TOGETHER,
        own: together,
        usual: 14.3,
        first: 14.3,
    },
    // The source: receives the answers to a batch.
    Path {
        what: "batch-receive",
        messages: TOGETHER,
        own: || 0.0,
        usual: 87.9,
        first: 87.9,
    },
];

/// Paths that take no instruction more on a target that contains faults.
const ALSO_CONTAINED: [&str; 2] = ["poll", "call"];

/// Iterations of the ifunc's loop per invocation.
const LOOP_TURNS: u64 = 1;
/// Iterations in a second run, which proves that every instruction of the ifunc is counted exactly once.
const MANY_LOOP_TURNS: u64 = 101;

/// Counts and prints. With `check`, an exceeded budget is an error.
pub(crate) fn count(check: bool) -> Result<ExitCode, Box<dyn Error>> {
    // The ifunc runs on its own stack, in freshly written code. If the tracer missed it, all counts would be
    // too small.
    let [few, many] = [LOOP_TURNS, MANY_LOOP_TURNS].map(|turns| instructions("poll", turns));
    let (difference, expected) = (
        many?.usual - few?.usual,
        burned(MANY_LOOP_TURNS) - burned(LOOP_TURNS),
    );
    if difference != expected {
        return Err(format!("{expected} more instructions in the ifunc were counted as {difference}").into());
    }
    let mut exceeded = Vec::new();
    for path in PATHS {
        let own = (path.own)();
        let Instructions { usual, first } = instructions(path.what, LOOP_TURNS)?;
        let each = |all: u64| all as f64 / path.messages as f64 - own;
        let counts = [
            (path.what.to_owned(), each(usual), path.usual),
            (format!("{}-in-a-new-tick", path.what), each(first), path.first),
        ];
        for (name, count, budget) in counts {
            println!("{name} {count:.1} {} {budget}", (own * 100.0).round() / 100.0);
            if count > budget {
                exceeded.push(format!(
                    "`{name}` takes {count:.1} instructions of the runtime's per message, {:.1} more than its budget of {budget}",
                    count - budget
                ));
            }
        }
    }
    for what in ALSO_CONTAINED {
        let contained = format!("{what}{CONTAINED}");
        let counts = [what, &contained].map(|path| Ok(instructions(path, LOOP_TURNS)?.usual));
        let [without, with]: [Result<u64, Box<dyn Error>>; 2] = counts;
        let (without, with) = (without?, with?);
        println!(
            "{contained} {:.1} {:.1} {:.1}",
            with as f64 - alone(),
            alone(),
            without as f64 - alone()
        );
        if with != without {
            exceeded.push(format!(
                "`{what}` takes {with} instructions on a target that contains faults, and {without} on one that does not"
            ));
        }
    }
    if check && !exceeded.is_empty() {
        return Err(format!("{}\n{HELP}", exceeded.join("\n")).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The help for an exceeded budget.
const HELP: &str = "\
help: the path of a cached message of 8 bytes over `shm` became longer: a check, a call that is no longer inlined,
      a copy. The counts are exact and do not depend on the load of the machine.
      Compare `cargo xtask instructions` with its result on the previous commit.
      What is rare belongs into a `#[cold]` function. What is worth its instructions raises the budget, with a word why in the
      commit: `benches/instructions/src/budget.rs`. A new compiler may need a few more, too.";
