//! `lat-ucx`, `rate-ucx`: our messages over UCX and TCP, beside UCX's own. `lat-ucx-sm`: the overhead of ours
//! over UCX's shared memory. `ucx-put`: ours beside a ping-pong of puts, over both.

use anyhow::{Context, Result};

use super::Figure;
use super::settings::{self, LOOPBACK, Setting};
use super::shm::percentiles;
use crate::Bench;
use crate::pair::{Pair, Pattern};
use crate::row::Row;
use crate::slots::{Payload, Side, Slot, take_turns_all};

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
    title: "one way by UCX over its shared memory, minus UCX active messages: our overhead",
    run: shared_memory,
};

pub(crate) const PUTS: Figure = Figure {
    id: "ucx-put",
    title: "one way by UCX over its shared memory (by puts) and over TCP, beside a ping-pong of puts",
    run: puts,
};

/// Largest payload in bytes.
const LARGEST: usize = 1 << 20;

/// Settings of both sides over TCP: UCX's defaults, and other sizes from which the target fetches.
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

/// Settings of both sides over shared memory. Endpoints that detect the end of their peer, as ours do, use
/// UCX's shared memory only on request.
const MEMORY: &[Setting] = &[
    &[("UCX_TLS", "posix,self"), ("UCX_MM_ERROR_HANDLING", "y")],
    &[("UCX_TLS", "sysv,self"), ("UCX_MM_ERROR_HANDLING", "y")],
];

/// Our pair and the peer's, with the same UCX settings.
struct Both {
    setting: String,
    ours: Pair,
    peer: Pair,
    /// A lower bound of ours, and what it is.
    floor: Option<(Pair, &'static str)>,
}

impl Both {
    fn start(bench: &Bench, setting: Setting, address: &str, role: &str, peers: Setting) -> Result<Self> {
        let env = [setting, &[("BENCH_ADDRESS", address)]].concat();
        Ok(Self {
            setting: settings::name(setting),
            ours: Pair::start("ifunc", bench.cores, &env)?,
            peer: Pair::start(role, bench.cores, &[setting, peers].concat())?,
            floor: None,
        })
    }

    /// The setting that is fastest for the peer in a short run.
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
        let Self {
            setting,
            ours,
            peer,
            floor,
        } = self;
        let (mut mine, mut theirs) = (ours.side(pattern), peer.side(pattern));
        let mut bare = floor.as_mut().map(|(pair, _)| pair.side(pattern));
        let mut sides: Vec<&mut dyn Side> = vec![&mut mine, &mut theirs];
        sides.extend(bare.as_mut().map(|bare| bare as &mut dyn Side));
        let series = take_turns_all(&bench.plan, slot, &mut sides)?;
        let (mine, theirs, bare) = (&series[0], &series[1], series.get(2));
        let row = match pattern {
            Pattern::PingPong => Row::latency(figure, slot, mine, Some(theirs)),
            Pattern::Stream => Row::rate(figure, slot, mine, Some(theirs)),
        };
        let row = match bare.zip(floor.as_ref()) {
            Some((bare, (_, name))) => row.with_floor(name, bare, Some(theirs)),
            None => row,
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

/// The workers that ours use over TCP: the program's own worker for both directions, as the peer and an
/// application with its own UCX have it; or one of the source and one of the target, as with addresses.
const WORKERS: [(&str, &str); 2] = [("one worker", "ucx-lent"), (TWO_WORKERS, "ucx://127.0.0.1:0")];
/// The floors of both.
const DETECTING: Setting = &[("BENCH_UCX_ERRORS", "peer"), ("BENCH_UCX_COPIES", "1")];
const DETECTING_NAME: &str = "UCX active messages in the peer's setting, with endpoints that detect the end of their peer, as ours do; a message that UCX lets no receiver keep is copied, because ifuncs do not run in UCX's callbacks";
const DETECTING_ON_TWO: Setting = &[
    ("BENCH_UCX_ERRORS", "peer"),
    ("BENCH_UCX_COPIES", "1"),
    ("BENCH_UCX_WORKERS", "2"),
];
const DETECTING_ON_TWO_NAME: &str = "UCX active messages in the peer's setting, with one worker that sends and one that receives; otherwise as that of one worker";
const TWO_WORKERS: &str = "two workers";
/// The payload sizes measured with both.
const BOTH: [usize; 3] = [8, 4 << 10, 256 << 10];

fn tcp(bench: &mut Bench, figure: &str, pattern: Pattern) -> Result<()> {
    let settings = if bench.plan.quick { &TCP[..1] } else { TCP };
    // Starting processes dominates a quick run; one pattern suffices to test both.
    let workers = if bench.plan.quick && pattern == Pattern::Stream {
        &WORKERS[..1]
    } else {
        &WORKERS
    };
    for &(case, address) in workers {
        let mut all = Vec::new();
        let (floor, name) = match case {
            TWO_WORKERS => (DETECTING_ON_TWO, DETECTING_ON_TWO_NAME),
            _ => (DETECTING, DETECTING_NAME),
        };
        for setting in settings {
            let mut both = Both::start(bench, setting, address, "ucx-am", &[])?;
            both.floor = Some((
                Pair::start("ucx-am", bench.cores, &[setting, floor].concat())?,
                name,
            ));
            all.push(both);
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
        // Ours and the peer connect by worker addresses: a listener would need TCP.
        let errors: Setting = &[("BENCH_UCX_ERRORS", "peer")];
        all.push(Both::start(bench, setting, "ucx-worker:", "ucx-am", errors)?);
    }
    for size in [8, 64] {
        let slot = Slot::new(size, Payload::Fresh);
        let both = Both::best(&mut all, bench, Pattern::PingPong, slot)?;
        let mut row = both.row(bench, SHARED_MEMORY.id, Pattern::PingPong, slot)?;
        if let Some(peer) = row.peer {
            row.note = format!(
                "{:.0} ns more than UCX's; both connected by worker addresses, with endpoints that detect the end of their peer",
                row.ours - peer
            );
        }
        bench.rows.push(row);
    }
    Ok(())
}

/// The transports of puts: name, our address, the settings of both sides, and additional settings of the
/// peer.
const PUT_CARRIERS: [(&str, &str, Setting, Setting); 2] = [
    (
        "shared memory",
        "ucx-put://127.0.0.1:0",
        // A listener needs TCP.
        &[("UCX_TLS", "posix,tcp,self"), ("UCX_MM_ERROR_HANDLING", "y")],
        &[("BENCH_UCX_ERRORS", "peer")],
    ),
    // Over TCP, UCX 1.13 turns a put into a message with an answer, and ends the process if the other side
    // goes away meanwhile. Our puts are therefore not available there (see `docs/architecture.md`). The peer
    // runs without error handling, because the end of the other side would end it too.
    ("TCP", "ucx://127.0.0.1:0", LOOPBACK, &[]),
];
const PUT_OVER_TCP: &str = "Over TCP, UCX implements each put by a message and an answer; ours are active messages there, \
    `ucx://`";

const PUT_RING: &str = "a ring of the same puts without a runtime: one line or two with a checksum, or a body, a fence and half a line; then a call of a \
    function from a table";

fn puts(bench: &mut Bench) -> Result<()> {
    for (carrier, address, setting, peers) in PUT_CARRIERS {
        let mut both = Both::start(bench, setting, address, "ucx-put", peers)?;
        if address.starts_with("ucx-put:") {
            let env = [setting, peers].concat();
            both.floor = Some((Pair::start("ucx-put-ring", bench.cores, &env)?, PUT_RING));
        }
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
