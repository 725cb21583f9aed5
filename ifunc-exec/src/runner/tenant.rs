//! The process of a tenant, from the target's side: starts it, sends it what it needs, ends it, and starts it again.
//!
//! One invocation of a tenant runs at a time. A process that sends what it may not, runs over its time or dies is ended, and the
//! invocation under way is told why. The next invocation starts another process and installs what it needs.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ifunc_abi::ImageId;
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::{Failure, FaultDetail, Rejection, Status};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::port::{Port, Waited, event};
use super::program::{self, Start};
use super::segment::{Area, Kind, Message, NOTE, Segment, Setting, Side};
use super::{Lent, NO_TARGET, Run, Runners, Settings, Tenant};
use crate::answer::{AnswerMemory, long_answer};
use crate::ended::{LogMessage, log_message};
use crate::{EntryProperties, ValidImage};

/// How long a runner may take to start, and to install an image.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time that an invocation may go on after its deadline before its process is ended.
const GRACE: Duration = Duration::from_millis(100);

/// The process of a tenant.
#[derive(Debug)]
pub(super) struct TenantProcess {
    runners: Arc<Runners>,
    tenant: Tenant,
    /// Number of the next image.
    next: AtomicU64,
    /// Images that were dropped.
    released: Mutex<Vec<u64>>,
    /// Memory of the images.
    installed: Mutex<(usize, usize)>,
    /// Held during an invocation. `None`: it was not started, or has ended.
    process: Mutex<Option<Process>>,
}

/// An image in the process of a tenant.
#[derive(Debug)]
pub(crate) struct RemoteImage {
    tenant: Arc<TenantProcess>,
    number: u64,
    /// Id and bytes.
    message: Box<[u8]>,
}

/// What an invocation in a runner process is given.
#[derive(Debug)]
pub(crate) struct RemoteInvocation<'a> {
    pub(crate) entry: &'a EntryProperties,
    /// Number of the entry in its image.
    pub(crate) index: usize,
    /// Address and length of the payload.
    pub(crate) payload: (*const u8, usize),
    /// Target arguments that are copied.
    pub(crate) target: Option<&'a mut [u8]>,
    pub(crate) sender: u64,
    /// How long answers may be.
    pub(crate) answers: Option<&'a Arc<dyn AnswerMemory>>,
}

/// A runner process. Dropped, it is ended.
#[derive(Debug)]
struct Process {
    child: Child,
    /// Readable when it has ended.
    pid: OwnedFd,
    port: Port<OwnedFd, Arc<Segment>>,
    file: OwnedFd,
    /// The images that it has.
    images: HashSet<u64>,
    limit: Option<Duration>,
    cpu_time: Option<Duration>,
}

impl AsRef<Segment> for Segment {
    fn as_ref(&self) -> &Segment {
        self
    }
}

