//! One run of `cargo rustc`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use cargo_metadata::Message;

use super::diagnose::Diagnosis;
use super::workspace::{Package, Workspace};
use crate::{BuildError, BuildOptions, Color, OptLevel, Progress};

/// What a reader thread hands over.
enum Event {
    Message(Box<Message>),
    Stderr(String),
}

/// Compiles a package to a static library and returns its path; `None` for a package that depends on `ifunc` and uses
/// nothing of it: whose ifuncs, if any, are in C.
pub(super) fn compile(
    workspace: &Workspace,
    package: &Package,
    features: Option<&BTreeSet<String>>,
    target: &Path,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Option<PathBuf>, BuildError> {
    progress.compiling(&package.name);
    let mut command = command(workspace, package, features, target, options);
    if options.verbose {
        progress.command(&format!("{command:?}"));
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cargo_missing)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());

    let mut archive = None;
    // What is said for want of a panic handler is no news to a package that has no Rust ifunc.
    let mut withheld = Vec::new();
    let mut diagnosis = Diagnosis::default();
    thread::scope(|scope| {
        let (send, events) = mpsc::channel();
        let messages = send.clone();
        scope.spawn(move || {
            for message in stdout
                .into_iter()
                .flat_map(|out| Message::parse_stream(BufReader::new(out)))
            {
                let Ok(message) = message else { return };
                if messages.send(Event::Message(Box::new(message))).is_err() {
                    return;
                }
            }
        });
        scope.spawn(move || {
            for line in lines(stderr) {
                if send.send(Event::Stderr(line)).is_err() {
                    return;
                }
            }
        });
        for event in events {
            match event {
                Event::Message(message) => match *message {
                    Message::CompilerArtifact(artifact) => {
                        if artifact.manifest_path == package.manifest_path
                            && let Some(file) = artifact.filenames.iter().find(|f| f.extension() == Some("a"))
                        {
                            archive = Some(file.clone().into_std_path_buf());
                        }
                    }
                    Message::CompilerMessage(message) => {
                        let expected = Diagnosis::is_about_the_panic_handler(&message.message);
                        diagnosis.compiler(&message.message);
                        match message.message.rendered {
                            Some(rendered) if expected => withheld.push(rendered),
                            Some(rendered) => progress.diagnostic(&rendered),
                            None => {}
                        }
                    }
                    _ => {}
                },
                Event::Stderr(line) => {
                    diagnosis.cargo(&line);
                    match line.trim_start().starts_with("error") {
                        true => withheld.push(line + "\n"),
                        false => progress.cargo(&line),
                    }
                }
            }
        }
    });
    let status = child.wait().map_err(cargo_missing)?;
    match archive {
        Some(archive) if status.success() => Ok(Some(archive)),
        None if diagnosis.lacks_only_the_panic_handler() => Ok(None),
        _ => {
            withheld.iter().for_each(|said| progress.diagnostic(said));
            Err(BuildError::Compile {
                package: package.name.clone(),
                helps: diagnosis.helps(package),
            })
        }
    }
}

fn lines(from: Option<impl Read>) -> impl Iterator<Item = String> {
    let mut reader = from.map(BufReader::new);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match reader.as_mut()?.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(
                String::from_utf8_lossy(&line)
                    .trim_end_matches(['\n', '\r'])
                    .to_owned(),
            ),
        }
    })
}

fn cargo_missing(source: std::io::Error) -> BuildError {
    BuildError::Spawn {
        program: "cargo".into(),
        source,
        help:
            "cargo is needed: https://rustup.rs installs it, or name one in the environment variable `CARGO`"
                .into(),
    }
}

fn program(variable: &str, default: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| default.into())
}

