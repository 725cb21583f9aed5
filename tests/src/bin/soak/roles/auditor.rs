//! Reads the target's ledger, as a source like any other, whenever the driver asks.

use ifunc_rt::{ByName, Handle};

use super::{Arguments, Result, connect, library, say};
use crate::ledger::{turn, words};

/// Kinds of faults, as `tests/ifuncs/src/soak` numbers them.
const KINDS: [&str; 6] = [
    "nothing",
    "a message that is not the next one of its connection",
    "a message of a connection that is not open",
    "a goodbye that names another number of messages than came",
    "a goodbye that names another hash than that of what came",
    "an operation that there is not",
];

/// Each line of standard input is an operation: `total SOURCE` (messages, connections and hash of it), `open`
/// (connections that are open and those that were abandoned; an error if anything is not as it must be).
pub(super) fn run(args: &Arguments<'_>) -> Result {
    let source = connect(args)?;
    // SAFETY: built from this checkout.
    let ledger = unsafe { source.load_path(library(args, "t_soak_turn")?)? };
    for line in std::io::stdin().lines() {
        match line?.split_once(' ') {
            Some(("total", number)) => {
                let [messages, connections, hash, ..] = ask(&ledger, turn::TOTAL, number.parse()?)?;
                say(&format!("total {messages} {connections} {hash}"));
            }
            _ => {
                let [faults, kind, sender, expected, came, abandoned, open, _] =
                    ask(&ledger, turn::FAULTS, 0)?;
                if faults > 0 {
                    let kind = KINDS.get(kind as usize).unwrap_or(&"unknown");
                    return Err(format!(
                        "{faults} faults on the target; the first: {kind} (connection {sender}, expected {expected:#x}, came {came:#x})"
                    )
                    .into());
                }
                say(&format!("open {open} {abandoned}"));
            }
        }
    }
    Ok(())
}

fn ask(ledger: &Handle<ByName>, operation: u64, a: u64) -> Result<[u64; 8]> {
    let answer = ledger.call(&turn::payload(operation, a, 0))?.wait()?;
    Ok(words(&answer).ok_or("the ledger does not return eight numbers")?)
}
