//! Code that travels over machines of both architectures: the servers of example 04 are of each in turn, and each forwards the chaser to
//! the others. Only the source has its images.

use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::tools::TRIPLE;
use super::{libraries, programs};
use crate::hosts::{Running, line_of};
use crate::process::{ifunc, output};

const EXAMPLE: &str = "04-pointer-chase";
const SERVERS: usize = 3;

/// Runs the example on three servers, of which the second is of AArch64.
pub(super) fn run(transport: &str, environment: &[(&'static str, PathBuf)]) -> Result<String, String> {
    // Builds the programs of each architecture. The last build makes the libraries, which have slices for both.
    let brief = ["--entries", "6", "--depth", "2", "--seconds", "0.01"];
    for platform in [&[][..], &["--target-on", TRIPLE]] {
        let build = [&["run", EXAMPLE, "--release"], platform, &["--"], &brief].concat();
        output(ifunc(&build)?.envs(environment.iter().cloned()))?;
    }

    let scratch = crate::scratch().join("chain");
    let _ = fs::remove_dir_all(&scratch);
    let nothing = scratch.join("no-libraries");
    fs::create_dir_all(&nothing).map_err(|e| format!("cannot create `{}`: {e}", nothing.display()))?;
    let address = match transport {
        "shm" => format!("shm:chain-{}", std::process::id()),
        scheme => format!("{scheme}://127.0.0.1:0"),
    };
    let start = |program: PathBuf, folder: PathBuf, rank: Option<usize>| {
        let mut command = Command::new(program);
        command
            .args(["--servers", &SERVERS.to_string()])
            .args(["--entries", "12", "--depth", "64", "--seconds", "0.2"])
            .args(["--modes", "get,ifunc"])
            .envs(environment.iter().cloned())
            .env("IFUNC_ADDR", &address)
            .env("IFUNC_LIB_DIR", folder)
            .env("IFUNC_RENDEZVOUS", &scratch)
            .env("IFUNC_JOB", format!("chain {}", std::process::id()))
            .env("IFUNC_SIZE", SERVERS.to_string())
            .stdin(Stdio::null());
        if let Some(rank) = rank {
            command.env("IFUNC_RANK", rank.to_string());
        }
        command
    };
    let of_this_machine = programs(&format!("example-{EXAMPLE}"));
    let of_both = programs(&format!("example-{EXAMPLE}-target-{TRIPLE}-source"));
    let mut running = Vec::new();
    for rank in 0..SERVERS {
        let folder = match rank % 2 {
            0 => &of_this_machine,
            _ => &of_both,
        };
        let mut server = start(folder.join("target"), nothing.clone(), Some(rank));
        running.push(Running::start(server.stdout(Stdio::piped()))?);
    }
    let ready = running[0].0.stdout.take().ok_or("server 0 has no output")?;
    line_of(&mut BufReader::new(ready), "ifunc: ready ")?;
    let said = output(&mut start(of_both.join("source"), libraries(None), None))?;
    let checked = said
        .lines()
        .find_map(|line| line.split_once("checked: ").map(|(_, what)| what));
    checked
        .map(str::to_owned)
        .ok_or_else(|| format!("{EXAMPLE} did not say what it checked"))
}
