//! Counts the instructions of a message's path from its source into an ifunc on its target, and checks them
//! against a budget.
//!
//! ```text
//! ifunc-instructions count           counts and prints: path, instructions per message, those of the ifunc, budget
//! ifunc-instructions check           counts, and fails if a budget is exceeded
//! ifunc-instructions addresses PATH  prints the addresses of the instructions of PATH, in order, for `addr2line`
//! ifunc-instructions work PATH B     runs PATH with an ifunc that loops B times; started by the two commands above
//! ```
//!
//! The counts are exact, also on a busy machine. They apply to optimised code: `cargo xtask instructions`
//! builds it that way.
//!
//! * `work`: the measured paths
//! * `clock`: a clock that stands still
//! * `count`: the tracer
//! * `budget`: the budgets

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
        ["addresses", what] => {
            for address in count::addresses(what)? {
                println!("{address:#x}");
            }
            Ok(ExitCode::SUCCESS)
        }
        ["work", what, turns] => {
            work::run(what, turns.parse()?)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: ifunc-instructions count | check | addresses PATH | work PATH B".into()),
    }
}
