//! A runner process, from the target's side: starts it, sends it requests, ends it, and finds out why it has ended.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc_abi::status::{Failure, Status};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::conversation::{Conversation, Host};
use super::port::{Port, Waited, event};
use super::program::{self, Start};
use super::segment::{Kind, Message, Segment, Setting, Side};
use super::{Runners, Settings};

/// How long a runner may take to start, and to install an image.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time that an invocation may go on after its deadline before its process is ended.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// A runner process. Dropped, it is ended.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    /// Readable when it has ended.
    pid: OwnedFd,
    port: Port<OwnedFd, Arc<Segment>>,
    pub(super) file: OwnedFd,
    /// The images that it has.
    pub(super) images: HashSet<u64>,
    pub(super) limit: Option<Duration>,
    cpu_time: Option<Duration>,
    /// Those that count it.
    pub(super) counted_by: Option<Arc<Runners>>,
}

impl AsRef<Segment> for Segment {
    fn as_ref(&self) -> &Segment {
        self
    }
}

/// The process has ended, or was ended, before a request was done: the failure, in words.
#[derive(Debug)]
pub(super) struct Lost(pub(super) Failure, pub(super) String);

/// Starts and ends a runner. Returns the version of Landlock that confines it.
///
/// # Errors
/// Why it does not start.
pub(super) fn try_start(settings: &Settings) -> Result<u64, String> {
    Process::start(settings).map(|(_, landlock)| landlock)
}

impl Process {
    /// Starts a process, which has confined itself when this returns.
    ///
    /// # Errors
    /// Why it does not start.
    pub(super) fn start(settings: &Settings) -> Result<(Self, u64), String> {
        let failed = |what: &str| {
            let program = settings.program.display();
            let what = what.to_owned();
            move |error: io::Error| format!("cannot {what} for the runner process `{program}`: {error}")
        };
        let (segment, file) = Segment::create(settings.lens).map_err(failed("make memory"))?;
        let options = &settings.options;
        let size = |bytes: usize| bytes as u64;
        segment.set(Setting::Parent, std::process::id().into());
        segment.set(Setting::CodeBytes, size(settings.code_bytes));
        segment.set(Setting::MaxImages, size(settings.max_images));
        segment.set(Setting::MaxImageMemory, size(settings.max_image_memory));
        segment.set(Setting::StackBytes, size(settings.stack_bytes));
        let run_time = settings.run_time.unwrap_or_default().as_nanos();
        segment.set(Setting::RunTime, u64::try_from(run_time).unwrap_or(u64::MAX));
        segment.set(Setting::Memory, options.memory);
        let seconds = options.cpu_time.map_or(0, |time| time.as_secs().max(1));
        segment.set(Setting::CpuTime, seconds);
        segment.set(Setting::WithoutLandlock, options.without_landlock.into());
        let (own, peer) = (
            event().map_err(failed("make an event"))?,
            event().map_err(failed("make an event"))?,
        );
        let clone = |fd: &OwnedFd| fd.try_clone().map_err(failed("pass a descriptor"));
        let start = Start {
            program: settings.program.clone(),
            descriptors: [clone(&file)?, clone(&peer)?, clone(&own)?],
        };
        let mut child = program::start(start).map_err(failed("start a program"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        let pid = pid.and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        let pid = pid.map_err(|error| {
            let _ = child.kill().and_then(|()| child.wait());
            failed("watch a process")(error)
        })?;
        let mut process = Self {
            child,
            pid,
            port: Port::new(Arc::new(segment), Side::Target, own, peer),
            file,
            images: HashSet::new(),
            limit: settings.run_time,
            cpu_time: options.cpu_time,
            counted_by: None,
        };
        let deadline = Instant::now() + PATIENCE;
        let waited = process.port.wait(Some(process.pid.as_fd()), Some(deadline));
        let program = settings.program.display();
        match waited {
            Waited::Received(Message {
                kind: Kind::Ready,
                words: [landlock, ..],
            }) => Ok((process, landlock)),
            Waited::Received(Message {
                kind: Kind::Broken,
                words: [len, ..],
            }) => {
                let why = process.port.segment.note_text(len);
                Err(format!(
                    "the runner process `{program}` does not confine itself: {why}"
                ))
            }
            Waited::Ended => {
                let (_, why) = process.explain_end();
                Err(format!(
                    "the runner process `{program}` ended when it began: {why}; help: it must be `ifunc-runner` of this version, or a program whose \
                     `main` begins with `run_if_started_by_target`"
                ))
            }
            Waited::Received(_) | Waited::Malformed | Waited::TimedOut => {
                Err(format!("the runner process `{program}` did not begin as one"))
            }
        }
    }

    pub(super) fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.port.segment)
    }

