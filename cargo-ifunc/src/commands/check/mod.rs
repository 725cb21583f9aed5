//! `cargo ifunc check`

mod editor;

use std::time::Instant;

use ifunc_abi::Counted;
use ifunc_build::{BuildOptions, COptions, CheckOptions, Checked, check_c, check_packages, is_c_source};

use crate::cli::{CheckArgs, Machines};
use crate::error::Failure;
use crate::progress::BuildProgress;
use crate::shell::Shell;
use crate::workspace::Workspace;
use editor::Editor;

pub(crate) fn run(args: &CheckArgs, shell: &mut Shell) -> Result<(), Failure> {
    let started = Instant::now();
    let json = (args.message_format != "human").then_some(&*args.message_format);
    let (checked, well) = match json {
        _ if !args.files.is_empty() => (files(args, shell)?, true),
        None => (packages(args, shell)?, true),
        Some(format) => for_editor(args, format, shell)?,
    };
    for error in &checked.errors {
        shell.error(error);
    }
    if !checked.errors.is_empty() || !well {
        return Err(Failure::Exit(1));
    }
    for ifunc in &checked.ifuncs {
        shell.detail(
            "Checked",
            format_args!("{} ({} bytes of image)", ifunc.name, ifunc.image_bytes),
        );
    }
    let packages = Counted(checked.packages.len(), "package");
    let ifuncs = Counted(checked.ifuncs.len(), "ifunc");
    let what = match (packages.0, args.full || !args.files.is_empty()) {
        (0, _) => ifuncs.to_string(),
        (_, true) => format!("{packages}, {ifuncs}"),
        (_, false) => format!("{packages} (`--full` links too)"),
    };
    shell.status(
        "Checked",
        format_args!("{what} in {:.2}s", started.elapsed().as_secs_f64()),
    );
    Ok(())
}

fn packages(args: &CheckArgs, shell: &mut Shell) -> Result<Checked, Failure> {
    if args.package.is_empty() {
        let workspace = Workspace::read(args.cargo.manifest_path.as_deref(), &args.cargo)?;
        if workspace.ifunc_packages().is_empty() {
            return Err(workspace.no_ifunc_package());
        }
    }
    let options = options(args, None, shell)?;
    Ok(check_packages(&options, &mut BuildProgress::new(shell))?)
}

/// Prints cargo's messages; also returns whether the other packages of the workspace have no errors.
fn for_editor(args: &CheckArgs, format: &str, shell: &mut Shell) -> Result<(Checked, bool), Failure> {
    let workspace = Workspace::read(args.cargo.manifest_path.as_deref(), &args.cargo)?;
    let options = options(args, Some(format.to_owned()), shell)?;
    let mut editor = Editor::new(BuildProgress::new(shell));
    // An editor checks every workspace it opens, also one without ifuncs.
    let checked = match workspace.ifunc_packages().is_empty() && args.package.is_empty() {
        true => Checked::default(),
        false => check_packages(&options, &mut editor)?,
    };
    let well = match &args.package[..] {
        [] => {
            let target = match &args.target_dir {
                Some(folder) => folder.clone(),
                None => workspace.target_directory().join("ifunc"),
            };
            editor.check_workspace(&target.join("check"), args, format)?
        }
        _ => true,
    };
    editor.finish(well && checked.errors.is_empty())?;
    Ok((checked, well))
}

fn options(args: &CheckArgs, messages: Option<String>, shell: &Shell) -> Result<CheckOptions, Failure> {
    let Machines { triple, cpu, .. } = args.machine.only()?;
    Ok(CheckOptions {
        build: BuildOptions {
            packages: args.package.clone(),
            triple,
            cpu,
            target_dir: args.target_dir.clone(),
            verbose: shell.is_verbose(),
            color: shell.color(),
            ..args.cargo.options()
        },
        link: args.full,
        messages,
    })
}

fn files(args: &CheckArgs, shell: &mut Shell) -> Result<Checked, Failure> {
    for file in &args.files {
        let is_linked = file
            .extension()
            .is_some_and(|extension| ["o", "a"].iter().any(|known| extension == *known));
        if !is_linked && !is_c_source(file) {
            return Err(Failure::Usage(format!(
                "`{}` is not a C file (`.c`), C++ file (`.cpp`, `.cc`, `.cxx`), object (`.o`) or archive (`.a`)\nhelp: check a Rust package with `cargo ifunc check -p PACKAGE`; show a library (`.so`) with `cargo ifunc inspect`",
                file.display()
            )));
        }
        if !file.is_file() {
            return Err(Failure::Usage(format!(
                "`{}` does not exist\nhelp: PATH is relative to the current directory",
                file.display()
            )));
        }
    }
    let Machines { triple, cpu, .. } = args.machine.only()?;
    let options = COptions {
        triple,
        cpu,
        cflags: args
            .cflags
            .iter()
            .flat_map(|flags| flags.split_whitespace())
            .map(Into::into)
            .collect(),
        verbose: shell.is_verbose(),
        color: shell.color(),
        ..COptions::default()
    };
    Ok(check_c(&args.files, &options, &mut BuildProgress::new(shell)))
}
