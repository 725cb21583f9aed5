//! `floors`: a cache line that moves between the two cores, and a copy within one core.

use anyhow::Result;

use super::Figure;
use crate::Bench;
use crate::cores::Cores;
use crate::program::Program;
use crate::row::Row;
use crate::slots::{Payload, Sample, Side, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "floors",
    title: "a cache line from core to core, one way: one that both write, and one per direction; a copy by one core",
    run,
};

/// What no runtime has a part in: a lower bound of ours.
pub(crate) struct Floor(Program);

impl Floor {
    /// Cache lines that move between two cores. One line that both write in turn, or one line per direction: the lower bound of any ring.
    pub(crate) fn lines(cores: Cores, lines: usize) -> Result<Self> {
        let (peer, lines) = (cores.target.to_string(), lines.to_string());
        let env = [("BENCH_PEER_CPU", &*peer), ("BENCH_LINES", &*lines)];
        Ok(Self(Program::start("lines", cores.source, &env)?))
    }

    /// A stream through a ring that has nothing else.
    pub(crate) fn ring(cores: Cores) -> Result<Self> {
        let peer = cores.target.to_string();
        let env = [("BENCH_PEER_CPU", &*peer)];
        Ok(Self(Program::start("ring", cores.source, &env)?))
    }

    /// Copies of the payload by one core. The memory is in its caches if it fits.
    pub(crate) fn copies(cores: Cores) -> Result<Self> {
        Ok(Self(Program::start("memcpy", cores.source, &[])?))
    }
}

impl Side for Floor {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.0.request(&slot)
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let (mut one, mut two) = (Floor::lines(bench.cores, 1)?, Floor::lines(bench.cores, 2)?);
    let slot = Slot::new(8, Payload::Fresh);
    let series = take_turns(&bench.plan, slot, [&mut one, &mut two])?;
    for (case, series) in ["one line", "one line per direction"].into_iter().zip(series) {
        bench.rows.push(Row {
            figure: FIGURE.id.into(),
            case: case.into(),
            size: 8,
            ours: series.median(),
            spread: Some(series.spread()),
            unit: "ns".into(),
            ..Row::default()
        });
    }
    let mut copies = Floor::copies(bench.cores)?;
    for size in [64, 4 << 10, 64 << 10, 1 << 20] {
        let slot = Slot::new(size, Payload::Static);
        let [series] = take_turns(&bench.plan, slot, [&mut copies])?;
        bench.rows.push(Row {
            case: "memcpy".into(),
            ..Row::latency(FIGURE.id, slot, &series, None)
        });
    }
    Ok(())
}
