//! `calls`: questions of eight bytes and their answers, one at a time and with many in flight.

use anyhow::Result;

use super::Figure;
use super::settings::LOOPBACK;
use crate::Bench;
use crate::cores::Cores;
use crate::program::Program;
use crate::roles::Calls;
use crate::row::Row;
use crate::slots::{Payload, Sample, Series, Side, Slot, take_turns_all};

pub(crate) const FIGURE: Figure = Figure {
    id: "calls",
    title: "calls with an answer of 8 bytes: round trips, and calls per second with several in flight",
    run,
};

/// Numbers of calls in flight.
const IN_FLIGHT: &[usize] = &[1, 4, 16, 64, 256];
/// UCX settings over shared memory. The better one counts.
const MEMORY: &[&[(&str, &str)]] = &[&[], &[("UCX_TLS", "posix,self")], &[("UCX_TLS", "sysv,self")]];

/// A caller and its answering target.
pub(super) struct Pair {
    name: String,
    source: Program,
    target: Program,
    /// Whether it is a pair of UCX, whose target must also receive the number of calls.
    is_ucx: bool,
    in_flight: usize,
    carried_by: String,
}

impl Pair {
    /// Starts the roles `KIND-source` and `KIND-target`, the latter at `address`.
    pub(super) fn new(
        name: &str,
        cores: Cores,
        kind: &str,
        address: &str,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let start = |side, cpu, address| {
            let env = [env, &[("BENCH_ADDRESS", address)]].concat();
            Program::start(&format!("{kind}-{side}"), cpu, &env)
        };
        let mut target = start("target", cores.target, address)?;
        let address: String = target.receive()?;
        let source = start("source", cores.source, &address)?;
        Self::of(name, source, target)
    }

    fn of(name: &str, mut source: Program, target: Program) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            carried_by: source.receive()?,
            source,
            target,
            is_ucx: false,
            in_flight: 1,
        })
    }

    /// The transport, as the source reports it.
    pub(super) fn carried_by(&self) -> &str {
        &self.carried_by
    }

    /// A pair of UCX, whose programs connect to each other.
    fn ucx(cores: Cores, env: &[(&str, &str)]) -> Result<Self> {
        let mut target = Program::start("calls-ucx-target", cores.target, env)?;
        let mut source = Program::start("calls-ucx-source", cores.source, env)?;
        let addresses: [String; 2] = [source.receive()?, target.receive()?];
        target.send(&addresses[0])?;
        source.send(&addresses[1])?;
        let pair = Self::of(&format!("UCX active messages{}", settings(env)), source, target)?;
        Ok(Self { is_ucx: true, ..pair })
    }
}

/// A suffix such as `, UCX_TLS=tcp`.
fn settings(env: &[(&str, &str)]) -> String {
    if env.is_empty() {
        return ", defaults".into();
    }
    env.iter()
        .map(|(name, value)| format!(", {name}={value}"))
        .collect()
}

impl Side for Pair {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        let calls = Calls {
            operations: slot.operations,
            in_flight: self.in_flight,
        };
        if !self.is_ucx {
            return self.source.request(&calls);
        }
        self.target.send(&calls)?;
        self.source.send(&calls)?;
        let sample = self.source.receive_with_peer(&mut self.target)?;
        self.target.receive::<()>()?;
        Ok(sample)
    }
}

/// A transport, with our pair and the peers' pairs.
struct Carrier {
    name: &'static str,
    ours: Pair,
    peers: Vec<Pair>,
}

fn carriers(cores: Cores) -> Result<Vec<Carrier>> {
    let name = format!("shm:bench-calls-{}", std::process::id());
    let ours = |address, env| Pair::new("", cores, "calls", address, env);
    let mut memory = Carrier {
        name: "shm",
        ours: ours(&name, &[])?,
        peers: Vec::new(),
    };
    for env in MEMORY {
        memory.peers.push(Pair::ucx(cores, env)?);
    }
    let mut tcp = Carrier {
        name: "ucx over TCP",
        ours: ours("ucx://127.0.0.1:0", LOOPBACK)?,
        peers: Vec::new(),
    };
    tcp.peers.push(Pair::ucx(cores, LOOPBACK)?);
    #[cfg(feature = "tonic")]
    {
        let tonic = |name, address: &str| Pair::new(name, cores, "calls-tonic", address, &[]);
        let path = std::env::temp_dir().join(format!("bench-calls-{}", std::process::id()));
        memory.peers.push(tonic(
            "tonic over a Unix socket",
            &format!("unix:{}", path.display()),
        )?);
        // Both programs are connected, so the socket's file is no longer needed.
        let _ = std::fs::remove_file(path);
        tcp.peers.push(tonic("tonic over TCP", "127.0.0.1:0")?);
    }
    Ok(vec![memory, tcp])
}

fn run(bench: &mut Bench) -> Result<()> {
    let counts = if bench.plan.quick { &[1, 64] } else { IN_FLIGHT };
    for mut carrier in carriers(bench.cores)? {
        for &in_flight in counts {
            let mut sides: Vec<&mut dyn Side> = Vec::new();
            for pair in std::iter::once(&mut carrier.ours).chain(&mut carrier.peers) {
                pair.in_flight = in_flight;
                sides.push(pair);
            }
            let all = take_turns_all(&bench.plan, Slot::new(8, Payload::Fresh), &mut sides)?;
            let Some((ours, peers)) = all.split_first() else {
                continue;
            };
            for row in rows(&carrier, in_flight, ours, peers) {
                bench.rows.push(row);
            }
        }
    }
    Ok(())
}

/// A row comparing with the best of UCX, and one for each other kind of peer.
fn rows(carrier: &Carrier, in_flight: usize, ours: &Series, peers: &[Series]) -> Vec<Row> {
    let all: Vec<(&Pair, &Series)> = carrier.peers.iter().zip(peers).collect();
    let (ucx, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(pair, _)| pair.is_ucx);
    let best = ucx
        .into_iter()
        .min_by(|(_, one), (_, other)| one.median().total_cmp(&other.median()));
    let row = |(pair, peer): (&Pair, &Series)| {
        let (ratio, spread) = ours.ratio(peer);
        let row = Row {
            figure: FIGURE.id.into(),
            case: format!("{}, {in_flight} in flight", carrier.name),
            size: 8,
            peer_name: Some(pair.name.clone()),
            percentiles: [ours.percentiles(), peer.percentiles()],
            carried_by: [
                Some(carrier.ours.carried_by.clone()),
                Some(pair.carried_by.clone()),
            ],
            ..Row::default()
        };
        if in_flight == 1 {
            return Row {
                ours: ours.median(),
                peer: Some(peer.median()),
                ratio: Some(ratio),
                spread: Some(spread),
                unit: "ns".into(),
                note: "a round trip".into(),
                ..row
            };
        }
        Row {
            ours: 1e9 / ours.median(),
            peer: Some(1e9 / peer.median()),
            ratio: Some(1.0 / ratio),
            spread: Some([1.0 / spread[1], 1.0 / spread[0]]),
            unit: "calls/s".into(),
            ..row
        }
    };
    best.into_iter().chain(others).map(row).collect()
}
