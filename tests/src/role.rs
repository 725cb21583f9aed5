//! A process that a driver starts, tells what to do, and listens to: the drivers of the soak and of `hostile`.
//!
//! It says one thing on each line of its standard output: `wrong: WHY`, `at N` (how far it is), or what the driver waits for.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Longer than anything here takes that has an end of its own, on a machine that is busy with something else.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A process that the driver started. Dropped, it is killed.
#[derive(Debug)]
pub struct Role {
    name: String,
    child: Child,
    lines: Receiver<String>,
    /// How far it said that it was.
    pub at: u64,
}

impl Role {
    /// Starts this program itself with these arguments, after the word `role`. `configure` sets its environment and its log.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(args: &[&str], configure: impl FnOnce(&mut Command)) -> Result<Self, String> {
        let name: Vec<&str> = args
            .iter()
            .take(2)
            .copied()
            .filter(|word| !word.contains('='))
            .collect();
        let name = name.join(" ");
        let failed = |error| format!("cannot start `{name}`: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg("role")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        configure(&mut command);
        let mut child = command.spawn().map_err(failed)?;
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
            name: format!("`{name}` ({})", child.id()),
            child,
            lines,
            at: 0,
        })
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins like this, for [`TIMEOUT`] at most; the rest of it.
    ///
    /// # Errors
    /// It says that something is wrong, says nothing like it in that time, or ends.
    pub fn wait_for(&mut self, beginning: &str) -> Result<String, String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = self.heard(&line, beginning)? {
                        return Ok(rest);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!(
                        "{} did not say `{beginning}` within {TIMEOUT:?}",
                        self.name
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{} ended without saying `{beginning}`", self.name));
                }
            }
        }
    }

    /// As [`wait_for`](Self::wait_for), of what it has said already.
    ///
    /// # Errors
    /// As there.
    pub fn look_for(&mut self, beginning: &str) -> Result<Option<String>, String> {
        loop {
            match self.lines.try_recv() {
                Ok(line) => {
                    if let Some(rest) = self.heard(&line, beginning)? {
                        return Ok(Some(rest));
                    }
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => {
                    return Err(format!("{} ended without saying `{beginning}`", self.name));
                }
            }
        }
    }

    /// The last line that it has said and that nobody has read.
    pub fn last_line(&mut self) -> Option<String> {
        self.lines.try_iter().last()
    }

    fn heard(&mut self, line: &str, beginning: &str) -> Result<Option<String>, String> {
        if let Some(wrong) = line.strip_prefix("wrong: ") {
            return Err(format!("{}: {wrong}", self.name));
        }
        if let Some(at) = line.strip_prefix("at ") {
            self.at = at.parse().unwrap_or(self.at);
        }
        Ok(line.strip_prefix(beginning).map(str::to_owned))
    }

    /// Says something to it.
    ///
    /// # Errors
    /// It does not read.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let told = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{line}").and_then(|()| stdin.flush()),
            None => Ok(()),
        };
        told.map_err(|error| format!("{} does not listen: {error}", self.name))
    }

    /// Ends its input.
    pub fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Ends its input, and waits until it has ended as it should.
    ///
    /// # Errors
    /// It does not end within [`TIMEOUT`], or otherwise.
    pub fn end(mut self) -> Result<(), String> {
        self.close();
        let deadline = Instant::now() + TIMEOUT;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                return Err(format!("{} does not end within {TIMEOUT:?}", self.name));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Whether it has ended, as it should.
    ///
    /// # Errors
    /// It has ended otherwise.
    pub fn has_ended(&mut self) -> Result<bool, String> {
        match self.child.try_wait() {
            Ok(None) => Ok(false),
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => {
                // Why, is on its way perhaps.
                let wrong = self.wait_for("wrong: ");
                Err(wrong.unwrap_or_else(|why| why) + &format!(" ({}: {status})", self.name))
            }
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    /// Kills it, in whatever it is doing.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The number that a line states as `name=number`.
///
/// # Errors
/// It states none.
pub fn number(line: &str, name: &str) -> Result<u64, String> {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("no number `{name}` in `{line}`"))
}
