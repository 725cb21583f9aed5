//! A session: a target and a source, from start to end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::platform::{self, Platforms};
use super::process::{Event, Process, adopt, code, describe};
use super::show::{self, Side, Stream};
use crate::error::Failure;
use crate::shell::Shell;

/// The line by which a target reports that sources may connect.
const READY: &str = "ifunc: ready ";
/// Time that a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// Time that a source has to notice the end of its target.
const NOTICE: Duration = Duration::from_secs(10);
/// Time that the last lines of an ended program have to arrive.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The arguments and environment of every program of a session.
pub(super) struct Session<'a> {
    pub(super) environment: Vec<(&'static str, OsString)>,
    /// Those of the libraries, for programs of each platform.
    pub(super) folders: Vec<(Option<String>, PathBuf)>,
    pub(super) platforms: Platforms<'a>,
    pub(super) args: &'a [OsString],
    /// `None`: until they end.
    pub(super) timeout: Option<Duration>,
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Every program succeeded.
    Done,
    /// `side` failed first.
    Failed {
        side: &'static str,
        what: String,
        code: u8,
    },
    /// A signal interrupted the session; the exit code reports it.
    Interrupted(u8),
}

/// The event queue and its deadline.
struct Watch {
    send: Sender<Event>,
    events: Receiver<Event>,
    signals: signal_hook::iterator::Handle,
    deadline: Instant,
    timeout: Duration,
    /// The source starts when the target has printed its line.
    awaits_ready: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.signals.close();
    }
}

impl Session<'_> {
    /// Runs one program: `both`, or a target whose sources the user starts.
    pub(super) fn one_process(
        &self,
        side: Side,
        program: &Path,
        address: &str,
        shell: &mut Shell,
    ) -> Result<Stopped, Failure> {
        let mut watch = Watch::new(self.timeout)?;
        let mut program = self.start(side, program, address, &watch, shell)?;
        let end = watch.run(&mut [&mut program], |event, _| matches!(event, Event::Exited(_)))?;
        watch.stop(&mut [&mut program])?;
        if let Some(stopped) = end {
            return Ok(stopped);
        }
        Ok(failure_of(&mut program)?.unwrap_or(Stopped::Done))
    }

    /// Runs the target, then the source.
    pub(super) fn two_processes(
        &self,
        target: &Path,
        source: &Path,
        address: &str,
        shell: &mut Shell,
    ) -> Result<Stopped, Failure> {
        let mut watch = Watch::new(self.timeout)?;
        let mut target = self.start(Side::Target, target, address, &watch, shell)?;
        let mut ready = None;
        watch.awaits_ready = true;
        let end = watch.run(&mut [&mut target], |event, _| {
            if let Event::Line(_, Stream::Out, line) = event {
                ready = line
                    .strip_prefix(READY.as_bytes())
                    .map(|at| String::from_utf8_lossy(at).trim().to_owned());
            }
            ready.is_some() || matches!(event, Event::Exited(_))
        })?;
        if let Some(stopped) = end {
            watch.stop(&mut [&mut target])?;
            return Ok(stopped);
        }
        let Some(address) = ready else {
            watch.stop(&mut [&mut target])?;
            let early = Stopped::Failed {
                side: "target",
                what: format!(
                    "ended without the line `{READY}ADDRESS`\nhelp: print it with `println!` once the target listens"
                ),
                code: 1,
            };
            let clean = if self.asks_for_help() {
                Stopped::Done
            } else {
                early
            };
            return Ok(failure_of(&mut target)?.unwrap_or(clean));
        };

        watch.awaits_ready = false;
        let mut source = self.start(Side::Source, source, &address, &watch, shell)?;
        // Reports the first failure: later ones are consequences.
        let mut first = None;
        let mut end = watch.run(&mut [&mut target, &mut source], |event, running| match event {
            Event::Exited(Side::Source) => true,
            Event::Exited(Side::Target) => {
                first = running
                    .iter_mut()
                    .find(|p| p.side() == Side::Target)
                    .map(|p| failure_of(p));
                matches!(first, Some(Ok(Some(_)) | Err(_)))
            }
            _ => false,
        })?;
        let first = first.transpose()?.flatten();
        if first.is_some() && end.is_none() {
            // The source may still report an error about the target's end.
            watch.deadline = watch.deadline.min(Instant::now() + NOTICE);
            end = watch.run(&mut [&mut target, &mut source], |event, _| {
                matches!(event, Event::Exited(Side::Source))
            })?;
        }
        if let Some(interrupted @ Stopped::Interrupted(_)) = end {
            watch.stop(&mut [&mut target, &mut source])?;
            return Ok(interrupted);
        }
        if let Some(failed) = first.or(end) {
            watch.stop(&mut [&mut target, &mut source])?;
            return Ok(failed);
        }
        // The source has ended, so the target has no more work.
        let failed = failure_of(&mut source)?;
        let was_running = target.is_running();
        let by_force = watch.stop(&mut [&mut target, &mut source])?;
        if let Some(failed) = failed {
            return Ok(failed);
        }
        if by_force {
            let what = format!(
                "did not end within {} seconds of SIGTERM and was killed",
                GRACE.as_secs()
            );
            return Ok(Stopped::Failed {
                side: "target",
                what,
                code: 1,
            });
        }
        let status = target.reap().map_err(Failure::Output)?;
        let asked = was_running && std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGTERM);
        Ok(if asked {
            Stopped::Done
        } else {
            failure_of(&mut target)?.unwrap_or(Stopped::Done)
        })
    }

    /// The target printed its options, and has nothing to serve.
    fn asks_for_help(&self) -> bool {
        self.args.iter().any(|arg| arg == "--help" || arg == "-h")
    }

    fn start(
        &self,
        side: Side,
        program: &Path,
        address: &str,
        watch: &Watch,
        shell: &mut Shell,
    ) -> Result<Process, Failure> {
        let platform = match side {
            Side::Target => self.platforms.of_target(),
            Side::Source | Side::Both => self.platforms.of_source(),
        };
        let mut command = platform::command(platform, program);
        command.args(self.args).env("IFUNC_ADDR", address);
        command.envs(self.environment.clone());
        if let Some((_, folder)) = self.folders.iter().find(|(of, _)| of.as_deref() == platform) {
            command.env("IFUNC_LIB_DIR", folder);
        }
        shell.status(
            "Running",
            format_args!("`{}` ({address})", crate::shell::shown(program)),
        );
        Process::start(side, command, &watch.send).map_err(|source| Failure::Spawn {
            program: program.display().to_string(),
            source,
        })
    }
}

