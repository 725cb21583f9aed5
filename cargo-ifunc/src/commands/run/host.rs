//! The binaries of a host package.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::{Message, Package};

use crate::cli::CargoArgs;
use crate::error::Failure;
use crate::shell::Shell;
use crate::workspace::{HOST_BINS, Workspace};

/// Where they lie.
pub(super) struct Bins {
    pub(super) target: PathBuf,
    pub(super) source: PathBuf,
    pub(super) both: PathBuf,
}

/// Builds them with plain cargo. Every host package has binaries of the same names, which cargo puts into one folder:
/// they are moved to a folder of the package's own, under a lock, before another run can build over them.
pub(super) fn build(
    workspace: &Workspace,
    host: &Package,
    cargo: &CargoArgs,
    shell: &mut Shell,
) -> Result<Bins, Failure> {
    let folder = workspace.target_directory().join("ifunc").join("run");
    fs::create_dir_all(&folder).map_err(Failure::io("create", &folder))?;
    let lock_path = folder.join(".lock");
    let lock = File::create(&lock_path).map_err(Failure::io("create", &lock_path))?;
    lock.lock().map_err(Failure::io("lock", &lock_path))?;

    shell.status("Compiling", format_args!("host package `{}`", host.name));
    let built = executables(host, cargo, shell)?;
    let folder = folder.join(host.name.as_str());
    fs::create_dir_all(&folder).map_err(Failure::io("create", &folder))?;
    let own = |bin: &str| {
        let Some((_, path)) = built.iter().find(|(name, _)| name == bin) else {
            return Err(Failure::Said(format!(
                "cargo built no binary `{bin}` of package `{}`",
                host.name
            )));
        };
        replace(path, &folder.join(bin))
    };
    let [target, source, both] = HOST_BINS;
    Ok(Bins {
        target: own(target)?,
        source: own(source)?,
        both: own(both)?,
    })
}

/// Runs `cargo build`, and hears from it where the executables are.
fn executables(host: &Package, cargo: &CargoArgs, shell: &Shell) -> Result<Vec<(String, PathBuf)>, Failure> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&program);
    command.args([
        "build",
        "--release",
        "--bins",
        "--message-format=json-render-diagnostics",
    ]);
    command.arg("--package").arg(host.name.as_str());
    command.arg("--manifest-path").arg(&host.manifest_path);
    let flags = [
        (cargo.locked, "--locked"),
        (cargo.offline, "--offline"),
        (shell.is_verbose(), "--verbose"),
        (shell.is_quiet(), "--quiet"),
        (shell.colors(), "--color=always"),
        (!shell.colors(), "--color=never"),
    ];
    command.args(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag));
    let spawn = |source| Failure::Spawn {
        program: program.display().to_string(),
        source,
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(spawn)?;

    let mut found = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for message in Message::parse_stream(BufReader::new(stdout)) {
            let message = message.map_err(Failure::io("read the messages of", &program))?;
            let Message::CompilerArtifact(artifact) = message else {
                continue;
            };
            if artifact.package_id == host.id
                && let Some(path) = artifact.executable
            {
                found.push((artifact.target.name, path.into_std_path_buf()));
            }
        }
    }
    match child.wait().map_err(spawn)?.success() {
        true => Ok(found),
        // Cargo has said why.
        false => Err(Failure::Said(format!(
            "could not compile host package `{}`",
            host.name
        ))),
    }
}

/// Puts `from` at `to` in one step, so that a program that runs from there is not written to.
fn replace(from: &Path, to: &Path) -> Result<PathBuf, Failure> {
    let new = to.with_extension(format!("new-{}", std::process::id()));
    let _ = fs::remove_file(&new);
    fs::hard_link(from, &new)
        .or_else(|_| fs::copy(from, &new).map(|_| ()))
        .and_then(|()| fs::rename(&new, to))
        .map_err(Failure::io("write", to))?;
    // `rename` does nothing if both are the same file already.
    let _ = fs::remove_file(&new);
    Ok(to.to_owned())
}
