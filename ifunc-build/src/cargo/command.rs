//! The command lines of cargo. All settings of an image build are on the command line or in its environment: the user's
//! manifest needs none, and no setting of the user's manifest or configuration affects images by accident.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::OWN_FLAGS;
use super::features::Features;
use super::workspace::{Example, Package, Workspace};
use crate::{BuildError, BuildOptions, Color, Cpu, OptLevel};

/// A task for cargo.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task<'a> {
    /// A static library of the package's library.
    Library,
    /// A static library of an example. For an example that the manifest declares as a program, cargo calls the compiler
    /// through this script.
    Example(&'a Example, &'a Path),
    /// Errors and warnings, no code. Messages have this format of cargo's.
    Check(&'a str),
    /// The source text of the library after macro expansion.
    Expand {
        /// For an image build; otherwise for other builds.
        image: bool,
    },
}

/// One run of cargo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) workspace: &'a Workspace,
    /// Never empty; several only for [`Task::Check`], all with the same flags.
    pub(super) packages: &'a [&'a Package],
    pub(super) features: &'a Features,
    /// The folder that cargo builds in.
    pub(super) target: &'a Path,
    pub(super) options: &'a BuildOptions,
    pub(super) task: Task<'a>,
    /// The level of a further slice, which is compiled beside the first.
    pub(super) slice: Option<Cpu>,
}

