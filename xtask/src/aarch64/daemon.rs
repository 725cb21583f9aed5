//! An `ifuncd` on AArch64, and a client of this machine: ifuncs that use the store and the files of the node, over shared memory and TLS.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::tools::TRIPLE;
use super::{folder, libraries};
use crate::hosts::{Running, line_of};
use crate::process::{cargo, ifunc, last_line, output};

/// The package of the ifuncs.
const IFUNCS: &str = "ifuncd-tests-ifuncs";
/// What each ifunc is sent, and what it answers.
const CALLS: [(&str, &str, &str); 3] = [
    ("d_put", "[[107],[1,2,3]]", "0"),
    ("d_get", "[107]", "[3,6]"),
    // The length of the file, bytes that were read at once, their sum, and the sum of all.
    ("d_read", "[\"file\",0]", "[5,5,10,10]"),
];

pub(super) fn run(environment: &[(&'static str, PathBuf)]) -> Result<String, String> {
    let mut build = cargo(["build", "--quiet", "--locked", "--package", "ifuncd"]);
    build.args(["--target", TRIPLE, "--no-default-features"]);
    output(build.envs(environment.iter().cloned()))?;
    // The client opens libraries of its own machine, with slices for both.
    let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let platforms = ["--target", &here, "--target", TRIPLE];
    let build = ["build", "--quiet", "--package", IFUNCS];
    let build = ifunc(&[&build[..], &platforms].concat());
    output(build?.envs(environment.iter().cloned()))?;
    let libraries = libraries(Some(&here));

    let scratch = crate::scratch().join("daemon");
    let _ = fs::remove_dir_all(&scratch);
    let failed = |e| format!("cannot write below `{}`: {e}", scratch.display());
    fs::create_dir_all(scratch.join("data")).map_err(failed)?;
    fs::write(scratch.join("data/file"), [0, 1, 2, 3, 4]).map_err(failed)?;
    for name in ["node", "client"] {
        output(ifunc(&["keygen", name])?.current_dir(&scratch))?;
    }
    // QEMU knows no filters of system calls, which processes of ifuncs need.
    let text = format!(
        r#"
[listen]
addresses = ["shm:aarch64-{}", "tls://127.0.0.1:0"]
key = "node.key"
[faults]
level = "contained"
[store]
file = "store.redb"
[files]
folder = "data"
[[peer]]
name = "own"
user = "own"
capabilities = ["store", "files"]
unsigned = true
[[peer]]
name = "client"
file = "client.pub"
capabilities = ["store", "files"]
unsigned = true
"#,
        std::process::id()
    );
    fs::write(scratch.join("ifuncd.toml"), text).map_err(failed)?;

    let mut daemon = Command::new(folder().join(TRIPLE).join("debug/ifuncd"));
    daemon.arg("--config").arg(scratch.join("ifuncd.toml"));
    daemon.envs(environment.iter().cloned());
    let mut daemon = Running::start(daemon.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let mut said = BufReader::new(daemon.0.stdout.take().ok_or("the daemon has no output")?);
    let mut answers = 0;
    for _ in 0..2 {
        let address = line_of(&mut said, "ifunc: ready ")?;
        for (name, payload, expected) in CALLS {
            let answer = call(&scratch, &address, &libraries.join(format!("{name}.so")), payload)?;
            if answer != expected {
                return Err(format!(
                    "{name} at {address} answers {answer}, and not {expected}"
                ));
            }
            answers += 1;
        }
    }
    Ok(format!("{answers} calls of the store and the files"))
}

/// Calls from this machine. Returns the answer, without spaces.
fn call(scratch: &Path, address: &str, library: &Path, payload: &str) -> Result<String, String> {
    let library = library.to_str().ok_or("the folder's name is not UTF-8")?;
    let mut call = ifunc(&["call", address, library, "--payload", payload])?;
    call.env("IFUNC_TLS_KEY", scratch.join("client.key"))
        .env("IFUNC_TLS_PEERS", scratch.join("node.pub"));
    let said = output(&mut call)?;
    Ok(last_line(&said).replace(' ', ""))
}