impl Watch {
    fn new(timeout: Option<Duration>) -> Result<Self, Failure> {
        /// Longer than anything runs.
        const EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
        adopt();
        let timeout = timeout.unwrap_or(EVER);
        let (send, events) = channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let sender = send.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                let _ = sender.send(Event::Signal(signal));
            }
        });
        Ok(Self {
            send,
            events,
            signals: handle,
            deadline: Instant::now() + timeout,
            timeout,
            awaits_ready: false,
        })
    }

    /// Shows the output of `running` until `done` returns true (`None`), the deadline passes, or a signal
    /// arrives.
    fn run(
        &mut self,
        running: &mut [&mut Process],
        mut done: impl FnMut(&Event, &mut [&mut Process]) -> bool,
    ) -> Result<Option<Stopped>, Failure> {
        loop {
            let event = match self
                .events
                .recv_timeout(self.deadline.saturating_duration_since(Instant::now()))
            {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ok(Some(self.too_late(running)));
                }
            };
            handle(&event, running)?;
            if let Event::Signal(signal) = event {
                return Ok(Some(Stopped::Interrupted(
                    u8::try_from(128 + signal).unwrap_or(1),
                )));
            }
            if done(&event, running) {
                return Ok(None);
            }
        }
    }

    /// Names the side that exceeded the time: the source if it was started.
    fn too_late(&self, running: &[&mut Process]) -> Stopped {
        let side = running
            .iter()
            .rev()
            .find(|p| p.is_running())
            .map_or(Side::Both, |p| p.side());
        let seconds = ifunc_abi::Counted(self.timeout.as_secs(), "second");
        let what = match side {
            Side::Target if self.awaits_ready => format!(
                "did not print `{READY}ADDRESS` within {seconds} and was killed\nhelp: print it once the target listens; \
                 `--timeout SECS` waits longer"
            ),
            Side::Target | Side::Both => {
                format!("did not finish within {seconds} and was killed\nhelp: `--timeout SECS` waits longer")
            }
            Side::Source => format!(
                "did not finish within {seconds} and was killed, the target with it\nhelp: `--timeout SECS` waits longer"
            ),
        };
        Stopped::Failed {
            side: side.name(),
            what,
            code: 1,
        }
    }

    /// Ends the programs that still run: SIGTERM first, SIGKILL after a grace period. Shows their last lines.
    /// Returns whether it had to kill one.
    fn stop(&mut self, running: &mut [&mut Process]) -> Result<bool, Failure> {
        running.iter().for_each(|process| process.signal(Signal::TERM));
        self.listen(GRACE, running, |running| running.iter().all(|p| !p.is_running()))?;
        let mut by_force = false;
        for process in &mut *running {
            by_force |= process.is_running();
            process.reap().map_err(Failure::Output)?;
        }
        self.listen(LAST_LINES, running, |running| {
            running.iter().all(|p| !p.has_open_streams())
        })?;
        Ok(by_force)
    }

    fn listen(
        &mut self,
        time: Duration,
        running: &mut [&mut Process],
        done: impl Fn(&[&mut Process]) -> bool,
    ) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while !done(running) {
            match self
                .events
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                // A second Ctrl-C ends the grace period.
                Ok(Event::Signal(_)) | Err(_) => break,
                Ok(event) => handle(&event, running)?,
            }
        }
        Ok(())
    }
}

/// Handles an event: shows a line, counts open streams, reaps an ended program.
fn handle(event: &Event, running: &mut [&mut Process]) -> Result<(), Failure> {
    let by = |side: Side, running: &mut [&mut Process]| running.iter().position(|p| p.side() == side);
    match event {
        Event::Line(side, stream, line) => show::line(*side, *stream, line),
        Event::Eof(side) => {
            if let Some(at) = by(*side, running) {
                running[at].ended();
            }
        }
        Event::Exited(side) => {
            if let Some(at) = by(*side, running) {
                running[at].reap().map_err(Failure::Output)?;
            }
        }
        Event::Signal(_) => {}
    }
    Ok(())
}

/// The failure of an ended program; `None` if it succeeded.
fn failure_of(process: &mut Process) -> Result<Option<Stopped>, Failure> {
    let status = process.reap().map_err(Failure::Output)?;
    Ok((!status.success()).then(|| Stopped::Failed {
        side: process.side().name(),
        what: describe(status),
        code: code(status),
    }))
}
