//! `cargo xtask readme`: every block of README.md, and of the README.md of each example, compiles or runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::blocks::{Block, blocks};
use crate::plan::Tier;
use crate::process::{OUR_PROFILE, built, cargo, status};
use crate::steps::Steps;

/// What `cargo` is in sh blocks of the commit tier: `cargo ifunc` is the command that the tests have built. The alias of the
/// checkout is `cargo run`, which would compile the runtime once more, with the features of one package; nightly runs that.
const CARGO: &str =
    "() { if [ \"$1\" = ifunc ]; then \"$XTASK_CARGO_IFUNC\" \"$@\"; else command cargo \"$@\"; fi; }";
const COMMAND: &str = "XTASK_CARGO_IFUNC";

/// Compiles each rust block as a library. Runs the sh blocks in order, each in a shell of its own, in a fresh clone of the
/// commit.
pub(crate) fn run(steps: &mut Steps) {
    all(steps, false);
}

/// The same in the checkout, which is a fresh clone in CI and has been built.
pub(crate) fn here(steps: &mut Steps) {
    all(steps, true);
}

fn all(steps: &mut Steps, here: bool) {
    let clone = match here {
        true => crate::root().to_owned(),
        false => crate::scratch().join("clone"),
    };
    let texts = match texts() {
        Ok(texts) => texts,
        Err(why) => {
            steps.step("README.md", || Err(why));
            return;
        }
    };
    let mut is_cloned = here;
    for (name, text) in &texts {
        for block in &blocks(text) {
            match block.language() {
                "rust" => {
                    steps.step(&format!("{name}:{} (rust)", block.line), || compile(block));
                }
                "sh" if !block.is_only_read() => {
                    is_cloned = is_cloned || steps.step("fresh clone", || fresh_clone(&clone));
                    if !is_cloned {
                        return;
                    }
                    let is_built = here && steps.tier() == Tier::Commit;
                    steps.step(&format!("{name}:{} (sh)", block.line), || {
                        let folder = is_built.then(|| built(&["cargo-ifunc"])).transpose()?;
                        let command = folder.map(|folder| folder.join("cargo-ifunc"));
                        run_in(&clone, here, command.as_deref(), block)
                    });
                }
                _ => {}
            }
        }
    }
}

/// README.md and those of the examples, with their names.
fn texts() -> Result<Vec<(String, String)>, String> {
    let examples = crate::root().join("examples");
    let entries =
        fs::read_dir(&examples).map_err(|why| format!("cannot read `{}`: {why}", examples.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| format!("examples/{}/README.md", entry.file_name().display()))
        .filter(|name| crate::root().join(name).exists())
        .collect();
    names.sort();
    names.insert(0, "README.md".into());
    let read = |name: String| match fs::read_to_string(crate::root().join(&name)) {
        Ok(text) => Ok((name, text)),
        Err(why) => Err(format!("{name} cannot be read: {why}")),
    };
    names.into_iter().map(read).collect()
}

/// Runs a sh block in a clone of the commit, or in the checkout. `command`: the `cargo-ifunc` that `cargo ifunc` is.
fn run_in(clone: &Path, here: bool, command: Option<&Path>, block: &Block<'_>) -> Result<String, String> {
    let mut bash = Command::new("bash");
    if let Some(command) = command {
        // A function of the shell, as `export -f` passes it on.
        bash.env("BASH_FUNC_cargo%%", CARGO).env(COMMAND, command);
    }
    bash.args(["-euo", "pipefail", "-c", &block.text])
        .current_dir(clone)
        .stdin(Stdio::null());
    // A clone builds with default settings, as its reader does; the checkout as before.
    let kept: &[&str] = match here {
        true => &["CARGO_HOME", "CARGO_INCREMENTAL"],
        false => &["CARGO_HOME"],
    };
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO") && !kept.contains(&name))
        {
            bash.env_remove(name);
        }
    }
    status(&mut bash).map(|()| String::new())
}

fn fresh_clone(to: &Path) -> Result<String, String> {
    let _ = fs::remove_dir_all(to);
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--local"])
        .arg(crate::root())
        .arg(to)
        .stdin(Stdio::null());
    status(&mut git).map(|()| "the commit".into())
}

/// A block that begins with `#![no_std]` is the crate `hello_ifuncs` of those that follow it, which are hosts.
fn compile(block: &Block<'_>) -> Result<String, String> {
    let folder = crate::scratch().join("readme");
    let io = |e: std::io::Error| format!("cannot write to `{}`: {e}", folder.display());
    let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
    let krate = |name: &str| format!("{name} = {{ path = {:?} }}\n", root.join(name));
    let package = |name: &str, dependencies: String| {
        format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[lints.rust]\nwarnings = \"deny\"\n\n\
             [dependencies]\n{dependencies}"
        )
    };
    let host = krate("ifunc") + &krate("ifunc-rt") + "hello-ifuncs = { path = \"../ifuncs\" }\n";
    let member = if block.text.starts_with("#![no_std]") {
        "ifuncs"
    } else {
        "host"
    };
    fs::create_dir_all(folder.join("ifuncs/src")).map_err(io)?;
    fs::create_dir_all(folder.join("host/src")).map_err(io)?;
    fs::write(
        folder.join("Cargo.toml"),
        "[workspace]\nresolver = \"3\"\nmembers = [\"ifuncs\", \"host\"]\n",
    )
    .map_err(io)?;
    fs::write(
        folder.join("ifuncs/Cargo.toml"),
        package("hello-ifuncs", krate("ifunc")),
    )
    .map_err(io)?;
    fs::write(folder.join("host/Cargo.toml"), package("hello", host)).map_err(io)?;
    fs::write(folder.join(member).join("src/lib.rs"), &block.text).map_err(io)?;
    if member == "ifuncs" {
        fs::write(folder.join("host/src/lib.rs"), "").map_err(io)?;
    }
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(io)?;
    let mut check = cargo(["check", "--quiet", "--workspace"]);
    check
        .args(OUR_PROFILE)
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", crate::target());
    status(&mut check).map(|()| String::new())
}
