//! `cargo ifunc test`: images, then `cargo test` of the packages that hold the ifuncs, and of hosts that test them.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use ifunc_build::BuildOptions;

use crate::cli::TestArgs;
use crate::error::Failure;
use crate::shell::Shell;
use crate::workspace::Workspace;

pub(crate) fn run(args: &TestArgs, shell: &mut Shell) -> Result<(), Failure> {
    let workspace = Workspace::read(args.cargo.manifest_path.as_deref(), &args.cargo)?;
    let ifunc_packages = workspace.ifunc_packages();
    // The packages to test, and the packages whose images their tests use.
    let mut tested = Vec::new();
    let mut images: BTreeSet<String> = BTreeSet::new();
    if args.package.is_empty() {
        if ifunc_packages.is_empty() {
            return Err(workspace.no_ifunc_package());
        }
        images.extend(ifunc_packages.iter().map(|package| package.name.to_string()));
        tested.extend(
            workspace
                .tested_packages()
                .iter()
                .map(|package| package.name.to_string()),
        );
    }
    for name in &args.package {
        let package = workspace.member(name).ok_or_else(|| {
            let known: Vec<_> = ifunc_packages
                .iter()
                .map(|package| format!("`{}`", package.name))
                .collect();
            Failure::Message(format!(
                "package `{name}` is not a member of this workspace\nhelp: the ifunc packages are: {}",
                known.join(", ")
            ))
        })?;
        tested.push(name.clone());
        images.extend(
            workspace
                .ifunc_packages_of(package)
                .iter()
                .map(|package| package.name.to_string()),
        );
    }
    let options = BuildOptions {
        packages: images.into_iter().collect(),
        profile: args.profile.clone(),
        verbose: shell.is_verbose(),
        color: shell.color(),
        ..args.cargo.options()
    };
    let folder = crate::images::build(options, shell)?;

    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&program);
    command.arg("test");
    for package in &tested {
        command.args(["--package", package]);
    }
    args.cargo.pass_to(&mut command);
    let flags = [
        (shell.is_verbose(), "--verbose"),
        (shell.is_quiet(), "--quiet"),
        (shell.colors(), "--color=always"),
        (!shell.colors(), "--color=never"),
    ];
    command.args(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag));
    command.arg("--").args(&args.args);
    if let Some(folder) = folder {
        command.env("IFUNC_LIB_DIR", folder);
    }
    command.stdin(Stdio::null());
    shell.detail("Running", format_args!("`{command:?}`"));
    let status = command.status().map_err(|source| Failure::Spawn {
        program: program.display().to_string(),
        source,
    })?;
    match status.success() {
        true => Ok(()),
        // Cargo has already reported the failures.
        false => Err(Failure::Exit(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
        )),
    }
}
