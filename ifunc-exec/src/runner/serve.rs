//! The runner's side: a process that confines itself, and then runs what its target sends.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ifunc_abi::ImageId;
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::{Failure, Status};

use super::port::{self, OWN_EVENT, PEER_EVENT, Port, SEGMENT, Waited};
use super::proxy;
use super::sandbox;
use super::segment::{Area, Kind, Message, Segment, Setting, Side};
use super::signature::Signature;
use super::{NO_TARGET, Run};
use crate::ended::{LogMessage, forward_logs};
use crate::{
    AnswerMemory, ContainOptions, DebugInfo, ExecThread, Executor, HostSymbols, ImageExecutor,
    ImageExecutorOptions, InstalledEntry, Invocation,
};

/// The name by which a target starts a runner: its first argument.
pub(super) const NAME: &str = "ifunc-runner";

/// Becomes a runner process if a target started this program as one, and does not return then.
pub fn run_if_started_by_target() {
    if std::env::args_os().next().is_none_or(|name| name != NAME) {
        return;
    }
    // SAFETY: a target that starts a program under this name gives it these descriptors.
    let segment = unsafe { BorrowedFd::borrow_raw(SEGMENT) };
    let Ok(segment) = Segment::open(segment) else {
        return;
    };
    // Its texts would go to a descriptor that wakes the target.
    std::panic::set_hook(Box::new(|_| {}));
    let segment: &'static Segment = Box::leak(Box::new(segment));
    let mut port = runners_port(segment);
    let (executor, landlock) = match confine(segment) {
        Ok(confined) => confined,
        Err(error) => {
            let len = segment.write_note(error.to_string().as_bytes());
            port.send(&Message::new(Kind::Broken, [len as u64]));
            std::process::exit(1);
        }
    };
    port.send(&Message::new(Kind::Ready, [landlock]));
    let Ok(thread) = executor.thread() else {
        std::process::exit(1);
    };
    Runner {
        executor,
        images: HashMap::new(),
        functions: HashSet::new(),
        segment,
    }
    .serve(port, thread)
}

/// The runner's side of its segment.
fn runners_port(segment: &'static Segment) -> Port<BorrowedFd<'static>, &'static Segment> {
    // SAFETY: as in `run_if_started_by_target`; this process never closes them.
    let event = |number| unsafe { BorrowedFd::borrow_raw(number) };
    Port::new(segment, Side::Runner, event(OWN_EVENT), event(PEER_EVENT))
}

/// Gives up what injected code must not have. Returns the executor, and the version of Landlock.
fn confine(segment: &'static Segment) -> io::Result<(ImageExecutor, u64)> {
    if !segment.is_of_this_version() {
        return Err(io::Error::other(format!(
            "the runner program is of version {}, and the target of another one; help: install both of one version",
            env!("CARGO_PKG_VERSION")
        )));
    }
    port::prepare();
    sandbox::close_from(PEER_EVENT as u32 + 1)?;
    sandbox::bind_to_parent(segment.get(Setting::Parent))?;
    let taken = sandbox::address_space()?;
    let landlock = sandbox::restrict_files()?;
    if landlock == 0 && segment.get(Setting::WithoutLandlock) == 0 {
        return Err(io::Error::other(
            "the kernel has no Landlock, which keeps injected code from files; help: a kernel from 5.13 on with Landlock enabled (`lsm=`), \
             or, where the filter of system calls is enough, `RunnerOptions::without_landlock(true)`",
        ));
    }
    let size = |setting| usize::try_from(segment.get(setting)).unwrap_or(usize::MAX);
    let run_time = Duration::from_nanos(segment.get(Setting::RunTime));
    let code_bytes = size(Setting::CodeBytes);
    let options = ImageExecutorOptions {
        code_bytes,
        max_images: size(Setting::MaxImages),
        max_image_memory: size(Setting::MaxImageMemory),
        stack_bytes: size(Setting::StackBytes),
        debug: DebugInfo::none(),
        library_folders: Vec::new,
        contain: ContainOptions {
            faults: true,
            deadline: (!run_time.is_zero()).then_some(run_time),
        },
        answers: Some(Arc::new(Answers)),
        runners: None,
    };
    let executor =
        ImageExecutor::new(options, HostSymbols::of_runtime(), Arc::new(())).map_err(io::Error::other)?;
    sandbox::report_denied_calls(segment)?;
    // The address space that is reserved for code, twice for GOTs, is not memory that code uses.
    let reserved = (code_bytes as u64).saturating_mul(3).saturating_add(16 << 20);
    let memory = segment.get(Setting::Memory).saturating_add(reserved);
    sandbox::limit_resources(taken.saturating_add(memory), segment.get(Setting::CpuTime))?;
    forward_logs(log);
    let arena = executor.arena_file();
    sandbox::filter_system_calls(arena.as_fd())?;
    Ok((executor, landlock))
}

