//! Requirements of a target on the kernel and the CPU.

use std::io;

use ifunc_rt::RunnerOptions;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::{MembarrierQuery, membarrier_query};

use super::finding::{Finding, setting};

/// Length of the probe mapping: one page.
const PAGE: usize = 4096;

pub(super) fn checks() -> Vec<Finding> {
    let system = rustix::system::uname();
    vec![
        linux(
            &system.sysname().to_string_lossy(),
            &system.release().to_string_lossy(),
            &system.machine().to_string_lossy(),
        ),
        cpu(cpu_level()),
        executable_memory(executable_memfd(), setting("vm/memfd_noexec")),
        code_reuse(membarrier_query()),
        overcommit(setting("vm/overcommit_memory")),
        runner_processes(try_runner()),
    ]
}

fn linux(system: &str, release: &str, machine: &str) -> Finding {
    let found = format!("{system} {release} {machine}");
    match system == "Linux" && machine == "x86_64" {
        true => Finding::ok("system", found),
        false => Finding::missing("system", found, "ifuncs run on x86-64 Linux"),
    }
}

/// The highest x86-64 psABI level that this CPU fully supports.
fn cpu_level() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let v2 = has!("sse4.2") && has!("popcnt") && has!("ssse3") && has!("cmpxchg16b");
        let v3 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("fma");
        let v3 = v3 && has!("f16c") && has!("lzcnt") && has!("movbe");
        let v4 = has!("avx512f") && has!("avx512bw") && has!("avx512cd");
        let v4 = v4 && has!("avx512dq") && has!("avx512vl");
        [v2, v3, v4].into_iter().take_while(|has| *has).count() as u32 + 1
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

fn cpu(level: u32) -> Finding {
    match level {
        0 => Finding::missing("CPU", "not x86-64", "ifuncs run on x86-64"),
        level => Finding::ok(
            "CPU",
            format!("x86-64-v{level}: images built with `--cpu` up to this level run here"),
        ),
    }
}

/// Maps executable memory as a target does: a memfd with a read-execute mapping.
fn executable_memfd() -> rustix::io::Result<()> {
    let fd = memfd_create("ifunc-doctor", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| memfd_create("ifunc-doctor", MemfdFlags::CLOEXEC))?;
    ftruncate(&fd, PAGE as u64)?;
    // SAFETY: the kernel chooses the address of this new mapping, and nothing refers to it.
    let at = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::EXEC,
            MapFlags::SHARED,
            &fd,
            0,
        )?
    };
    // SAFETY: the mapping made above, which nothing refers to.
    unsafe { rustix::mm::munmap(at, PAGE) }
}

fn executable_memory(result: rustix::io::Result<()>, noexec: Option<i64>) -> Finding {
    let name = "code memory";
    match (result, noexec) {
        (Ok(()), _) => Finding::ok(name, "a memfd can be mapped read-execute"),
        (Err(e), Some(2)) => Finding::missing(
            name,
            format!("no executable memfd (vm.memfd_noexec = 2): {e}"),
            "`sysctl -w vm.memfd_noexec=1`, and the same in /etc/sysctl.d",
        ),
        (Err(e), _) => Finding::missing(
            name,
            format!("a memfd cannot be mapped read-execute: {e}"),
            "a security module or a sandbox forbids it: allow `execmem` and executable tmpfs mappings (SELinux: `setsebool -P deny_execmem off`; systemd: remove `NoExecPaths=`)",
        ),
    }
}

fn code_reuse(query: MembarrierQuery) -> Finding {
    let name = "membarrier";
    match query.contains(MembarrierQuery::PRIVATE_EXPEDITED_SYNC_CORE) {
        true => Finding::ok(name, "SYNC_CORE: targets reuse code memory"),
        false => Finding::warning(
            name,
            "no SYNC_CORE: a target cannot reuse code memory and runs out of it after many installs",
            "Linux 4.16 or newer with CONFIG_MEMBARRIER; a container's seccomp profile must allow `membarrier`",
        ),
    }
}

fn overcommit(mode: Option<i64>) -> Finding {
    let name = "overcommit";
    match mode {
        Some(2) => Finding::warning(
            name,
            "strict (vm.overcommit_memory = 2): address space that targets reserve counts as used",
            "reserve less in targets (`Target::builder().code_bytes(..)`), or `sysctl -w vm.overcommit_memory=0`",
        ),
        Some(mode) => Finding::ok(name, format!("vm.overcommit_memory = {mode}")),
        None => Finding::ok(name, "not readable"),
    }
}

/// Starts a runner process of this program, as a target of the level `process` does. Returns the version of Landlock.
fn try_runner() -> io::Result<u64> {
    let options = RunnerOptions::new().program(std::env::current_exe()?);
    ifunc_rt::try_runner(&options.without_landlock(true))
}

fn runner_processes(version: io::Result<u64>) -> Finding {
    let name = "runner processes";
    match version {
        Ok(0) => Finding::warning(
            name,
            "confined by seccomp alone: without Landlock in the kernel, targets refuse the level `process`",
            "a kernel from 5.13 on with Landlock enabled (`lsm=`), or `RunnerOptions::without_landlock(true)`",
        ),
        Ok(version) => Finding::ok(
            name,
            format!("confined by seccomp and Landlock (version {version})"),
        ),
        Err(error) => Finding::warning(
            name,
            format!("none for the level `process`: {error}"),
            "a kernel with CONFIG_SECCOMP_FILTER; a container's profile must allow `seccomp`, `prctl` and the calls of Landlock",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    #[test]
    fn other_systems_are_refused() {
        assert_eq!(linux("Linux", "6.1.0", "x86_64").mark, Mark::Ok);
        assert_eq!(linux("Linux", "6.1.0", "aarch64").mark, Mark::Missing);
        assert_eq!(linux("FreeBSD", "14", "x86_64").mark, Mark::Missing);
        assert_eq!(cpu(0).mark, Mark::Missing);
        assert!(cpu(3).found.contains("x86-64-v3"));
    }

    #[test]
    fn the_setting_that_forbids_code_is_named() {
        let help = |noexec| executable_memory(Err(rustix::io::Errno::ACCESS), noexec).help;
        assert!(help(Some(2)).is_some_and(|help| help.contains("vm.memfd_noexec=1")));
        assert!(help(Some(0)).is_some_and(|help| help.contains("security module")));
        assert_eq!(executable_memory(Ok(()), Some(1)).mark, Mark::Ok);
    }

    #[test]
    fn degraded_features_are_warnings() {
        assert_eq!(code_reuse(MembarrierQuery::empty()).mark, Mark::Warning);
        assert_eq!(code_reuse(MembarrierQuery::all()).mark, Mark::Ok);
        assert_eq!(overcommit(Some(2)).mark, Mark::Warning);
        assert_eq!(overcommit(Some(0)).mark, Mark::Ok);
        let without = runner_processes(Ok(0));
        assert!(without.mark == Mark::Warning && without.found.contains("seccomp alone"));
        let denied = runner_processes(Err(io::ErrorKind::PermissionDenied.into()));
        assert!(denied.mark == Mark::Warning && denied.found.contains("permission denied"));
        let both = runner_processes(Ok(6));
        assert!(both.mark == Mark::Ok && both.found.contains("Landlock (version 6)"));
    }
}
