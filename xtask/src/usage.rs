//! Wall and processor time of what these commands start.

use std::fmt;
use std::fs;
use std::ops::{Add, AddAssign};
use std::time::{Duration, Instant};

/// What a piece of work took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// From its start to its end.
    pub(crate) wall: Duration,
    /// Processor time of its processes, user and system together, to ten milliseconds.
    pub(crate) cpu: Duration,
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wall, cpu } = self;
        write!(
            f,
            "{:6.1} s, {:6.1} s of CPU",
            wall.as_secs_f64(),
            cpu.as_secs_f64()
        )
    }
}

/// Measures what the children of this process use from now on. A child counts when it has been waited for.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    started: Instant,
    before: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            before: of_children(),
        }
    }

    pub(crate) fn read(&self) -> Usage {
        Usage {
            wall: self.started.elapsed(),
            cpu: of_children().saturating_sub(self.before),
        }
    }
}

/// Processor time of a child that has ended and has not been waited for yet, its own children included; `None` while it runs.
pub(crate) fn of_zombie(pid: u32) -> Option<Duration> {
    let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
    stat.is_zombie.then_some(stat.own + stat.children)
}

fn of_children() -> Duration {
    Stat::read("/proc/self/stat").map_or(Duration::ZERO, |stat| stat.children)
}

/// The fields of proc_pid_stat(5) that are needed here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_zombie: bool,
    /// `utime` and `stime`.
    own: Duration,
    /// `cutime` and `cstime`: children that were waited for.
    children: Duration,
}

impl Stat {
    fn read(path: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The program's name stands in parentheses and may contain blanks; the state after it is field 3.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // A clock tick is a hundredth of a second on every Linux.
        let ticks = |field: usize| {
            let ticks: u64 = fields.get(field - 3)?.parse().ok()?;
            Some(Duration::from_millis(ticks * 10))
        };
        Some(Self {
            is_zombie: matches!(fields.first(), Some(&("Z" | "X"))),
            own: ticks(14)? + ticks(15)?,
            children: ticks(16)? + ticks(17)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Stat;

    #[test]
    fn fields_are_found_after_a_name_with_blanks() {
        let text = "7 (a (b) c) Z 1 7 7 0 -1 4194316 0 0 0 0 12 3 400 50 20 0 1 0 100";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                is_zombie: true,
                own: Duration::from_millis(150),
                children: Duration::from_millis(4500),
            })
        );
        assert_eq!(Stat::parse("7 (cut off) R 1"), None);
    }
}
