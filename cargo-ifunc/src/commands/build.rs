//! `cargo ifunc build`

use std::io::Write;
use std::time::Instant;

use ifunc_abi::Counted;
use ifunc_build::{
    BuildError, BuildOptions, BuiltIfunc, COptions, Language, build_c, build_packages, is_c_source,
    read_library,
};
use serde::Serialize;

use crate::cli::{BuildArgs, Machines, MessageFormat};
use crate::error::Failure;
use crate::progress::{BuildProgress, imports_of};
use crate::shell::Shell;
use crate::workspace::{Workspace, unreadable};

pub(crate) fn run(args: &BuildArgs, shell: &mut Shell) -> Result<(), Failure> {
    let started = Instant::now();
    let color = shell.color();
    let verbose = shell.is_verbose();
    let Machines { triple, cpu, slices } = args.machine.machines()?;
    let built = if args.files.is_empty() {
        let options = BuildOptions {
            packages: args.package.clone(),
            profile: args.profile.clone(),
            examples: args.example.clone(),
            triple: triple.clone(),
            cpu,
            slices: slices.clone(),
            target_dir: args.target_dir.clone(),
            verbose,
            color,
            ..args.cargo.options()
        };
        let built = build_packages(&options, &mut BuildProgress::new(shell)).map_err(|e| match e {
            BuildError::Metadata(stderr) => unreadable(&stderr),
            other => other.into(),
        })?;
        if built.is_empty() {
            // Reads the workspace only now: the builder has already run `cargo metadata` once, which takes as
            // long as compiling.
            let workspace = Workspace::read(args.cargo.manifest_path.as_deref(), &args.cargo)?;
            if workspace.ifunc_packages().is_empty() {
                return Err(workspace.no_ifunc_package());
            }
        }
        built
    } else {
        check_files(args)?;
        let options = COptions {
            profile: args.profile.clone(),
            target_dir: args.target_dir.clone(),
            triple: triple.clone(),
            cpu,
            slices: slices.clone(),
            needed: args.needed.clone(),
            cflags: args
                .cflags
                .iter()
                .flat_map(|flags| flags.split_whitespace())
                .chain(args.cflag.iter().map(String::as_str))
                .map(Into::into)
                .collect(),
            link_args: args.link_arg.clone(),
            verbose,
            color,
            ..COptions::default()
        };
        let built = build_c(&args.files, &options, &mut BuildProgress::new(shell))?;
        if let Some(library) = library_of_the_source_only(args, &built) {
            shell.warning(library);
        }
        built
    };
    if args.message_format == MessageFormat::Json {
        let mut out = std::io::stdout().lock();
        for ifunc in &built {
            serde_json::to_writer(&mut out, &Message::of(ifunc)).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
    }
    shell.status(
        "Finished",
        format_args!(
            "{} in {:.2}s",
            Counted(built.len(), "ifunc"),
            started.elapsed().as_secs_f64()
        ),
    );
    Ok(())
}

/// Libraries that every process has.
const OF_THE_C_LIBRARY: [&str; 6] = ["c", "m", "pthread", "dl", "rt", "gcc_s"];

/// Warns of a library that the source links and no target is told to open, although the images import something.
fn library_of_the_source_only(args: &BuildArgs, built: &[BuiltIfunc]) -> Option<String> {
    let link = |arg: &&String| {
        arg.strip_prefix("-l")
            .is_some_and(|name| !OF_THE_C_LIBRARY.contains(&name))
    };
    let arg = args.link_arg.iter().find(link)?;
    if !args.needed.is_empty() {
        return None;
    }
    let (ifunc, imports) = built
        .iter()
        .find_map(|ifunc| Some((ifunc, imports_of(&ifunc.image)?)))?;
    let name = arg.trim_start_matches("-l");
    // `-l:FILE` names the file.
    let file = name
        .strip_prefix(':')
        .map_or_else(|| format!("lib{name}.so"), str::to_owned);
    let sonames = read_library(&ifunc.path)
        .map(|library| library.sonames)
        .unwrap_or_default();
    let soname = sonames
        .into_iter()
        .find(|soname| soname.starts_with(&file))
        .unwrap_or_else(|| file.clone());
    Some(format!(
        "`--link-arg={arg}` links what the source calls, not what travels: `{}` imports {imports}\nhelp: if `{file}` defines \
         them, add `--needed {soname}`, and let the target say `allow_library(\"{soname}\")`",
        ifunc.name
    ))
}

/// Reports a path that is not a C file, with the probable intention.
fn check_files(args: &BuildArgs) -> Result<(), Failure> {
    for file in &args.files {
        let usage = |what: &str, help: &str| {
            Err(Failure::Usage(format!(
                "`{}` {what}\nhelp: {help}",
                file.display()
            )))
        };
        if !is_c_source(file) {
            return usage(
                "is not a C file (`.c`) or a C++ file (`.cpp`, `.cc`, `.cxx`)",
                "PATH names such files only; build a Rust package with `cargo ifunc build -p PACKAGE`",
            );
        }
        if !file.is_file() {
            return usage("does not exist", "PATH is relative to the current directory");
        }
    }
    Ok(())
}

/// One line of `--message-format json`.
#[derive(Serialize)]
struct Message<'a> {
    reason: &'static str,
    name: &'a str,
    path: &'a std::path::Path,
    id: String,
    image_bytes: usize,
    /// All images of the library, the first one first.
    slices: Vec<SliceMessage>,
    package: Option<&'a str>,
    source: &'a std::path::Path,
    language: &'static str,
    fresh: bool,
}

/// A slice in such a line.
#[derive(Serialize)]
struct SliceMessage {
    machine: String,
    id: String,
    image_bytes: usize,
}

impl SliceMessage {
    fn of(image: &[u8], id: &ifunc_abi::ImageId) -> Self {
        let parsed = ifunc_abi::image::Image::parse(image);
        Self {
            machine: parsed.map_or_else(|_| String::new(), |image| image.machine().to_string()),
            id: super::inspect::hex(id),
            image_bytes: image.len(),
        }
    }
}

impl<'a> Message<'a> {
    fn of(ifunc: &'a BuiltIfunc) -> Self {
        let BuiltIfunc {
            relocations: _,
            name,
            path,
            id,
            image,
            other_slices,
            package,
            source,
            fresh,
            language,
        } = ifunc;
        Self {
            reason: "ifunc-built",
            name,
            path,
            id: super::inspect::hex(id),
            image_bytes: image.len(),
            slices: std::iter::once(SliceMessage::of(image, id))
                .chain(
                    other_slices
                        .iter()
                        .map(|slice| SliceMessage::of(&slice.image, &slice.id)),
                )
                .collect(),
            package: package.as_deref(),
            source,
            language: match language {
                Language::Rust => "rust",
                Language::C => "c",
            },
            fresh: *fresh,
        }
    }
}
