//! A role in a process of its own, on a core of its own. It is asked and answers by lines of JSON, and sleeps meanwhile.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long an answer may take, whatever is asked.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a program that is told nothing more may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A program that is measured. When this is dropped, it is told nothing more, and killed if it does not end.
pub(crate) struct Program {
    role: String,
    child: Child,
    /// `None` only while it is dropped.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
    /// What was read and belongs to the next answer.
    read: Vec<u8>,
}

impl Program {
    /// Starts a role on a core, with what is added to the environment.
    pub(crate) fn start(role: &str, cpu: usize, env: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["role", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.env("BENCH_CPU", cpu.to_string());
        // UCX warns on standard output otherwise, between the lines.
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

    /// Asks, without waiting for the answer.
    pub(crate) fn send(&mut self, request: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let Some(requests) = &mut self.requests else {
            bail!("`{}` is told nothing more", self.role)
        };
        match requests.write_all(&line) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(self.end()),
            sent => sent.with_context(|| format!("telling `{}`", self.role)),
        }
    }

    /// The next answer.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.receive_or(None)
    }

    /// The next answer of a program that works with another one, whose end is noticed meanwhile.
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
                bail!("`{}` has said nothing for {} s", self.role, TIMEOUT.as_secs());
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
            .with_context(|| format!("`{}` said {:?}", self.role, String::from_utf8_lossy(&line)))
    }

    /// Why it says no more.
    fn end(&mut self) -> anyhow::Error {
        match self.ended() {
            Some(status) => anyhow::anyhow!("`{}` ended: {status}; its words are above", self.role),
            None => anyhow::anyhow!("`{}` closed its output, and did not end", self.role),
        }
    }

    /// How it ended, if it does within a while.
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

    /// Asks, and waits for the answer.
    pub(crate) fn request<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T> {
        self.send(request)?;
        self.receive()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Shared memory of System V outlives who is killed.
        drop(self.requests.take());
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The other end: whoever started this process.
pub(crate) struct Starter {
    requests: BufReader<std::io::Stdin>,
}

impl Starter {
    /// On the core that this process was given. When the starter ends, so does this process.
    pub(crate) fn new() -> Result<Self> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let cpu = std::env::var("BENCH_CPU").context("BENCH_CPU says on which processor a role runs")?;
        crate::cores::pin(cpu.parse().context("BENCH_CPU is a number")?)?;
        Ok(Self {
            requests: BufReader::new(std::io::stdin()),
        })
    }

    /// Whether there is a question, or will be none.
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

    /// The next question; `None`: there will be none.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = String::new();
        if self.requests.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line)
            .map(Some)
            .with_context(|| format!("a question that this role does not know: {line}"))
    }

    /// Answers.
    pub(crate) fn reply(&mut self, answer: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        out.flush().context("answering")
    }

    /// There are no questions; this process ends when its starter does.
    pub(crate) fn wait_for_end(mut self) -> Result<()> {
        let watch = move || {
            while let Ok(Some(serde::de::IgnoredAny)) = self.next() {}
            std::process::exit(0);
        };
        std::thread::Builder::new().name("starter".into()).spawn(watch)?;
        Ok(())
    }
}
