//! The cores of the two sides.

use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One core for the source, one for the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) source: usize,
    pub(crate) target: usize,
}

impl Cores {
    /// Chooses two processors that this process may use, preferably not two threads of one core.
    pub(crate) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("reading the processors that this process may use")?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let Some(source) = cpus.next() else {
            bail!("this process may use no processor")
        };
        let others: Vec<usize> = cpus.collect();
        let siblings = siblings(source);
        let apart = others.iter().find(|cpu| !siblings.contains(cpu));
        let Some(&target) = apart.or(others.first()) else {
            bail!(
                "two processors are needed, but this process may use only one; help: widen its set with `taskset`"
            )
        };
        Ok(Self { source, target })
    }

    /// Whether the two are threads of one core.
    pub(crate) fn are_threads_of_one_core(self) -> bool {
        siblings(self.source).contains(&self.target)
    }
}

/// Pins the calling thread to a processor.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    pin_to_any(&[cpu])
}

/// Starts a thread on a processor. It runs `work` as soon as this function returns: until then both threads sleep, so that spinning delays
/// neither.
pub(crate) fn spawn_on<'scope, T: Default + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    cpu: usize,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let (pinned, is_pinned) = channel();
    let thread = scope.spawn(move || {
        let pin = pin(cpu);
        let failed = pin.is_err();
        let _ = pinned.send(pin);
        if failed { T::default() } else { work() }
    });
    is_pinned.recv()??;
    Ok(thread)
}

/// Lets the calling thread use some processors.
pub(crate) fn pin_to_any(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).with_context(|| format!("pinning to processors {cpus:?}"))
}

/// The threads of a core, from a kernel file such as `0-1` or `0,32`.
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
