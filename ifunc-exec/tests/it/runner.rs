//! Runner processes: what runs in them, what they may not do, and how they end.

use std::fmt::Debug;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ifunc_abi::image::ImageParts;
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::{Failure, FaultDetail, PanicDetail, Rejection, Status};
use ifunc_exec::runner::{BodyLimits, Lent, RunnerCounts, RunnerOptions, Tenant, try_runner};
use ifunc_exec::{
    AnswerMemory, ContainOptions, DebugInfo, ExecThread, Executor, HostSymbols, ImageExecutor,
    ImageExecutorOptions, ImageProperties, InstalledEntry, InstalledImage, Invocation, NamedSet, Observer,
    SetupError, Symbol,
};

use crate::images::{self, *};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ifunc-runner");

#[derive(Debug)]
struct Answers;

impl AnswerMemory for Answers {
    fn max_answer(&self, _: u64) -> usize {
        1 << 20
    }

    fn too_long(&self, _: u64, len: usize) -> String {
        format!("{len} bytes")
    }

    fn hold(&self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn release(&self, _: usize) {}
}

fn executor(runner: RunnerOptions, run_time: Option<Duration>) -> Result<ImageExecutor, SetupError> {
    executor_for(runner, run_time, Arc::new(()))
}

fn executor_for(
    runner: RunnerOptions,
    run_time: Option<Duration>,
    observer: Arc<dyn Observer>,
) -> Result<ImageExecutor, SetupError> {
    ImageExecutor::new(options(runner, run_time), HostSymbols::new().unwrap(), observer)
}

fn options(runner: RunnerOptions, run_time: Option<Duration>) -> ImageExecutorOptions {
    let limits = BodyLimits {
        payload: 1 << 20,
        image: 1 << 16,
        answer: 1 << 20,
    };
    ImageExecutorOptions {
        code_bytes: 1 << 20,
        max_images: 64,
        max_image_memory: 1 << 16,
        stack_bytes: 1 << 20,
        debug: DebugInfo::none(),
        library_folders: Vec::new,
        contain: ContainOptions {
            faults: true,
            deadline: run_time,
        },
        answers: Some(Arc::new(Answers)),
        runners: Some((runner, limits)),
    }
}

/// An executor, and a thread on which its invocations run.
struct Target {
    thread: ExecThread,
    executor: ImageExecutor,
}

impl Target {
    fn new() -> Self {
        Self::with(RunnerOptions::new(), Some(Duration::from_millis(50)))
    }

    fn with(runner: RunnerOptions, run_time: Option<Duration>) -> Self {
        let executor = executor(runner.program(PROGRAM), run_time).unwrap();
        Self {
            thread: executor.thread().unwrap(),
            executor,
        }
    }

    fn install(&self, parts: &ImageParts, tenant: u64) -> Result<Arc<InstalledImage>, Refusal> {
        let bytes = parts.encode().unwrap();
        let id = *blake3::hash(&bytes).as_bytes();
        let valid = self.executor.validate(&id, &bytes)?;
        self.executor.install(&valid, Some(&Tenant::Connection(tenant)))
    }

    fn entry(&self, parts: &ImageParts, tenant: u64) -> Arc<InstalledEntry> {
        let image = self.install(parts, tenant).unwrap();
        ImageExecutor::entries(&image).next().unwrap()
    }

    fn code(&self, rx: &[u8], tenant: u64) -> Arc<InstalledEntry> {
        self.entry(&image("code", rx), tenant)
    }

    /// Runs an invocation on a number, and returns its answer.
    fn run(&mut self, entry: &InstalledEntry, payload: &[u8], number: &mut u64) -> Result<u64, Box<Failed>> {
        let mut session = self.thread.session();
        // SAFETY: a number has eight bytes, and every content of them is valid.
        unsafe { session.lend(Lent::Copied(8)) };
        let mut answer = [0; 64];
        let target = (&raw mut *number).cast();
        // SAFETY: the payload is readable; the code is written for these target arguments.
        let invocation = unsafe { Invocation::new(entry, payload.as_ptr(), payload.len(), target, 5) };
        let len = ImageExecutor::run(&mut session, || invocation, Some(&mut answer))?;
        Ok(answer[..len]
            .first_chunk()
            .map_or(0, |answer| u64::from_le_bytes(*answer)))
    }

