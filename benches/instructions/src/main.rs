//! Counts the instructions of a message's way from its source into an ifunc on its target, and keeps a budget of them.
//!
//! ```text
//! ifunc-instructions count         counts, and prints: what, instructions per message, those of the ifunc beside them, budget
//! ifunc-instructions judge         counts, and fails where a budget is exceeded
//! ifunc-instructions work WHAT B   does WHAT, with an ifunc that burns B turns of a loop, for one that counts
//! ```
//!
//! The counts are exact, and the same on a busy machine. They are those of optimised code: `cargo xtask instructions` builds it so.
//!
//! * `work`: what is counted
//! * `clock`: which stands still meanwhile
//! * `count`: by whom
//! * `budget`: how much there may be

mod budget;
mod clock;
mod count;
mod work;

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["count"] => budget::count(false),
        ["check"] => budget::count(true),
        ["work", what, turns] => {
            work::run(what, turns.parse()?)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: ifunc-instructions count | check | work WHAT B".into()),
    }
}
