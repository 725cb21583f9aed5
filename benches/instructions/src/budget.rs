//! How many instructions there may be.

use std::error::Error;
use std::process::ExitCode;

use crate::count::{instructions, median};
use crate::work::{TURN, burned};

/// A way of messages, and its budget.
struct Way {
    /// As it is printed.
    name: &'static str,
    /// As `work` calls it.
    what: &'static str,
    /// How many messages it has.
    messages: u64,
    /// Whether the ifunc runs meanwhile. What it does itself is no matter of the runtime's.
    runs: bool,
    /// Instructions per message: what it takes, and 8 % more. Who makes it shorter takes it down.
    budget: f64,
}

/// The ways of the cached message of 8 bytes over `shm`.
const WAYS: &[Way] = &[
    // The source: `send` of a typed handle that asks, as once in a tick of the clock, whether its target is there.
    Way {
        name: "send",
        what: "send",
        messages: 1,
        runs: false,
        budget: 800.0,
    },
    // The target, from one `poll` to its return: one message, as in a ping-pong.
    Way {
        name: "look",
        what: "look",
        messages: 1,
        runs: true,
        budget: 712.0,
    },
    // And one of many that have come.
    Way {
        name: "look-at-many",
        what: "look-at-many",
        messages: TURN,
        runs: true,
        budget: 364.0,
    },
    // Both: a call, from `call` to the return of `wait`.
    Way {
        name: "call",
        what: "call",
        messages: 1,
        runs: true,
        budget: 2900.0,
    },
];

/// Turns of the loop in the ifunc while it is counted.
const TURNS: u64 = 1;
/// And in a second count, to see that every instruction of the ifunc's is counted, and once.
const MANY_TURNS: u64 = 101;

/// Counts and prints; with `judge` a budget that is exceeded is an error.
pub(crate) fn count(judge: bool) -> Result<ExitCode, Box<dyn Error>> {
    let [few, many] = [TURNS, MANY_TURNS].map(|turns| median(instructions("look", turns)?));
    let (difference, expected) = (many? - few?, burned(MANY_TURNS) - burned(TURNS));
    if difference != expected {
        return Err(format!("{expected} instructions more in the ifunc were counted as {difference}").into());
    }
    let mut exceeded = Vec::new();
    for way in WAYS {
        let all = median(instructions(way.what, TURNS)?)? as f64 / way.messages as f64;
        let ours = if way.runs { all - burned(TURNS) as f64 } else { all };
        let (name, budget) = (way.name, way.budget);
        println!("{name} {ours:.1} {budget}");
        if ours > budget {
            exceeded.push(format!(
                "`{name}` takes {ours:.1} instructions per message, its budget is {budget}"
            ));
        }
    }
    if judge && !exceeded.is_empty() {
        let help = "help: what is worth them raises the budget, in `benches/instructions/src/budget.rs`";
        return Err(format!("{}\n{help}", exceeded.join("\n")).into());
    }
    Ok(ExitCode::SUCCESS)
}