    /// Makes a system call in the process of a tenant.
    fn call(&mut self, entry: &InstalledEntry, words: &[u64]) -> Result<u64, String> {
        let mut payload = [0; 7];
        payload[..words.len()].copy_from_slice(words);
        let payload: Vec<u8> = payload.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        self.run(entry, &payload, &mut 0).map_err(|failed| why(&failed).1)
    }
}

/// Why an invocation failed, and its detail in words.
fn why(failed: &Failed) -> (Failure, String) {
    let Status::Failed(why) = failed.status else {
        panic!("{failed:?}");
    };
    let detail = &failed.detail;
    let text = match why {
        Failure::Fault | Failure::Deadline => FaultDetail::parse(detail).map(|fault| fault.text.to_owned()),
        Failure::Panic => PanicDetail::parse(detail).map(|panic| panic.message.to_owned()),
        _ => None,
    };
    (
        why,
        text.unwrap_or_else(|| String::from_utf8_lossy(detail).into_owned()),
    )
}

#[track_caller]
fn fails(outcome: Result<impl Debug, Box<Failed>>, expected: Failure, part: &str) {
    let (why, text) = why(&outcome.unwrap_err());
    assert!(why == expected && text.contains(part), "{why:?}: {text}");
}

/// Whether a process is there, and has not ended.
fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_ifunc_works_on_copies_that_count_when_it_ends_well() {
    let mut target = Target::new();
    let add = target.code(ADD, 1);
    let mut number = 40;
    assert_eq!(target.run(&add, &2_u64.to_le_bytes(), &mut number).unwrap(), 42);
    assert_eq!(number, 42);
    assert!(add.image().footprint() > ADD.len());
    assert_eq!(target.executor.image_count(), 1);
    // What it had written before it failed is gone.
    let fails_late = target.code(CHANGES_AND_FAILS, 1);
    let outcome = target.run(&fails_late, &[], &mut number);
    fails(outcome, Failure::Fault, "SIGILL");
    assert_eq!(number, 42);
    // Target arguments that are not lent have no address in that process.
    let mut session = target.thread.session();
    let payload = 1_u64.to_le_bytes();
    // SAFETY: as in `Target::run`.
    let invocation = unsafe { Invocation::new(&*add, payload.as_ptr(), 8, (&raw mut number).cast(), 5) };
    let outcome = ImageExecutor::run(&mut session, || invocation, None);
    fails(outcome, Failure::Fault, "SIGSEGV (no canonical address");
    drop((add, fails_late));
    assert_eq!((number, target.executor.image_count()), (42, 0));
}

#[test]
fn long_answers_and_messages_cross() {
    let mut target = Target::new();
    let answers = target.entry(&answers(), 1);
    let mut ask = |len: u64| {
        let outcome = target.run(&answers, &len.to_le_bytes(), &mut 0);
        outcome.map_err(|failed| failed.answer.map(|answer| answer.bytes().to_vec()))
    };
    // It fits the memory that the invocation was lent.
    assert!(ask(8).is_ok());
    let long = ask(1 << 20).unwrap_err().unwrap();
    assert_eq!((long.len(), long.last()), (1 << 20, Some(&9)));
    assert_eq!(ask((1 << 20) + 1), Err(None));
    let logs = target.code(LOGS, 1);
    for _ in 0..3 {
        assert_eq!(target.run(&logs, b"a message", &mut 0).unwrap(), 0);
    }
}

/// Each way to end, so many times, with an honest call of another tenant after each.
fn crashes(rounds: u64) {
    let mut target = Target::new();
    let honest = target.code(ADD, 2);
    let (mut number, mut host) = (0, 99_u64);
    let address = (&raw mut host).expose_provenance() as u64;
    let ways = [
        ("panic", target.entry(&panics(), 1), 0, Failure::Panic, "ouch"),
        (
            "fault",
            target.code(POKES, 1),
            0x18,
            Failure::Fault,
            "SIGSEGV (not mapped), address 0x18",
        ),
        (
            "wild write",
            target.code(POKES, 1),
            address,
            Failure::Fault,
            "SIGSEGV",
        ),
        (
            "invalid instruction",
            target.code(CHANGES_AND_FAILS, 1),
            0,
            Failure::Fault,
            "SIGILL",
        ),
        (
            "division",
            target.code(DIVIDES_BY_ZERO, 1),
            0,
            Failure::Fault,
            "SIGFPE",
        ),
        (
            "overflow",
            target.code(RECURSES, 1),
            0,
            Failure::Fault,
            "stack overflow",
        ),
        ("jump", target.code(JUMPS, 1), 0x1000, Failure::Fault, "SIGSEGV"),
        (
            "loop",
            target.code(LOOPS, 1),
            0,
            Failure::Deadline,
            "it ran for longer than 50ms",
        ),
    ];
    let mut memory = Vec::new();
    for round in 0..rounds {
        for (what, entry, payload, expected, part) in &ways {
            if *what == "loop" && round % 10 != 0 {
                continue;
            }
            let outcome = target.run(entry, &payload.to_le_bytes(), &mut 0);
            let (why, text) = why(&outcome.unwrap_err());
            // A process that was not scheduled for as long is overdue, too.
            if why != Failure::Deadline || *what == "loop" {
                assert!(why == *expected && text.contains(part), "{what}: {why:?}: {text}");
            }
            loop {
                match target.run(&honest, &1_u64.to_le_bytes(), &mut number) {
                    Ok(answer) => break assert_eq!(answer, number),
                    Err(failed) => assert_eq!(failed.status, Status::Failed(Failure::Deadline)),
                }
            }
        }
        memory.push(private_memory(std::process::id()));
    }
    assert_eq!(host, 99);
    let (early, late) = (memory[memory.len() / 4], memory[memory.len() - 1]);
    println!("{rounds} rounds, {number} honest calls, {early} KiB early, {late} KiB at the end");
    assert!(late < early + (4 << 10), "{early} KiB, then {late} KiB");
}

/// Kilobytes of a process that are no file.
fn private_memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn crashes_end_invocations_of_one_tenant_alone() {
    crashes(2);
}

#[test]
#[ignore = "nightly: a thousand crashes of each kind, and a hundred loops"]
fn thousands_of_crashes_end_invocations_of_one_tenant_alone() {
    crashes(1000);
}

#[test]
fn system_calls_that_reach_out_are_denied_and_told() {
    let mut target = Target::new();
    let calls = target.code(CALLS, 1);
    let number = |number: libc::c_long| number as u64;
    let allowed = target.call(&calls, &[number(libc::SYS_getpid)]).unwrap();
    let mut pids = vec![allowed];
    let denied: [(&str, &[u64]); 14] = [
        ("openat", &[number(libc::SYS_openat), 0, 0, 0]),
        ("open", &[number(libc::SYS_open), 0, 0]),
        ("socket", &[number(libc::SYS_socket), 2, 1]),
        ("connect", &[number(libc::SYS_connect), 1, 0, 0]),
        ("fork", &[number(libc::SYS_fork)]),
        ("clone", &[number(libc::SYS_clone), 0x11]),
        ("execve", &[number(libc::SYS_execve), 0, 0, 0]),
        ("ptrace", &[number(libc::SYS_ptrace), 0, 0, 0, 0]),
        (
            "kill",
            &[number(libc::SYS_kill), u64::from(std::process::id()), 0],
        ),
        ("prctl", &[number(libc::SYS_prctl), 38, 0]),
        ("rt_sigaction", &[number(libc::SYS_rt_sigaction), 31, 0, 0, 8]),
        // Memory that is executable.
        ("mmap", &[number(libc::SYS_mmap), 0, 4096, 7, 0x22, u64::MAX, 0]),
        ("mprotect", &[number(libc::SYS_mprotect), 0, 4096, 5]),
        // The descriptor that wakes the runner.
        ("write", &[number(libc::SYS_write), 1, 0, 8]),
    ];
    for (name, words) in denied {
        let text = target.call(&calls, words).unwrap_err();
        assert!(
            text.contains(&format!("the system call `{name}`")),
            "{name}: {text}"
        );
        // Another process takes its place.
        pids.push(target.call(&calls, &[number(libc::SYS_getpid)]).unwrap());
    }
    pids.dedup();
    assert_eq!(pids.len(), denied.len() + 1);
    // Memory has a limit: more than that is not there.
    let map = |bytes: u64| [number(libc::SYS_mmap), 0, bytes, 3, 0x22, u64::MAX, 0];
    let refused = target.call(&calls, &map(1 << 30)).unwrap();
    assert_eq!(refused as i64, -i64::from(libc::ENOMEM));
    assert!((target.call(&calls, &map(1 << 20)).unwrap() as i64) > 0);
}

#[test]
fn a_runner_that_dies_is_told_and_replaced() {
    let mut target = Target::new();
    let calls = target.code(CALLS, 1);
    let pid = |target: &mut Target| target.call(&calls, &[libc::SYS_getpid as u64]).unwrap();
    let kill = |pid: u64| {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let first = pid(&mut target);
    // Between invocations: the next one is told, and the one after runs in another process.
    kill(first);
    let told = target.call(&calls, &[libc::SYS_getpid as u64]).unwrap_err();
    assert!(told.contains("killed (SIGKILL)"), "{told}");
    let second = pid(&mut target);
    assert_ne!(first, second);
    // During one that blocks the signal of its deadline: the target ends its process.
    let stubborn = target.code(IGNORES_SIGNALS, 1);
    let outcome = target.run(&stubborn, &u64::MAX.to_le_bytes(), &mut 0);
    fails(outcome, Failure::Deadline, "its runner process was ended");
    let third = pid(&mut target);
    assert_ne!(second, third);
    // During one that nothing ends.
    let mut patient = Target::with(RunnerOptions::new(), None);
    let loops = patient.code(LOOPS, 1);
    let calls_there = patient.code(CALLS, 1);
    let there = patient.call(&calls_there, &[libc::SYS_getpid as u64]).unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| patient.run(&loops, &[], &mut 0));
        std::thread::sleep(Duration::from_millis(20));
        kill(there);
        fails(run.join().unwrap(), Failure::Fault, "killed (SIGKILL)");
    });
    // The same in a callback, whose function of the host returns.
    let returned = CALLED_ONCE.load(Ordering::SeqCst);
    let outcome = target.run(
        &target.entry(&calls_back("calls_once", IGNORES_SIGNALS), 1),
        &u64::MAX.to_le_bytes(),
        &mut 0,
    );
    fails(outcome, Failure::Deadline, "its runner process was ended");
    let there = patient.call(&calls_there, &[libc::SYS_getpid as u64]).unwrap();
    let loops = patient.entry(&calls_back("calls_once", LOOPS), 1);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| patient.run(&loops, &[], &mut 0));
        std::thread::sleep(Duration::from_millis(20));
        kill(there);
        fails(run.join().unwrap(), Failure::Fault, "killed (SIGKILL)");
    });
    assert_eq!(CALLED_ONCE.load(Ordering::SeqCst), returned + 2);
    let third = {
        assert!(!lives(third));
        pid(&mut target)
    };
    // The last image of a tenant takes its process with it.
    assert!(lives(third));
    drop((calls, stubborn));
    eventually("the process of a tenant without images ends", || !lives(third));
}

