//! `cargo xtask hostile`: a target beside processes that do what no source does, and an honest source that must not notice.
//! `docs/testing.md` says what is checked.
//!
//! One program in several roles: the [`driver`] starts itself as [`target`], as [`honest`] source and as attackers ([`attack`]), and
//! watches the target from outside.

mod attack;
mod driver;
mod honest;
mod observe;
mod random;
mod target;

use std::process::ExitCode;

/// What ends a role. The driver shows it.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["role", "target", address] => target::run(address),
        ["role", "honest", address, library] => honest::run(address, library),
        ["role", "attack", kind, address, seed] => attack::run(kind, address, seed),
        _ => return driver::run(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The driver reads this; a role's standard error is its log.
            println!("wrong: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says something to the driver, at once.
fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // A driver that is gone needs to be told nothing.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// A line of the driver's; none when it is gone.
fn next_line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        _ => None,
    }
}
