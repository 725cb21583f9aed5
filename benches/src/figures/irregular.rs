//! `aggregate`, `gups`, `gather`: many small operations on a table in other processes, each in its own
//! message and aggregated.

use anyhow::{Context, Result};

use super::Figure;
use super::floors::Floor;
use super::settings::LOOPBACK;
use super::settings::{self, Setting};
use crate::Bench;
use crate::irregular::{Cluster, Work};
use crate::row::Row;
use crate::slots::{Payload, Side, Slot, take_turns_all};

pub(crate) const AGGREGATE: Figure = Figure {
    id: "aggregate",
    title: "aggregated increments of eight bytes, beside the same in messages of their own",
    run: aggregate,
};

pub(crate) const UPDATES: Figure = Figure {
    id: "gups",
    title: "random increments of a table in two processes, each in its own message and aggregated",
    run: |bench| irregular(bench, UPDATES.id, Work::Updates),
};

pub(crate) const READS: Figure = Figure {
    id: "gather",
    title: "random reads of a table in two processes, each in its own message and aggregated",
    run: |bench| irregular(bench, READS.id, Work::Reads),
};

/// Number of processes with a part of the table. They share a core.
const PARTS: usize = 2;

/// A transport: our address and the settings of UCX.
struct Carrier {
    name: &'static str,
    address: &'static str,
    /// Settings of all programs.
    env: Setting,
    /// Settings of the peer's active messages. The better one counts.
    messages: &'static [Setting],
    /// Settings of its gets and atomic additions.
    accesses: &'static [Setting],
    /// How the transport implements gets and atomic additions.
    remark: &'static str,
}

const TCP: Carrier = Carrier {
    name: "ucx over TCP",
    address: "ucx://127.0.0.1:0",
    env: LOOPBACK,
    messages: &[&[], &[("UCX_RNDV_THRESH", "inf")]],
    accesses: &[&[]],
    remark: "Over TCP, UCX implements gets and atomic additions by messages that the target's processor answers; with a network \
        card that supports them, they cost the target nothing",
};

const MEMORY: Carrier = Carrier {
    name: "shm",
    address: "shm:",
    env: &[],
    messages: &[&[], &[("UCX_TLS", "posix,self")]],
    accesses: &[&[], &[("UCX_TLS", "posix,self")]],
    remark: "Over shared memory, gets are loads and atomic additions are instructions of the source's processor, on memory that both map: \
        the target does nothing",
};

/// A slot with operations of eight bytes.
fn slot() -> Slot {
    Slot::new(8, Payload::Fresh)
}

fn ours(bench: &Bench, carrier: &Carrier, parts: usize, work: Work, aggregated: bool) -> Result<Cluster> {
    let env = [
        carrier.env,
        &[("BENCH_ADDRESS", carrier.address), ("BENCH_WORK", work.name())],
        if aggregated {
            &[("BENCH_AGGREGATED", "1")]
        } else {
            &[]
        },
    ]
    .concat();
    Cluster::start("ours", "table", bench.cores, parts, &env)
}

/// The methods of a user of UCX.
#[derive(Clone, Copy)]
enum By {
    Messages,
    Accesses,
}

impl By {
    const ALL: [Self; 2] = [Self::Messages, Self::Accesses];

    fn kind(self) -> &'static str {
        match self {
            Self::Messages => "table-ucx",
            Self::Accesses => "table-remote",
        }
    }

    fn settings(self, carrier: &Carrier) -> &'static [Setting] {
        match self {
            Self::Messages => carrier.messages,
            Self::Accesses => carrier.accesses,
        }
    }

    fn name(self, work: Work, aggregated: bool) -> &'static str {
        match (self, work, aggregated) {
            (Self::Messages, _, false) => "UCX active messages",
            (Self::Messages, _, true) => "UCX active messages, aggregated by hand",
            (Self::Accesses, Work::Updates, _) => "UCX atomic additions",
            (Self::Accesses, Work::Reads, false) => "UCX gets",
            (Self::Accesses, Work::Reads, true) => "UCX gets, as many in flight as ours",
        }
    }
}