/// Calls that returned.
static CALLED_ONCE: AtomicU64 = AtomicU64::new(0);

#[ifunc::export]
fn calls_once(each: &mut dyn FnMut()) {
    each();
    CALLED_ONCE.fetch_add(1, Ordering::SeqCst);
}

/// What the target of these tests serves.
#[derive(ifunc::Opaque)]
#[opaque("counter/1")]
struct Counter(u64);

/// Counts the bytes of a text, and turns others around.
#[ifunc::export]
fn count(counter: &mut Counter, text: &str, bytes: &mut [u8]) -> Result<u64, i32> {
    match text {
        "panic" => panic!("the counter is full"),
        "error" => return Err(7),
        "sleep" => std::thread::sleep(Duration::from_millis(200)),
        _ => {}
    }
    assert_eq!(text.as_bytes(), bytes, "both are the payload");
    bytes.reverse();
    counter.0 += text.len() as u64;
    Ok(counter.0)
}

#[ifunc::export]
fn name_of_counter(_counter: &Counter) -> &str {
    "counter"
}

#[test]
fn functions_of_the_host_reach_the_target_arguments() {
    let mut target = Target::new();
    let calls = target.entry(&calls_host("count"), 1);
    let mut counter = Counter(5);
    let opaque = Lent::Opaque {
        text: "opaque counter/1",
        is_shared: false,
    };
    let mut ask = |text: &[u8], lent: Lent| {
        let mut session = target.thread.session();
        // SAFETY: the counter is of this type, or of none that the function takes.
        unsafe { session.lend(lent) };
        let (mut answer, pointer) = ([0; 8], (&raw mut counter).cast());
        // SAFETY: as in `Target::run`.
        let invocation = unsafe { Invocation::new(&*calls, text.as_ptr(), text.len(), pointer, 5) };
        let len = ImageExecutor::run(&mut session, || invocation, Some(&mut answer))?;
        Ok::<_, Box<Failed>>((len, u64::from_le_bytes(answer)))
    };
    assert_eq!(ask(b"words", opaque).unwrap(), (8, 10));
    assert_eq!(ask(b"", opaque).unwrap(), (8, 10));
    fails(ask(b"error", opaque), Failure::UnknownResult, "code 3");
    fails(ask(b"panic", opaque), Failure::HostPanic, "the counter is full");
    // A function of the host is not interrupted, and its time is over when it returns.
    fails(
        ask(b"sleep", opaque),
        Failure::Deadline,
        "when a function of the host returned",
    );
    assert_eq!(ask(b"words", opaque).unwrap(), (8, 20));
    // Of another type, or of several threads'.
    let other = Lent::Opaque {
        text: "opaque other/1",
        is_shared: false,
    };
    fails(ask(b"words", other), Failure::HostPanic, "takes another type");
    fails(
        ask(b"words", Lent::Copied(8)),
        Failure::HostPanic,
        "takes another type",
    );
    let shared = Lent::Opaque {
        text: "opaque counter/1",
        is_shared: true,
    };
    fails(
        ask(b"words", shared),
        Failure::Fault,
        "shared target arguments for itself alone, and was ended",
    );
    fails(
        ask(b"\xff", opaque),
        Failure::Fault,
        "a text that is not UTF-8, and was ended",
    );
    assert_eq!(ask(b"words", opaque).unwrap(), (8, 25));
    target.executor.exports().remove("count").unwrap();
    fails(
        ask(b"words", opaque),
        Failure::HostPanic,
        "`count` is not exported any more",
    );
    assert_eq!(counter.0, 25);
}

