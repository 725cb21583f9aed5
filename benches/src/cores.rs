//! Which cores the two sides have.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A core for the source, and one for the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) source: usize,
    pub(crate) target: usize,
}

impl Cores {
    /// Two that this process may use and that are no threads of one core, if there are such.
    pub(crate) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("asking which processors this process may use")?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let Some(source) = cpus.next() else {
            bail!("this process may use no processor")
        };
        let others: Vec<usize> = cpus.collect();
        let siblings = siblings(source);
        let apart = others.iter().find(|cpu| !siblings.contains(cpu));
        let Some(&target) = apart.or(others.first()) else {
            bail!("two processors are needed, this process may use one; help: taskset")
        };
        Ok(Self { source, target })
    }

    /// Whether they share a core, and what is in it.
    pub(crate) fn are_threads_of_one_core(self) -> bool {
        siblings(self.source).contains(&self.target)
    }
}

/// Keeps the calling thread on a processor.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("staying on processor {cpu}"))
}

/// The threads of a core, as `0-1` or `0,32` in a file of the kernel's.
fn siblings(cpu: usize) -> Vec<usize> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
            all.extend::<std::ops::RangeInclusive<usize>>(first..=last);
        }
    }
    all
}
