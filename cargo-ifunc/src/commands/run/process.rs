//! A program that a session runs: in a process group of its own, watched, and never left behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::show::{Side, Stream};

/// What a session hears.
#[derive(Debug)]
pub(super) enum Event {
    /// A line, without its end.
    Line(Side, Stream, Vec<u8>),
    /// One of the streams has ended.
    Eof(Side),
    /// It has ended, and waits to be reaped.
    Exited(Side),
    /// We were told to stop.
    Signal(i32),
}

/// A running program.
pub(super) struct Process {
    side: Side,
    child: Child,
    group: Pid,
    /// Streams that may still bring lines.
    open: u32,
    status: Option<ExitStatus>,
}

/// Longest piece of a line that is shown at once.
const MAX_LINE: u64 = 64 * 1024;

impl Process {
    /// Starts `command`; everything it does is sent to `events`.
    ///
    /// Must be called from the main thread: the program is killed when the thread that started it ends.
    pub(super) fn start(side: Side, mut command: Command, events: &Sender<Event>) -> std::io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let us = rustix::process::getpid();
        // SAFETY: the closure only makes system calls, which is all that may be done between fork and exec.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // Whoever lost its parent before the line above gets no signal for it any more.
                if rustix::process::getppid() == Some(us) {
                    Ok(())
                } else {
                    Err(Errno::CHILD.into())
                }
            });
        }
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        let out = child
            .stdout
            .take()
            .map(|pipe| read(side, Stream::Out, pipe, events.clone()));
        let err = child
            .stderr
            .take()
            .map(|pipe| read(side, Stream::Err, pipe, events.clone()));
        let open = out.iter().chain(&err).count() as u32;
        let exited = events.clone();
        thread::spawn(move || {
            // Left unreaped, so that its number and its group's stay its own until the session is done with them.
            while waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
                .is_err_and(|e| e == Errno::INTR)
            {}
            let _ = exited.send(Event::Exited(side));
        });
        Ok(Self {
            side,
            child,
            group,
            open,
            status: None,
        })
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Whether it still runs, as far as the session was told.
    pub(super) fn is_running(&self) -> bool {
        self.status.is_none()
    }

    /// Whether a line may still come.
    pub(super) fn has_open_streams(&self) -> bool {
        self.open > 0
    }

    /// A stream has ended.
    pub(super) fn ended(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Sends `signal` to it and to what it started.
    pub(super) fn signal(&self, signal: Signal) {
        if self.is_running() {
            // Fails when it has just ended, which is as good.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Takes its status, and ends what it left behind: returns when nothing of its group runs.
    pub(super) fn reap(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        self.signal(Signal::KILL);
        let status = self.child.wait()?;
        self.status = Some(status);
        // Whoever loses its parent becomes our child (`adopt`), until there is none of the group.
        while let Ok(_) | Err(Errno::INTR) = waitid(WaitId::Pgid(Some(self.group)), WaitIdOptions::EXITED) {}
        Ok(status)
    }
}

/// Makes orphans of our children's children our own, so that they can be waited for.
pub(super) fn adopt() {
    // Where it cannot be had, a killed orphan may be seen dying after we have ended.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.reap();
    }
}

fn read(side: Side, stream: Stream, pipe: impl Read + Send + 'static, events: Sender<Event>) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(1..) = pipe.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            if events
                .send(Event::Line(side, stream, std::mem::take(&mut line)))
                .is_err()
            {
                return;
            }
        }
        let _ = events.send(Event::Eof(side));
    });
}

/// The exit code that stands for `status`: its own, or 128 and the signal as shells have it.
pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// What happened, for people.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            format!("was ended by {name} ({signal})")
        }
        (None, None) => "ended without a status".into(),
    }
}
