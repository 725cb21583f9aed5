//! `aggregate`, `gups`, `gather`: many small operations on a table of other programs', each by itself and aggregated.

use anyhow::{Context, Result};

use super::Figure;
use crate::Bench;
use crate::irregular::{Cluster, Work};
use crate::row::Row;
use crate::slots::{Payload, Series, Side, Slot, take_turns_all};

pub(crate) const AGGREGATE: Figure = Figure {
    id: "aggregate",
    title: "increments of eight bytes that travel together, beside the same, each by itself",
    run: aggregate,
};

pub(crate) const UPDATES: Figure = Figure {
    id: "gups",
    title: "random increments of a table that lies in two processes, each by itself and aggregated",
    run: |bench| irregular(bench, UPDATES.id, Work::Updates),
};

pub(crate) const READS: Figure = Figure {
    id: "gather",
    title: "random reads of a table that lies in two processes, each by itself and aggregated",
    run: |bench| irregular(bench, READS.id, Work::Reads),
};

/// Processes that have a part of the table. They share a core.
const PARTS: usize = 2;

type Env = [(&'static str, &'static str)];

/// What carries messages: how ours is addressed, and how UCX may be configured.
struct Way {
    name: &'static str,
    address: &'static str,
    /// Of all programs.
    env: &'static Env,
    /// Of the peer's. The better one counts.
    settings: &'static [&'static Env],
}

const TCP: Way = Way {
    name: "ucx over TCP",
    address: "ucx://127.0.0.1:0",
    env: &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")],
    settings: &[&[], &[("UCX_RNDV_THRESH", "inf")]],
};

const MEMORY: Way = Way {
    name: "shm",
    address: "shm:",
    env: &[],
    settings: &[&[], &[("UCX_TLS", "posix,self")]],
};

/// Eight bytes, each operation.
fn slot() -> Slot {
    Slot::new(8, Payload::Fresh)
}

fn ours(bench: &Bench, way: &Way, parts: usize, work: Work, aggregated: bool) -> Result<Cluster> {
    let env = [
        way.env,
        &[("BENCH_ADDRESS", way.address), ("BENCH_WORK", work.name())],
        if aggregated {
            &[("BENCH_AGGREGATED", "1")]
        } else {
            &[]
        },
    ]
    .concat();
    Cluster::start("ours", "table", bench.cores, parts, &env)
}

fn peers(bench: &Bench, way: &Way, work: Work, aggregated: bool) -> Result<Vec<Cluster>> {
    let tried = if bench.plan.quick { 1 } else { way.settings.len() };
    let settings = way.settings[..tried].iter().map(|setting| {
        let env = [
            way.env,
            setting,
            &[("BENCH_WORK", work.name())],
            if aggregated {
                &[("BENCH_AGGREGATED", "1")]
            } else {
                &[]
            },
        ]
        .concat();
        let how = if aggregated { ", aggregated by hand" } else { "" };
        let set: Vec<_> = way
            .env
            .iter()
            .chain(*setting)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let set = if set.is_empty() {
            "defaults".into()
        } else {
            set.join(" ")
        };
        let name = format!("UCX active messages{how}, {set}");
        Cluster::start(&name, "table-ucx", bench.cores, PARTS, &env)
    });
    settings.collect()
}

fn aggregate(bench: &mut Bench) -> Result<()> {
    for way in [TCP, MEMORY] {
        let mut together = ours(bench, &way, 1, Work::Updates, true)?;
        let mut alone = ours(bench, &way, 1, Work::Updates, false)?;
        let series = take_turns_all(&bench.plan, slot(), &mut [&mut together, &mut alone])?;
        let mut row = Row::rate(AGGREGATE.id, slot(), &series[0], series.get(1));
        row.case = way.name.into();
        row.unit = "updates/s".into();
        row.peer_name = Some("the same, each by itself".into());
        row.carried_by = [&together, &alone].map(|cluster| Some(cluster.carried_by.clone()));
        bench.rows.push(row);
    }
    Ok(())
}

fn irregular(bench: &mut Bench, figure: &str, work: Work) -> Result<()> {
    // To start processes takes most of a quick run.
    let ways: &[Way] = if bench.plan.quick { &[TCP] } else { &[TCP, MEMORY] };
    for way in ways {
        for (aggregated, how) in [(false, "each by itself"), (true, "aggregated")] {
            let mut ours = ours(bench, way, PARTS, work, aggregated)?;
            let mut peers = peers(bench, way, work, aggregated)?;
            let mut sides: Vec<&mut dyn Side> = vec![&mut ours];
            for peer in &mut peers {
                sides.push(peer);
            }
            let all = take_turns_all(&bench.plan, slot(), &mut sides)?;
            let (mine, theirs) = all.split_first().context("there is ours")?;
            let beside: Vec<(&Series, &Cluster)> = theirs.iter().zip(&peers).collect();
            let best = beside
                .into_iter()
                .min_by(|one, other| one.0.median().total_cmp(&other.0.median()));
            let (theirs, peer) = best.context("there is a peer")?;
            let mut row = Row::rate(figure, slot(), mine, Some(theirs));
            row.case = format!("{}, {how}", way.name);
            row.unit = format!("{}/s", work.name());
            row.peer_name = Some(peer.name.clone());
            row.carried_by = [&ours, peer].map(|cluster| Some(cluster.carried_by.clone()));
            bench.rows.push(row);
        }
    }
    Ok(())
}
