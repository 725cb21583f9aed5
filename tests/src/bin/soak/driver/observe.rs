//! What the kernel says of a process.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::options::Folders;

/// What a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    /// Descriptors.
    pub(super) descriptors: usize,
    /// Mappings of memory that is shared with others.
    pub(super) segments: usize,
    /// Private memory that is in use, in KiB.
    pub(super) anonymous: u64,
    /// Its share of all that is in use, in KiB.
    pub(super) share: u64,
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} segments, {} KiB (PSS {} KiB)",
            self.descriptors, self.segments, self.anonymous, self.share
        )
    }
}

impl Holdings {
    /// Of this process, now.
    pub(super) fn of(pid: u32) -> Result<Self, String> {
        Ok(Self {
            descriptors: count(Path::new(&format!("/proc/{pid}/fd"))),
            segments: read(pid, "maps")?.lines().filter(|line| is_shared(line)).count(),
            anonymous: field(&read(pid, "status")?, "RssAnon")?,
            share: field(&read(pid, "smaps_rollup")?, "Pss")?,
        })
    }

    /// Of a process that has done with those who left: the same for a while.
    pub(super) fn quiet(pid: u32) -> Result<Self, String> {
        let mut before = Self::of(pid)?;
        let (mut same, mut looks) = (0, 0);
        while same < 3 && looks < 100 {
            std::thread::sleep(Duration::from_millis(50));
            let now = Self::of(pid)?;
            let is_same = (now.descriptors, now.segments) == (before.descriptors, before.segments);
            same = if is_same { same + 1 } else { 0 };
            looks += 1;
            before = now;
        }
        Ok(before)
    }

    /// Waits until the process holds no more descriptors and segments than `before`: who is served when does not matter.
    /// What it holds then, or after `timeout`.
    pub(super) fn settled(pid: u32, before: &Self, timeout: Duration) -> Result<Self, String> {
        let deadline = Instant::now() + timeout;
        loop {
            let now = Self::of(pid)?;
            if (now.descriptors <= before.descriptors && now.segments <= before.segments)
                || Instant::now() > deadline
            {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Not the images in the arena: which of them stay installed is another matter.
fn is_shared(line: &str) -> bool {
    let access = line.split_whitespace().nth(1).unwrap_or_default();
    access.ends_with('s') && !line.contains("/memfd:ifunc-code")
}

/// Private memory in use, in KiB.
pub(super) fn anonymous(pid: u32) -> Result<u64, String> {
    field(&read(pid, "status")?, "RssAnon")
}

/// Processor time, user and system, in clock ticks.
pub(super) fn ticks(pid: u32) -> Result<u64, String> {
    let text = read(pid, "stat")?;
    let behind_name = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let times = behind_name.split(' ').skip(11).take(2);
    Ok(times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
}

/// How often the main thread of a process went to sleep.
pub(super) fn sleeps(pid: u32) -> Result<u64, String> {
    field(
        &read(pid, &format!("task/{pid}/status"))?,
        "voluntary_ctxt_switches",
    )
}

/// What outlives processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remains {
    /// SysV segments: their numbers, and the processes that made them.
    sysv: HashMap<String, u32>,
    /// Files that are shared memory.
    files: usize,
    /// Sockets and their locks.
    sockets: usize,
}

impl Remains {
    /// All there is now, whoever left it.
    pub(super) fn now(folders: &Folders) -> Self {
        Self {
            sysv: sysv(),
            files: count(&folders.memory),
            sockets: count(&folders.sockets),
        }
    }

    /// What these processes, which have ended, left since then. The kernel gives the numbers of processes again: what was there already is
    /// that of others.
    pub(super) fn left_since(earlier: &Self, folders: &Folders, pids: &HashSet<u32>) -> Self {
        let mut left = Self::now(folders);
        let is_theirs =
            |number: &String, creator: &u32| pids.contains(creator) && !earlier.sysv.contains_key(number);
        left.sysv.retain(|number, creator| is_theirs(number, creator));
        left.files = left.files.saturating_sub(earlier.files);
        left.sockets = left.sockets.saturating_sub(earlier.sockets);
        left
    }

    /// Removes it: a machine has only so many segments, and so much memory.
    pub(super) fn remove(&self, folders: &Folders) {
        for segment in self.sysv.keys() {
            let _ = Command::new("ipcrm").args(["-m", segment]).status();
        }
        let files = std::fs::read_dir(&folders.memory).into_iter().flatten().flatten();
        for file in files {
            let _ = std::fs::remove_file(file.path());
        }
    }

    /// How many of all kinds.
    pub(super) fn count(&self) -> usize {
        self.sysv.len() + self.files + self.sockets
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} SysV segments, {} files in /dev/shm, {} sockets",
            self.sysv.len(),
            self.files,
            self.sockets
        )
    }
}

/// The numbers of all SysV segments, and the processes that made them.
fn sysv() -> HashMap<String, u32> {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let segment = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let number = words.next()?;
        let creator = words.nth(2)?.parse().ok()?;
        Some((number.to_owned(), creator))
    };
    text.lines().filter_map(segment).collect()
}

fn read(pid: u32, file: &str) -> Result<String, String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).map_err(|error| format!("cannot read `{path}`: {error}"))
}

fn field(text: &str, name: &str) -> Result<u64, String> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("the kernel does not say `{name}`"))
}

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}
