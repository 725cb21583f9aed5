//! The memory, the descriptors and the threads of the daemon, as the kernel counts them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::node::Node;

/// What a process holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    /// Private memory in KiB.
    private: u64,
    descriptors: u64,
    threads: u64,
    children: u64,
}

impl Holds {
    fn of(pid: u32) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let private = text.lines().filter(|line| line.starts_with("Private_"));
        let private = private
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum();
        let count =
            |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).map(|all| all.count() as u64);
        let mut children = 0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            children += text.split_whitespace().count() as u64;
        }
        Ok(Self {
            private,
            descriptors: count("fd")?,
            threads: count("task")?,
            children,
        })
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            private,
            descriptors,
            threads,
            children,
        } = self;
        write!(
            f,
            "{private} KiB, {descriptors} descriptors, {threads} threads, {children} runners"
        )
    }
}

/// What was seen after a while.
pub(crate) struct Watch {
    began: Instant,
    warm: Duration,
    seen: Vec<Holds>,
    last: Holds,
}

impl Watch {
    /// `warm`: how long the daemon may take to grow to its size.
    pub(crate) fn new(warm: Duration) -> Self {
        Self {
            began: Instant::now(),
            warm,
            seen: Vec::new(),
            last: Holds::default(),
        }
    }

    pub(crate) fn look(&mut self, node: &Node) -> Result<(), Failure> {
        self.last = Holds::of(node.pid()).map_err(|error| format!("the daemon has ended: {error}"))?;
        if self.began.elapsed() > self.warm {
            self.seen.push(self.last);
        }
        Ok(())
    }

    pub(crate) fn last(&self) -> Holds {
        self.last
    }

    /// Compares the quarters of the time.
    pub(crate) fn judge(&self) -> Result<(), Failure> {
        let len = (self.seen.len() / 4).max(1);
        let of = |get: fn(&Holds) -> u64| -> Vec<u64> {
            let quarters = self.seen.chunks(len).take(4);
            quarters
                .map(|quarter| quarter.iter().map(get).sum::<u64>() / quarter.len() as u64)
                .collect()
        };
        for (what, quarters, slack) in [
            ("KiB of private memory", of(|holds| holds.private), 16 << 10),
            ("descriptors", of(|holds| holds.descriptors), 200),
            ("threads", of(|holds| holds.threads), 20),
        ] {
            println!("{what} in the quarters of the time: {quarters:?}");
            let (Some(first), Some(last)) = (quarters.first(), quarters.last()) else {
                continue;
            };
            if *last > first + first / 4 + slack {
                return Err(format!("the daemon grows: {what} {quarters:?}").into());
            }
        }
        Ok(())
    }
}
