//! The projects that `cargo ifunc new` makes compile against this checkout. Nightly, one is used as its owner would, and its `target` must
//! stay small.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::plan::Tier;
use crate::process::{OUR_PROFILE, cargo, ifunc, status};
use crate::steps::Steps;

/// What `--lang` takes.
const LANGUAGES: [&str; 3] = ["rust", "c", "mixed"];
/// The commands that a user runs in a new project; all of them share what is compiled.
const COMMANDS: [&str; 4] = ["build", "run", "test", "check"];
/// The largest `target` after one of each command, in MiB of disk.
const MAX_TARGET: u64 = 500;

/// Makes and checks one of each language.
pub(crate) fn run(steps: &mut Steps) {
    for language in LANGUAGES {
        let name = format!("a new project in {language}, checked");
        steps.step(&name, || check(language).map(|()| String::new()));
    }
    if steps.tier() == Tier::Nightly {
        steps.step("a new project, used", used);
    }
}

/// Makes a project in a folder of the checkout's `target`.
fn create(name: &str, language: &str) -> Result<PathBuf, String> {
    let folder = crate::scratch().join("new-projects");
    let project = folder.join(name);
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
    let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
    status(
        ifunc(&["new", "--lang", language, "--path"])?
            .arg(&root)
            .arg(&project),
    )?;
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock"))
        .map_err(|e| format!("cannot copy `Cargo.lock`: {e}"))?;
    Ok(project)
}

/// Runs one of each command in a project with a `target` of its own, as on a developer's machine, and measures that folder.
fn used() -> Result<String, String> {
    let project = create("used", "rust")?;
    let target = project.join("target");
    for command in COMMANDS {
        status(
            ifunc(&[command])?
                .current_dir(&project)
                .env("CARGO_TARGET_DIR", &target)
                .env_remove("CARGO_INCREMENTAL"),
        )?;
    }
    let size = disk_usage(&target, &mut HashSet::new())
        .map_err(|e| format!("cannot measure `{}`: {e}", target.display()))?;
    let size = size.div_ceil(1 << 20);
    let _ = fs::remove_dir_all(&project);
    let figure = format!("{size} MiB in `target` after {}", COMMANDS.join(", "));
    match size <= MAX_TARGET {
        true => Ok(figure),
        false => Err(format!("{figure}; at most {MAX_TARGET} are good")),
    }
}

/// What the files of a folder take on disk, in bytes. A file with several names counts once.
fn disk_usage(folder: &Path, seen: &mut HashSet<u64>) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if seen.insert(about.ino()) {
            bytes += about.blocks() * 512;
        }
        if about.is_dir() {
            bytes += disk_usage(&entry.path(), seen)?;
        }
    }
    Ok(bytes)
}

fn check(language: &str) -> Result<(), String> {
    let project = create(&format!("new-{language}"), language)?;
    status(
        cargo(["check", "--quiet", "--workspace", "--all-targets", "--offline"])
            .args(OUR_PROFILE)
            .current_dir(&project)
            .env("CARGO_TARGET_DIR", crate::target()),
    )
}
