//! `cargo ifunc run`: builds images and binaries, and runs a target and a source.

mod host;
mod process;
mod session;
mod show;

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use ifunc_build::BuildOptions;

use crate::cli::{CargoArgs, RunArgs, Transport};
use crate::error::Failure;
use crate::images;
use crate::shell::Shell;
use crate::workspace::{Workspace, how_to_start, short_name};
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
    let options = BuildOptions {
        packages,
        verbose: shell.is_verbose(),
        color: shell.color(),
        ..cargo.options()
    };
    let libraries = images::build(options, shell)?.ok_or_else(|| {
        Failure::Message(format!(
            "the host package depends on no package with an ifunc\n{}",
            how_to_start()
        ))
    })?;
    let bins = host::build(&workspace, host, &cargo, shell)?;

    // Each run uses its own address: two may run at the same time, and the files of a crashed one do not
    // interfere.
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
        Transport::Ucx => session.two_processes(&bins.target, &bins.source, &free_port("ucx")?, shell)?,
        Transport::UcxPut => {
            session.two_processes(&bins.target, &bins.source, &free_port("ucx-put")?, shell)?
        }
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

/// A UCX address of this host with a port that is free now. This command chooses the port, not the target
/// (`:0`): as over other transports, both programs get the same address and may derive names from it.
fn free_port(scheme: &str) -> Result<String, Failure> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| format!("{scheme}://{address}"))
        .map_err(|error| Failure::Message(format!("this host has no free port: {error}")))
}
