//! What a runner process gives up before it runs code that it was sent.
//!
//! In this order: open descriptors, the right to outlive its target, to be traced, to gain rights by `exec`, to reach files
//! (Landlock), resources (limits), and at last every system call that injected code and its runtime do not need (seccomp). What the
//! filter denies ends the process by SIGSYS, after its number was noted in the segment.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen as ArgLen, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule as Rule, TargetArch,
};

use super::port::{OWN_EVENT, PEER_EVENT};
use super::segment::Segment;

/// Closes every descriptor from this one on.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: nothing of this process uses a descriptor from `first` on.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process with the thread that started it, and keeps others from tracing it, and itself from gaining rights.
pub(super) fn bind_to_parent(parent: u64) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    let lives = rustix::process::getppid().map(Pid::as_raw_nonzero);
    if lives.and_then(|pid| u64::try_from(pid.get()).ok()) != Some(parent) {
        return Err(io::Error::other("the target has ended"));
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// `struct landlock_ruleset_attr`: what is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
    scoped: u64,
}

impl Ruleset {
    /// Everything that this version of Landlock can forbid, and how many bytes of it the version knows.
    fn of(version: u64) -> (Self, usize) {
        // From 1 on the first 13, then REFER, TRUNCATE and, from 5 on, IOCTL_DEV.
        let files = match version {
            ..=1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        let ruleset = Self {
            files: (1 << files) - 1,
            net: u64::from(version >= 4) * 3,
            scoped: u64::from(version >= 6) * 3,
        };
        let size = match version {
            ..=3 => 8,
            4 | 5 => 16,
            _ => 24,
        };
        (ruleset, size)
    }
}

/// Forbids every access to files, and connections by TCP and to sockets and processes outside. Returns the version of Landlock;
/// 0: the kernel has none.
pub(super) fn restrict_files() -> io::Result<u64> {
    const CREATE_VERSION: u32 = 1;
    let create = |attributes: *const Ruleset, size: usize, flags: u32| {
        // SAFETY: reads the attributes, which are null or a local.
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes, size, flags) }
    };
    let version = create(std::ptr::null(), 0, CREATE_VERSION);
    let Ok(version) = u64::try_from(version) else {
        let error = io::Error::last_os_error();
        // Unknown to the kernel, or not enabled.
        return match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Ok(0),
            _ => Err(error),
        };
    };
    if version == 0 {
        return Ok(0);
    }
    let (ruleset, size) = Ruleset::of(version);
    let file = create(&raw const ruleset, size, 0);
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor just made, which is this function's own.
    let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, file, 0) };
    let error = io::Error::last_os_error();
    // SAFETY: as above.
    unsafe { libc::close(file as c_int) };
    match restricted {
        0 => Ok(version),
        _ => Err(error),
    }
}

/// Bytes of address space that this process takes.
pub(super) fn address_space() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm
        .split_whitespace()
        .next()
        .and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Limits what this process may use: `memory` bytes of address space in all, seconds of CPU time (0: without a limit), no
/// further process, thread, descriptor or core dump.
pub(super) fn limit_resources(memory: u64, cpu_seconds: u64) -> io::Result<()> {
    let set = |resource, limit| {
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        rustix::process::setrlimit(resource, limit)
    };
    set(Resource::Core, 0)?;
    set(Resource::Nproc, 0)?;
    // `poll` takes no more descriptors than the limit, and the runner polls one. Number 0 is in use.
    set(Resource::Nofile, 1)?;
    set(Resource::As, memory)?;
    if cpu_seconds > 0 {
        rustix::process::setrlimit(
            Resource::Cpu,
            Rlimit {
                current: Some(cpu_seconds),
                // The first one has a signal of its own.
                maximum: Some(cpu_seconds.saturating_add(1)),
            },
        )?;
    }
    Ok(())
}

/// What a failed rule means: none of them depends on anything that a peer sends.
fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the filter of system calls: {error}"))
}

