//! `cargo xtask simulate --mutants`: each seeded bug is put into a copy of `ifunc-proto`, and the simulator must find it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::list::{MUTANTS, Mutant};
use crate::process::cargo;

/// Steps within which a bug must be found: half of them of connections, and half of groups.
const BUDGET: &str = "1000000";

/// Address space of the simulator, in KiB, and its time: without a bug it takes seconds.
const MEMORY: u32 = 2 << 20;
const SECONDS: u32 = 120;

/// The packages of the scratch workspace.
const PACKAGES: [&str; 3] = ["ifunc-abi", "ifunc-proto", "simulate"];

/// Runs the simulator on every bug whose name contains `text`, and prints a table.
pub(super) fn run(text: &str) -> Result<String, String> {
    let mutants: Vec<&Mutant> = MUTANTS
        .iter()
        .filter(|mutant| mutant.name.contains(text))
        .collect();
    if mutants.is_empty() {
        return Err(format!("no seeded bug's name contains `{text}`"));
    }
    let sources: Vec<String> = mutants.iter().copied().map(source).collect::<Result<_, _>>()?;
    let scratch = Scratch::new()?;
    if let Found::Yes { rule, .. } = scratch.find()? {
        return Err(format!(
            "the simulator finds a violation without a seeded bug: {rule}"
        ));
    }
    let width = mutants.iter().map(|mutant| mutant.name.len()).max().unwrap_or(0);
    println!("{:>7}  {:width$}  violation", "steps", "seeded bug");
    let mut missed = 0;
    for (mutant, source) in mutants.iter().zip(sources) {
        let file = scratch.dir.join("ifunc-proto/src").join(mutant.file);
        write(&file, &source.replacen(mutant.old, mutant.new, 1))?;
        let found = scratch
            .find()
            .map_err(|error| format!("`{}`: {error}", mutant.name));
        write(&file, &source)?;
        match found? {
            Found::Yes { steps, rule } => println!("{steps:>7}  {:width$}  {rule}", mutant.name),
            Found::No => {
                missed += 1;
                println!("{:>7}  {:width$}  MISSED", "-", mutant.name);
            }
        }
    }
    let count = mutants.len();
    if missed > 0 {
        return Err(format!(
            "{missed} of {count} seeded bugs were not found in {BUDGET} steps"
        ));
    }
    Ok(format!("{count} seeded bugs, each found in {BUDGET} steps"))
}

/// The source of a bug's file, in which its text must occur once.
fn source(mutant: &Mutant) -> Result<String, String> {
    let path = crate::root().join("ifunc-proto/src").join(mutant.file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    match text.matches(mutant.old).count() {
        1 => Ok(text),
        count => Err(format!(
            "the seeded bug `{}` changes text that occurs {count} times in {}\nhelp: change it in xtask/src/simulate/list.rs",
            mutant.name, mutant.file
        )),
    }
}

/// What the simulator says of a bug.
enum Found {
    Yes { steps: String, rule: String },
    No,
}

/// A workspace of the simulator and what it needs, in which `ifunc-proto` is changed.
struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, String> {
        let dir = crate::scratch().join("mutants");
        for package in PACKAGES {
            copy(&crate::root().join(package), &dir.join(package))?;
        }
        let manifest = crate::root().join("Cargo.toml");
        let text = fs::read_to_string(manifest).map_err(|error| error.to_string())?;
        write(&dir.join("Cargo.toml"), &manifest_of(&text)?)?;
        let lock = fs::read_to_string(crate::root().join("Cargo.lock")).map_err(|error| error.to_string())?;
        write(&dir.join("Cargo.lock"), &lock)?;
        Ok(Self { dir })
    }

    /// Builds the simulator, and lets it search for a violation.
    fn find(&self) -> Result<Found, String> {
        let target = self.dir.join("target");
        let mut build = cargo([
            "build",
            "--quiet",
            "--offline",
            "--release",
            "--package",
            "ifunc-simulate",
        ]);
        build
            .current_dir(&self.dir)
            .env("CARGO_TARGET_DIR", &target)
            // Most of the time is spent compiling.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            // A bug changes one function.
            .env("CARGO_INCREMENTAL", "1")
            .env("RUSTFLAGS", "--cap-lints allow")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        let built = build.status().map_err(|error| error.to_string())?;
        if !built.success() {
            return Err("it does not compile".into());
        }
        // A bug may allocate or loop without end.
        let simulator = Command::new("sh")
            .args([
                "-c",
                &format!("ulimit -v {MEMORY}; exec timeout {SECONDS} \"$0\" --find {BUDGET}"),
            ])
            .arg(target.join("release/ifunc-simulate"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&simulator.stdout);
        let mut fields = said.trim_end().split('\t');
        match (simulator.status.success(), fields.next(), fields.nth(1)) {
            (true, ..) => Ok(Found::No),
            (false, Some(steps), Some(rule)) => Ok(Found::Yes {
                steps: steps.into(),
                rule: rule.into(),
            }),
            // A bug may end the simulator itself.
            (false, ..) => Ok(Found::Yes {
                steps: "?".into(),
                rule: format!("the simulator ended: {}", simulator.status),
            }),
        }
    }
}

/// The manifest of the checkout, with the packages of the scratch workspace as its only members.
fn manifest_of(text: &str) -> Result<String, String> {
    let members = format!("members = {PACKAGES:?}");
    let mut manifest = String::new();
    let mut is_skipped = false;
    for line in text.lines() {
        let is_list = ["members = [", "default-members = [", "exclude = ["]
            .iter()
            .any(|key| line.starts_with(key));
        if line.starts_with("members = [") {
            manifest += &members;
            manifest.push('\n');
        } else if !is_list && !is_skipped {
            manifest += line;
            manifest.push('\n');
        }
        is_skipped = (is_list || is_skipped) && !line.ends_with(']');
    }
    if manifest.contains(&members) {
        Ok(manifest)
    } else {
        Err("the workspace's manifest has no line `members = [`".into())
    }
}

/// Copies a folder's files. Those that have not changed keep their time, so that nothing is built again for them.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            write(&to, &fs::read_to_string(&path).map_err(failed)?)?;
        }
    }
    Ok(())
}

/// Writes a file, unless it is as it should be.
fn write(path: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
