//! The examples, over every transport.

mod in_c;

use std::fs;
use std::path::{Path, PathBuf};

use crate::plan::Tier;
use crate::process::{ARROW, cargo, ifunc, last_line, output};
use crate::steps::Steps;
use crate::text_search;
use crate::transports;

/// The number of files that the database example stores.
const MANY: usize = 1000;

/// How the programs of an example are built and connected. Its ifuncs are always optimised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    transport: &'static str,
    profile: &'static str,
    /// Target or source is of another platform.
    side: Option<Side<'a>>,
}

/// The side of another platform.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    /// The option of `cargo ifunc run` that names it.
    pub(crate) option: &'static str,
    pub(crate) triple: &'a str,
    /// What builds and runs programs for it.
    pub(crate) environment: &'a [(&'static str, PathBuf)],
}

impl<'a> Setting<'a> {
    /// With every commit, the programs share the dependencies that the tests have compiled. Nightly, they are optimised, as users
    /// build them.
    fn new(tier: Tier, transport: &'static str) -> Self {
        let profile = match tier {
            Tier::Commit => "dev",
            Tier::Nightly => "release",
        };
        Self {
            transport,
            profile,
            side: None,
        }
    }

    /// With one side on another platform.
    pub(crate) fn across(transport: &'static str, side: Side<'a>) -> Self {
        Self {
            transport,
            profile: "release",
            side: Some(side),
        }
    }

    /// Runs `cargo ifunc run NAME -- ARGS`. Returns what it printed.
    pub(crate) fn run(self, name: &str, args: &[&str]) -> Result<String, String> {
        let Self {
            transport,
            profile,
            side,
        } = self;
        let mut run = vec!["run", name, "--transport", transport, "--profile", profile];
        run.extend(side.iter().flat_map(|side| [side.option, side.triple]));
        run.push("--");
        let mut command = ifunc(&[&run, args].concat())?;
        command.envs(side.into_iter().flat_map(|side| side.environment.iter().cloned()));
        output(&mut command)
    }
}

/// An example, and a run that checks what it computes.
type Example = (&'static str, fn(Setting<'_>) -> Result<String, String>);

/// The examples whose two programs `cargo ifunc run` builds.
pub(crate) const EXAMPLES: [Example; 8] = [
    ("01-hello", hello),
    ("02-compressed-insert", compressed_insert),
    ("03-text-search", text_search::beside_grep),
    ("04-pointer-chase", pointer_chase),
    ("05-graph", graph),
    ("06-top-k", top_k),
    ("07-live-upgrade", live_upgrade),
    ("11-timeseries", timeseries),
];

/// Those that compile for long: most of it is other projects' code, and the runtime with other features. The workspace's tests build their
/// programs, but not their images.
const NIGHTLY: [&str; 3] = ["06-top-k", NEAR_DATA, "11-timeseries"];
/// The example whose target is an `ifuncd`.
const NEAR_DATA: &str = "10-near-data";

/// Whether a tier runs an example.
fn is_in(tier: Tier, name: &str) -> bool {
    tier == Tier::Nightly || !NIGHTLY.contains(&name)
}

/// Runs each example. With every commit, those after the first go over shared memory and UCX alone, and those that compile for long are
/// left out.
pub(crate) fn run(steps: &mut Steps) {
    let tier = steps.tier();
    for (number, (name, run)) in EXAMPLES.into_iter().enumerate() {
        if !is_in(tier, name) {
            continue;
        }
        let has_all = number == 0 || tier == Tier::Nightly;
        let taken = |transport: &&&str| has_all || ["shm", "ucx"].contains(*transport);
        for &transport in transports::all(tier).iter().filter(taken) {
            let setting = Setting::new(tier, transport);
            steps.step(&format!("{name} over {transport}"), || run(setting));
        }
    }
    if is_in(tier, NEAR_DATA) {
        // An `ifuncd` knows its sources: by their user, or by their key.
        for transport in ["shm", "tls"] {
            let setting = Setting::new(tier, transport);
            steps.step(&format!("{NEAR_DATA} over {transport}"), || near_data(setting));
        }
    }
    if tier == Tier::Nightly {
        let tests = ["test", "--package", ARROW, "--locked"];
        steps.tests("tests of 06-top-k", &mut cargo(tests));
    }
    in_c::run(steps);
}