/// The length of the longest answer of the invocation that runs.
static MAX_ANSWER: AtomicUsize = AtomicUsize::new(0);

/// Limits of answers: the memory is the runner's own, which has a limit.
#[derive(Debug)]
struct Answers;

impl AnswerMemory for Answers {
    fn max_answer(&self, _: u64) -> usize {
        MAX_ANSWER.load(Ordering::Relaxed)
    }

    fn too_long(&self, _: u64, len: usize) -> String {
        let max = MAX_ANSWER.load(Ordering::Relaxed);
        format!(
            "the answer has at least {len} bytes, and this call takes {max}; help: `Quotas::answer_bytes` of the target's policy, \
             `SourceOptions::max_answer` of the source"
        )
    }

    fn hold(&self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn release(&self, _: usize) {}
}

/// What the thread that serves has, for the imports of the invocation that runs on it.
mod current {
    use std::cell::RefCell;
    use std::os::fd::BorrowedFd;

    use super::{Port, Segment};

    thread_local! {
        pub(super) static PORT: RefCell<Option<Port<BorrowedFd<'static>, &'static Segment>>> = const { RefCell::new(None) };
    }
}

/// Calls with the port of this thread.
pub(super) fn with_port<R>(
    call: impl FnOnce(&mut Port<BorrowedFd<'static>, &'static Segment>) -> R,
) -> Option<R> {
    current::PORT.with_borrow_mut(|port| port.as_mut().map(call))
}

/// Sends a message of an ifunc to the target's log.
fn log(message: &LogMessage<'_>) {
    with_port(|port| {
        let len = port.segment.write_note(message.text.as_bytes());
        port.send(&Message::new(Kind::Log, [u64::from(message.level), len as u64]));
        let _ = port.wait(None, None);
    });
}

/// A runner that has confined itself.
struct Runner {
    executor: ImageExecutor,
    /// The entries of the installed images, by the target's number.
    images: HashMap<u64, Vec<Arc<InstalledEntry>>>,
    /// The numbers of the functions of the host that images may import.
    functions: HashSet<u32>,
    segment: &'static Segment,
}

impl Runner {
    fn serve(mut self, port: Port<BorrowedFd<'static>, &'static Segment>, mut thread: ExecThread) -> ! {
        current::PORT.set(Some(port));
        loop {
            let Some(Waited::Received(Message { kind, words })) = with_port(|port| port.wait(None, None))
            else {
                std::process::exit(1);
            };
            let done = match kind {
                Kind::Install => self.install(words),
                Kind::Release => {
                    self.release(words[0]);
                    (Status::Executed, 0)
                }
                Kind::Run => self.run(&mut thread, Run::from_words(words)),
                // The target keeps to its protocol.
                _ => std::process::exit(1),
            };
            let (status, len) = done;
            with_port(|port| {
                port.send(&Message::new(Kind::Done, [u64::from(status.code()), len as u64]));
            });
        }
    }

    /// Lets images import the functions of the host in a table. `None`: there is no memory for them.
    fn bind(&mut self, table: &[u8]) -> Option<()> {
        for line in String::from_utf8_lossy(table).lines() {
            let mut fields = line.splitn(3, '\t');
            let number = fields.next()?.parse().ok()?;
            let (name, text) = (fields.next()?, fields.next()?);
            if self.functions.contains(&number) {
                continue;
            }
            proxy::add(number, Signature::of(text).ok()?);
            let instructions = proxy::instructions(number);
            self.executor.forward_import(name, &instructions).ok()?;
            self.functions.insert(number);
        }
        Some(())
    }

