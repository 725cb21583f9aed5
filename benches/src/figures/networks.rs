//! `lat-ucx`, `rate-ucx`: our messages by UCX over TCP, beside UCX's own. `lat-ucx-sm`: what ours cost beyond UCX's over shared
//! memory. `ucx-put`: ours beside a ping-pong of puts, over either.

use anyhow::{Context, Result};

use super::Figure;
use super::settings::{self, LOOPBACK, Setting};
use super::shm::percentiles;
use crate::Bench;
use crate::pair::{Pair, Pattern};
use crate::row::Row;
use crate::slots::{Payload, Side, Slot, take_turns, take_turns_all};

pub(crate) const LATENCY: Figure = Figure {
    id: "lat-ucx",
    title: "one way by UCX over TCP, beside UCX active messages",
    run: |bench| tcp(bench, LATENCY.id, Pattern::PingPong),
};

pub(crate) const RATE: Figure = Figure {
    id: "rate-ucx",
    title: "messages per second by UCX over TCP, beside UCX active messages",
    run: |bench| tcp(bench, RATE.id, Pattern::Stream),
};

pub(crate) const SHARED_MEMORY: Figure = Figure {
    id: "lat-ucx-sm",
    title: "one way by UCX over its shared memory, less UCX active messages: what ours cost beyond it",
    run: shared_memory,
};

pub(crate) const PUTS: Figure = Figure {
    id: "ucx-put",
    title: "one way by UCX over its shared memory (by puts) and over TCP, beside a ping-pong of puts",
    run: puts,
};

/// The largest payload.
const LARGEST: usize = 1 << 20;

/// What both sides are given over TCP, in turn: UCX's defaults, and other sizes from which on the target fetches.
const TCP: &[Setting] = &[
    LOOPBACK,
    &[
        ("UCX_TLS", "tcp"),
        ("UCX_NET_DEVICES", "lo"),
        ("UCX_RNDV_THRESH", "inf"),
    ],
    &[
        ("UCX_TLS", "tcp"),
        ("UCX_NET_DEVICES", "lo"),
        ("UCX_RNDV_THRESH", "64k"),
    ],
];

/// What both sides are given over shared memory. Endpoints whose peers' end is noticed, as ours are, have UCX's shared memory
/// only if it is asked for.
const MEMORY: &[Setting] = &[
    &[("UCX_TLS", "posix,self"), ("UCX_MM_ERROR_HANDLING", "y")],
    &[("UCX_TLS", "sysv,self"), ("UCX_MM_ERROR_HANDLING", "y")],
];

/// Ours and the peer's, alike in everything that UCX is told.
struct Both {
    setting: String,
    ours: Pair,
    peer: Pair,
}

impl Both {
    fn start(bench: &Bench, setting: Setting, address: &str, role: &str, peers: Setting) -> Result<Self> {
        let env = [setting, &[("BENCH_ADDRESS", address)]].concat();
        Ok(Self {
            setting: settings::name(setting),
            ours: Pair::start("ifunc", bench.cores, &env)?,
            peer: Pair::start(role, bench.cores, &[setting, peers].concat())?,
        })
    }

    /// The setting in which the peer is fastest in a short round, of ours and of theirs.
    fn best<'a>(all: &'a mut [Self], bench: &Bench, pattern: Pattern, slot: Slot) -> Result<&'a mut Self> {
        let mut sides: Vec<_> = all.iter_mut().map(|both| both.peer.side(pattern)).collect();
        let mut each: Vec<&mut dyn Side> = Vec::new();
        for side in &mut sides {
            each.push(side);
        }
        let series = take_turns_all(&bench.plan.trial(), slot, &mut each)?;
        let best = (0..series.len())
            .min_by(|one, other| series[*one].median().total_cmp(&series[*other].median()))
            .context("there is a setting")?;
        Ok(&mut all[best])
    }

    fn row(&mut self, bench: &Bench, figure: &str, pattern: Pattern, slot: Slot) -> Result<Row> {
        let Self { setting, ours, peer } = self;
        let sides: [&mut dyn Side; 2] = [&mut ours.side(pattern), &mut peer.side(pattern)];
        let [mine, theirs] = take_turns(&bench.plan, slot, sides)?;
        let row = match pattern {
            Pattern::PingPong => Row::latency(figure, slot, &mine, Some(&theirs)),
            Pattern::Stream => Row::rate(figure, slot, &mine, Some(&theirs)),
        };
        let percentiles = match pattern {
            Pattern::PingPong => percentiles(bench, slot, [ours, peer])?,
            Pattern::Stream => [None; 2],
        };
        Ok(Row {
            peer_name: Some(format!("UCX active messages, {setting}")),
            carried_by: [ours.carried_by(), peer.carried_by()].map(|name| Some(name.into())),
            percentiles,
            ..row
        })
    }
}

