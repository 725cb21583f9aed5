//! Builds the corpus with every setting, sends each case to another process, runs it there, and compares with the same
//! code called directly.
//!
//! ```text
//! corpus-driver [--full]
//! ```
//!
//! Without `--full`: every case once, and all settings on a few of them.

mod c;
mod coverage;
mod direct;
mod host;
mod inputs;
mod outcome;
mod remote;
mod report;
mod rust;
mod settings;
mod target;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use report::Report;

/// What went wrong with the driver itself, as text.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(false),
        ["--full"] => run(true),
        ["target", address, library] => target::serve(address, Path::new(library)).map(|()| true),
        _ => Err(format!(
            "unknown arguments: {}\nhelp: corpus-driver [--full]",
            args.join(" ")
        )
        .into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the corpus; whether all of it passed.
fn run(full: bool) -> Result<bool, Failure> {
    let places = Places::find()?;
    let inputs = inputs::all();
    let mut report = Report::default();
    let host = host::Library::build(&places)?;
    let mut remote = remote::Remote::start(&host)?;
    rust::run(full, &places, &inputs, &mut remote, &mut report)?;
    c::run(full, &places, &host, &inputs, &mut remote, &mut report)?;
    report.finish();
    let missing = report.missing(full);
    for line in &missing {
        println!("too few: {line}");
    }
    Ok(report.failed == 0 && report.passed > 0 && missing.is_empty())
}

/// Folders.
#[derive(Debug)]
struct Places {
    /// The checkout.
    root: PathBuf,
    /// For what is built.
    target: PathBuf,
}

impl Places {
    fn find() -> Result<Self, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .ok_or("the corpus is not in a checkout")?;
        let executable = std::env::current_exe()?;
        let target = executable
            .ancestors()
            .nth(2)
            .ok_or("the driver is in no target directory")?;
        Ok(Self {
            root: root.into(),
            target: target.join("corpus"),
        })
    }
}
