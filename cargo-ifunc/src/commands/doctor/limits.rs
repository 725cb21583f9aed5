//! Resource limits of this process, which targets and sources inherit.

use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, bytes};

/// Address space of a target with one connection: 256 MiB for code, stacks, and rings that are mapped twice.
const SPACE: u64 = 1 << 30;
/// Default length of a target's code memory, which is a memfd.
const CODE: u64 = 256 << 20;
/// Descriptors: a socket, a segment and a doorbell per connection.
const FILES: u64 = 256;
/// Registered memory of a few connections.
const LOCKED: u64 = 64 << 20;

pub(super) fn checks() -> Vec<Finding> {
    let soft = |resource| getrlimit(resource).current;
    vec![
        address_space(soft(Resource::As)),
        file_size(soft(Resource::Fsize)),
        files(soft(Resource::Nofile)),
        locked(soft(Resource::Memlock)),
        dev_shm(free("/dev/shm")),
    ]
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".into(), bytes)
}

fn address_space(limit: Option<u64>) -> Finding {
    let found = format!("RLIMIT_AS is {}", shown(limit));
    match limit.is_some_and(|limit| limit < SPACE) {
        true => Finding::warning(
            "address space",
            found,
            "a target reserves 256 MiB for code and maps its rings twice: `ulimit -v unlimited`",
        ),
        false => Finding::ok("address space", found),
    }
}

fn file_size(limit: Option<u64>) -> Finding {
    let found = format!("RLIMIT_FSIZE is {}", shown(limit));
    match limit.is_some_and(|limit| limit < CODE) {
        true => Finding::warning(
            "file size",
            found,
            "a target keeps its code in a memfd of 256 MiB by default: `ulimit -f unlimited`",
        ),
        false => Finding::ok("file size", found),
    }
}

fn files(limit: Option<u64>) -> Finding {
    let found = format!(
        "RLIMIT_NOFILE is {}",
        limit.map_or_else(|| "unlimited".into(), |n| n.to_string())
    );
    match limit.is_some_and(|limit| limit < FILES) {
        true => Finding::warning(
            "open files",
            found,
            "each connection takes a few: `ulimit -n 1024`",
        ),
        false => Finding::ok("open files", found),
    }
}

fn locked(limit: Option<u64>) -> Finding {
    let found = format!("RLIMIT_MEMLOCK is {}", shown(limit));
    match limit.is_some_and(|limit| limit < LOCKED) {
        true => Finding::none(
            "locked memory",
            found,
            "shared memory needs none; RDMA network cards do: `ulimit -l unlimited`, or `memlock` in /etc/security/limits.conf",
        ),
        false => Finding::ok("locked memory", found),
    }
}

/// Free space on a file system, in bytes.
fn free(path: &str) -> Option<u64> {
    let free = rustix::fs::statvfs(path).ok()?;
    Some(free.f_bavail.saturating_mul(free.f_frsize))
}

fn dev_shm(free: Option<u64>) -> Finding {
    let name = "/dev/shm";
    let help = "`shm:` does not use it, but UCX between processes of one host does: `mount -o remount,size=1G /dev/shm`, or `docker run --shm-size=1g`";
    match free {
        None => Finding::none(name, "absent", help),
        Some(free) if free < LOCKED => Finding::none(name, format!("{} free", bytes(free)), help),
        Some(free) => Finding::ok(name, format!("{} free", bytes(free))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    #[test]
    fn low_limits_come_with_a_command() {
        for (check, low) in [
            (address_space as fn(Option<u64>) -> Finding, 512 << 20),
            (file_size, 1 << 20),
            (files, 64),
        ] {
            assert_eq!(check(None).mark, Mark::Ok);
            assert_eq!(check(Some(1 << 40)).mark, Mark::Ok);
            let finding = check(Some(low));
            assert_eq!(finding.mark, Mark::Warning);
            assert!(finding.help.is_some_and(|help| help.contains("`ulimit -")));
        }
    }

    #[test]
    fn limits_of_networks_are_not_errors() {
        assert_eq!(locked(Some(64 << 10)).mark, Mark::None);
        assert_eq!(locked(None).found, "RLIMIT_MEMLOCK is unlimited");
        assert_eq!(dev_shm(None).mark, Mark::None);
        assert_eq!(dev_shm(Some(1 << 30)).mark, Mark::Ok);
    }
}