fn pointer_chase(setting: Setting<'_>) -> Result<String, String> {
    let args = ["--entries", "12", "--depth", "16", "--seconds", "0.1"];
    checked(setting, "04-pointer-chase", &args)
}

fn top_k(setting: Setting<'_>) -> Result<String, String> {
    checked(setting, "06-top-k", &["--rows", "50000"])
}

fn live_upgrade(setting: Setting<'_>) -> Result<String, String> {
    checked(setting, "07-live-upgrade", &["--calls", "6000"])
}

fn near_data(setting: Setting<'_>) -> Result<String, String> {
    let link: &[&str] = match setting.transport {
        "tls" => &["--gbits", "1"],
        _ => &[],
    };
    checked(setting, NEAR_DATA, &[&["--bytes", "4194304"], link].concat())
}

fn timeseries(setting: Setting<'_>) -> Result<String, String> {
    // One answer of 64 MiB is enough.
    let rows = match setting.transport {
        "shm" => "8388608",
        _ => "100000",
    };
    checked(setting, "11-timeseries", &[rows])
}

/// Runs an example that compares its result with that of a sequential computation. Returns the line that says so.
fn checked(setting: Setting<'_>, name: &str, args: &[&str]) -> Result<String, String> {
    let said = setting.run(name, args)?;
    let line = said
        .lines()
        .find_map(|line| line.split_once("checked: ").map(|(_, what)| what));
    line.map(str::to_owned)
        .ok_or_else(|| format!("{name} did not say what it checked"))
}

/// A random graph on two servers, and an edge list on four.
fn graph(setting: Setting<'_>) -> Result<String, String> {
    let file = crate::root().join("examples/05-graph/karate.txt");
    let file = file.to_str().ok_or("the folder's name is not UTF-8")?;
    checked(setting, "05-graph", &[file, "--servers", "4"])?;
    checked(setting, "05-graph", &["--scale", "10", "--servers", "2"])
}

fn hello(setting: Setting<'_>) -> Result<String, String> {
    let said = setting.run("01-hello", &[])?;
    Ok(last_line(&said))
}

fn compressed_insert(setting: Setting<'_>) -> Result<String, String> {
    let folder = many_files()?;
    let folder = folder.to_str().ok_or("the folder's name is not UTF-8")?;
    let said = setting.run("02-compressed-insert", &[folder])?;
    let verified = said
        .lines()
        .find_map(|line| line.split_once("verified ").map(|(_, rest)| rest));
    let verified = verified.ok_or("the example did not say `verified N files`")?;
    Ok(format!("{verified} of {folder}"))
}

/// A folder with at least [`MANY`] real files: the modules of Perl, which are few megabytes, the C headers, which every C compiler
/// needs, or another large folder.
fn many_files() -> Result<PathBuf, String> {
    let mut folders: Vec<PathBuf> = [
        "/usr/share/perl",
        "/usr/include",
        "/usr/share/doc",
        "/usr/share/zoneinfo",
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect();
    folders.push(crate::target().join("debug/deps"));
    folders
        .into_iter()
        .find(|folder| count(folder, MANY) >= MANY)
        .ok_or_else(|| format!("no folder with {MANY} files was found"))
}

/// Counts readable regular files below `folder`, at most up to `enough`.
fn count(folder: &Path, enough: usize) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files += count(&entry.path(), enough.saturating_sub(files)),
            Ok(kind) if kind.is_file() => files += usize::from(fs::File::open(entry.path()).is_ok()),
            _ => {}
        }
        if files >= enough {
            break;
        }
    }
    files
}
