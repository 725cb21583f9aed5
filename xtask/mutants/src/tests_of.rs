//! Running test programs until the first test fails.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::build::Program;
use crate::support::{NUMBER, REACHED};

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    /// What failed.
    Failed(String),
    TimedOut,
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(self.args)
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        command
    }

    /// The names of its tests.
    pub(crate) fn tests(&self) -> Result<Vec<String>, String> {
        let mut command = self.command();
        command.args(["--list", "--format", "terse"]);
        let output = command
            .output()
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }

    /// Runs tests. A recording is where they write which mutants they reach.
    pub(crate) fn run(&self, args: &[&str], record: Option<&Path>, limit: Duration) -> Result<Ended, String> {
        self.run_with(None, args, record, limit)
    }

    /// The same with this mutant; `None`: the one of the file.
    pub(crate) fn run_with(
        &self,
        mutant: Option<u32>,
        args: &[&str],
        record: Option<&Path>,
        limit: Duration,
    ) -> Result<Ended, String> {
        let mut command = self.command();
        command.args(args).stdout(Stdio::piped());
        if let Some(mutant) = mutant {
            command.env(NUMBER, mutant.to_string());
        }
        if let Some(record) = record {
            command.env(REACHED, record);
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let ended = observe(&mut child, limit);
        // What it started ends with it.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = child.wait();
        Ok(ended)
    }
}

fn observe(child: &mut Child, limit: Duration) -> Ended {
    let deadline = Instant::now() + limit;
    let (send, lines) = mpsc::channel();
    let stdout = child.stdout.take().expect("piped");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if send.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            Ok(line) => {
                if let Some(name) = line
                    .strip_prefix("test ")
                    .and_then(|line| line.strip_suffix(" ... FAILED"))
                {
                    return Ended::Failed(name.to_owned());
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(2)),
        }
        // Lines that are there are read first: they name the test.
        if let Ok(Some(status)) = child.try_wait() {
            // A process that the test left may hold the pipe open.
            let mut rest = std::iter::from_fn(|| lines.recv_timeout(Duration::from_millis(50)).ok());
            let failed = rest.find_map(|line| {
                let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
                Some(name.to_owned())
            });
            return match (status.success(), failed) {
                (true, _) => Ended::Passed,
                (false, Some(name)) => Ended::Failed(name),
                (false, None) => Ended::Failed(status.to_string()),
            };
        }
        if Instant::now() >= deadline {
            return Ended::TimedOut;
        }
    }
}
