//! Builds the corpus with every setting, sends each case to another process, and compares its results with
//! direct calls of the same code.
//!
//! ```text
//! corpus-driver [--brief | --full] [--target-on TRIPLE PROGRAM]
//! ```
//!
//! Without an option, it runs every case once, and a few cases with all settings; with `--brief`, a few in C
//! with one other setting. Built without its feature `all`, it has no cases of other projects' crates. With
//! `--target-on`, the other process is this PROGRAM, the driver as it was built for another platform, and results
//! are compared across the architectures.

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

use ifunc_build::{Cpu, Slice};
use report::Report;
use settings::Extent;

/// An error of the driver itself, as text.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (first, other) = match &words[..] {
        [first @ .., "--target-on", triple, program] => (
            first,
            Some(Other {
                triple: (*triple).into(),
                program: program.into(),
            }),
        ),
        all => (all, None),
    };
    let result = match *first {
        [] => run(Extent::Usual, other),
        ["--brief"] => run(Extent::Brief, other),
        ["--full"] => run(Extent::Full, other),
        ["target", address, library] => target::serve(address, Path::new(library)).map(|()| true),
        _ => Err(format!(
            "unknown arguments: {}\nhelp: corpus-driver [--brief | --full] [--target-on TRIPLE PROGRAM]",
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
fn run(extent: Extent, other: Option<Other>) -> Result<bool, Failure> {
    let places = Places::find(other)?;
    let inputs = inputs::all();
    let mut report = Report::default();
    let host = host::Library::build(&places)?;
    let mut remote = remote::Remote::start(&places, &host)?;
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
    /// The platform of the other process, if it is another one.
    other: Option<Other>,
}

/// Another platform, and this driver as it was built for that.
#[derive(Debug)]
struct Other {
    triple: String,
    program: PathBuf,
}

impl Places {
    fn find(other: Option<Other>) -> Result<Self, Failure> {
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
            target: target.join(match &other {
                None => "corpus".to_owned(),
                Some(other) => format!("corpus-{}", other.triple),
            }),
            other,
        })
    }

    /// The slices that the libraries have beside that of this program's platform.
    fn slices(&self) -> Vec<Slice> {
        let slice = |other: &Other| Slice {
            triple: Some(other.triple.clone()),
            cpu: Cpu::default(),
        };
        self.other.iter().map(slice).collect()
    }
}
