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
        Self {
            boot: boot.trim().into(),
            space: space(),
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

/// The pid namespace of this process.
fn space() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// Start time of a running process.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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
            job,
            rank,
            by,
            address,
        } = self;
        let Publisher {
            boot,
            space,
            pid,
            start,
        } = by;
        format!(
            "{MAGIC}\njob {job}\nrank {rank}\nboot {boot}\nspace {space}\nprocess {pid} {start}\naddress {address}\n{END}\n"
        )
    }

    /// `None`: the text is no entry, or an incomplete one.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != MAGIC {
            return None;
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let job = field("job")?.to_owned();
        let rank = field("rank")?.parse().ok()?;
        let (boot, space) = (field("boot")?.to_owned(), field("space")?.to_owned());
        let (pid, start) = field("process")?.split_once(' ')?;
        let by = Publisher {
            boot,
            space,
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        };
        let address = field("address")?.to_owned();
        (lines.next()? == END && lines.next().is_none()).then_some(Self {
            job,
            rank,
            by,
            address,
        })
    }
}