/// The process has ended, or was ended, before a request was done: the failure, in words.
#[derive(Debug)]
struct Lost(Failure, String);

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
    fn start(settings: &Settings) -> Result<(Self, u64), String> {
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
                let why = process.note(len);
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

    fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.port.segment)
    }

    /// The text in the note area.
    fn note(&self, len: u64) -> String {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(NOTE);
        let bytes = self.port.segment.copy(Area::Note, len).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a request and waits until it is done: returns a status, and the length of what it left. An ifunc that runs may log.
    fn request(
        &mut self,
        request: &Message,
        deadline: Option<Instant>,
        log: impl Fn(&LogMessage<'_>),
    ) -> Result<(Status, usize), Lost> {
        self.port.send(request);
        loop {
            let Message { kind, words } = match self.port.wait(Some(self.pid.as_fd()), deadline) {
                Waited::Received(message) => message,
                Waited::Malformed => return Err(self.end_for_breach("a message that no version defines")),
                Waited::Ended => {
                    let (why, text) = self.explain_end();
                    return Err(Lost(why, text));
                }
                Waited::TimedOut => {
                    self.end();
                    let limit = self.limit.unwrap_or(PATIENCE);
                    let text = format!("it ran for longer than {limit:?}; its runner process was ended");
                    return Err(Lost(Failure::Deadline, text));
                }
            };
            match kind {
                Kind::Done => {
                    let status = u32::try_from(words[0]).ok().and_then(Status::from_code);
                    let len = usize::try_from(words[1]).unwrap_or(usize::MAX);
                    return match status {
                        Some(status) => Ok((status, len)),
                        None => Err(self.end_for_breach("a status that no version defines")),
                    };
                }
                Kind::Log => {
                    let text = self.note(words[1]);
                    log(&LogMessage {
                        level: words[0] as u32,
                        text: &text,
                    });
                    self.port.send(&Message::new(Kind::Continue, []));
                }
                _ => return Err(self.end_for_breach("a message out of turn")),
            }
        }
    }

    /// Ends the process, and waits until it has ended.
    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn end_for_breach(&mut self, what: &str) -> Lost {
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

impl TenantProcess {
    pub(super) fn new(runners: Arc<Runners>, tenant: Tenant) -> Self {
        Self {
            runners,
            tenant,
            next: AtomicU64::new(0),
            released: Mutex::default(),
            installed: Mutex::default(),
            process: Mutex::default(),
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn installed(&self) -> MutexGuard<'_, (usize, usize)> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn released(&self) -> MutexGuard<'_, Vec<u64>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs an image.
    ///
    /// # Errors
    /// The process refuses it, or does not start.
    pub(super) fn install(self: Arc<Self>, valid: &ValidImage<'_>) -> Result<RemoteImage, Refusal> {
        let bytes = valid.bytes;
        let (settings, len) = (&self.runners.settings, size_of::<ImageId>() + bytes.len());
        if len > settings.lens.payload {
            let why = format!(
                "an image of {} bytes, and a runner process takes fewer",
                bytes.len()
            );
            return Err(Refusal::new(Rejection::TooLarge, why));
        }
        {
            let (images, used) = &mut *self.installed();
            if *images >= settings.max_images || *used + len > settings.code_bytes {
                let why = "the runner process of this code is full; help: drop handles that are not needed, or `TargetBuilder::code_cache`";
                return Err(Refusal::new(Rejection::CacheFull, why));
            }
            (*images, *used) = (*images + 1, *used + len);
        }
        self.runners.images.fetch_add(1, Ordering::Relaxed);
        // From here on its drop counts it down.
        let image = RemoteImage {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            message: [&valid.id[..], bytes].concat().into(),
            tenant: self,
        };
        let mut guard = image.tenant.process();
        // Taken out, so that a panic on the way ends it.
        let mut process = match guard.take() {
            Some(process) => process,
            None => image
                .tenant
                .start()
                .map_err(|why| Refusal::new(Rejection::Resources, why))?,
        };
        let installed = image.install_in(&mut process);
        if !matches!(installed, Err(Uninstalled::Lost(_))) {
            *guard = Some(process);
        }
        drop(guard);
        match installed {
            Ok(()) => Ok(image),
            Err(Uninstalled::Refused(refusal)) => Err(refusal),
            Err(Uninstalled::Lost(Lost(_, why))) => Err(Refusal::new(Rejection::Resources, why)),
        }
    }

    fn start(&self) -> Result<Process, String> {
        let started = Process::start(&self.runners.settings);
        let tenant = &self.tenant;
        match started {
            Ok((process, _)) => {
                tracing::debug!(target: crate::LOG, ?tenant, pid = process.child.id(), "started a runner process");
                Ok(process)
            }
            Err(why) => {
                tracing::debug!(target: crate::LOG, ?tenant, %why, "a runner process does not start");
                Err(why)
            }
        }
    }
}

impl Drop for TenantProcess {
    fn drop(&mut self) {
        self.runners.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why an image is not installed in a process.
enum Uninstalled {
    Refused(Refusal),
    /// The process has ended.
    Lost(Lost),
}

impl RemoteImage {
    /// Bytes of memory in this process.
    pub(crate) fn footprint(&self) -> usize {
        self.message.len()
    }

    /// Installs it in a process that does not have it.
    fn install_in(&self, process: &mut Process) -> Result<(), Uninstalled> {
        let segment = process.segment();
        let deadline = Instant::now() + PATIENCE;
        let request = |process: &mut Process, message| {
            let done = process.request(&message, Some(deadline), |_| {});
            done.map_err(Uninstalled::Lost)
        };
        // Dropped images first: their room may be needed.
        let mut gone = std::mem::take(&mut *self.tenant.released());
        gone.retain(|number| process.images.remove(number));
        for some in gone.chunks(segment.len_of(Area::Payload) / size_of::<u64>()) {
            let numbers: Vec<u8> = some.iter().flat_map(|number| number.to_le_bytes()).collect();
            segment.write(Area::Payload, 0, &numbers);
            request(process, Message::new(Kind::Release, [some.len() as u64]))?;
        }
        let len = self.message.len();
        segment.write(Area::Payload, 0, &self.message);
        let message = Message::new(Kind::Install, [self.number, len as u64]);
        let (status, detail) = request(process, message)?;
        segment.trim(&process.file, Area::Payload, len);
        match status {
            Status::Executed => {
                process.images.insert(self.number);
                Ok(())
            }
            Status::Rejected(reason) => {
                let why = process.note(detail as u64);
                Err(Uninstalled::Refused(Refusal::new(reason, why)))
            }
            Status::Failed(_) => {
                let lost = process.end_for_breach("a failure for an image");
                Err(Uninstalled::Lost(lost))
            }
        }
    }

    /// Runs an invocation, as [`Executor::run`](crate::Executor::run) does.
    ///
    /// # Safety
    /// The payload is readable until this returns.
    pub(crate) unsafe fn run(
        &self,
        invocation: RemoteInvocation<'_>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let mut guard = self.tenant.process();
        let mut process = match guard.take() {
            Some(process) => process,
            None => self
                .tenant
                .start()
                .map_err(|why| Refusal::new(Rejection::Resources, why))?,
        };
        let has = process.images.contains(&self.number);
        let installed = if has {
            Ok(())
        } else {
            self.install_in(&mut process)
        };
        let outcome = match installed {
            // SAFETY: the caller's promise.
            Ok(()) => unsafe { self.run_in(&mut process, invocation, answer) },
            Err(Uninstalled::Lost(lost)) => Err(lost),
            Err(Uninstalled::Refused(refusal)) => {
                *guard = Some(process);
                return Err(refusal.into());
            }
        };
        match outcome {
            Ok(outcome) => {
                *guard = Some(process);
                outcome
            }
            Err(Lost(why, text)) => {
                let (tenant, pid) = (&self.tenant.tenant, process.child.id());
                tracing::debug!(target: crate::LOG, ?tenant, pid, why = %text, "a runner process ended");
                let detail = FaultDetail {
                    is_placed: false,
                    calls: &[],
                    text: &text,
                };
                Err(Box::new(Failed::new(Status::Failed(why), detail.encode())))
            }
        }
    }

    /// Runs an invocation in a process that has the image.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn run_in(
        &self,
        process: &mut Process,
        invocation: RemoteInvocation<'_>,
        answer: Option<&mut [u8]>,
    ) -> Result<Result<usize, Box<Failed>>, Lost> {
        let RemoteInvocation {
            entry,
            index,
            payload: (payload, size),
            target,
            sender,
            answers,
        } = invocation;
        let segment = process.segment();
        if size > segment.len_of(Area::Payload) {
            let why = format!(
                "a payload of {} bytes, and a runner process takes {}",
                size,
                segment.len_of(Area::Payload)
            );
            return Ok(Err(Refusal::new(Rejection::TooLarge, why).into()));
        }
        // SAFETY: the caller's promise, and it fits.
        unsafe { segment.write_from(Area::Payload, 0, payload, size) };
        if let Some(target) = &target {
            segment.write(Area::Target, 0, target);
        }
        let room = answer.as_ref().map_or(0, |answer| answer.len());
        let max_answer = answers
            .map_or(room, |answers| answers.max_answer(sender))
            .max(room);
        let most = segment.len_of(Area::Answer);
        let run = Run {
            image: self.number,
            entry: index as u32,
            is_awaited: answer.is_some(),
            payload: size as u64,
            target: target.as_ref().map_or(NO_TARGET, |target| target.len() as u64),
            room: room.min(most) as u32,
            max_answer: max_answer.min(most) as u32,
            sender,
        };
        // The runner ends the invocation itself at its limit. Code that prevents that loses its process.
        let deadline = process
            .limit
            .map(|limit| Instant::now() + limit + GRACE.max(limit / 2));
        let request = Message::new(Kind::Run, run.words());
        let log = |message: &LogMessage<'_>| log_message(&entry.name, sender, message);
        let (status, len) = process.request(&request, deadline, log)?;
        segment.trim(&process.file, Area::Payload, size);
        match status {
            Status::Executed => {}
            Status::Failed(
                why @ (Failure::Payload
                | Failure::Panic
                | Failure::Fault
                | Failure::Deadline
                | Failure::StackLow
                | Failure::HostPanic
                | Failure::Answer
                | Failure::UnknownResult),
            ) => {
                let detail = segment.copy(Area::Note, len.min(NOTE)).unwrap_or_default();
                return Ok(Err(Box::new(Failed::new(Status::Failed(why), detail))));
            }
            Status::Failed(_) | Status::Rejected(_) => {
                return Err(process.end_for_breach("a status that is not one of an invocation"));
            }
        }
        if len > max_answer || len > most {
            return Err(process.end_for_breach("an answer that is longer than it may be"));
        }
        // It has ended well, so that what it wrote holds.
        if let Some(target) = target {
            segment.read(Area::Target, target);
        }
        let outcome = match answer {
            None => Ok(0),
            Some(answer) if len <= answer.len() => {
                segment.read(Area::Answer, &mut answer[..len]);
                Ok(len)
            }
            Some(_) => Err(match answers {
                Some(of) => long_answer(of, len, |bytes| segment.read(Area::Answer, bytes)),
                None => Box::new(Failed::new(Status::Failed(Failure::Answer), Vec::new())),
            }),
        };
        segment.trim(&process.file, Area::Answer, len);
        Ok(outcome)
    }
}

impl Drop for RemoteImage {
    fn drop(&mut self) {
        self.tenant.released().push(self.number);
        let (images, used) = &mut *self.tenant.installed();
        (*images, *used) = (*images - 1, *used - self.message.len());
        self.tenant.runners.images.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How the target arguments of an invocation are lent.
pub(crate) fn lent<'a>(target: *mut std::ffi::c_void, lent: Lent) -> Option<&'a mut [u8]> {
    match lent {
        Lent::Opaque => None,
        // SAFETY: the caller of `Session::lend` promised that they are so many bytes, of which every content is valid, and that this
        // invocation alone uses them. A type without bytes may have any address.
        Lent::Copied(len) => Some(unsafe { std::slice::from_raw_parts_mut(target.cast(), len) }),
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
    }
}