    /// Sends a request and waits until it is done: returns a status, and the length of what it left. An ifunc that runs may log, and call
    /// functions of the host.
    pub(super) fn request(
        &mut self,
        request: &Message,
        deadline: Option<Instant>,
        host: &dyn Host,
    ) -> Result<(Status, usize), Lost> {
        let done = Conversation::new(self, deadline, host).request(request);
        let [status, len, ..] = done?;
        let status = u32::try_from(status).ok().and_then(Status::from_code);
        match status {
            Some(status) => Ok((status, usize::try_from(len).unwrap_or(usize::MAX))),
            None => Err(self.end_for_breach("a status that no version defines")),
        }
    }

    pub(super) fn send(&mut self, message: &Message) {
        self.port.send(message);
    }

    /// Waits for a message of the runner.
    ///
    /// # Errors
    /// The process has ended, or was ended.
    pub(super) fn receive(&mut self, deadline: Option<Instant>) -> Result<Message, Lost> {
        match self.port.wait(Some(self.pid.as_fd()), deadline) {
            Waited::Received(message) => Ok(message),
            Waited::Malformed => Err(self.end_for_breach("a message that no version defines")),
            Waited::Ended => {
                let (why, text) = self.explain_end();
                Err(Lost(why, text))
            }
            Waited::TimedOut => Err(self.end_overdue()),
        }
    }

    /// Ends the process because it should have done what it was asked for.
    pub(super) fn end_overdue(&mut self) -> Lost {
        self.end();
        let limit = self.limit.unwrap_or(PATIENCE);
        let text = format!("it ran for longer than {limit:?}; its runner process was ended");
        Lost(Failure::Deadline, text)
    }

    /// Ends the process, and waits until it has ended.
    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(super) fn end_for_breach(&mut self, what: &str) -> Lost {
        self.end();
        let text = format!("its runner process sent {what}, and was ended");
        Lost(Failure::Fault, text)
    }

