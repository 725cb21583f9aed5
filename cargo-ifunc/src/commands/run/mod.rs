//! `cargo ifunc run`: builds images and binaries, and runs a target and a source.

mod host;
mod platform;
mod process;
mod session;
mod show;

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use cargo_metadata::Package;
use ifunc_build::BuildOptions;
use ifunc_rt::keys::SecretKey;
use tempfile::TempDir;

use crate::cli::{CargoArgs, RunArgs, Transport};
use crate::error::Failure;
use crate::images;
use crate::platforms::LibraryPlatforms;
use crate::shell::Shell;
use crate::workspace::{Programs, Workspace, how_to_start, short_name};
use host::{Binaries, RuntimeFeature};
use platform::Platforms;
use session::{Session, Stopped};
use show::Side;

/// How long target and source may run, in seconds, unless an option says otherwise.
const TIMEOUT: u64 = 300;

pub(crate) fn run(args: &RunArgs, shell: &mut Shell) -> Result<(), Failure> {
    let cargo = CargoArgs {
        manifest_path: args.manifest_path.clone(),
        locked: args.locked,
        offline: args.offline,
        ..CargoArgs::default()
    };
    let workspace = Workspace::read(args.manifest_path.as_deref(), &cargo)?;
    let host = workspace.host(args.name.as_deref())?;

    let programs = workspace.programs(host)?;
    let is_loopback = matches!(args.transport, Transport::Loopback);
    if is_loopback && programs.both.is_none() {
        return Err(Failure::Message(format!(
            "package `{}` has no program that is target and source in one process, as a `loopback:` address needs\nhelp: a binary \
             `both`, or `[package.metadata.ifunc] both = \"NAME\"`; or another transport: `--transport shm`",
            host.name
        )));
    }
    let profile = if args.release { "release" } else { &args.profile };
    let platforms = Platforms::of(args);
    if is_loopback && platforms.all().count() > 1 {
        return Err(Failure::Usage(
            "over `loopback`, target and source are one process, of one platform\nhelp: name it by `--target-on` and `--source-on`, or \
             take another transport: `--transport shm`"
                .into(),
        ));
    }
    let folders = libraries(
        &workspace,
        host,
        &programs,
        &cargo,
        platforms.libraries(&args.cpu)?,
        shell,
    )?;
    let binaries = Binaries {
        host,
        programs: &programs,
        platforms,
        profile,
        feature: RuntimeFeature::of(args.transport),
    };
    let bins = host::build(&workspace, binaries, &cargo, shell)?;
    let mut environment = Vec::new();
    let keys = matches!(args.transport, Transport::Tls).then(keys).transpose()?;
    if let Some((_folder, variables)) = &keys {
        environment.extend(variables.clone());
    }

    // Each run uses its own address: two may run at the same time, and the files of a crashed one do not
    // interfere.
    let short: String = short_name(host).chars().take(40).collect();
    let place = format!("{short}-{}", std::process::id());
    let session = Session {
        environment,
        folders,
        platforms,
        args: &args.args,
        // A server without clients runs until it is stopped.
        timeout: match (args.timeout, &programs.source) {
            (None, None) if !is_loopback => None,
            (seconds, _) => Some(Duration::from_secs(seconds.unwrap_or(TIMEOUT))),
        },
    };
    let address = match args.transport {
        Transport::Loopback => format!("loopback:{place}"),
        Transport::Shm => format!("shm:{place}"),
        Transport::Tls => free_port("tls")?,
        Transport::Ucx => free_port("ucx")?,
        Transport::UcxPut => free_port("ucx-put")?,
    };
    let source = |name| bins.join(name);
    let target = bins.join(&programs.target);
    let stopped = match (is_loopback, &programs.both, &programs.source) {
        (true, Some(both), _) => session.one_process(Side::Both, &source(both), &address, shell)?,
        (_, _, Some(name)) => session.two_processes(&target, &source(name), &address, shell)?,
        (_, _, None) => session.one_process(Side::Target, &target, &address, shell)?,
    };
    match stopped {
        Stopped::Done => {
            shell.status("Finished", format_args!("`{}`", short_name(host)));
            Ok(())
        }
        Stopped::Failed { side, what, code } => {
            shell.error(format_args!("`{side}` of `{}` {what}", host.name));
            Err(Failure::Exit(code))
        }
        Stopped::Interrupted(code) => Err(Failure::Exit(code)),
    }
}

/// Builds the libraries that the programs use: those of the packages that they depend on, or of the whole workspace. Returns the folder
/// for the programs of each platform; none if there are no libraries.
fn libraries(
    workspace: &Workspace,
    host: &Package,
    programs: &Programs,
    cargo: &CargoArgs,
    libraries: Vec<LibraryPlatforms>,
    shell: &mut Shell,
) -> Result<Folders, Failure> {
    let of_programs = programs
        .all()
        .filter_map(|bin| workspace.package_of_binary(host, bin));
    let mut packages: Vec<String> = of_programs
        .chain([host])
        .flat_map(|package| workspace.ifunc_packages_of(package))
        .map(|package| package.name.to_string())
        .collect();
    packages.sort();
    packages.dedup();
    // A target needs no crate of the ifuncs that it serves.
    if packages.is_empty() && !host.metadata["ifunc"].is_null() {
        let all = workspace.ifunc_packages().into_iter();
        packages.extend(all.map(|package| package.name.to_string()));
        if packages.is_empty() {
            return Ok(Folders::new());
        }
    }
    let mut folders = Folders::new();
    for library in libraries {
        let options = BuildOptions {
            packages: packages.clone(),
            triple: library.triple.clone(),
            cpu: library.cpu,
            slices: library.slices,
            verbose: shell.is_verbose(),
            color: shell.color(),
            ..cargo.options()
        };
        let built = images::build(options, shell)?.ok_or_else(|| {
            Failure::Message(format!(
                "the host package depends on no package with an ifunc\n{}",
                how_to_start()
            ))
        })?;
        folders.push((library.triple, built));
    }
    Ok(folders)
}

/// The folders of the libraries for programs of each platform.
type Folders = Vec<(Option<String>, PathBuf)>;

/// What the programs of a run read from the environment.
type Variables = Vec<(&'static str, OsString)>;

/// A key that both programs of a run have, in a folder that is removed with the result, and what names it to them. Keys that the
/// environment of this command names stay out of it.
fn keys() -> Result<(TempDir, Variables), Failure> {
    let folder = TempDir::with_prefix("ifunc-run-").map_err(Failure::io("create", std::env::temp_dir()))?;
    let (secret, public) = (folder.path().join("run.key"), folder.path().join("run.pub"));
    let key = SecretKey::generate("run").map_err(Failure::io("read", "/dev/urandom"))?;
    key.write_new(&secret)?;
    key.public().write(&public, key.name())?;
    let variables = vec![
        ("IFUNC_TLS_KEY", secret.into_os_string()),
        ("IFUNC_TLS_PEERS", public.into_os_string()),
    ];
    Ok((folder, variables))
}

/// An address of this host with a port that is free now. This command chooses the port, not the target
/// (`:0`): as over other transports, both programs get the same address and may derive names from it.
fn free_port(scheme: &str) -> Result<String, Failure> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| format!("{scheme}://{address}"))
        .map_err(|error| Failure::Message(format!("this host has no free port: {error}")))
}
