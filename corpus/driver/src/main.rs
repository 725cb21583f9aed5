//! Builds the corpus with every setting, sends each case to another process, and compares its results with
//! direct calls of the same code.
//!
//! ```text
//! corpus-driver [--brief | --full]
//! ```
//!
//! Without an option, it runs every case once, and a few cases with all settings; with `--brief`, with one other
//! setting.

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
use settings::Extent;

/// An error of the driver itself, as text.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(Extent::Usual),
        ["--brief"] => run(Extent::Brief),
        ["--full"] => run(Extent::Full),
        ["target", address, library] => target::serve(address, Path::new(library)).map(|()| true),
        _ => Err(format!(
            "unknown arguments: {}\nhelp: corpus-driver [--brief | --full]",
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

/// Runs the corpus. Returns whether every case passed.
fn run(extent: Extent) -> Result<bool, Failure> {
    let places = Places::find()?;
    let inputs = inputs::all();
    let mut report = Report::default();
    let host = host::Library::build(&places)?;
    let mut remote = remote::Remote::start(&host)?;
    rust::run(extent, &places, &inputs, &mut remote, &mut report)?;
    c::run(extent, &places, &host, &inputs, &mut remote, &mut report)?;
    report.finish();
    let missing = report.missing(extent);
    for line in &missing {
        println!("too few: {line}");
    }
    Ok(report.failed == 0 && report.passed > 0 && missing.is_empty())
}

/// Folders.
#[derive(Debug)]
struct Places {
    /// The root of the checkout.
    root: PathBuf,
    /// The folder for build output.
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
