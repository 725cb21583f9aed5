//! A role in a process of its own, on a core of its own. It is asked and answers by lines of JSON, and sleeps meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long an answer may take, whatever is asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that is measured. It is killed when this is dropped.
pub(crate) struct Program {
    role: String,
    child: Child,
    questions: ChildStdin,
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
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("`{role}` has no standard input and output")
        };
        Ok(Self {
            role: role.into(),
            child,
            questions,
            answers,
            read: Vec::new(),
        })
    }

    /// Asks, without waiting for the answer.
    pub(crate) fn tell(&mut self, question: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        self.questions
            .write_all(&line)
            .with_context(|| format!("telling `{}`", self.role))
    }

    /// The next answer.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        let line = loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                break self.read.drain(..=end).collect::<Vec<u8>>();
            }
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            if poll(
                &mut [PollFd::new(&self.answers.as_fd(), PollFlags::IN)],
                Some(&left),
            )? == 0
            {
                bail!("`{}` has said nothing for {} s", self.role, PATIENCE.as_secs());
            }
            let mut buffer = [0; 4096];
            let n = self.answers.read(&mut buffer)?;
            if n == 0 {
                bail!(
                    "`{}` ended: {}; its words are above",
                    self.role,
                    self.child.wait()?
                );
            }
            self.read.extend_from_slice(&buffer[..n]);
        };
        serde_json::from_slice(&line)
            .with_context(|| format!("`{}` said {:?}", self.role, String::from_utf8_lossy(&line)))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, question: &impl Serialize) -> Result<T> {
        self.tell(question)?;
        self.hear()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other end: whoever started this process.
pub(crate) struct Starter {
    questions: BufReader<std::io::Stdin>,
}

impl Starter {
    /// On the core that this process was given.
    pub(crate) fn new() -> Result<Self> {
        let cpu = std::env::var("BENCH_CPU").context("BENCH_CPU says on which processor a role runs")?;
        crate::cores::pin(cpu.parse().context("BENCH_CPU is a number")?)?;
        Ok(Self {
            questions: BufReader::new(std::io::stdin()),
        })
    }

    /// The next question; `None`: there will be none.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = String::new();
        if self.questions.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line)
            .map(Some)
            .with_context(|| format!("a question that this role does not know: {line}"))
    }

    /// Answers.
    pub(crate) fn say(&mut self, answer: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        out.flush().context("answering")
    }
}
