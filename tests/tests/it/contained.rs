//! Ifuncs in Rust and in C that crash or do not end, on a target in another process that contains them, or runs them in processes of
//! their own.

use std::cell::Cell;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use crate::common::{Mapping, Process, connect, library, over_there, unique};
use ifunc_rt::{Error, Failure};
use ifunc_tests_ifuncs::faults::{WAYS, t_allocates, t_calls_kernel, t_faults, t_panics};
use ifunc_tests_ifuncs::{t_add, t_lookup};

/// Variables by which a target gets its level, and the milliseconds that an invocation may run.
const CONTAINED: &str = "E2E_CONTAINED";
const PROCESS: &str = "E2E_PROCESS";

/// The error that the source gets for each way in which the Rust ifunc ends, and its place.
const RUST: [&str; WAYS.len()] = [
    "SIGSEGV (not mapped), address 0x18, at offset 0x",
    "SIGSEGV (not permitted), address 0x",
    "SIGBUS (misaligned), ",
    "SIGFPE (integer division by zero, or its result overflows), at offset 0x",
    "SIGILL (no valid instruction), at offset 0x",
    "SIGSEGV (not mapped), address 0x1000, outside of the image",
    "stack overflow (SIGSEGV, address 0x",
    "it ran for longer than 50ms, at offset 0x",
];
const RUST_LOOPS: usize = 7;

/// The same for the ifunc in C.
const C: [&str; 7] = [
    "SIGSEGV (not mapped), address 0x8, at offset 0x",
    "SIGFPE (integer division by zero, or its result overflows), at offset 0x",
    "SIGILL (no valid instruction), at offset 0x",
    "stack overflow (SIGSEGV, address 0x",
    "it ran for longer than 50ms, at offset 0x",
    "SIGSEGV (not mapped), address 0x0, outside of the image",
    "SIGSEGV (not mapped), address 0x",
];
const C_LOOPS: usize = 4;

/// Each way so many times, and those that run into their limit a tenth of that, with so many honest calls after each.
fn escapes(rounds: usize, level: &str, calls: u64) {
    let Some(address) = unique() else { return };
    let mut command = over_there(env!("CARGO_BIN_EXE_e2e-target"));
    command.env("IFUNC_ADDR", &address).env(level, "50");
    let mut target = Process::start_target(&mut command, &address);
    let source = connect(&address);
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    let rust = source.register_path::<t_faults>(library("t_faults")).unwrap();
    // SAFETY: built from this checkout.
    let c = unsafe { source.load_path(library("t_c_faults")).unwrap() };
    let panics = source.register_path::<t_panics>(library("t_panics")).unwrap();
    let (counter, called, ended) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(0));
    let honest = |what: &str| {
        for number in 0..calls {
            let answer = loop {
                match add.call(&1).unwrap().wait() {
                    // A busy machine stopped the target's thread for as long.
                    Err(Error::Failed {
                        why: Failure::Deadline,
                        ..
                    }) => {}
                    answer => break answer.unwrap_or_else(|error| panic!("after {what}: {error}")),
                }
            };
            // In the target's own process, what the ifunc had written before it ended stays.
            if level == PROCESS || number > 0 {
                assert_eq!(answer, counter.get() + 1, "after {what}");
            }
            counter.set(answer);
            called.set(called.get() + 1);
        }
    };
    let check = |what: &str, expected: &str, loops: bool, call: &dyn Fn() -> Result<(), Error>| {
        loop {
            match call() {
                Err(Error::Failed { why, detail, .. }) => {
                    if why == Failure::Deadline && !loops {
                        continue;
                    }
                    assert_eq!(why == Failure::Deadline, loops, "{what}: {detail}");
                    // A busy machine let the runner end nothing in its time, so the target ended the runner.
                    if level == PROCESS
                        && detail == "it ran for longer than 50ms; its runner process was ended"
                    {
                        ended.set(ended.get() + 1);
                        continue;
                    }
                    assert!(detail.starts_with(expected), "{what}: {detail}");
                    return detail;
                }
                other => panic!("{what}: {other:?}"),
            }
        }
    };
    let (mut memory, mut replaced) = (Vec::new(), 0);
    while memory.len() < rounds {
        let round = memory.len();
        match panics.call("ouch").unwrap().wait() {
            Err(Error::Panic { message, .. }) => assert_eq!(message, "ouch"),
            other => panic!("a panic: {other:?}"),
        }
        honest("a panic");
        let of_round = children(target.pid());
        for (way, expected) in RUST.iter().enumerate() {
            let loops = way == RUST_LOOPS;
            if loops && round % 10 != 0 {
                continue;
            }
            let detail = check(WAYS[way], expected, loops, &|| {
                rust.call(&(way as u64))?.wait().map(drop)
            });
            // The library has the names of its functions.
            assert!(detail.contains("t_faults") || way == 5, "{}: {detail}", WAYS[way]);
            honest(WAYS[way]);
        }
        for (way, expected) in C.iter().enumerate() {
            let loops = way == C_LOOPS;
            if loops && round % 10 != 0 {
                continue;
            }
            let what = format!("way {way} in C");
            let payload = (way as u64).to_le_bytes();
            check(&what, expected, loops, &|| c.call(&payload)?.wait().map(drop));
            honest(&what);
        }
        let runners = children(target.pid());
        if runners != of_round {
            // A busy machine had one ended, and the new one has less memory: once more.
            replaced += 1;
            assert!(replaced <= 1 + rounds / 20, "{replaced} runners were replaced");
            continue;
        }
        let pids = runners.into_iter().map(i32::unsigned_abs).chain([target.pid()]);
        memory.push(pids.map(private_memory).sum::<usize>());
    }
    assert!(target.lives());
    // Of some two loops in ten rounds.
    assert!(
        ended.get() <= 1 + rounds / 20,
        "{} runners were ended",
        ended.get()
    );
    let (early, late) = (memory[rounds / 4], memory[rounds - 1]);
    println!(
        "{rounds} rounds, {} honest calls, memory in use: {early} KiB early, {late} KiB at the end",
        called.get()
    );
    assert!(late < early + (4 << 10), "{early} KiB, then {late} KiB");
}

