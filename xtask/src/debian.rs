//! The Debian packages that the tests need.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::status;
use crate::steps::Steps;

/// Programs, and the packages that contain them.
const PROGRAMS: &[(&str, &str)] = &[
    ("cc", "gcc"),
    // The linker's tests link the output of both compilers.
    ("clang", "clang"),
    // Programs in C++ that use the C interfaces, and how programs in C are built.
    ("g++", "g++"),
    ("make", "make"),
    ("pkg-config", "pkgconf"),
    ("valgrind", "valgrind"),
    // The tests of debugging inspect injected code.
    ("gdb", "gdb"),
    ("perf", "linux-perf"),
    ("git", "git"),
    ("nm", "binutils"),
    // The two hosts are network namespaces with filters and queues between them.
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    // The launcher example.
    ("mpirun", "openmpi-bin"),
];
/// The same for the peers of benchmarks.
const PEERS: &[(&str, &str)] = &[("redis-server", "redis-server")];
/// Headers, and the packages that contain them.
const HEADERS: &[(&str, &str)] = &[
    ("/usr/include/stdint.h", "libc6-dev"),
    // Ifuncs in C that need a library on their target.
    ("/usr/include/zlib.h", "zlib1g-dev"),
];
/// UCX, Open MPI, the libraries of ifuncs that compress, and what builds and runs code for AArch64. On other distributions the tests of
/// UCX's transports are left out, and those of AArch64.
const ON_DEBIAN: &[(&str, &str)] = &[
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/include/stdint.h", "libc6-dev-arm64-cross"),
    ("/usr/bin/qemu-aarch64-static", "qemu-user-static"),
    ("/usr/include/ucp/api/ucp.h", "libucx-dev"),
    (MPI, "libopenmpi-dev"),
    ("/usr/include/openssl/evp.h", "libssl-dev"),
];
/// Where Debian puts the header of Open MPI.
const MPI: &str = "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h";

/// Whether [`ON_DEBIAN`] is installed here, so that a test that does not find it fails.
pub(crate) fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists()
}

/// Installs what is missing. Without it no other part can run.
pub(crate) fn needs(steps: &mut Steps) {
    if !steps.step("what the tests need", ensure) {
        steps.end();
    }
}

/// Installs the missing packages, or returns which to install.
pub(crate) fn ensure() -> Result<String, String> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !exists(program))
        .chain(
            HEADERS
                .iter()
                .filter(|(header, _)| !Path::new(header).exists() && !compiles(header)),
        )
        .chain(
            ON_DEBIAN
                .iter()
                .filter(|(header, _)| is_debian() && !Path::new(header).exists()),
        )
        .map(|(_, package)| *package)
        .collect();
    install(&missing)
}

/// As [`ensure`], for the peers of benchmarks.
pub(crate) fn ensure_peers() -> Result<String, String> {
    let missing = PEERS.iter().filter(|(program, _)| !exists(program));
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    install(&missing)
}

/// Whether a package is installed.
pub(crate) fn has_package(name: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    let output = query
        .args(["--show", "--showformat=${db:Status-Status}", name])
        .output();
    output.is_ok_and(|output| output.stdout == b"installed")
}

/// Installs packages by their names.
pub(crate) fn install(missing: &[&str]) -> Result<String, String> {
    if missing.is_empty() {
        return Ok("nothing is missing".into());
    }
    let list = missing.join(" ");
    if !exists("apt-get") {
        return Err(format!(
            "missing: {list} (names of Debian packages)\nhelp: install them, then run this again"
        ));
    }
    // Plain `sudo` would ask for a password, and a CI machine would wait for ever.
    let (program, before): (_, &[&str]) = match is_root() {
        true => ("apt-get", &[]),
        false if exists("sudo") => ("sudo", &["-n", "apt-get"]),
        false => return Err(format!("missing: {list}\nhelp: as root: apt-get install {list}")),
    };
    eprintln!("    installing {list}");
    let apt = |args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(before)
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        status(&mut command)
    };
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(missing);
    if apt(&install).is_err() {
        apt(&["update"])?;
        apt(&install)?;
    }
    Ok(format!("installed {list}"))
}

pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Folders of system tools that are not on every user's path.
    let system = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// Whether the compiler finds the header: other distributions keep it elsewhere.
fn compiles(header: &str) -> bool {
    let name = header.strip_prefix("/usr/include/").unwrap_or(header);
    let mut cc = Command::new("cc");
    cc.args(["-include", name, "-xc", "-fsyntax-only", "/dev/null"]);
    cc.stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
