//! A role in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::options::{Options, address};

/// Longer than anything here takes that has an end of its own, on a machine that is busy with something else.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// The C library's allocator gives large blocks back at once. Otherwise what is in use is hidden by what lies between blocks
/// that are, which grows with every record of what was in use, for hours.
const MEMORY: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// A process that the driver started. Dropped, it is killed.
pub(super) struct Role {
    name: String,
    child: Child,
    lines: Receiver<String>,
    /// How far it said that it was.
    pub(super) at: u64,
}

impl Role {
    /// Starts a role with these arguments.
    pub(super) fn start(options: &Options, role: &str, args: &[(&str, String)]) -> Result<Self, String> {
        Self::start_with(options, role, args, &[])
    }

    /// As [`start`](Self::start), with these variables in its environment.
    pub(super) fn start_with(
        options: &Options,
        role: &str,
        args: &[(&str, String)],
        environment: &[(&str, &str)],
    ) -> Result<Self, String> {
        let failed = |error| format!("cannot start a {role}: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args(["role", role])
            .arg(format!("libraries={}", options.libraries.display()))
            .args(args.iter().map(|(name, value)| format!("{name}={value}")))
            .env("IFUNC_RUNTIME_DIR", &options.folders.sockets)
            .envs(MEMORY)
            .envs(environment.iter().copied())
            .env("UCX_POSIX_DIR", &options.folders.memory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
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
            name: format!("{role} {}", child.id()),
            child,
            lines,
            at: 0,
        })
    }

    /// Starts a target; its address.
    pub(super) fn target(
        options: &Options,
        transport: &str,
        name: &str,
        images: usize,
    ) -> Result<(Self, String), String> {
        Self::target_with(options, transport, name, images, &[])
    }

    /// As [`target`](Self::target), with these variables in its environment.
    pub(super) fn target_with(
        options: &Options,
        transport: &str,
        name: &str,
        images: usize,
        environment: &[(&str, &str)],
    ) -> Result<(Self, String), String> {
        let address =
            address(transport, name).ok_or_else(|| format!("`{transport}` is no transport of this build"))?;
        let args = [("address", address), ("images", images.to_string())];
        let mut target = Self::start_with(options, "target", &args, environment)?;
        let address = target.wait_for("ready ")?;
        Ok((target, address))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins like this; the rest of it.
    pub(super) fn wait_for(&mut self, beginning: &str) -> Result<String, String> {
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
    pub(super) fn look_for(&mut self, beginning: &str) -> Result<Option<String>, String> {
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
    pub(super) fn tell(&mut self, line: &str) -> Result<(), String> {
        let told = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{line}").and_then(|()| stdin.flush()),
            None => Ok(()),
        };
        told.map_err(|error| format!("{} does not listen: {error}", self.name))
    }

    /// Waits until it has ended, as it should.
    pub(super) fn end(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + TIMEOUT;
        while !self.has_ended()? {
            if Instant::now() > deadline {
                return Err(format!("{} does not end within {TIMEOUT:?}", self.name));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Whether it has ended; how it should.
    pub(super) fn has_ended(&mut self) -> Result<bool, String> {
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
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The values of `name=value` words.
pub(super) fn value(line: &str, name: &str) -> Result<u64, String> {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("no number `{name}` in `{line}`"))
}