    /// Why the process has ended.
    fn explain_end(&mut self) -> (Failure, String) {
        match self.child.wait() {
            Ok(status) => explain(status, self.port.segment.denied(), self.cpu_time),
            Err(error) => (Failure::Fault, format!("its runner process ended: {error}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if let Some(runners) = &self.counted_by {
            runners.count(|counts| counts.running -= 1);
        }
    }
}

/// What the end of a runner process means. `denied`: a system call that it states as denied.
fn explain(status: ExitStatus, denied: Option<u64>, cpu_time: Option<Duration>) -> (Failure, String) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match (status.signal(), denied) {
        (Some(libc::SIGSYS), Some(call)) => write!(
            text,
            "its runner process may not make the system call {}, and was ended (SIGSYS)",
            call_name(call)
        ),
        (Some(libc::SIGSYS), None) => {
            write!(
                text,
                "its runner process made a system call that it may not make, and was ended (SIGSYS)"
            )
        }
        (Some(libc::SIGXCPU), _) => {
            let limit = cpu_time.unwrap_or_default();
            let _ = write!(
                text,
                "its runner process has used {limit:?} of CPU time, its limit (SIGXCPU); help: `RunnerOptions::cpu_time`"
            );
            return (Failure::Deadline, text);
        }
        (Some(libc::SIGKILL), _) => write!(
            text,
            "its runner process was killed (SIGKILL): by the kernel, because memory ran out, or by another process"
        ),
        (Some(signal), _) => write!(text, "{} ended its runner process", name_of(signal)),
        (None, _) => {
            let code = status.code().unwrap_or_default();
            write!(text, "its runner process ended by itself, with status {code}")
        }
    };
    (Failure::Fault, text)
}

fn name_of(signal: i32) -> String {
    let name = match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGABRT => "SIGABRT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// The name of a system call that ifuncs are likely to try, and its number.
fn call_name(call: u64) -> String {
    const KNOWN: [(libc::c_long, &str); 28] = [
        (libc::SYS_accept, "accept"),
        (libc::SYS_bind, "bind"),
        (libc::SYS_bpf, "bpf"),
        (libc::SYS_clone, "clone"),
        (libc::SYS_clone3, "clone3"),
        (libc::SYS_close, "close"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_execve, "execve"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_io_uring_setup, "io_uring_setup"),
        (libc::SYS_kill, "kill"),
        (libc::SYS_memfd_create, "memfd_create"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_mount, "mount"),
        (libc::SYS_mprotect, "mprotect"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_prctl, "prctl"),
        (libc::SYS_process_vm_readv, "process_vm_readv"),
        (libc::SYS_process_vm_writev, "process_vm_writev"),
        (libc::SYS_ptrace, "ptrace"),
        (libc::SYS_read, "read"),
        (libc::SYS_rt_sigaction, "rt_sigaction"),
        (libc::SYS_setuid, "setuid"),
        (libc::SYS_socket, "socket"),
        (libc::SYS_unshare, "unshare"),
        (libc::SYS_userfaultfd, "userfaultfd"),
        (libc::SYS_write, "write"),
    ];
    #[cfg(target_arch = "x86_64")]
    const OLDER: [(libc::c_long, &str); 3] = [
        (libc::SYS_fork, "fork"),
        (libc::SYS_open, "open"),
        (libc::SYS_vfork, "vfork"),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: [(libc::c_long, &str); 0] = [];
    let known = KNOWN
        .iter()
        .chain(&OLDER)
        .find(|(number, _)| number.cast_unsigned() == call);
    match known {
        Some((_, name)) => format!("`{name}`"),
        None => format!("number {call}"),
    }
}

#[cfg(test)]
impl Process {
    /// A process that does nothing, whose side of the segment is the test's.
    pub(super) fn of_test(limit: Option<Duration>) -> (Self, Port<OwnedFd, Arc<Segment>>) {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let lens = super::segment::Lens {
            payload: 0,
            target: 0,
            answer: 0,
        };
        let (segment, file) = Segment::create(lens).unwrap();
        let segment = Arc::new(segment);
        let [target, runner] = [(); 2].map(|()| event().unwrap());
        let peer = Port::new(
            Arc::clone(&segment),
            Side::Runner,
            runner.try_clone().unwrap(),
            target.try_clone().unwrap(),
        );
        let process = Self {
            child,
            pid: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
            port: Port::new(segment, Side::Target, target, runner),
            file,
            images: HashSet::new(),
            limit,
            cpu_time: None,
            counted_by: None,
        };
        (process, peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_told_by_its_reason() {
        let ended = |raw, denied| explain(ExitStatus::from_raw(raw), denied, Some(Duration::from_secs(3)));
        let (why, text) = ended(libc::SIGSYS, Some(libc::SYS_connect as u64));
        assert!(
            why == Failure::Fault && text.contains("the system call `connect`"),
            "{text}"
        );
        let (_, text) = ended(libc::SIGSYS, Some(9999));
        assert!(text.contains("number 9999"), "{text}");
        let (why, text) = ended(libc::SIGXCPU, None);
        assert!(
            why == Failure::Deadline && text.contains("used 3s of CPU time"),
            "{text}"
        );
        let (_, text) = ended(libc::SIGKILL, None);
        assert!(text.contains("SIGKILL"), "{text}");
        let (_, text) = ended(7 << 8, None);
        assert!(text.contains("with status 7"), "{text}");
        for (signal, name) in [
            (libc::SIGABRT, "SIGABRT ended"),
            (libc::SIGUSR1, "signal 10 ended"),
        ] {
            let (why, text) = ended(signal, None);
            assert!(why == Failure::Fault && text.contains(name), "{text}");
        }
    }
}
