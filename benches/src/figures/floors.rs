//! `floors`: a cache line that moves between the two cores, and a copy within one core.

use anyhow::Result;

use super::Figure;
use crate::Bench;
use crate::cores::Cores;
use crate::pair::Pattern;
use crate::program::Program;
use crate::row::Row;
use crate::slots::{Payload, Sample, Side, Slot, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "floors",
    title: "a cache line from core to core, one way: one that both write, and one per direction; a copy by one core",
    run,
};

/// What no runtime has a part in: a lower bound of ours.
pub(crate) struct Floor {
    program: Program,
    /// What it measures.
    name: &'static str,
}

/// What a bare ring is.
const RING: &str = "a bare ring of one direction, or two for one message at a time: slots of one line, a table of handlers, credits, one call for \
    each message";

impl Floor {
    /// Cache lines that move between two cores. One line that both write in turn, or one line per direction: the lower bound of any ring.
    pub(crate) fn lines(cores: Cores, lines: usize) -> Result<Self> {
        let (peer, lines) = (cores.target.to_string(), lines.to_string());
        let env = [("BENCH_PEER_CPU", &*peer), ("BENCH_LINES", &*lines)];
        Ok(Self {
            program: Program::start("lines", cores.source, &env)?,
            name: if lines == "1" {
                "one cache line"
            } else {
                "one cache line per direction"
            },
        })
    }

    /// Messages through a ring that has nothing else, each with `code` bytes that the other side does not read.
    pub(crate) fn ring(cores: Cores, pattern: Pattern, code: usize) -> Result<Self> {
        let (peer, code) = (cores.target.to_string(), code.to_string());
        let pattern = match pattern {
            Pattern::PingPong => "ping-pong",
            Pattern::Stream => "stream",
        };
        let env = [
            ("BENCH_PEER_CPU", &*peer),
            ("BENCH_PATTERN", pattern),
            ("BENCH_CODE", &*code),
        ];
        Ok(Self {
            program: Program::start("ring", cores.source, &env)?,
            name: RING,
        })
    }

    /// New code, until it has run, at a target that has nothing but what is needed for it. `None`: not on this architecture.
    pub(crate) fn arrivals(cores: Cores) -> Result<Option<Self>> {
        if !cfg!(target_arch = "x86_64") {
            return Ok(None);
        }
        let peer = cores.target.to_string();
        let env = [("BENCH_PEER_CPU", &*peer)];
        Ok(Some(Self {
            program: Program::start("arrivals-bare", cores.source, &env)?,
            name: "a bare ring that carries the image, `pwrite` of it into a file whose only mapping is executable, BLAKE3 of what is there, and a \
                call; minus a call of code that is there",
        }))
    }

    /// Updates of a table whose places are sent together over a bare ring.
    pub(crate) fn updates(cores: Cores) -> Result<Self> {
        let peer = cores.target.to_string();
        let env = [("BENCH_PEER_CPU", &*peer)];
        Ok(Self {
            program: Program::start("table-bare", cores.source, &env)?,
            name: "the same workload over a bare ring, which carries as many updates in each message as are sent together",
        })
    }

    /// Copies of the payload by one core. The memory is in its caches if it fits.
    pub(crate) fn copies(cores: Cores) -> Result<Self> {
        Ok(Self {
            program: Program::start("memcpy", cores.source, &[])?,
            name: "a copy by one core",
        })
    }

    /// What it measures.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

impl Side for Floor {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.program.request(&slot)
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
