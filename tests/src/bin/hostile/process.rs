//! A role in a process of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A process that the driver started. Dropped, it is killed.
pub(crate) struct Role {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Role {
    /// Starts a role; its log goes to `log`.
    pub(crate) fn start(args: &[&str], sockets: &Path, log: Stdio) -> Result<Self, String> {
        let failed = |error| format!("cannot start `{}`: {error}", args.join(" "));
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("role")
            .args(args)
            .env("IFUNC_RUNTIME_DIR", sockets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self {
            name: args[..2].join(" "),
            child,
            lines,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says something to it.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), String> {
        let Some(stdin) = &mut self.child.stdin else {
            return Ok(());
        };
        let told = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        told.map_err(|error| format!("`{}` does not listen: {error}", self.name))
    }

    /// The next line that begins like this, without its beginning.
    pub(crate) fn wait_for(&self, beginning: &str, timeout: Duration) -> Result<String, String> {
        loop {
            let line = match self.lines.recv_timeout(timeout) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!(
                        "`{}` did not say `{beginning}` within {timeout:?}",
                        self.name
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("`{}` ended without saying `{beginning}`", self.name));
                }
            };
            if line.starts_with("wrong: ") {
                return Err(format!("`{}`: {line}", self.name));
            }
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok(rest.to_owned());
            }
        }
    }

    /// The last line that it said so far.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.lines.try_iter().last()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// How it has ended.
    pub(crate) fn ended_as(&mut self) -> String {
        let said = self.last_line().unwrap_or_default();
        match self.child.try_wait() {
            Ok(Some(status)) => format!("{status} {said}"),
            _ => said,
        }
    }

    /// Ends its input.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file for a log.
pub(crate) fn log(path: &Path) -> Result<Stdio, String> {
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(file.into())
}

/// The number that a line states by this name.
pub(crate) fn number(line: &str, name: &str) -> Result<u64, String> {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("no number `{name}` in `{line}`"))
}
