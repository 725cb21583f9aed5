//! A program on a host, and what it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Failure;

/// A running program, killed when it is dropped.
pub(crate) struct Program {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
    /// What it says on its standard error, once it has ended.
    errors: Option<JoinHandle<String>>,
    /// What it said on its standard output so far.
    pub(crate) said: Vec<String>,
    deadline: Instant,
}

impl Program {
    /// Starts it; it must have ended within `patience`. What it says on its standard error is shown if
    /// it does not end well.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                let _ = errors.read_to_end(&mut all);
                String::from_utf8_lossy(&all).into_owned()
            })
        });
        Ok(Self {
            name,
            child,
            lines,
            errors,
            said: Vec::new(),
            deadline: Instant::now() + patience,
        })
    }

    /// The next line; `None` when there are no more.
    ///
    /// # Errors
    /// It takes too long.
    pub(crate) fn line(&mut self) -> Result<Option<&str>, Failure> {
        match self
            .lines
            .recv_timeout(self.deadline.saturating_duration_since(Instant::now()))
        {
            Ok(line) => {
                self.said.push(line);
                Ok(self.said.last().map(String::as_str))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "the {} takes too long; the last that it said: {}",
                self.name,
                self.said.last().map_or("nothing", String::as_str)
            )
            .into()),
        }
    }

    /// What follows `start` on the next line that begins so.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn wait_for(&mut self, start: &str) -> Result<String, Failure> {
        while let Some(line) = self.line()? {
            if let Some(rest) = line.strip_prefix(start) {
                return Ok(rest.to_owned());
            }
        }
        self.end()?;
        Err(format!("the {} ended without saying `{start}…`", self.name).into())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It did not end well, or takes too long.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        while self.line()?.is_some() {}
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => {
                let last = self.said.last().map_or("", String::as_str);
                let errors = self
                    .errors
                    .take()
                    .and_then(|errors| errors.join().ok())
                    .unwrap_or_default();
                Err(format!(
                    "the {}: {status}; the last that it said: {last}\n{}",
                    self.name,
                    errors.trim()
                )
                .into())
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