impl Job<'_> {
    /// The first package, which determines the flags.
    pub(super) fn package(&self) -> &Package {
        self.packages[0]
    }

    /// The folder for what these flags compile. Cargo does not name files by the flags: packages with different ones would compile
    /// their dependencies again at each build, each over those of the other.
    fn folder(&self) -> PathBuf {
        match self.package().own_flags(self.slice) {
            None => self.target.to_owned(),
            Some(flags) => {
                let hash = blake3::hash(flags.as_bytes()).to_hex();
                self.target.join(format!("{OWN_FLAGS}{}", &hash[..8]))
            }
        }
    }

    /// The command line.
    pub(super) fn command(&self) -> Command {
        let options = self.options;
        let mut command = Command::new(program("CARGO", "cargo"));
        if let Some(directory) = &options.current_dir {
            command.current_dir(directory);
        }
        self.add_task(&mut command);
        command.arg("--manifest-path").arg(&self.package().manifest_path);
        match self.task {
            Task::Expand { image } => {
                command.args(["--profile", "check"]);
                match image {
                    true => self.add_image_flags(&mut command),
                    // Both views then share macros, compiled once.
                    false => drop(command.arg("--target").arg(self.workspace.triple.name())),
                }
            }
            _ => {
                self.add_image_flags(&mut command);
                self.add_image_profile(&mut command);
            }
        }
        let (color, rendered) = match options.color {
            Color::Always => ("always", "json-diagnostic-rendered-ansi"),
            Color::Never => ("never", "json"),
        };
        command.args(["--color", color]);
        match self.task {
            Task::Check(format) => drop(command.args(["--message-format", format])),
            Task::Library | Task::Example(..) => drop(command.args(["--message-format", rendered])),
            Task::Expand { .. } => {}
        }
        self.add_features(&mut command);
        for (wanted, flag) in [
            (options.locked, "--locked"),
            (options.offline, "--offline"),
            (options.verbose, "--verbose"),
        ] {
            if wanted {
                command.arg(flag);
            }
        }
        // In a build script, cargo's variables describe the script's package and not the packages that are built now.
        crate::script::remove_script_variables(&mut command);
        // A separate directory, so that the user's builds, which have other flags, are never invalidated. The build
        // directory is separate as well: an outer cargo holds the lock of the one in the user's configuration.
        let target = self.folder();
        command.env("CARGO_TARGET_DIR", &target);
        command.env("CARGO_BUILD_BUILD_DIR", target);
        // Overrides `[build] incremental`, which overrides the profile. Incremental compilation changes the code.
        command.env("CARGO_INCREMENTAL", "0");
        // An outer `cargo clippy` or `cargo check` (in a build script) must not replace the compiler.
        command
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env_remove("CARGO_BUILD_TARGET");
        match self.task {
            Task::Example(example, wrapper) if !example.library => {
                command
                    .env("RUSTC_WORKSPACE_WRAPPER", wrapper)
                    .env("IFUNC_EXAMPLE", &example.crate_name);
            }
            Task::Expand { image } => {
                if image {
                    // The check profile would unwind.
                    command.args(["--config", "profile.dev.panic=\"abort\""]);
                }
                // Affects only what the compiler prints.
                command.args(["--", "-Zunpretty=expanded"]);
                command.env("RUSTC_BOOTSTRAP", "1");
            }
            _ => {}
        }
        command
    }

    fn add_task(&self, command: &mut Command) {
        match self.task {
            Task::Library => drop(command.args(["rustc", "--lib", "--crate-type", "staticlib"])),
            Task::Example(example, _) => {
                command.args(["rustc", "--example", &example.name]);
                if example.library {
                    command.args(["--crate-type", "staticlib"]);
                }
            }
            Task::Check(_) => {
                // Reports every package: an error in one does not hide errors in others.
                command.args(["check", "--lib", "--keep-going"]);
                for package in self.packages {
                    command.args(["--package", &package.name]);
                }
            }
            Task::Expand { .. } => drop(command.args(["rustc", "--lib"])),
        }
    }

    /// Target and flags of images.
    fn add_image_flags(&self, command: &mut Command) {
        // With an explicit target, build scripts and macros are compiled without the flags for images.
        command.arg("--target").arg(self.workspace.triple.name());
        command.env("CARGO_ENCODED_RUSTFLAGS", self.rustflags());
        command.env_remove("RUSTFLAGS");
    }

    /// The profile of images.
    fn add_image_profile(&self, command: &mut Command) {
        let options = self.options;
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
            // For macros and build scripts, which take most of a first build.
            "build-override.debug=false".into(),
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
    }

    fn add_features(&self, command: &mut Command) {
        let several = self.packages.len() > 1;
        for package in self.packages {
            let none = BTreeSet::new();
            for name in self.features.get(&package.name).unwrap_or(&none) {
                // Cargo cannot enable a feature of a dependency for one of several packages; it is enabled for all.
                match several && !name.contains('/') {
                    true => command.arg("--features").arg(format!("{}/{name}", package.name)),
                    false => command.args(["--features", name]),
                };
            }
        }
        if self.options.all_features {
            command.arg("--all-features");
        }
        if self.options.no_default_features {
            command.arg("--no-default-features");
        }
    }

    /// The flags of an image build, in cargo's encoding. They replace those of the user's configuration.
    fn rustflags(&self) -> OsString {
        let mut flags: Vec<OsString> = vec![
            "--cfg=ifunc_image".into(),
            "--check-cfg=cfg(ifunc_image)".into(),
            format!("--cfg=ifunc_panic=\"{}\"", self.package().panic).into(),
            "--check-cfg=cfg(ifunc_panic,values(\"message\",\"location\",\"minimal\"))".into(),
        ];
        // Flags override `[profile.release.package.X]` of the user, which an inheriting profile would inherit.
        // A check has them, too: with the same flags, it shares macros and build scripts with builds.
        if !matches!(self.task, Task::Expand { .. }) {
            flags.push("-Ccodegen-units=1".into());
            if self.options.profile == "release" {
                flags.push("-Coverflow-checks=off".into());
                flags.push("-Cdebug-assertions=off".into());
            }
        }
        if let Some(level) = opt_level(self.options) {
            flags.push(format!("-Copt-level={}", level.flag()).into());
        }
        // The CPU that the image states, whatever the toolchain's default.
        let cpu = self.package().cpu_of(self.options);
        flags.extend(cpu.flags_of_rustc().into_iter().map(OsString::from));
        flags.extend(self.package().rust_flags.iter().map(OsString::from));
        for directory in &self.workspace.foreign {
            let mut flag = OsString::from("--remap-path-prefix=");
            flag.push(directory);
            flag.push("/=");
            flags.push(flag);
        }
        flags.join(OsStr::new("\x1f"))
    }
}

/// Images of the release profile are optimised, whatever the manifest sets for that profile.
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

/// The optimisation level that the builder sets; `None` keeps the profile's.
fn opt_level(options: &BuildOptions) -> Option<OptLevel> {
    let release = (options.profile == "release").then_some(OptLevel::O3);
    options.opt_level.or(release)
}

fn program(variable: &str, default: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| default.into())
}

/// The default target of rustc. The directory may select the toolchain.
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
