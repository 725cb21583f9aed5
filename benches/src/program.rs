//! A role in a process of its own, pinned to a core. It reads requests and writes replies as lines of JSON,
//! and sleeps in between.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time that a program has to exit after its input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A measured program. Dropping it closes the program's input, and kills the program if it does not exit.
pub(crate) struct Program {
    role: String,
    child: Child,
    /// `None` only during drop.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
    /// Bytes read that belong to the next reply.
    read: Vec<u8>,
}

impl Program {
    /// Starts a role on a core, with additional environment variables.
    pub(crate) fn start(role: &str, cpu: usize, env: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["role", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.env("BENCH_CPU", cpu.to_string());
        // UCX would print warnings between the replies on standard output.
        command.env("UCX_LOG_FILE", "stderr");
        command.envs(env.iter().copied());
        let mut child = command.spawn().with_context(|| format!("starting `{role}`"))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("`{role}` has no standard input and output")
        };
        Ok(Self {
            role: role.into(),
            child,
            requests: Some(requests),
            answers,
            read: Vec::new(),
        })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request without waiting for the reply.
    pub(crate) fn send(&mut self, request: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let Some(requests) = &mut self.requests else {
            bail!("the input of `{}` is closed", self.role)
        };
        match requests.write_all(&line) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(self.end()),
            sent => sent.with_context(|| format!("sending a request to `{}`", self.role)),
        }
    }

    /// Receives the next reply.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.receive_or(None)
    }

    /// Receives the next reply, and fails if `other`, which works with this program, ends.
    pub(crate) fn receive_with_peer<T: DeserializeOwned>(&mut self, other: &mut Self) -> Result<T> {
        self.receive_or(Some(other))
    }

    fn receive_or<T: DeserializeOwned>(&mut self, mut other: Option<&mut Self>) -> Result<T> {
        let until = Instant::now() + TIMEOUT;
        let line = loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                break self.read.drain(..=end).collect::<Vec<u8>>();
            }
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let ours = PollFd::new(&self.answers, PollFlags::IN);
            let others = other
                .as_ref()
                .map(|other| PollFd::new(&other.answers, PollFlags::empty()));
            let mut all: Vec<_> = std::iter::once(ours).chain(others).collect();
            if poll(&mut all, Some(&left))? == 0 {
                bail!("`{}` has not replied for {} s", self.role, TIMEOUT.as_secs());
            }
            if all[0].revents().is_empty() {
                drop(all);
                let Some(other) = &mut other else { continue };
                return Err(other.end());
            }
            let mut buffer = [0; 4096];
            let n = self.answers.read(&mut buffer)?;
            if n == 0 {
                return Err(self.end());
            }
            self.read.extend_from_slice(&buffer[..n]);
        };
        serde_json::from_slice(&line)
            .with_context(|| format!("`{}` replied {:?}", self.role, String::from_utf8_lossy(&line)))
    }

    /// The error for a program that closed its output.
    fn end(&mut self) -> anyhow::Error {
        match self.ended() {
            Some(status) => anyhow::anyhow!("`{}` ended: {status}; its output is above", self.role),
            None => anyhow::anyhow!("`{}` closed its output but did not end", self.role),
        }
    }

    /// Its exit status, if it exits within the timeout.
    fn ended(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + EXIT_TIMEOUT;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Sends a request and waits for the reply.
    pub(crate) fn request<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T> {
        self.send(request)?;
        self.receive()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // System V shared memory outlives a killed process.
        drop(self.requests.take());
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program's connection to the process that started it.
pub(crate) struct Starter {
    requests: BufReader<std::io::Stdin>,
}

impl Starter {
    /// Connects to the starter and pins this process to the given core. This process ends when the starter
    /// ends.
    pub(crate) fn new() -> Result<Self> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let cpu = std::env::var("BENCH_CPU").context("BENCH_CPU must name the processor of the role")?;
        crate::cores::pin(cpu.parse().context("BENCH_CPU must be a number")?)?;
        Ok(Self {
            requests: BufReader::new(std::io::stdin()),
        })
    }

    /// Whether a request is available, or the input is closed.
    pub(crate) fn has_request(&self) -> Result<bool> {
        if !self.requests.buffer().is_empty() {
            return Ok(true);
        }
        let input = self.requests.get_ref().as_fd();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Ok(poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&now))? > 0)
    }

    /// Reads the next request; `None` when the input is closed.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = String::new();
        if self.requests.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line)
            .map(Some)
            .with_context(|| format!("unknown request: {line}"))
    }

    /// Writes a reply.
    pub(crate) fn reply(&mut self, answer: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        out.flush().context("answering")
    }

    /// Waits for the end of the starter, which sends no more requests.
    pub(crate) fn wait_for_end(mut self) -> Result<()> {
        let watch = move || {
            while let Ok(Some(serde::de::IgnoredAny)) = self.next() {}
            std::process::exit(0);
        };
        std::thread::Builder::new().name("starter".into()).spawn(watch)?;
        Ok(())
    }
}