/// The programs of a peer, one cluster per setting.
fn peers(bench: &Bench, carrier: &Carrier, by: By, work: Work, aggregated: bool) -> Result<Vec<Cluster>> {
    let settings = by.settings(carrier);
    let tried = if bench.plan.quick { 1 } else { settings.len() };
    let settings = settings[..tried].iter().map(|setting| {
        let env = [
            carrier.env,
            setting,
            &[("BENCH_WORK", work.name())],
            if aggregated {
                &[("BENCH_AGGREGATED", "1")]
            } else {
                &[]
            },
        ]
        .concat();
        let name = format!(
            "{}, {}",
            by.name(work, aggregated),
            settings::name(&[carrier.env, setting].concat())
        );
        Cluster::start(&name, by.kind(), bench.cores, PARTS, &env)
    });
    settings.collect()
}

fn aggregate(bench: &mut Bench) -> Result<()> {
    for carrier in [TCP, MEMORY] {
        let mut together = ours(bench, &carrier, 1, Work::Updates, true)?;
        let mut alone = ours(bench, &carrier, 1, Work::Updates, false)?;
        let mut floor = (carrier.name == MEMORY.name)
            .then(|| Floor::updates(bench.cores))
            .transpose()?;
        let mut sides: Vec<&mut dyn Side> = vec![&mut together, &mut alone];
        sides.extend(floor.as_mut().map(|floor| floor as &mut dyn Side));
        let series = take_turns_all(&bench.plan, slot(), &mut sides)?;
        let mut row = Row::rate(AGGREGATE.id, slot(), &series[0], series.get(1));
        if let Some((bare, floor)) = series.get(2).zip(floor.as_ref()) {
            row = row.with_floor(floor.name(), bare, series.get(1));
        }
        row.case = carrier.name.into();
        row.unit = "updates/s".into();
        row.peer_name = Some("the same, each in its own message".into());
        row.carried_by = [&together, &alone].map(|cluster| Some(cluster.carried_by.clone()));
        bench.rows.push(row);
    }
    Ok(())
}

fn irregular(bench: &mut Bench, figure: &str, work: Work) -> Result<()> {
    // Starting processes dominates a quick run.
    let carriers: &[Carrier] = if bench.plan.quick { &[TCP] } else { &[TCP, MEMORY] };
    for carrier in carriers {
        for (aggregated, how) in [(false, "each in its own message"), (true, "aggregated")] {
            let mut ours = ours(bench, carrier, PARTS, work, aggregated)?;
            let mut peers = Vec::new();
            let mut of = Vec::new();
            for by in By::ALL {
                // Starting processes dominates a quick run, and the two cases differ only in the number in flight.
                if aggregated && bench.plan.quick && matches!(by, By::Accesses) {
                    continue;
                }
                let all = self::peers(bench, carrier, by, work, aggregated)?;
                of.push((by, peers.len()..peers.len() + all.len()));
                peers.extend(all);
            }
            let mut sides: Vec<&mut dyn Side> = vec![&mut ours];
            for peer in &mut peers {
                sides.push(peer);
            }
            let all = take_turns_all(&bench.plan, slot(), &mut sides)?;
            let (mine, theirs) = all.split_first().context("there is ours")?;
            for (by, range) in of {
                let best =
                    range.min_by(|one, other| theirs[*one].median().total_cmp(&theirs[*other].median()));
                let best = best.context("there is a setting")?;
                let (theirs, peer) = (&theirs[best], &peers[best]);
                let mut row = Row::rate(figure, slot(), mine, Some(theirs));
                row.case = format!("{}, {how}", carrier.name);
                row.unit = format!("{}/s", work.name());
                row.peer_name = Some(peer.name.clone());
                row.carried_by = [&ours, peer].map(|cluster| Some(cluster.carried_by.clone()));
                if let By::Accesses = by {
                    row.case = format!("{}; beside {}", row.case, work.access());
                    row.note = carrier.remark.into();
                }
                bench.rows.push(row);
            }
        }
    }
    Ok(())
}

impl Work {
    /// The operation that does it without a program at the other end.
    fn access(self) -> &'static str {
        match self {
            Self::Updates => "atomics",
            Self::Reads => "gets",
        }
    }
}
