//! Puts bugs into the sources, and counts those that the tests find: `cargo xtask mutants`.
//!
//! `cargo mutants --list` says which mutants there are. All that were drawn of an area are compiled into one set of test programs,
//! each as a branch that is taken if its number is in a file (`rewrite.rs`), so that a mutant costs a run of its tests and no
//! compilation. A mutant that cannot be a branch, as in a `const fn`, is compiled by itself (`single` in `area.rs`).

mod area;
mod build;
mod excluded;
mod list;
mod options;
mod rewrite;
mod sample;
mod score;
mod support;
mod tests_of;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use options::Options;
use score::Score;

/// Least score, in percent.
const LEAST: f64 = 95.0;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The checkout.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .ancestors()
        .nth(2)
        .expect("this package is a folder of `xtask`")
}

fn run() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = Options::parse(&args)?;
    let areas = area::chosen(&options.only)?;
    let mut rows = Vec::new();
    for area in areas {
        let score = area.run(&options)?;
        println!("{:12} {}", area.name, score.line());
        rows.push((area.name, score));
    }
    println!("\n{}", Score::HEAD);
    for (name, score) in &rows {
        println!("{}", score.row(name));
    }
    let weak: Vec<&str> = rows
        .iter()
        .filter(|(_, score)| score.percent() < LEAST)
        .map(|(name, _)| *name)
        .collect();
    match weak[..] {
        [] => Ok(()),
        _ => Err(format!("fewer than {LEAST} % were found in {}", weak.join(", "))),
    }
}
