//! The binaries of a host package.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::{Message, Package};

use super::platform::Platforms;
use crate::cli::{CargoArgs, Transport};
use crate::error::Failure;
use crate::shell::Shell;
use crate::workspace::{Programs, Workspace};

/// The feature of a host's runtime that a run over its transport needs, if it is none of the default.
#[derive(Clone, Copy)]
pub(super) struct RuntimeFeature(Option<&'static str>);

impl RuntimeFeature {
    pub(super) fn of(transport: Transport) -> Self {
        Self(matches!(transport, Transport::Tls).then_some("ifunc-rt/tls"))
    }

    fn pass_to(self, command: &mut Command) {
        if let Self(Some(feature)) = self {
            command.args(["--features", feature]);
        }
    }
}

/// What is built.
#[derive(Clone, Copy)]
pub(super) struct Binaries<'a> {
    pub(super) host: &'a Package,
    pub(super) programs: &'a Programs,
    pub(super) platforms: Platforms<'a>,
    pub(super) profile: &'a str,
    pub(super) feature: RuntimeFeature,
}

/// Builds the binaries with plain cargo, and returns the folder that they
/// are in. Most host packages have binaries of the same names, which cargo writes to one folder. A lock is held while they are
/// copied to a folder per package, so that another run cannot overwrite them.
pub(super) fn build(
    workspace: &Workspace,
    binaries: Binaries<'_>,
    cargo: &CargoArgs,
    shell: &mut Shell,
) -> Result<PathBuf, Failure> {
    let Binaries {
        host,
        programs,
        platforms,
        ..
    } = binaries;
    let folder = workspace.target_directory().join("ifunc").join("run");
    fs::create_dir_all(&folder).map_err(Failure::io("create", &folder))?;
    let lock_path = folder.join(".lock");
    let lock = File::create(&lock_path).map_err(Failure::io("create", &lock_path))?;
    lock.lock().map_err(Failure::io("lock", &lock_path))?;

    shell.detail("Compiling", format_args!("host package `{}`", host.name));
    let folder = folder.join(platforms.folder(&host.name));
    fs::create_dir_all(&folder).map_err(Failure::io("create", &folder))?;
    let mut built = Vec::new();
    for platform in platforms.all() {
        let mut executables = executables(workspace, binaries, platform, cargo, shell)?;
        executables.retain(|(bin, _)| platforms.has(platform, bin, programs));
        for (bin, path) in executables {
            replace(&path, &folder.join(&bin))?;
            built.push(bin);
        }
    }
    match programs.all().find(|bin| !built.iter().any(|name| name == bin)) {
        None => Ok(folder),
        Some(bin) => Err(Failure::Message(format!(
            "cargo built no binary `{bin}` of package `{}`",
            host.name
        ))),
    }
}

/// Runs `cargo build` for a platform, and reads the paths of the executables from its messages.
fn executables(
    workspace: &Workspace,
    binaries: Binaries<'_>,
    platform: Option<&str>,
    cargo: &CargoArgs,
    shell: &Shell,
) -> Result<Vec<(String, PathBuf)>, Failure> {
    let Binaries {
        host,
        programs,
        profile,
        feature,
        ..
    } = binaries;
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&program);
    command.args(["build", "--message-format=json-render-diagnostics"]);
    command.args(["--profile", profile]);
    command.args(platform.iter().flat_map(|triple| ["--target", triple]));
    feature.pass_to(&mut command);
    let mut packages: Vec<&Package> = Vec::new();
    // Programs may start others of their package, which lie beside them.
    command.arg("--bins");
    for bin in programs.all() {
        if let Some(package) = workspace.package_of_binary(host, bin)
            && !packages.iter().any(|known| known.id == package.id)
        {
            packages.push(package);
        }
    }
    for package in &packages {
        command.arg("--package").arg(package.name.as_str());
    }
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
            let is_asked = |package: &&Package| package.id == artifact.package_id;
            if packages.iter().any(is_asked)
                && let Some(path) = artifact.executable
            {
                found.push((artifact.target.name, path.into_std_path_buf()));
            }
        }
    }
    match child.wait().map_err(spawn)?.success() {
        true => Ok(found),
        // Cargo has already reported the errors.
        false => Err(Failure::Message(format!(
            "could not compile host package `{}`",
            host.name
        ))),
    }
}

/// Replaces `to` by `from` atomically, so that a running program is not overwritten.
fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    let new = to.with_extension(format!("new-{}", std::process::id()));
    // A linker makes a new file, so a link keeps what was built, and takes no space.
    let made = fs::hard_link(from, &new).or_else(|_| fs::copy(from, &new).map(drop));
    made.and_then(|()| fs::rename(&new, to))
        .map_err(Failure::io("write", to))?;
    // Two names of one file are not renamed.
    let _ = fs::remove_file(&new);
    Ok(())
}
