//! `peers`: many sources and one target, and one source and many targets: total messages per second, and
//! fairness between the sources.

use anyhow::{Context, Result, ensure};

use super::Figure;
use super::settings::{self, LOOPBACK, Setting};
use crate::Bench;
use crate::pair::Count;
use crate::program::Program;
use crate::roles::{Order, Received, Sent, now};
use crate::row::Row;
use crate::slots::{median, quantile};

pub(crate) const FIGURE: Figure = Figure {
    id: "peers",
    title: "messages per second from many sources to one target, and from one to many, beside UCX active messages",
    run,
};

/// Programs that share a core run in time slices of some milliseconds; a slot gives each a few of them, in
/// nanoseconds.
const TURN: u64 = 8_000_000;
/// Time from the request to the first message, so that every program has received it, in nanoseconds.
const NOTICE: u64 = 10_000_000;
/// Largest number of repetitions with many programs.
const FEW: usize = 5;

/// The sources and the targets.
struct Crowd {
    sources: Vec<Program>,
    targets: Vec<Program>,
    /// What each target has received so far.
    before: Vec<Count>,
    /// Whether the targets report what they received.
    targets_report: bool,
    carried_by: String,
}

/// The result of a slot.
struct Slot {
    /// Messages per second in total.
    rate: f64,
    /// Messages of the slowest source divided by those of the fastest.
    fairness: f64,
}

impl Crowd {
    fn start(
        bench: &Bench,
        role: &str,
        sources: usize,
        targets: usize,
        address: &str,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let start = |side, cpu, n: usize| -> Result<Program> {
            let address = match address {
                "shm:" => format!("shm:bench-peers-{}-{n}", std::process::id()),
                address => address.to_owned(),
            };
            let env = [env, &[("BENCH_ADDRESS", &address)]].concat();
            Program::start(&format!("{role}-{side}"), cpu, &env)
        };
        let mut targets = (0..targets)
            .map(|n| start("target", bench.cores.target, n))
            .collect::<Result<Vec<_>>>()?;
        let addresses = targets
            .iter_mut()
            .map(Program::receive)
            .collect::<Result<Vec<String>>>()?;
        let mut sources = (0..sources)
            .map(|n| start("source", bench.cores.source, n))
            .collect::<Result<Vec<_>>>()?;
        let mut carried_by = String::new();
        for source in &mut sources {
            source.send(&addresses)?;
            carried_by = source.receive()?;
        }
        Ok(Self {
            sources,
            before: vec![Count::default(); targets.len()],
            targets,
            targets_report: role == "crowd-ucx",
            carried_by,
        })
    }