    /// Installs an image whose id and bytes lie in the payload area.
    fn install(&mut self, [number, len, table, ..]: [u64; 6]) -> (Status, usize) {
        let mut installed = || -> Result<_, Refusal> {
            let bytes = usize::try_from(len.saturating_add(table))
                .ok()
                .and_then(|len| self.segment.copy(Area::Payload, len));
            let no_memory = || {
                let why = "its runner process has no memory for it; help: `RunnerOptions::memory`";
                Refusal::new(ifunc_abi::status::Rejection::Resources, why)
            };
            let bytes = bytes.ok_or_else(no_memory)?;
            let image = usize::try_from(len).unwrap_or(usize::MAX);
            let (image, table) = bytes.split_at_checked(image).ok_or_else(no_memory)?;
            self.bind(table).ok_or_else(no_memory)?;
            let (id, bytes) = image.split_first_chunk::<32>().ok_or_else(no_memory)?;
            let id: &ImageId = id;
            self.executor.install(&self.executor.validate(id, bytes)?, None)
        };
        match installed() {
            Ok(image) => {
                self.images
                    .insert(number, ImageExecutor::entries(&image).collect());
                (Status::Executed, 0)
            }
            Err(refusal) => (
                Status::Rejected(refusal.reason),
                self.segment.write_note(refusal.detail.as_bytes()),
            ),
        }
    }

    /// Drops images whose numbers lie in the payload area.
    fn release(&mut self, count: u64) {
        let len = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(8);
        let numbers = self.segment.copy(Area::Payload, len).unwrap_or_default();
        for number in numbers.as_chunks::<8>().0 {
            self.images.remove(&u64::from_le_bytes(*number));
        }
    }

    fn run(&self, thread: &mut ExecThread, run: Run) -> (Status, usize) {
        let segment = self.segment;
        let entries = self.images.get(&run.image);
        let Some(entry) = entries.and_then(|entries| entries.get(run.entry as usize)) else {
            let why = b"its runner process does not have the image";
            return (Status::Failed(Failure::Fault), segment.write_note(why));
        };
        let max_answer = usize::try_from(run.max_answer).unwrap_or(usize::MAX);
        MAX_ANSWER.store(max_answer.min(segment.len_of(Area::Answer)), Ordering::Relaxed);
        let room = (run.room as usize).min(segment.len_of(Area::Answer));
        // SAFETY: the answer area is mapped, and this process's alone until it sends that the invocation is done.
        let answer = unsafe { std::slice::from_raw_parts_mut(segment.area(Area::Answer), room) };
        let target = match run.target {
            NO_TARGET => super::OPAQUE,
            _ => segment.area(Area::Target).cast(),
        };
        let size = (run.payload as usize).min(segment.len_of(Area::Payload));
        // SAFETY: the target accepted the image's code. The payload lies in the payload area, which is aligned to pages and which the
        // target leaves alone until the invocation has ended; target arguments are copies of the type that the entry takes, or lie
        // where nothing is mapped.
        let invocation =
            unsafe { Invocation::new(&**entry, segment.area(Area::Payload), size, target, run.sender) };
        let answer = run.is_awaited.then_some(answer);
        let mut session = thread.session();
        let run_time = Some(Duration::from_millis(run.run_time.into())).filter(|limit| !limit.is_zero());
        self.executor.limit_run_time(&mut session, run_time);
        match ImageExecutor::run(&mut session, || invocation, answer) {
            Ok(len) => (Status::Executed, len),
            Err(failed) => match *failed {
                Failed {
                    answer: Some(answer), ..
                } if answer.bytes().len() <= segment.len_of(Area::Answer) => {
                    segment.write(Area::Answer, 0, answer.bytes());
                    (Status::Executed, answer.bytes().len())
                }
                Failed { status, detail, .. } => (status, segment.write_note(&detail)),
            },
        }
    }
}
