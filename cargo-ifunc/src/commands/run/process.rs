//! A program that a session runs in a process group of its own and never leaves running.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::show::{Side, Stream};

/// An event of a session.
#[derive(Debug)]
pub(super) enum Event {
    /// A line without its terminator.
    Line(Side, Stream, Vec<u8>),
    /// One of the program's streams ended.
    Eof(Side),
    /// The program ended and waits to be reaped.
    Exited(Side),
    /// This command received a signal to stop.
    Signal(i32),
}

/// A running program.
pub(super) struct Process {
    side: Side,
    child: Child,
    group: Pid,
    /// Number of open streams.
    open: u32,
    status: Option<ExitStatus>,
}

/// Longest part of a line that is shown in one step, in bytes.
const MAX_LINE: u64 = 64 * 1024;

impl Process {
    /// Starts `command`; threads send its output and its end to `events`.
    ///
    /// Call it from the main thread: the kernel kills the program when the thread that started it ends.
    pub(super) fn start(side: Side, mut command: Command, events: &Sender<Event>) -> std::io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let us = rustix::process::getpid();
        // SAFETY: the closure only makes system calls, which are allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // A child whose parent died before `prctl` gets no signal for it.
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
            // Leaves the process unreaped, so that its id and its group remain valid until the session ends.
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

    /// Whether it still runs, according to the events received.
    pub(super) fn is_running(&self) -> bool {
        self.status.is_none()
    }

    /// Whether more lines may arrive.
    pub(super) fn has_open_streams(&self) -> bool {
        self.open > 0
    }

    /// Records that a stream ended.
    pub(super) fn ended(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Sends `signal` to the program and its children.
    pub(super) fn signal(&self, signal: Signal) {
        if self.is_running() {
            // Fails if the program has just ended, which is fine.
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Reaps the program and kills the rest of its group; returns when no process of the group runs.
    pub(super) fn reap(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        self.signal(Signal::KILL);
        let status = self.child.wait()?;
        self.status = Some(status);
        // Orphans of the group become children of this process (`adopt`); waits for all of them.
        while let Ok(_) | Err(Errno::INTR) = waitid(WaitId::Pgid(Some(self.group)), WaitIdOptions::EXITED) {}
        Ok(status)
    }
}

/// Makes this process the subreaper of its descendants, so that it can wait for orphans.
pub(super) fn adopt() {
    // Without it, a killed orphan may still be dying when this command ends.
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

/// The exit code for `status`: the program's own, or 128 plus the signal, as in shells.
pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// A readable description of `status`.
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