/// Whose worker ours use over TCP: the program's own for both directions, as the peer does and as a program does that uses UCX
/// beside ifuncs; or one of the source's and one of the target's, as by addresses.
const WORKERS: [(&str, &str); 2] = [("one worker", "ucx-lent"), (TWO_WORKERS, "ucx://127.0.0.1:0")];
const TWO_WORKERS: &str = "two workers";
/// The payloads that both are measured with.
const BOTH: [usize; 3] = [8, 4 << 10, 256 << 10];

fn tcp(bench: &mut Bench, figure: &str, pattern: Pattern) -> Result<()> {
    let settings = if bench.plan.quick { &TCP[..1] } else { TCP };
    // To start processes takes most of a quick run: that both ways work is seen by one pattern.
    let workers = if bench.plan.quick && pattern == Pattern::Stream {
        &WORKERS[..1]
    } else {
        &WORKERS
    };
    for &(case, address) in workers {
        let mut all = Vec::new();
        for setting in settings {
            all.push(Both::start(bench, setting, address, "ucx-am", &[])?);
        }
        let mut sizes = bench.plan.sizes(1, LARGEST);
        if case == TWO_WORKERS {
            sizes.retain(|size| BOTH.contains(size));
        }
        for size in sizes {
            let slot = Slot::new(size, Payload::Fresh);
            let row = Both::best(&mut all, bench, pattern, slot)?.row(bench, figure, pattern, slot)?;
            bench.rows.push(Row {
                case: case.into(),
                ..row
            });
        }
    }
    Ok(())
}

fn shared_memory(bench: &mut Bench) -> Result<()> {
    let mut all = Vec::new();
    for setting in MEMORY {
        // Connected by the addresses of their workers, ours and the peer's: a listener would need TCP.
        let errors: Setting = &[("BENCH_UCX_ERRORS", "peer")];
        all.push(Both::start(bench, setting, "ucx-worker:", "ucx-am", errors)?);
    }
    for size in [8, 64] {
        let slot = Slot::new(size, Payload::Fresh);
        let both = Both::best(&mut all, bench, Pattern::PingPong, slot)?;
        let mut row = both.row(bench, SHARED_MEMORY.id, Pattern::PingPong, slot)?;
        if let Some(peer) = row.peer {
            row.note = format!(
                "{:.0} ns beyond UCX's; both connected by the addresses of their workers, with endpoints that notice their peer's end",
                row.ours - peer
            );
        }
        bench.rows.push(row);
    }
    Ok(())
}

/// What puts are carried by: its name, where ours listen, what both sides are given, and the peer beyond that.
const PUT_CARRIERS: [(&str, &str, Setting, Setting); 2] = [
    (
        "shared memory",
        "ucx-put://127.0.0.1:0",
        // A listener needs TCP.
        &[("UCX_TLS", "posix,tcp,self"), ("UCX_MM_ERROR_HANDLING", "y")],
        &[("BENCH_UCX_ERRORS", "peer")],
    ),
    // Over TCP a put is a message that UCX 1.13 answers, and when the other side goes while it does, UCX ends the process: ours are
    // not offered there, see `docs/architecture.md`. Nor is a peer told of the other one's end, which ends it, too.
    ("TCP", "ucx://127.0.0.1:0", LOOPBACK, &[]),
];
const PUT_OVER_TCP: &str = "Over TCP UCX makes a message of each put, and a second one to answer it: ours are active messages there, \
    `ucx://`";

fn puts(bench: &mut Bench) -> Result<()> {
    for (carrier, address, setting, peers) in PUT_CARRIERS {
        let mut both = Both::start(bench, setting, address, "ucx-put", peers)?;
        let sizes = [8, 64, 1024, 16 << 10, 256 << 10];
        let tried = if bench.plan.quick && carrier == "TCP" {
            1
        } else {
            sizes.len()
        };
        for &size in &sizes[..tried] {
            let slot = Slot::new(size, Payload::Fresh);
            let row = both.row(bench, PUTS.id, Pattern::PingPong, slot)?;
            bench.rows.push(Row {
                case: carrier.into(),
                peer_name: Some(format!("UCX puts: payload, fence, a word; {}", both.setting)),
                note: if carrier == "TCP" {
                    PUT_OVER_TCP.into()
                } else {
                    String::new()
                },
                ..row
            });
        }
    }
    Ok(())
}
