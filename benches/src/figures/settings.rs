//! UCX active messages, in every setting that a user of shared memory would try; the fastest one counts.

use anyhow::{Context, Result};

use crate::Bench;
use crate::cores::Cores;
use crate::pair::{Pair, Pattern};
use crate::plan::Plan;
use crate::slots::{Side, Slot, take_turns_all};

/// A setting: environment variables.
pub(crate) type Setting = &'static [(&'static str, &'static str)];

/// Settings over shared memory; UCX's defaults come first. `posix` and `sysv` are memory that both processes
/// map; `cma` lets one process read the other's memory, which pays off for large messages.
pub(crate) const SHARED_MEMORY: &[Setting] = &[
    &[],
    &[("UCX_TLS", "posix,self"), ("UCX_RNDV_THRESH", "inf")],
    &[("UCX_TLS", "posix,cma,self")],
    &[("UCX_TLS", "posix,self")],
    &[("UCX_TLS", "sm,self")],
    &[("UCX_TLS", "sysv,self")],
    &[("UCX_TLS", "sysv,self"), ("UCX_RNDV_THRESH", "inf")],
    &[("UCX_TLS", "posix,cma,self"), ("UCX_RNDV_THRESH", "16k")],
];

/// TCP only.
pub(crate) const LOOPBACK: Setting = &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")];

/// Number of settings that a quick run tries.
const QUICK: usize = 3;

/// Pairs of a role, one per setting.
pub(crate) struct Candidates(Vec<(String, Pair)>);

impl Candidates {
    pub(crate) fn start(bench: &Bench, role: &str, settings: &[Setting]) -> Result<Self> {
        Self::start_with(bench, role, settings, &[])
    }

    /// As [`start`](Self::start), with additional environment variables for all.
    pub(crate) fn start_with(
        bench: &Bench,
        role: &str,
        settings: &[Setting],
        more: &[(&str, &str)],
    ) -> Result<Self> {
        let tried = if bench.plan.quick { QUICK } else { usize::MAX };
        settings
            .iter()
            .take(tried)
            .map(|setting| {
                let env = [setting, more].concat();
                Ok((name(setting), Pair::start(role, bench.cores, &env)?))
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// The pair that is fastest in a short run, and its setting.
    pub(crate) fn best(&mut self, plan: &Plan, pattern: Pattern, slot: Slot) -> Result<(&str, &mut Pair)> {
        let mut sides: Vec<_> = self.0.iter_mut().map(|(_, pair)| pair.side(pattern)).collect();
        let mut all: Vec<&mut dyn Side> = Vec::new();
        for side in &mut sides {
            all.push(side);
        }
        let series = take_turns_all(&plan.trial(), slot, &mut all)?;
        let best = (0..series.len())
            .min_by(|a, b| series[*a].median().total_cmp(&series[*b].median()))
            .context("there is a setting")?;
        let (name, pair) = &mut self.0[best];
        Ok((name, pair))
    }
}

/// The setting as written before a shell command.
pub(crate) fn name(setting: &[(&str, &str)]) -> String {
    if setting.is_empty() {
        return "defaults".into();
    }
    let all: Vec<_> = setting
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    all.join(" ")
}

/// Our messages over shared memory.
pub(crate) fn ours(cores: Cores) -> Result<Pair> {
    Pair::start("ifunc", cores, &[("BENCH_ADDRESS", "shm:")])
}
