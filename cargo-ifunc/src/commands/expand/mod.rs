//! `cargo ifunc expand`: what the attributes expand to.

mod items;
mod paint;

use std::io::Write;

use ifunc_build::{BuildOptions, View, expand_package};

use crate::cli::ExpandArgs;
use crate::error::Failure;
use crate::progress::BuildProgress;
use crate::shell::Shell;
use crate::workspace::Workspace;

pub(crate) fn run(args: &ExpandArgs, shell: &mut Shell) -> Result<(), Failure> {
    let package = match &args.package {
        Some(package) => package.clone(),
        None => only_package(args)?,
    };
    let options = BuildOptions {
        packages: vec![package.clone()],
        verbose: shell.is_verbose(),
        color: shell.color(),
        ..args.cargo.options()
    };
    let view = match args.image {
        true => View::Image,
        false => View::Host,
    };
    let text = expand_package(&options, view, &mut BuildProgress::new(shell))?;
    let mut file = items::parse(&text).map_err(|e| {
        Failure::Message(format!(
            "cannot parse rustc's expansion of package `{package}`: {e}\nhelp: `cargo rustc -p {package} --lib --profile check -- -Zunpretty=expanded` with RUSTC_BOOTSTRAP=1 prints it"
        ))
    })?;
    if !args.all {
        let there = items::generated(&mut file, args.item.as_deref());
        if file.items.is_empty() {
            return Err(nothing(&package, args.item.as_deref(), &there));
        }
    }
    let text = prettyplease::unparse(&file);
    let mut out = anstream::stdout().lock();
    paint::write(&text, &mut out)?;
    Ok(out.flush()?)
}

/// The workspace's only ifunc package, or that of the current directory.
fn only_package(args: &ExpandArgs) -> Result<String, Failure> {
    let workspace = Workspace::read(args.cargo.manifest_path.as_deref(), &args.cargo)?;
    let packages = workspace.ifunc_packages();
    let here = std::env::current_dir().unwrap_or_default();
    let around = packages
        .iter()
        .find(|package| here.starts_with(crate::workspace::directory(package)));
    match (&packages[..], around) {
        ([], _) => Err(workspace.no_ifunc_package()),
        ([one], _) | (_, Some(one)) => Ok(one.name.to_string()),
        (several, None) => {
            let names: Vec<_> = several.iter().map(|package| &**package.name).collect();
            Err(Failure::Usage(format!(
                "the workspace has several ifunc packages\nhelp: choose one with `-p`: {}",
                names.join(", ")
            )))
        }
    }
}

fn nothing(package: &str, item: Option<&str>, there: &[String]) -> Failure {
    let names: Vec<String> = there.iter().map(|name| format!("`{name}`")).collect();
    Failure::Message(match (item, &names[..]) {
        (_, []) => format!(
            "the library of package `{package}` uses no attribute of ifunc\nhelp: `cargo ifunc inspect` shows ifuncs in C; `--all` prints the whole library"
        ),
        (Some(item), names) => format!(
            "the attributes generated nothing for `{item}` in package `{package}`\nhelp: there are: {}",
            names.join(", ")
        ),
        (None, _) => format!("the attributes generated nothing in package `{package}`"),
    })
}
