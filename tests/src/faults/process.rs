//! A role's process, as its cell holds it: what it says, what it is told, and where it hangs.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// A process.
#[derive(Debug)]
pub struct Process {
    /// What it is called in messages.
    pub name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<Said>,
    /// Lines that were looked at by [`reply`](Self::reply).
    read: usize,
    /// The named pipe that lets it go on.
    go: PathBuf,
    stderr: PathBuf,
}

#[derive(Debug, Default)]
struct Said {
    lines: Mutex<(Vec<String>, bool)>,
    more: Condvar,
}

/// What of others' a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings that are shared with other processes.
    pub shared: usize,
}

impl Holdings {
    /// Whether it is no more than `other`.
    pub fn within(self, other: Self) -> bool {
        self.descriptors <= other.descriptors && self.shared <= other.shared
    }
}

impl Process {
    /// Starts `command` as `name`, with files of that name in `folder`.
    ///
    /// # Errors
    /// The system's.
    pub fn start(command: &mut Command, name: &str, folder: &Path) -> Result<Self, String> {
        let io = |error: std::io::Error| format!("{name} does not start: {error}");
        let go = folder.join(format!("{name}.go"));
        rustix::fs::mknodat(CWD, &go, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|error| format!("`{}`: {error}", go.display()))?;
        let stderr = folder.join(format!("{name}.stderr"));
        let mut child = command
            .env("IFUNC_FAILPOINT_GO", &go)
            // Its standard output is the process's own: UCX would write into the middle of its lines.
            .env("UCX_LOG_FILE", "stderr")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).map_err(io)?)
            .spawn()
            .map_err(io)?;
        let said = Arc::new(Said::default());
        let stdout = child.stdout.take().ok_or("its output is no pipe")?;
        let stdin = child.stdin.take();
        let to = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                to.lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
                    .push(line);
                to.more.notify_all();
            }
            to.lines.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
            to.more.notify_all();
        });
        Ok(Self {
            name: name.into(),
            child,
            stdin,
            said,
            read: 0,
            go,
            stderr,
        })
    }

    /// Everything that it said so far.
    pub fn lines(&self) -> Vec<String> {
        let said = self.said.lines.lock().unwrap_or_else(PoisonError::into_inner);
        said.0.clone()
    }

    /// How many lines it said so far.
    pub fn mark(&self) -> usize {
        let said = self.said.lines.lock().unwrap_or_else(PoisonError::into_inner);
        said.0.len()
    }

    /// Whether it has said such a line since the mark.
    pub fn has_said(&self, since: usize, what: &str) -> bool {
        let said = self.said.lines.lock().unwrap_or_else(PoisonError::into_inner);
        said.0.iter().skip(since).any(|line| line.contains(what))
    }

    /// Waits until it has said a line that `is` it, behind the first `from`; its place and itself.
    fn line(
        &self,
        from: usize,
        within: Duration,
        what: &str,
        is: impl Fn(&str) -> bool,
    ) -> Result<(usize, String), String> {
        let deadline = Instant::now() + within;
        let mut said = self.said.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looked = from;
        loop {
            if let Some(at) = said.0.iter().skip(looked).position(|line| is(line)) {
                let at = looked + at;
                return Ok((at, said.0[at].clone()));
            }
            looked = looked.max(said.0.len());
            let left = deadline.saturating_duration_since(Instant::now());
            if said.1 {
                return Err(format!("{} has ended and not said {what}", self.name));
            }
            if left.is_zero() {
                return Err(format!("{} has not said {what} within {within:?}", self.name));
            }
            said = match self.said.more.wait_timeout(said, left) {
                Ok((said, _)) => said,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Waits until it says a line that holds `what`, behind the first `from`.
    ///
    /// # Errors
    /// It ends, or does not say it in time.
    pub fn says(&self, from: usize, what: &str, within: Duration) -> Result<(), String> {
        self.line(from, within, &format!("`{what}`"), |line| line.contains(what))
            .map(drop)
    }

    /// Waits until it stands at, or passes, this failpoint, behind the first `from` lines.
    ///
    /// # Errors
    /// As [`says`](Self::says).
    pub fn reaches(&self, from: usize, point: &str, within: Duration) -> Result<(), String> {
        let said = format!("failpoint: {point}");
        self.line(from, within, &format!("`{said}`"), |line| line == said)
            .map(drop)
    }

    /// Tells it to do something.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("its input is closed")?;
        writeln!(stdin, "{line}").map_err(|error| format!("{} is not told `{line}`: {error}", self.name))
    }

    /// The next thing that it says it has done.
    ///
    /// # Errors
    /// It ends, or does not say one in time.
    pub fn reply(&mut self, within: Duration) -> Result<String, String> {
        let (at, line) = self.line(self.read, within, "what it has done", |line| {
            line.starts_with("= ")
        })?;
        self.read = at + 1;
        Ok(line[2..].to_owned())
    }

    /// Tells it to do something that is answered by a line that begins so; what stands behind.
    ///
    /// # Errors
    /// It says something else, or nothing in time.
    pub fn ask(&mut self, line: &str, expected: &str, within: Duration) -> Result<String, String> {
        self.tell(line)?;
        let said = self.reply(within).map_err(|error| format!("`{line}`: {error}"))?;
        match said.strip_prefix(expected) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(format!("`{line}`: {} said `{said}`, not `{expected}`", self.name)),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        rustix::process::kill_process(self.pid(), signal).map_err(|error| format!("{}: {error}", self.name))
    }

    /// Kills it the hard way and waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> Result<(), String> {
        self.signal(Signal::KILL)?;
        self.child
            .wait()
            .map(drop)
            .map_err(|error| format!("{}: {error}", self.name))
    }

    /// Stops it, and waits until it stands.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop(&self) -> Result<(), String> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + super::TIMEOUT;
        while !self.status().contains("(stopped)") {
            if Instant::now() > deadline {
                return Err(format!("{} does not stop", self.name));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Lets it go on after [`stop`](Self::stop).
    ///
    /// # Errors
    /// The system's.
    pub fn resume(&self) -> Result<(), String> {
        self.signal(Signal::CONT)
    }

    /// Lets it go on from the failpoint at which it stands.
    ///
    /// # Errors
    /// It stands at none.
    pub fn go(&self) -> Result<(), String> {
        let deadline = Instant::now() + super::TIMEOUT;
        loop {
            // Opening it for reading waits for this.
            let opened = OpenOptions::new()
                .write(true)
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(&self.go);
            match opened {
                Ok(_) => return Ok(()),
                Err(error)
                    if Errno::from_io_error(&error) == Some(Errno::NXIO) && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(format!("{} stands at no failpoint: {error}", self.name)),
            }
        }
    }

    fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default()
    }

    /// What it holds.
    ///
    /// # Errors
    /// It has ended.
    pub fn holdings(&self) -> Result<Holdings, String> {
        let of = format!("/proc/{}", self.child.id());
        let io = |error: std::io::Error| format!("{}: {error}", self.name);
        let descriptors = fs::read_dir(format!("{of}/fd")).map_err(io)?.count();
        let maps = fs::read_to_string(format!("{of}/maps")).map_err(io)?;
        let is_shared = |line: &&str| line.split(' ').nth(1).is_some_and(|access| access.ends_with('s'));
        Ok(Holdings {
            descriptors,
            shared: maps.lines().filter(is_shared).count(),
        })
    }

    /// Where it is: for messages about a cell that failed.
    pub fn diagnosis(&self) -> String {
        let mut text = format!("--- {} (process {})\n", self.name, self.child.id());
        let state = self.status();
        let state = state.lines().find(|line| line.starts_with("State:"));
        let _ = writeln!(text, "{}", state.unwrap_or("State: gone"));
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |what: &str| fs::read_to_string(task.path().join(what)).unwrap_or_default();
            let (name, channel, call) = (read("comm"), read("wchan"), read("syscall"));
            let _ = writeln!(
                text,
                "thread {}: in `{channel}`, system call {}",
                name.trim(),
                call.trim()
            );
            for frame in read("stack").lines().take(8) {
                let _ = writeln!(text, "    {frame}");
            }
        }
        text.push_str("holds:");
        let links = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        for link in links.into_iter().flatten().flatten() {
            let to = fs::read_link(link.path()).unwrap_or_default();
            let _ = write!(text, " {}", to.display());
        }
        text.push_str("\nsaid last:\n");
        for line in self.lines().iter().rev().take(30).rev() {
            let _ = writeln!(text, "    {line}");
        }
        let errors = fs::read_to_string(&self.stderr).unwrap_or_default();
        for line in errors.lines().rev().take(60).collect::<Vec<_>>().iter().rev() {
            let _ = writeln!(text, "    (stderr) {line}");
        }
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
