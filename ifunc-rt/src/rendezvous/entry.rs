//! The file that a target publishes: a few lines of text.

use std::fs;

/// The first line.
const MAGIC: &str = "ifunc rendezvous 1";
/// The last one.
const END: &str = "end";
/// Longest valid entry: an address may be a whole worker's.
pub(super) const LONGEST: u64 = 256 << 10;

/// A published address, and who published it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) job: String,
    pub(super) rank: u32,
    pub(super) by: Publisher,
    pub(super) address: String,
}

/// The process that published an entry, on any host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Publisher {
    /// The host, by its kernel's boot id.
    pub(super) boot: String,
    /// The pid namespace of `pid`.
    space: String,
    pid: u32,
    /// Start time in ticks since boot: the kernel reuses pids.
    start: u64,
}

impl Publisher {
    /// This process.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            boot: boot.trim().into(),
            space: space.to_string_lossy().into_owned(),
            pid,
            start: start_of(pid).unwrap_or_default(),
        }
    }

    /// Whether `self` can tell that `other` has ended: only for a process of the same host and pid namespace.
    pub(super) fn knows_dead(&self, other: &Self) -> bool {
        self.is_neighbour(other) && self.space == other.space && start_of(other.pid) != Some(other.start)
    }

    /// Whether `other` is on the same host.
    pub(super) fn is_neighbour(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot
    }
}

/// Start time of a running process.
fn start_of(pid: u32) -> Option<u64> {
    // That of its first thread is the same, and QEMU answers it as the kernel does: of a process it makes up a file with another start.
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (!matches!(state, "Z" | "X"))
        .then(|| fields.nth(18)?.parse().ok())
        .flatten()
}

impl Entry {
    pub(super) fn encode(&self) -> String {
        let Self {
            job, rank, address, ..
        } = self;
        let Publisher {
            boot,
            space,
            pid,
            start,
        } = &self.by;
        format!(
            "{MAGIC}\njob {job}\nrank {rank}\nboot {boot}\nspace {space}\nprocess {pid} {start}\naddress {address}\n{END}\n"
        )
    }

    /// `None`: the text is no entry, or an incomplete one.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [MAGIC, job, rank, boot, space, process, address, END] = lines[..] else {
            return None;
        };
        let field = |line: &str, name: &str| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
        let process = field(process, "process")?;
        let (pid, start) = process.split_once(' ')?;
        Some(Self {
            job: field(job, "job")?,
            rank: field(rank, "rank")?.parse().ok()?,
            by: Publisher {
                boot: field(boot, "boot")?,
                space: field(space, "space")?,
                pid: pid.parse().ok()?,
                start: start.parse().ok()?,
            },
            address: field(address, "address")?,
        })
    }
}
