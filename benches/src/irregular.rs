//! One worker program and several programs that each hold a part of a table. The requests here are the same
//! for all methods, ours and the peers'; [`roles::irregular`](crate::roles) replies.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::pair::{Connected, Hello};
use crate::program::Program;
use crate::slots::{Sample, Side, Slot};

/// A request to a program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Connects the worker to the parts and, if answers need it, the parts to the worker. The worker replies
    /// with [`Connected`]; the parts serve until [`Stop`](Self::Stop).
    Connect { addresses: Vec<String> },
    /// To a part: serve until [`Stop`](Self::Stop).
    Serve,
    /// To a serving part: stop. It replies with its [`PartSums`].
    Stop,
    /// To the worker: run this number of updates or reads. It replies with [`Done`].
    Work { operations: u64 },
}

/// Sums over a part, which show the effect of all updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartSums {
    /// Sum of all words.
    pub(crate) sum: u64,
    /// Sum of each word times its index: it detects an update of a wrong word.
    pub(crate) weighted: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) ns: f64,
    /// Expected sums of each part; `None` for reads.
    pub(crate) expected: Option<Vec<PartSums>>,
}

/// The operation on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Updates,
    Reads,
}

impl Work {
    /// The name in the programs' environment.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Reads => "reads",
        }
    }
}

/// A worker and the parts.
pub(crate) struct Cluster {
    pub(crate) name: String,
    source: Program,
    targets: Vec<Program>,
    pub(crate) carried_by: String,
}

impl Cluster {
    /// Starts the role `KIND-source`, and `parts` of `KIND-target`, which share a core.
    pub(crate) fn start(
        name: &str,
        kind: &str,
        cores: Cores,
        parts: usize,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        Self::try_start(name, kind, cores, parts, env)
            .with_context(|| format!("starting {parts} of `{kind}` with {env:?}"))
    }

    fn try_start(name: &str, kind: &str, cores: Cores, parts: usize, env: &[(&str, &str)]) -> Result<Self> {
        let mut targets = Vec::new();
        let mut addresses = Vec::new();
        let all = parts.to_string();
        for part in 0..parts {
            let part = part.to_string();
            let env = [env, &[("BENCH_PART", part.as_str()), ("BENCH_PARTS", &all)]].concat();
            let mut target = Program::start(&format!("{kind}-target"), cores.target, &env)?;
            let hello: Hello = target.receive()?;
            addresses.push(hello.address);
            targets.push(target);
        }
        let mut source = Program::start(&format!("{kind}-source"), cores.source, env)?;
        let hello: Hello = source.receive()?;
        for target in &mut targets {
            target.send(&Request::Connect {
                addresses: vec![hello.address.clone()],
            })?;
        }
        source.send(&Request::Connect { addresses })?;
        let met: Connected = source.receive_with_peer(&mut targets[0])?;
        let mut cluster = Self {
            name: name.to_owned(),
            source,
            targets,
            carried_by: met.carried_by,
        };
        cluster.stop()?;
        Ok(cluster)
    }

    fn stop(&mut self) -> Result<Vec<PartSums>> {
        for target in &mut self.targets {
            target.send(&Request::Stop)?;
        }
        self.targets.iter_mut().map(Program::receive).collect()
    }
}

impl Side for Cluster {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        for target in &mut self.targets {
            target.send(&Request::Serve)?;
        }
        let operations = slot.operations;
        self.source.send(&Request::Work { operations })?;
        let done: Done = self.source.receive_with_peer(&mut self.targets[0])?;
        let sums = self.stop()?;
        if let Some(expected) = done.expected {
            ensure!(
                sums == expected,
                "`{}`: the tables hold {sums:?} instead of {expected:?}",
                self.name
            );
        }
        Ok(Sample {
            ns: done.ns,
            percentiles: None,
        })
    }
}