/// Keeps the latest numbers of runner processes.
#[derive(Debug, Default)]
struct Counts(Mutex<RunnerCounts>);

impl Observer for Counts {
    fn installed(&self, _: &InstalledImage) {}
    fn evicted(&self, _: &ImageProperties) {}
    fn exports_changed(&self, _: u64) {}
    fn change_ended(&self, _: u64, _: Duration) {}

    fn runners_changed(&self, counts: RunnerCounts) {
        *self.0.lock().unwrap() = counts;
    }
}

/// The runner has room for as many images as its target: those that were dropped leave it.
#[test]
fn images_that_are_dropped_make_room_in_the_runner() {
    let mut target = Target::new();
    for n in 0..100 {
        let entry = target.entry(&image(&format!("add{n}"), ADD), 1);
        let mut number = 2;
        assert_eq!(
            target.run(&entry, &3u64.to_le_bytes(), &mut number),
            Ok(5),
            "image {n}"
        );
    }
}

#[test]
fn starts_and_ends_are_counted() {
    let counts = Arc::<Counts>::default();
    let options = RunnerOptions::new().program(PROGRAM).max_runners(3);
    let executor = executor_for(options.clone(), None, counts.clone()).unwrap();
    let landlock = try_runner(&options).unwrap();
    let mut target = Target {
        thread: executor.thread().unwrap(),
        executor,
    };
    let numbers = |(running, restarts, crashes)| RunnerCounts {
        running,
        max: 3,
        restarts,
        crashes,
        landlock,
    };
    let now = || *counts.0.lock().unwrap();
    assert_eq!(now(), numbers((0, 0, 0)));
    let calls = target.code(CALLS, 1);
    let other = target.code(ADD, 2);
    assert_eq!(now(), numbers((2, 0, 0)));
    target.call(&calls, &[libc::SYS_fork as u64]).unwrap_err();
    assert_eq!(now(), numbers((1, 0, 1)));
    target.call(&calls, &[libc::SYS_getpid as u64]).unwrap();
    assert_eq!(now(), numbers((2, 1, 1)));
    // A fault ends the invocation, not its process.
    let fault = target.code(DIVIDES_BY_ZERO, 2);
    fails(target.run(&fault, &[], &mut 0), Failure::Fault, "SIGFPE");
    drop((other, fault));
    assert_eq!(now(), numbers((1, 1, 1)));
    drop(calls);
    assert_eq!(now(), numbers((0, 1, 1)));
}