    fn slot(&mut self, length: u64, size: usize) -> Result<Slot> {
        let from = now() + NOTICE;
        let until = from + length;
        for source in &mut self.sources {
            source.send(&Order::Send { from, until, size })?;
        }
        let all = self
            .sources
            .iter_mut()
            .map(Program::receive)
            .collect::<Result<Vec<Sent>>>()?;
        let mut finished = all
            .iter()
            .map(|sent| sent.finished)
            .max()
            .context("there are sources")?;
        let mut expected = self.before.clone();
        for sent in &all {
            for (expected, sent) in expected.iter_mut().zip(&sent.each) {
                expected.messages += sent.messages;
                expected.sum = expected.sum.wrapping_add(sent.sum);
            }
        }
        let received = if self.targets_report {
            let mut counts = Vec::new();
            finished = 0;
            for (target, expected) in self.targets.iter_mut().zip(&expected) {
                let received: Received = target.request(&expected.messages)?;
                finished = finished.max(received.finished);
                counts.push(received.count);
            }
            counts
        } else {
            self.sources[0].request(&Order::Report)?
        };
        ensure!(received == expected, "sent {expected:?}, received {received:?}");
        let messages = |counts: &[Count]| counts.iter().map(|count| count.messages).sum::<u64>();
        let each: Vec<u64> = all.iter().map(|sent| messages(&sent.each)).collect();
        let sent: u64 = each.iter().sum();
        self.before = received;
        let took = finished.saturating_sub(from).max(1);
        let (least, most) = (each.iter().min(), each.iter().max());
        Ok(Slot {
            rate: sent as f64 * 1e9 / took as f64,
            fairness: least
                .zip(most)
                .map_or(0.0, |(least, most)| *least as f64 / (*most).max(1) as f64),
        })
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    for carrier in [&MEMORY, &TCP] {
        // Starting processes dominates a quick run.
        let many = if bench.plan.quick {
            carrier.quick
        } else {
            carrier.many
        };
        for &n in many {
            beside(bench, carrier, n, 1)?;
        }
        for &n in many.iter().filter(|n| **n > 1) {
            beside(bench, carrier, 1, n)?;
        }
    }
    Ok(())
}

/// A transport.
struct Carrier {
    name: &'static str,
    /// The address of our targets.
    address: &'static str,
    /// The settings of our programs.
    ours: Setting,
    /// The settings of UCX; the better one counts.
    peers: &'static [Setting],
    /// Numbers of programs on the side with many.
    many: &'static [usize],
    quick: &'static [usize],
}

const MEMORY: Carrier = Carrier {
    name: "shm",
    address: "shm:",
    ours: &[],
    peers: &[&[], &[("UCX_TLS", "posix,self")]],
    many: &[1, 2, 4, 8, 64],
    quick: &[2, 4],
};

const TCP: Carrier = Carrier {
    name: "ucx over TCP",
    address: "ucx://127.0.0.1:0",
    ours: LOOPBACK,
    peers: &[LOOPBACK],
    many: &[1, 2, 4, 8],
    quick: &[2],
};

fn beside(bench: &mut Bench, carrier: &Carrier, sources: usize, targets: usize) -> Result<()> {
    const SIZE: usize = 8;
    let programs = sources.max(targets);
    let length = (bench.plan.slot.as_nanos() as u64).max(TURN * programs as u64);
    let repetitions = if programs > 2 {
        bench.plan.repetitions.min(FEW)
    } else {
        bench.plan.repetitions
    };
    let mut ours = Crowd::start(bench, "crowd", sources, targets, carrier.address, carrier.ours)?;
    let mut peers = Vec::new();
    for env in carrier.peers {
        peers.push((env, Crowd::start(bench, "crowd-ucx", sources, targets, "", env)?));
    }
    // The first slot of each connects and installs the code.
    let mut best = (0, 0.0);
    ours.slot(length / 4, SIZE)?;
    for (at, (_, peer)) in peers.iter_mut().enumerate() {
        peer.slot(length / 4, SIZE)?;
        let rate = peer.slot(length / 4, SIZE)?.rate;
        if rate > best.1 {
            best = (at, rate);
        }
    }
    let (env, mut peer) = peers.swap_remove(best.0);
    drop(peers);
    let mut slots = Vec::new();
    for _ in 0..repetitions {
        slots.push((ours.slot(length, SIZE)?, peer.slot(length, SIZE)?));
    }
    let of = |what: fn(&(Slot, Slot)) -> f64| slots.iter().map(what).collect::<Vec<f64>>();
    let ratios = of(|(ours, peer)| ours.rate / peer.rate);
    let shares = [of(|(ours, _)| ours.fairness), of(|(_, peer)| peer.fairness)].map(median);
    let fair = format!(
        "messages of the slowest source ÷ those of the fastest: ours {:.2}, UCX {:.2}; ",
        shares[0], shares[1]
    );
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    bench.rows.push(Row {
        figure: FIGURE.id.into(),
        case: format!(
            "{}: {} → {}",
            carrier.name,
            plural(sources, "source"),
            plural(targets, "target")
        ),
        size: SIZE as u64,
        ours: median(of(|(ours, _)| ours.rate)),
        peer: Some(median(of(|(_, peer)| peer.rate))),
        peer_name: Some(format!("UCX active messages, {}", settings::name(env))),
        ratio: Some(median(ratios.clone())),
        spread: Some([0.25, 0.75].map(|part| quantile(ratios.clone(), part))),
        unit: "messages/s".into(),
        carried_by: [Some(ours.carried_by.clone()), Some(peer.carried_by.clone())],
        note: format!(
            "{}all sources on one core, all targets on another{}",
            if sources > 1 { &*fair } else { "" },
            if programs > 1 {
                ", which the many share"
            } else {
                ""
            }
        ),
        ..Row::default()
    });
    Ok(())
}
