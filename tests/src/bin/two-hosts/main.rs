//! End to end between two hosts, which are network namespaces of this machine: the examples, the tests between processes, and
//! numbered messages over links that drop, slow down, block and delay packets.
//!
//! ```text
//! two-hosts [--quick | --only PART]
//! ```
//!
//! With `--only`, the runs whose names contain it, such as `ucx, the link`. `cargo xtask two-hosts` builds and starts it. It needs a kernel that lets this user make namespaces, `ip`, `tc`, `nft` and the
//! programs of util-linux; where there are none it says so and ends well, with nothing passed.

mod examples;
mod exchange;
mod hosts;
mod impairment;
mod ping;
mod program;
mod relay;
mod report;
mod scenarios;
mod source;
mod target;
mod tests;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use exchange::{Places, Route};
use hosts::Host;
use impairment::INTERFACE;
use report::Report;

/// What went wrong, as text.
type Failure = Box<dyn std::error::Error>;

/// The transports that cross between hosts, by the scheme of their addresses, and that the examples are built with.
const TRANSPORTS: [&str; 3] = ["ucx", "ucx-put", "ucx-worker"];
/// This program, also when it was built again meanwhile.
fn this() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// Set once this program is root of a namespace of users.
const INSIDE: &str = "TWO_HOSTS_INSIDE";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(false, ""),
        ["--quick"] => run(true, ""),
        ["--only", part] => run(false, part),
        ["target", address] => target::run(address).map(|()| true),
        ["source", address, libraries, messages, largest] => match (messages.parse(), largest.parse()) {
            (Ok(messages), Ok(largest)) => {
                source::run(address, Path::new(libraries), messages, largest).map(|()| true)
            }
            _ => Err("how many messages, how large?".into()),
        },
        ["relay", delay, ref interfaces @ ..] => match delay.parse() {
            Ok(micros) => relay::run(interfaces, Duration::from_micros(micros)).map(|()| true),
            Err(_) => Err("how many microseconds?".into()),
        },
        ["echo", address] => ping::echo(address).map(|()| true),
        ["ping", address] => ping::ping(address).map(|()| true),
        _ => Err(format!(
            "unknown arguments: {}\nhelp: two-hosts [--quick | --only PART]",
            args.join(" ")
        )
        .into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything; whether all of it passed.
fn run(quick: bool, only: &str) -> Result<bool, Failure> {
    if std::env::var_os(INSIDE).is_none() && makes_namespaces(&[]).is_err() {
        // A user may be root among namespaces of their own, where the kernel allows that.
        let root = ["--user", "--map-root-user"];
        if let Err(why) = makes_namespaces(&root) {
            return skip(&why);
        }
        let mut again = Command::new("unshare");
        again.args(root).arg(std::env::current_exe()?);
        return Err(again
            .args(quick.then_some("--quick"))
            .args(["--only", only].iter().filter(|_| !only.is_empty()))
            .env(INSIDE, "1")
            .exec()
            .into());
    }
    // This program lies in `TARGET/PROFILE`.
    let this = std::env::current_exe()?;
    let target = this
        .ancestors()
        .nth(2)
        .ok_or("this program lies in no target directory")?
        .to_owned();
    let scratch = Scratch::new(&target)?;
    let hosts = || -> Result<_, Failure> {
        let (one, other) = (
            Host::new("10.77.0.1", &scratch.0)?,
            Host::new("10.77.0.2", &scratch.0)?,
        );
        one.cable(INTERFACE, &other, INTERFACE)?;
        Ok((one, other))
    };
    let (one, other) = match hosts() {
        Ok(hosts) => hosts,
        Err(error) => return skip(&error.to_string()),
    };
    let places = places(&scratch, target)?;
    let mut report = Report {
        only: only.into(),
        ..Report::default()
    };
    let examples = match only {
        "" => examples::Example::all(&places)?,
        // For the search after a failure: the routes between the hosts.
        _ => Vec::new(),
    };
    for (number, &transport) in TRANSPORTS.iter().enumerate() {
        let route = Route {
            source: &one,
            target: &other,
            transport,
        };
        for (example, port) in examples.iter().zip(4000 + 10 * number as u16..) {
            report.try_this(&format!("{} over {transport}", example.name), || {
                example.run(&route, &places, port)
            });
        }
        report.try_this(&format!("all to all, started by hand, over {transport}"), || {
            examples::launched(&route, &places)
        });
        // The addresses of workers are not known before, and the tests say beforehand where a target will be.
        if transport == "ucx" || (transport == "ucx-put" && !quick) {
            report.try_this(&format!("tests between processes over {transport}"), || {
                tests::run(quick, &route)
            });
        }
    }
    let mut transports = TRANSPORTS.to_vec();
    // A key for both sides: see `xtask/src/two_hosts.rs`.
    if !quick && std::env::var_os("IFUNC_TLS_KEY").is_some() {
        transports.push("tls");
    }
    scenarios::run(quick, [&one, &other], &transports, &places, &mut report);
    scenarios::far_apart(quick, &transports, &places, &mut report)?;
    println!("{} passed, {} failed", report.passed, report.failed);
    Ok(report.failed == 0)
}

/// Says why nothing was tried.
fn skip(why: &str) -> Result<bool, Failure> {
    println!("NOT TRIED: this kernel does not let this user make two hosts of namespaces: {why}");
    println!(
        "help: run it as root, or in a container with the capabilities SYS_ADMIN and NET_ADMIN (`--privileged`), or"
    );
    println!(
        "help: allow namespaces of users: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000"
    );
    println!("0 passed, 0 failed");
    Ok(true)
}

/// Whether the kernel makes the namespaces of a host for this user; what it says otherwise.
fn makes_namespaces(before: &[&str]) -> Result<(), String> {
    let mut unshare = Command::new("unshare");
    let output = unshare.args(before).args(hosts::NAMESPACES).arg("true").output();
    let output = output.map_err(|error| format!("`unshare` does not start: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Builds what is sent, and says where it is.
fn places(scratch: &Scratch, target: PathBuf) -> Result<Places, Failure> {
    let places = Places {
        libraries: target.join("ifunc/release"),
        scratch: scratch.0.clone(),
        target,
    };
    let status = examples::cargo_ifunc(&places)
        .args(["build", "--quiet", "--package", "ifunc-tests-ifuncs"])
        .status()?;
    if !status.success() {
        return Err(format!("the ifuncs of the tests are not built: {status}").into());
    }
    // With the features of the whole workspace: what was built before is not compiled again.
    let example = [
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--example",
        "launcher",
    ];
    let status = examples::cargo().args(example).status()?;
    if !status.success() {
        return Err(format!("the example that launchers start is not built: {status}").into());
    }
    Ok(places)
}

/// A folder in cargo's target directory, which is gone when this program ends by itself. What one that was killed left
/// is removed by the next.
struct Scratch(PathBuf);

impl Scratch {
    fn new(target: &Path) -> Result<Self, Failure> {
        let all = target.join("two-hosts");
        std::fs::create_dir_all(&all)?;
        for left in std::fs::read_dir(&all)?.filter_map(Result::ok) {
            let name = left.file_name();
            if !Path::new("/proc").join(&name).exists() {
                let _ = std::fs::remove_dir_all(left.path());
            }
        }
        let folder = all.join(std::process::id().to_string());
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