/// Denies, on all threads, every system call but a few. `arena` is the file of code memory.
pub(super) fn filter_system_calls(arena: BorrowedFd<'_>) -> io::Result<()> {
    let rule = |conditions: Vec<Result<Condition, seccompiler::BackendError>>| {
        let conditions: Result<Vec<_>, _> = conditions.into_iter().collect();
        Rule::new(conditions.map_err(invalid)?).map_err(invalid)
    };
    let is = |argument: u8, value: u64| Condition::new(argument, ArgLen::Dword, Op::Eq, value);
    let lacks = |argument: u8, bits: u64| Condition::new(argument, ArgLen::Dword, Op::MaskedEq(bits), 0);
    let exec = libc::PROT_EXEC as u64;
    let write = libc::PROT_WRITE as u64;
    let arena = arena.as_raw_fd() as u64;
    let (own, peer) = (OWN_EVENT as u64, PEER_EVENT as u64);
    let me = u64::from(std::process::id());
    let mut rules = std::collections::BTreeMap::new();
    // For what they do to this process alone: memory that is not executable, time, waiting, threads that exist, its end.
    for free in [
        libc::SYS_brk,
        libc::SYS_clock_getres,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_gettimeofday,
        libc::SYS_getuid,
        libc::SYS_madvise,
        libc::SYS_membarrier,
        libc::SYS_munmap,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_yield,
        libc::SYS_sigaltstack,
    ] {
        rules.insert(free, Vec::new());
    }
    // No page becomes executable but those of the arena's file, and none is writable and executable. A page that is not executable
    // does not become so by being moved, but one of the arena could be moved away from where the runtime expects it.
    rules.insert(
        libc::SYS_mmap,
        vec![
            rule(vec![lacks(2, exec)])?,
            rule(vec![lacks(2, write), is(4, arena)])?,
        ],
    );
    rules.insert(libc::SYS_mprotect, vec![rule(vec![lacks(2, exec)])?]);
    rules.insert(libc::SYS_mremap, Vec::new());
    rules.insert(libc::SYS_read, vec![rule(vec![is(0, own)])?]);
    rules.insert(libc::SYS_write, vec![rule(vec![is(0, peer)])?]);
    rules.insert(libc::SYS_pwritev, vec![rule(vec![is(0, arena)])?]);
    // What a call of `pwritev` has left.
    rules.insert(libc::SYS_pwrite64, vec![rule(vec![is(0, arena)])?]);
    rules.insert(libc::SYS_fallocate, vec![rule(vec![is(0, arena)])?]);
    // Signals to itself: the deadline's, and what `abort` raises.
    rules.insert(libc::SYS_tgkill, vec![rule(vec![is(0, me)])?]);
    rules.insert(libc::SYS_rt_tgsigqueueinfo, vec![rule(vec![is(0, me)])?]);
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(invalid)?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch).map_err(invalid)?;
    let program: seccompiler::BpfProgram = filter.try_into().map_err(invalid)?;
    seccompiler::apply_filter_all_threads(&program).map_err(invalid)
}

/// The segment, for the handler.
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(std::ptr::null_mut());

/// Notes system calls that are denied, before they end the process.
pub(super) fn report_denied_calls(segment: &'static Segment) -> io::Result<()> {
    SEGMENT.store(std::ptr::from_ref(segment).cast_mut(), Ordering::Release);
    // SAFETY: plain data, for which zeros are valid.
    let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
    action.sa_sigaction = on_denied as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: a handler of the type that SA_SIGINFO asks for, which does what handlers may do.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel passes for SIGSYS.
#[repr(C)]
struct Denied {
    _signal: [c_int; 4],
    _address: *mut c_void,
    call: c_int,
}

unsafe extern "C" fn on_denied(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's argument, of this layout for this signal, and the segment, which lives as long as the process.
    unsafe {
        let call = (*info.cast::<Denied>()).call;
        if let Some(segment) = SEGMENT.load(Ordering::Acquire).as_ref() {
            segment.note_denied(call as u32 as u64);
        }
        // Denied, too, while its signal is blocked: the kernel ends the process by SIGSYS.
        libc::syscall(libc::SYS_getppid);
        libc::_exit(127);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `linux/landlock.h` has them.
    #[test]
    fn each_version_of_landlock_forbids_all_that_it_knows() {
        for (version, files, net, scoped, size) in [
            (1, 0x1fff, 0, 0, 8),
            (2, 0x3fff, 0, 0, 8),
            (3, 0x7fff, 0, 0, 8),
            (4, 0x7fff, 3, 0, 16),
            (5, 0xffff, 3, 0, 16),
            (6, 0xffff, 3, 3, 24),
            (7, 0xffff, 3, 3, 24),
        ] {
            let expected = Ruleset { files, net, scoped };
            assert_eq!(Ruleset::of(version), (expected, size), "version {version}");
        }
    }

    #[test]
    fn the_address_space_is_counted_in_bytes() {
        let before = address_space().unwrap();
        let page = rustix::param::page_size() as u64;
        assert!(before > 1 << 20 && before.is_multiple_of(page));
        // Nothing of it is touched.
        let len = 1 << 30;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let more = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                rustix::mm::ProtFlags::empty(),
                rustix::mm::MapFlags::PRIVATE,
            )
        };
        let more = more.unwrap();
        let after = address_space().unwrap();
        // SAFETY: of this function alone.
        unsafe { rustix::mm::munmap(more, len) }.unwrap();
        // Other threads map and unmap little.
        assert!(after - before > (len / 2) as u64 && after - before < 2 * len as u64);
    }
}
