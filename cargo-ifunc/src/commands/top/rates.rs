//! Rates between two samples.

use std::collections::BTreeMap;

use ifunc_rt::stats::Stats;
use serde::Serialize;

/// Counts per second.
#[derive(Debug, Default, Serialize)]
pub(super) struct Rates {
    /// The time that the rates refer to, in seconds.
    #[serde(skip)]
    pub(super) interval_s: f64,
    pub(super) frames: f64,
    pub(super) invocations: f64,
    pub(super) bytes_in: f64,
    pub(super) bytes_out: f64,
    /// Invocations, by the id of the image.
    pub(super) ifuncs: BTreeMap<String, f64>,
    /// Frames, by the number of the connection.
    pub(super) sources: BTreeMap<u64, f64>,
    /// Bytes of payloads, by the id of the image.
    #[serde(skip)]
    pub(super) ifunc_bytes: BTreeMap<String, f64>,
    /// Bytes from sources, by the number of the connection.
    #[serde(skip)]
    pub(super) source_bytes: BTreeMap<u64, f64>,
}

impl Rates {
    /// The rates since `before`. Without it, or if it belongs to an earlier run of the target, the rates
    /// since the target's start.
    pub(super) fn between(before: Option<&Stats>, now: &Stats) -> Self {
        let nothing = Stats::default();
        let before = before
            .filter(|before| before.pid == now.pid && before.uptime_ns <= now.uptime_ns)
            .unwrap_or(&nothing);
        let seconds = |ns: u64| (ns.max(1)) as f64 / 1e9;
        let interval_s = seconds(now.uptime_ns - before.uptime_ns);
        let per_second = |now: u64, before: u64, over: f64| now.saturating_sub(before) as f64 / over;
        let hits = |stats: &Stats| {
            let total = &stats.total;
            total.executed.saturating_add(total.failed.total())
        };
        let mut rates = Self {
            interval_s,
            frames: per_second(now.total.frames, before.total.frames, interval_s),
            invocations: per_second(hits(now), hits(before), interval_s),
            bytes_in: per_second(now.total.bytes_in, before.total.bytes_in, interval_s),
            bytes_out: per_second(now.total.bytes_out, before.total.bytes_out, interval_s),
            ..Self::default()
        };
        let old: BTreeMap<_, _> = before
            .ifuncs
            .iter()
            .map(|ifunc| (ifunc.id, &ifunc.counts))
            .collect();
        for ifunc in &now.ifuncs {
            let (id, counts) = (hex(&ifunc.id), &ifunc.counts);
            let (hits, bytes) = old
                .get(&ifunc.id)
                .map_or((0, 0), |old| (old.hits, old.payload_bytes));
            rates
                .ifuncs
                .insert(id.clone(), per_second(counts.hits, hits, interval_s));
            rates
                .ifunc_bytes
                .insert(id, per_second(counts.payload_bytes, bytes, interval_s));
        }
        let old: BTreeMap<_, _> = before
            .sources
            .iter()
            .map(|source| (source.connection, &source.counts))
            .collect();
        for source in &now.sources {
            let (number, counts) = (source.connection, &source.counts);
            let (frames, bytes) = old.get(&number).map_or((0, 0), |old| (old.frames, old.bytes_in));
            // A source that connected in the meantime counts from its connection on.
            let over = interval_s.min(seconds(source.connected_ns));
            rates
                .sources
                .insert(number, per_second(counts.frames, frames, over));
            rates
                .source_bytes
                .insert(number, per_second(counts.bytes_in, bytes, over));
        }
        rates
    }
}

/// An id in hexadecimal digits.
pub(super) fn hex(id: &[u8; 32]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_target_counts_from_its_start() {
        let mut before = Stats {
            pid: 1,
            uptime_ns: 10_000_000_000,
            ..Stats::default()
        };
        before.total.frames = 1000;
        let mut now = before.clone();
        now.uptime_ns = 12_000_000_000;
        now.total.frames = 1500;
        let rates = Rates::between(Some(&before), &now);
        assert_eq!((rates.interval_s, rates.frames), (2.0, 250.0));
        now.pid = 2;
        assert_eq!(Rates::between(Some(&before), &now).frames, 125.0);
        now.pid = 1;
        now.uptime_ns = 5_000_000_000;
        assert_eq!(Rates::between(Some(&before), &now).frames, 300.0);
    }
}