#[test]
fn the_longest_limits_are_limits() {
    let runner = RunnerOptions::new().cpu_time(Duration::MAX);
    let mut target = Target::with(runner, Some(Duration::MAX));
    let add = target.code(ADD, 1);
    assert_eq!(target.run(&add, &1_u64.to_le_bytes(), &mut 1).unwrap(), 2);
}

#[test]
fn cpu_time_has_a_limit() {
    let mut target = Target::with(RunnerOptions::new().cpu_time(Duration::from_secs(1)), None);
    let loops = target.code(LOOPS, 1);
    let outcome = target.run(&loops, &[], &mut 0);
    fails(outcome, Failure::Deadline, "used 1s of CPU time");
}

#[test]
fn what_a_runner_does_not_have_is_refused_with_a_reason() {
    let target = Target::with(RunnerOptions::new().max_runners(1), None);
    let refused = target.install(&calls_host("not_there"), 1).unwrap_err();
    assert_eq!(refused.reason, Rejection::MissingImport);
    let refused = target.install(&calls_host("name_of_counter"), 1).unwrap_err();
    assert_eq!(refused.reason, Rejection::Import);
    assert!(
        refused.detail.contains("help: ") && refused.detail.contains("`name_of_counter`: it returns `&str`"),
        "{}",
        refused.detail
    );
    // What the host allows by name.
    let mut symbols = HostSymbols::new().unwrap();
    for symbol in NamedSet::Libc.symbols() {
        symbols.allow_of_set(symbol);
    }
    static HERE: u64 = 7;
    // SAFETY: no image calls it.
    let own = unsafe { Symbol::untyped("here", (&raw const HERE).cast()) };
    symbols.allow(own).unwrap();
    let options = options(RunnerOptions::new().program(PROGRAM), None);
    let allows = ImageExecutor::new(options, symbols, Arc::new(())).unwrap();
    for (name, part) in [
        (
            "strtol",
            "`strtol`: a function of the C library (`allow_set`), which stays in the host; help: ",
        ),
        ("here", "`here`: its type is not stated; help: `#[ifunc::export]`"),
    ] {
        let bytes = calls_host(name).encode().unwrap();
        let id = *blake3::hash(&bytes).as_bytes();
        let valid = allows.validate(&id, &bytes).unwrap();
        let refused = allows.install(&valid, Some(&Tenant::Connection(1))).unwrap_err();
        assert_eq!(refused.reason, Rejection::Import);
        assert!(refused.detail.contains(part), "{}", refused.detail);
    }
    let _one = target.code(ADD, 1);
    let refused = target.install(&image("add", ADD), 2).unwrap_err();
    assert_eq!(refused.reason, Rejection::Quota);
    assert!(refused.detail.contains("max_runners"), "{}", refused.detail);
}