/// The command line. Everything that an image build needs stands on it or in its environment, so that the user's
/// manifest needs nothing, and nothing that the user's manifest or configuration says gets into images by accident.
fn command(
    workspace: &Workspace,
    package: &Package,
    features: Option<&BTreeSet<String>>,
    target: &Path,
    options: &BuildOptions,
) -> Command {
    let mut command = Command::new(program("CARGO", "cargo"));
    if let Some(directory) = &options.current_dir {
        command.current_dir(directory);
    }
    command
        .args(["rustc", "--lib", "--crate-type", "staticlib", "--manifest-path"])
        .arg(&package.manifest_path);
    // With an explicit target, build scripts and macros are compiled without the flags for images.
    command.arg("--target").arg(&workspace.host);
    let profile = match &*options.profile {
        "release" => "ifunc".to_owned(),
        other => format!("ifunc-{other}"),
    };
    let settings = [
        format!("inherits={:?}", options.profile),
        format!("lto={:?}", if options.lto { "fat" } else { "off" }),
        "codegen-units=1".into(),
        "panic=\"abort\"".into(),
        "debug=\"line-tables-only\"".into(),
        "strip=\"none\"".into(),
        "split-debuginfo=\"off\"".into(),
        "incremental=false".into(),
    ];
    for setting in settings.iter().chain(&release_settings(options)) {
        command
            .arg("--config")
            .arg(format!("profile.{profile}.{setting}"));
    }
    command.args(["--profile", &profile]);
    command.arg("--message-format").arg(match options.color {
        Color::Always => "json-diagnostic-rendered-ansi",
        Color::Never => "json",
    });
    command.arg("--color").arg(match options.color {
        Color::Always => "always",
        Color::Never => "never",
    });
    add_features(&mut command, features, options);
    for (wanted, flag) in [
        (options.locked, "--locked"),
        (options.offline, "--offline"),
        (options.verbose, "--verbose"),
    ] {
        if wanted {
            command.arg(flag);
        }
    }
    crate::script::forget_the_script(&mut command);
    command.env("CARGO_TARGET_DIR", target);
    command.env("CARGO_BUILD_BUILD_DIR", target);
    command.env("CARGO_ENCODED_RUSTFLAGS", rustflags(workspace, package, options));
    // A `cargo clippy` or `cargo check` around us (a build script) must not replace the compiler.
    command
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("RUSTFLAGS");
    command
}

/// Images of the release profile are optimised, whatever the manifest says of that profile.
fn release_settings(options: &BuildOptions) -> Vec<String> {
    let mut settings = match &*options.profile {
        "release" => vec!["overflow-checks=false".into(), "debug-assertions=false".into()],
        _ => Vec::new(),
    };
    if let Some(level) = opt_level(options) {
        settings.push(format!("opt-level={}", level.setting()));
    }
    settings
}

/// The optimisation that is ours to choose; otherwise the profile's own.
fn opt_level(options: &BuildOptions) -> Option<OptLevel> {
    let release = (options.profile == "release").then_some(OptLevel::O3);
    options.opt_level.or(release)
}

fn add_features(command: &mut Command, features: Option<&BTreeSet<String>>, options: &BuildOptions) {
    for name in features.into_iter().flatten() {
        command.args(["--features", name]);
    }
    if options.all_features {
        command.arg("--all-features");
    }
    if options.no_default_features {
        command.arg("--no-default-features");
    }
}

/// The flags of an image build, encoded as cargo wants them. They replace what the user's configuration says.
fn rustflags(workspace: &Workspace, package: &Package, options: &BuildOptions) -> OsString {
    let mut flags: Vec<OsString> = vec![
        "--cfg=ifunc_image".into(),
        "--check-cfg=cfg(ifunc_image)".into(),
        format!("--cfg=ifunc_panic=\"{}\"", package.panic).into(),
        "--check-cfg=cfg(ifunc_panic,values(\"message\",\"location\",\"minimal\"))".into(),
    ];
    if let Some(level) = opt_level(options) {
        // Beats `[profile.release.package.X]` of the user, which a profile that inherits would take over.
        flags.push(format!("-Copt-level={}", level.flag()).into());
    }
    if workspace.host.starts_with("x86_64-") {
        // What the image states, whatever the toolchain takes for granted.
        let cpu = package.cpu_of(options).of_compilers();
        flags.push(format!("-Ctarget-cpu={cpu}").into());
    }
    for directory in &workspace.foreign {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(directory);
        flag.push("/=");
        flags.push(flag);
    }
    flags.join(std::ffi::OsStr::new("\x1f"))
}

/// The target that rustc compiles for by itself; which rustc, the directory may say.
pub(super) fn host_target(options: &BuildOptions) -> Result<String, BuildError> {
    let mut command = Command::new(program("RUSTC", "rustc"));
    if let Some(directory) = &options.current_dir {
        command.current_dir(directory);
    }
    let output = command.arg("-vV").output().map_err(|source| BuildError::Spawn {
        program: "rustc".into(),
        source,
        help: "https://rustup.rs installs it".into(),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.unwrap_or("x86_64-unknown-linux-gnu").to_owned())
}
