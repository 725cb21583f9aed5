//! A snapshot: the sum of all counters.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::stats::{CodeMemory, IfuncCounts, IfuncStats, SourceStats, Stats};

use super::metrics::{Metrics, add_invocations};

impl Metrics {
    /// What was counted so far, for connection `asked_by`.
    pub(super) fn snapshot(&self, asked_by: u64) -> Stats {
        let guard = self.tables();
        let tables = &*guard;
        let now = Instant::now();
        let since = |then: Instant| u64::try_from((now - then).as_nanos()).unwrap_or(u64::MAX);
        let mut total = tables.closed.clone();
        let mut of_ifuncs: HashMap<ImageId, IfuncCounts> = HashMap::new();
        let mut sources = Vec::with_capacity(tables.sources.len());
        for source in tables.sources.values() {
            let mut counts = source.link.counts();
            counts.merge(&source.released);
            for handle in source.handles.values() {
                let counted = handle.counts();
                add_invocations(&mut counts, &counted, handle.frames());
                of_ifuncs.entry(handle.id).or_default().merge(&counted);
            }
            total.merge(&counts);
            sources.push(SourceStats {
                connection: source.info.connection,
                uid: source.info.uid,
                pid: source.info.pid,
                lanes: source.lanes.clone(),
                connected_ns: since(source.since),
                bound: source.handles.len() as u64,
                stalled: source.link.stalled.load(Relaxed),
                counts,
            });
        }
        let mut code = CodeMemory {
            limit: self.code_bytes,
            max_images: self.max_images,
            ..CodeMemory::default()
        };
        let mut ifuncs = Vec::with_capacity(tables.ifuncs.len());
        for (id, entry) in &tables.ifuncs {
            let mut counts = of_ifuncs.remove(id).unwrap_or_default();
            counts.merge(&entry.released);
            counts.times = entry.times.times();
            code.used += entry.memory;
            code.images += u64::from(entry.memory != 0);
            ifuncs.push(IfuncStats {
                id: *id,
                name: entry.name.clone(),
                size: entry.size,
                memory: entry.memory,
                installed: entry.memory != 0,
                bound: entry.bound,
                counts,
            });
        }
        let stats = Stats {
            runtime: env!("CARGO_PKG_VERSION").into(),
            address: self.address.clone(),
            pid: std::process::id(),
            uptime_ns: since(self.since),
            connected: tables.connected,
            asked_by,
            code,
            timing: self.timing,
            total,
            sources,
            ifuncs,
            forgotten: tables.forgotten.clone(),
        };
        drop(guard);
        sorted(stats)
    }
}

/// Sorts the ifuncs, most hits first.
fn sorted(mut stats: Stats) -> Stats {
    stats.ifuncs.sort_by(|a, b| {
        (Reverse(a.counts.hits), &a.name, a.id).cmp(&(Reverse(b.counts.hits), &b.name, b.id))
    });
    stats
}