#[test]
fn programs_that_are_no_runner_are_refused_when_a_target_begins() {
    for (program, part) in [
        ("/nowhere/ifunc-runner", "there is no runner program"),
        ("/bin/true", "ended when it began"),
    ] {
        let error = executor(RunnerOptions::new().program(program), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// The target is in a process of its own, which is killed, between invocations and in one of a callback that does not return.
#[test]
fn a_runner_ends_with_its_target() {
    const CHILD: &str = "IFUNC_TEST_TARGET";
    if let Some(calls_back) = std::env::var_os(CHILD) {
        let mut target = Target::with(RunnerOptions::new(), None);
        let calls = target.code(CALLS, 1);
        let pid = target.call(&calls, &[libc::SYS_getpid as u64]).unwrap();
        println!("runner {pid} end");
        if calls_back == "1" {
            let loops = target.entry(&images::calls_back("calls_once", LOOPS), 1);
            target.run(&loops, &[], &mut 0).unwrap_err();
        }
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    for calls_back in ["0", "1"] {
        ends_with_its_target((CHILD, calls_back));
    }
}

/// `child`: the variable that makes the test the target, and its value.
fn ends_with_its_target(child: (&str, &str)) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runner::a_runner_ends_with_its_target", "--nocapture"])
        .env(child.0, child.1)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let pid = lines.map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("runner ")?;
        rest.strip_suffix(" end")?.parse().ok()
    });
    let pid = pid.unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(lives(pid) && Path::new("/proc").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("a runner ends when its target was killed", || !lives(pid));
}