/// Kilobytes of a process that are no file.
fn private_memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_target_survives_ifuncs_that_crash() {
    escapes(2, CONTAINED, 1);
}

#[test]
#[ignore = "nightly: a thousand crashes of each kind in Rust and in C, two hundred invocations that run into their limit, a million honest calls"]
fn a_target_survives_thousands_of_ifuncs_that_crash() {
    escapes(1000, CONTAINED, 71);
}

#[test]
#[ignore = "nightly: the same in processes of their own, with a hundred thousand honest calls"]
fn a_target_survives_thousands_of_ifuncs_that_crash_elsewhere() {
    escapes(1000, PROCESS, 8);
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which is in brackets: the state, and the parent.
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split(' ').nth(1)?.parse().ok()) == Some(parent)
    };
    pids.filter(is_child).collect()
}

#[test]
fn a_source_is_told_what_its_process_may_not_do() {
    let Some(address) = unique() else { return };
    let mut command = over_there(env!("CARGO_BIN_EXE_e2e-target"));
    command.env("IFUNC_ADDR", &address).env(PROCESS, "5000");
    let mut target = Process::start_target(&mut command, &address);
    let source = connect(&address);
    let kernel = source
        .register_path::<t_calls_kernel>(library("t_calls_kernel"))
        .unwrap();
    let allocates = source
        .register_path::<t_allocates>(library("t_allocates"))
        .unwrap();
    let (other, path) = (connect(&address), std::env::temp_dir());
    let add = other.register_path::<t_add>(library("t_add")).unwrap();
    let here = std::process::id();
    // A path that this process may read, at an address of this process: what the call would do is of no interest.
    let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
    let path = path.as_ptr().expose_provenance() as u64;
    let call = |words: &[i64]| {
        let mut all = [0; 7];
        for (word, value) in all.iter_mut().zip(words) {
            *word = value.cast_unsigned();
        }
        kernel.call(&all).unwrap().wait()
    };
    let path = path.cast_signed();
    let both = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).into();
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).into();
    let denied: [(&str, &[i64]); 12] = [
        ("open", &[libc::SYS_open, path, 0]),
        ("openat", &[libc::SYS_openat, libc::AT_FDCWD.into(), path, 0]),
        (
            "socket",
            &[
                libc::SYS_socket,
                libc::AF_INET.into(),
                libc::SOCK_STREAM.into(),
                0,
            ],
        ),
        ("connect", &[libc::SYS_connect, 0, path, 16]),
        ("fork", &[libc::SYS_fork]),
        ("clone3", &[libc::SYS_clone3, path, 88]),
        ("execve", &[libc::SYS_execve, path, 0, 0]),
        (
            "ptrace",
            &[libc::SYS_ptrace, libc::PTRACE_ATTACH.into(), here.into(), 0, 0],
        ),
        (
            "process_vm_readv",
            &[libc::SYS_process_vm_readv, here.into(), path, 1, path, 1, 0],
        ),
        ("kill", &[libc::SYS_kill, here.into(), 0]),
        ("mmap", &[libc::SYS_mmap, 0, 4096, both, private, -1, 0]),
        ("mprotect", &[libc::SYS_mprotect, 0, 4096, both]),
    ];
    for (sum, (name, words)) in denied.iter().enumerate() {
        match call(words) {
            Err(Error::Failed {
                why: Failure::Fault,
                detail,
                ..
            }) => assert!(
                detail.contains(&format!("may not make the system call `{name}`")),
                "{name}: {detail}"
            ),
            other => panic!("{name}: {other:?}"),
        }
        // Another process takes the place of the one that was ended, and that of another source is not touched.
        assert!(call(&[libc::SYS_getpid]).is_ok(), "after {name}");
        assert_eq!(add.call(&1).unwrap().wait().unwrap(), sum as u64 + 1);
    }
    assert_eq!(allocates.call(&(16 << 20)).unwrap().wait().unwrap(), 4096);
    match allocates.call(&(1 << 30)).unwrap().wait() {
        Err(Error::Panic { message, .. }) => assert!(message.contains("memory"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(allocates.call(&(16 << 20)).unwrap().wait().unwrap(), 4096);
    assert!(target.lives());
}

#[test]
fn ifuncs_run_in_processes_of_their_own() {
    escapes(2, PROCESS, 1);
    let Some(address) = unique() else { return };
    let mut command = over_there(env!("CARGO_BIN_EXE_e2e-target"));
    command.env("IFUNC_ADDR", &address).env(PROCESS, "5000");
    let mut target = Process::start_target(&mut command, &address);
    let sources = [connect(&address), connect(&address)];
    let adds = sources
        .each_ref()
        .map(|source| source.register_path::<t_add>(library("t_add")).unwrap());
    // The data is the target's, and each process works on a copy of it.
    for sum in 1..=10 {
        assert_eq!(adds[sum % 2].call(&1).unwrap().wait().unwrap(), sum as u64);
    }
    let runners = children(target.pid());
    assert_eq!(runners.len(), 2, "{runners:?}");
    for pid in &runners {
        let pid = rustix::process::Pid::from_raw(*pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    for add in &adds {
        match add.call(&1).unwrap().wait() {
            Err(Error::Failed {
                why: Failure::Fault,
                detail,
                ..
            }) => assert!(detail.contains("killed (SIGKILL)"), "{detail}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(adds[0].call(&1).unwrap().wait().unwrap(), 11);
    let runners = sources[0]
        .target_stats(crate::common::TIMEOUT)
        .unwrap()
        .runners
        .unwrap();
    assert_eq!((runners.running, runners.crashes, runners.restarts), (1, 2, 1));
    // A function of the host.
    let lookup = sources[0].register_path::<t_lookup>(library("t_lookup")).unwrap();
    for (word, found) in [("word", 4), ("no word", u64::MAX), ("", 0)] {
        assert_eq!(lookup.call(word).unwrap().wait().unwrap(), found);
    }
    // A process goes with its source.
    drop((adds, lookup, sources));
    let begin = std::time::Instant::now();
    while !children(target.pid()).is_empty() {
        assert!(begin.elapsed() < crate::common::TIMEOUT);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(target.lives());
}

/// A target and its runners are sampled while images arrive there and run. A sample misses what lasts for a moment: that a
/// runner's sandbox denies such a mapping is tested beside its other denials.
#[test]
fn nothing_is_writable_and_executable_in_runners() {
    let Some(address) = unique() else { return };
    let mut command = over_there(env!("CARGO_BIN_EXE_e2e-target"));
    command.env("IFUNC_ADDR", &address).env(PROCESS, "5000");
    let mut target = Process::start_target(&mut command, &address);
    let (goes_on, end) = mpsc::channel::<()>();
    let pid_of_target = target.pid();
    thread::scope(|scope| {
        let sampler = scope.spawn(move || {
            let mut with_code = 0;
            while end.try_recv() == Err(TryRecvError::Empty) {
                let runners = children(pid_of_target).into_iter().map(i32::unsigned_abs);
                for pid in runners.chain([pid_of_target]) {
                    let maps = Mapping::of(pid).unwrap_or_default();
                    let both: Vec<_> = maps
                        .iter()
                        .filter(|mapping| mapping.is_writable_and_executable())
                        .collect();
                    assert!(both.is_empty(), "{both:?}");
                    let has_code = maps
                        .iter()
                        .any(|mapping| mapping.name.starts_with("/memfd:ifunc-code"));
                    with_code += usize::from(has_code && pid != pid_of_target);
                }
            }
            with_code
        });
        for _ in 0..10 {
            let source = connect(&address);
            let add = source.register_path::<t_add>(library("t_add")).unwrap();
            let lookup = source.register_path::<t_lookup>(library("t_lookup")).unwrap();
            for _ in 0..10 {
                add.call(&1).unwrap().wait().unwrap();
                lookup.call("word").unwrap().wait().unwrap();
            }
        }
        drop(goes_on);
        assert!(sampler.join().unwrap() > 0);
    });
    assert!(target.lives());
}
