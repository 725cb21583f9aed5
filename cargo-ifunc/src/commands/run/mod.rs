//! `cargo ifunc run`: builds images and binaries, and runs a target and a source.

mod host;
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

use crate::cli::{CargoArgs, MachineArgs, Machines, RunArgs, Transport};
use crate::error::Failure;
use crate::images;
use crate::shell::Shell;
use crate::workspace::{Workspace, how_to_start, short_name};
use host::RuntimeFeature;
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
    // All of them: other programs start those that this run does not.
    let all: Vec<&str> = [
        Some(&programs.target),
        programs.source.as_ref(),
        programs.both.as_ref(),
    ]
    .into_iter()
    .flatten()
    .map(String::as_str)
    .collect();

    let profile = if args.release { "release" } else { &args.profile };
    let libraries = libraries(&workspace, host, &all, &cargo, &args.machine, shell)?;
    let feature = RuntimeFeature::of(args.transport);
    let bins = host::build(&workspace, host, &all, profile, feature, &cargo, shell)?;
    let mut environment = Vec::from_iter(libraries.map(|folder| ("IFUNC_LIB_DIR", folder.into_os_string())));
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
    let bin = |name: &String| bins.join(name);
    let stopped = match (is_loopback, &programs.both, &programs.source) {
        (true, Some(both), _) => session.one_process(Side::Both, &bin(both), &address, shell)?,
        (_, _, Some(source)) => {
            session.two_processes(&bin(&programs.target), &bin(source), &address, shell)?
        }
        (_, _, None) => session.one_process(Side::Target, &bin(&programs.target), &address, shell)?,
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

/// Builds the images that the programs use: those of the packages that they depend on, or of the whole workspace. `None`: there are none.
fn libraries(
    workspace: &Workspace,
    host: &Package,
    programs: &[&str],
    cargo: &CargoArgs,
    machine: &MachineArgs,
    shell: &mut Shell,
) -> Result<Option<PathBuf>, Failure> {
    let Machines { triple, cpu, slices } = machine.machines()?;
    let of_programs = programs
        .iter()
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
            return Ok(None);
        }
    }
    let options = BuildOptions {
        packages,
        triple,
        cpu,
        slices,
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
    Ok(Some(built))
}

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
