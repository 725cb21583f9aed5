//! Where the runner program is, and how it is started.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::serve::NAME;

/// Environment variable that names the runner program.
const VARIABLE: &str = "IFUNC_RUNNER";

/// The runner program: the one that was chosen, that of the environment, or that beside this program.
///
/// # Errors
/// There is none.
pub(super) fn find(chosen: Option<&Path>) -> io::Result<PathBuf> {
    let program = match (chosen, std::env::var_os(VARIABLE)) {
        (Some(chosen), _) => chosen.to_owned(),
        (None, Some(variable)) => variable.into(),
        (None, None) => {
            let here = std::env::current_exe()?;
            here.with_file_name(NAME)
        }
    };
    if program.is_file() {
        return Ok(program);
    }
    Err(io::Error::other(format!(
        "there is no runner program `{}`; help: `cargo install ifunc-exec --version {}` and copy `{NAME}` beside this program, set {VARIABLE}, or \
         `RunnerOptions::program`",
        program.display(),
        env!("CARGO_PKG_VERSION")
    )))
}

/// What a runner is started with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) program: PathBuf,
    /// The segment, what wakes the runner, and what wakes the target.
    pub(super) descriptors: [OwnedFd; 3],
}

/// A request to the thread that starts runners, and where the answer goes.
type Request = (Start, Sender<io::Result<Child>>);

/// Starts a runner. A runner ends with the thread that started it, so one thread, which lives as long as the process, starts all.
///
/// # Errors
/// The kernel's.
pub(super) fn start(start: Start) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Option<Sender<Request>>>> = OnceLock::new();
    let lost = || io::Error::other("the thread that starts runner processes has ended");
    let (answer, started) = channel();
    {
        let starter = STARTER.get_or_init(Mutex::default);
        let mut starter = starter.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = match &mut *starter {
            Some(requests) => requests,
            none => {
                let (requests, received) = channel::<Request>();
                let thread = std::thread::Builder::new().name("ifunc-runners".into());
                thread.spawn(move || {
                    for (start, answer) in received {
                        let _ = answer.send(spawn(start));
                    }
                })?;
                none.insert(requests)
            }
        };
        requests.send((start, answer)).map_err(|_| lost())?;
    }
    started.recv().map_err(|_| lost())?
}

/// The program gets its three descriptors as 0, 1 and 2, and nothing of the environment.
fn spawn(start: Start) -> io::Result<Child> {
    let Start {
        program,
        descriptors: [segment, own, peer],
    } = start;
    Command::new(program)
        .arg0(NAME)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(segment))
        .stdout(Stdio::from(own))
        .stderr(Stdio::from(peer))
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = find(Some(Path::new("/nowhere/ifunc-runner"))).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("`/nowhere/ifunc-runner`; help: ") && text.contains("RunnerOptions::program"),
            "{text}"
        );
    }
}
