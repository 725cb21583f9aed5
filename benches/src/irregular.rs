//! One program that works on a table, and several that each have a part of it. What they say here is the same for every way
//! to do it, ours and peers'; [`roles::irregular`](crate::roles) answers.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::pair::{Connected, Hello};
use crate::program::Program;
use crate::slots::{Sample, Side, Slot};

/// What all of them are told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// To connect: the one that works to those that have a part, and, where answers need it, those to the one. The former
    /// answers by [`Met`]; the latter serve until they are told to stop.
    Connect { addresses: Vec<String> },
    /// To those that have a part: to serve until they are told to stop.
    Serve,
    /// To those that serve. Answered by their [`Books`].
    Stop,
    /// To the one that works: so many updates, or reads. Answered by [`Done`].
    Work { operations: u64 },
}

/// What updates leave behind in a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartSums {
    /// All words together.
    pub(crate) sum: u64,
    /// Each times where it stands: an update of another word is told by it.
    pub(crate) weighted: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) ns: f64,
    /// What must be in the books of each part; nothing where only was read.
    pub(crate) expected: Option<Vec<PartSums>>,
}

/// What is done to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Updates,
    Reads,
}

impl Work {
    /// As the programs are told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Reads => "reads",
        }
    }
}

/// One that works, and those that have a part.
pub(crate) struct Cluster {
    pub(crate) name: String,
    source: Program,
    targets: Vec<Program>,
    pub(crate) carried_by: String,
}

impl Cluster {
    /// The roles `KIND-source`, and so many of `KIND-target`, which share a core.
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
                "`{}`: {sums:?} is in the tables, {expected:?} should be",
                self.name
            );
        }
        Ok(Sample {
            ns: done.ns,
            percentiles: None,
        })
    }
}
