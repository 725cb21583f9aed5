//! The examples, unchanged: the programs that `cargo ifunc run` starts, started the same way, each on a host of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::exchange::{Places, Route, lanes};
use crate::hosts::text;
use crate::program::Program;

/// How long an example may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An example, and what it is started with.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    args: Vec<String>,
    /// Files that it writes, and what they must hold: what they held when target and source were one process.
    writes: Vec<(PathBuf, Vec<u8>)>,
}

impl Example {
    /// All of them. Each is built and run by `cargo ifunc run` first, in one process: what it says and writes is what it must say
    /// and write between hosts.
    ///
    /// # Errors
    /// One of them fails in one process.
    pub(crate) fn all(places: &Places) -> Result<Vec<Self>, Failure> {
        let found = places.scratch.join("found");
        std::fs::create_dir_all(&found)?;
        let text_file = places.scratch.join("text");
        std::fs::write(&text_file, headers()?)?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifunc-rt/src");
        let results = ["search.txt", "search_folded.txt"].map(|name| found.join(name));
        let examples = [
            ("01-hello", vec![], vec![]),
            ("02-compressed-insert", vec![text(&sources)?.to_owned()], vec![]),
            (
                "03-text-search",
                vec![
                    text(&text_file)?.to_owned(),
                    "error".to_owned(),
                    text(&found)?.to_owned(),
                ],
                results.to_vec(),
            ),
        ];
        let mut all = Vec::new();
        for (name, args, writes) in examples {
            let mut command = cargo_ifunc(places);
            command
                .args(["run", name, "--transport", "loopback", "--"])
                .args(&args);
            let output = command.output()?;
            if !output.status.success() {
                return Err(format!(
                    "{name} in one process: {}",
                    String::from_utf8_lossy(&output.stderr)
                )
                .into());
            }
            let held = writes
                .into_iter()
                .map(|path| Ok((path.clone(), std::fs::read(path)?)));
            all.push(Self {
                name,
                args,
                writes: held.collect::<std::io::Result<_>>()?,
            });
        }
        Ok(all)
    }

    /// Runs it between two hosts. What it said, and what UCX took.
    ///
    /// # Errors
    /// It fails, or does something else than in one process.
    pub(crate) fn run(&self, route: &Route<'_>, places: &Places, port: u16) -> Result<String, Failure> {
        for (path, _) in &self.writes {
            let _ = std::fs::remove_file(path);
        }
        let logs = places.scratch.join("ucx");
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs)?;
        let programs = places.target.join(format!("ifunc/run/example-{}", self.name));
        let address = route.address(port);
        let command = |host: &crate::hosts::Host, side: &str| -> Result<Command, Failure> {
            let mut command = host.command(programs.join(side));
            command.args(&self.args).env("IFUNC_ADDR", &address);
            if self.name == "02-compressed-insert" {
                // The database: the other side may be told another address.
                command.arg(places.scratch.join(format!("{port}.redb")));
            }
            command.env("IFUNC_LIB_DIR", &places.libraries);
            // The examples are built without TLS, and a program that cannot prove a key does not connect by one.
            command.env_remove("IFUNC_TLS_KEY");
            command.envs([
                ("UCX_LOG_LEVEL", "info"),
                ("UCX_LOG_FILE", text(&logs.join(side))?),
            ]);
            Ok(command)
        };
        let mut target = Program::start("target", &mut command(route.target, "target")?, TIMEOUT)?;
        let ready = target.wait_for("ifunc: ready ")?;
        let mut source = command(route.source, "source")?;
        let mut source = Program::start("source", source.env("IFUNC_ADDR", ready), TIMEOUT)?;
        source.end()?;
        let note = match self.name {
            "01-hello" => {
                let said = &source.said;
                let expected = [
                    "add(3) answers 3",
                    "add(4) answers 7",
                    "multiply(6) is on its way",
                ];
                if said != &expected {
                    return Err(format!("the source said {said:?}").into());
                }
                format!(
                    "the target's counter {}",
                    target.wait_for("the target's counter ")?
                )
            }
            _ => {
                let sums = source
                    .said
                    .iter()
                    .find(|line| line.contains("verified ") || line.contains("searched "));
                sums.ok_or("the source did not say what was compared")?
                    .trim()
                    .to_owned()
            }
        };
        for (path, held) in &self.writes {
            if held.is_empty() || std::fs::read(path)? != *held {
                return Err(format!("`{}` is not what it was in one process", path.display()).into());
            }
        }
        Ok(format!("{note}; {}", lanes(&logs)?))
    }
}

/// Two processes of a job, one on each host, that find each other through a directory that both hosts see, and call each
/// other: `ifunc-rt/examples/launcher`, started without a launcher.
///
/// # Errors
/// They do not find each other, or something was lost.
pub(crate) fn launched(route: &Route<'_>, places: &Places) -> Result<String, Failure> {
    let meeting = places.scratch.join("meeting");
    std::fs::create_dir_all(&meeting)?;
    let start = |host: &crate::hosts::Host, rank: &str| {
        let mut command = host.command(places.target.join("debug/examples/launcher"));
        command.envs([
            ("IFUNC_RANK", rank),
            ("IFUNC_SIZE", "2"),
            ("IFUNC_JOB", "two hosts"),
        ]);
        command
            .env("IFUNC_RENDEZVOUS", &meeting)
            .env("IFUNC_LIB_DIR", &places.libraries);
        command
            .env("IFUNC_TRANSPORT", route.transport)
            .env("IFUNC_HOST", host.ip);
        Program::start("launched process", &mut command, TIMEOUT)
    };
    let (mut one, mut other) = (start(route.source, "0")?, start(route.target, "1")?);
    one.end()?;
    other.end()?;
    let well = |program: &Program| {
        program
            .said
            .iter()
            .find(|line| line.contains("as it must be"))
            .cloned()
    };
    let (Some(note), Some(_)) = (well(&one), well(&other)) else {
        return Err(format!("they said {:?}, {:?}", one.said, other.said).into());
    };
    match std::fs::read_dir(&meeting)?.count() {
        0 => Ok(note),
        left => Err(format!("{left} entries are left where they met").into()),
    }
}

/// `cargo` in this checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.stdin(Stdio::null());
    command
}

/// This checkout's `cargo ifunc`, without what it is to do. `cargo xtask two-hosts` has built it beside this program, with the
/// features of the whole workspace: `cargo run` would compile the runtime once more, with those of one package.
pub(crate) fn cargo_ifunc(places: &Places) -> Command {
    let mut command = Command::new(places.target.join("debug/cargo-ifunc"));
    command.arg("ifunc");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.stdin(Stdio::null());
    command
}

/// A text of some size, the same on every run: the C headers of this system.
fn headers() -> std::io::Result<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir("/usr/include")?
        .filter_map(Result::ok)
        .map(|file| file.path())
        .collect();
    files.sort();
    let mut text = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        text.extend(std::fs::read(file).unwrap_or_default());
    }
    Ok(text)
}
