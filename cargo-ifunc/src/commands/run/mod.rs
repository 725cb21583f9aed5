//! `cargo ifunc run`: images, binaries, a target, a source.

mod host;
mod process;
mod session;
mod show;

use std::time::Duration;

use ifunc_build::{BuildError, BuildOptions, Color, build_packages};

use crate::cli::{CargoArgs, RunArgs, Transport};
use crate::commands::build::counted;
use crate::error::Failure;
use crate::progress::BuildProgress;
use crate::shell::Shell;
use crate::workspace::{HOW_TO_START, Workspace, short_name};
use session::{Session, Stopped};

pub(crate) fn run(args: &RunArgs, shell: &mut Shell) -> Result<(), Failure> {
    let cargo = CargoArgs {
        manifest_path: args.manifest_path.clone(),
        locked: args.locked,
        offline: args.offline,
        ..CargoArgs::default()
    };
    let workspace = Workspace::read(args.manifest_path.as_deref(), &cargo)?;
    let host = workspace.host(args.name.as_deref())?;

    let packages: Vec<_> = workspace
        .ifunc_packages_of(host)
        .iter()
        .map(|p| p.name.to_string())
        .collect();
    let libraries = build_images(&workspace, packages, &cargo, shell)?;
    let bins = host::build(&workspace, host, &cargo, shell)?;

    // A name of its own for each run: two may go on at a time, and a crashed one leaves nothing in the way.
    let short: String = short_name(host).chars().take(40).collect();
    let place = format!("{short}-{}", std::process::id());
    let session = Session {
        environment: vec![("IFUNC_LIB_DIR", libraries.into_os_string())],
        args: &args.args,
        timeout: Duration::from_secs(args.timeout),
    };
    let stopped = match args.transport {
        Transport::Loopback => session.one_process(&bins.both, &format!("loopback:{place}"), shell)?,
        Transport::Shm => {
            session.two_processes(&bins.target, &bins.source, &format!("shm:{place}"), shell)?
        }
    };
    match stopped {
        Stopped::Done => {
            shell.status("Finished", format_args!("`{}`", short_name(host)));
            Ok(())
        }
        Stopped::Failed { who, what, code } => {
            shell.error(format_args!("`{who}` of `{}` {what}", host.name));
            Err(Failure::Exit(code))
        }
        Stopped::Interrupted(code) => Err(Failure::Exit(code)),
    }
}

/// Builds the images of `packages`, and says where they lie.
fn build_images(
    workspace: &Workspace,
    packages: Vec<String>,
    cargo: &CargoArgs,
    shell: &mut Shell,
) -> Result<std::path::PathBuf, Failure> {
    let mut options = BuildOptions {
        manifest_path: cargo.manifest_path.clone(),
        packages,
        locked: cargo.locked,
        offline: cargo.offline,
        verbose: shell.is_verbose(),
        color: if shell.colors() {
            Color::Always
        } else {
            Color::Never
        },
        ..BuildOptions::default()
    };
    while !options.packages.is_empty() {
        let built = build_packages(&options, &mut BuildProgress::new(shell));
        match built {
            Ok(built) => {
                shell.detail("Finished", counted(built.len()));
                return Ok(workspace.target_directory().join("ifunc").join("release"));
            }
            // A package of types that host and ifuncs share depends on the SDK, too, and has no ifuncs.
            Err(BuildError::NoIfuncs { package, .. }) if options.packages.contains(&package) => {
                options.packages.retain(|name| *name != package);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Err(Failure::Said(format!(
        "none of the packages that the host package depends on has an ifunc\n{HOW_TO_START}"
    )))
}
