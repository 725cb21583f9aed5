//! The metrics of a target: what its connections count, and what closed ones had counted.
//!
//! A connection counts into counters of its own. The metrics know these counters, and add up what they hold
//! when a handle is released or a connection ends. Both happen under one lock, so that a reader finds every count once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ifunc_abi::stats::{
    CodeMemory, Counts, ExportStats, IfuncCounts, IfuncStats, RunnerStats, SourceStats, Stats, Timing,
};
use ifunc_abi::status::Rejection;
use ifunc_exec::runner::RunnerCounts;
use ifunc_exec::{IdHasher, ImageProperties, InstalledImage, Observer};

use super::IfuncKey;
use super::counters::{HandleCounters, LinkCounters, SharedTimes, locked};
use crate::policy::SourceInfo;
use crate::travel::Travels;

/// Most ifuncs that are kept of those that are not installed.
const MAX_UNINSTALLED: usize = 1024;

/// What a target has counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    address: String,
    since: Instant,
    timing: Timing,
    code_bytes: u64,
    max_images: u64,
    /// Number of the last snapshot.
    snapshots: AtomicU64,
    tables: Mutex<Tables>,
    travels: Arc<Travels>,
    exports: Mutex<ExportStats>,
    runners: Mutex<Option<RunnerStats>>,
}

/// What is counted by connection and by ifunc.
#[derive(Debug, Default)]
struct Tables {
    sources: BTreeMap<u64, SourceRecord>,
    ifuncs: HashMap<IfuncKey, IfuncRecord, BuildHasherDefault<IdHasher>>,
    /// Connections so far.
    connected: u64,
    /// The sum of closed connections.
    closed: Counts,
    /// The sum of ifuncs whose records were dropped.
    forgotten: IfuncCounts,
    /// Records of `ifuncs` that are not installed, by when they were touched: the one touched longest ago is first.
    uninstalled: BTreeMap<u64, IfuncKey>,
    clock: u64,
}

#[derive(Debug)]
struct SourceRecord {
    info: SourceInfo,
    since: Instant,
    lanes: Vec<String>,
    link: Arc<LinkCounters>,
    handles: HashMap<u32, Arc<HandleCounters>>,
    /// The sum of released handles.
    released: Counts,
}

#[derive(Debug, Default)]
struct IfuncRecord {
    name: String,
    size: u64,
    /// 0: not installed.
    memory: u64,
    /// The sum of released handles, with installs and refusals.
    released: IfuncCounts,
    times: Arc<SharedTimes>,
    /// Handles that it is bound to.
    bound: u64,
    touched: u64,
}

/// An entry of an image by the image's own account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) key: IfuncKey,
    pub(crate) name: &'a str,
    /// Of the image.
    pub(crate) size: usize,
}

impl Metrics {
    pub(crate) fn new(
        address: String,
        timing: Timing,
        code_bytes: usize,
        max_images: usize,
        travels: Arc<Travels>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            since: Instant::now(),
            timing,
            code_bytes: code_bytes as u64,
            max_images: max_images as u64,
            snapshots: AtomicU64::new(0),
            tables: Mutex::default(),
            travels,
            exports: Mutex::default(),
            runners: Mutex::default(),
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        locked(&self.tables)
    }

    /// The number of a new snapshot.
    pub(crate) fn next_snapshot(&self) -> u64 {
        self.snapshots.fetch_add(1, Relaxed) + 1
    }

    /// A source has connected.
    pub(crate) fn connected(self: &Arc<Self>, info: SourceInfo, lanes: Vec<String>) -> SourceMetrics {
        let link = Arc::<LinkCounters>::default();
        let number = info.connection;
        let mut tables = self.tables();
        tables.connected += 1;
        tables.sources.insert(
            number,
            SourceRecord {
                info,
                since: Instant::now(),
                lanes,
                link: link.clone(),
                handles: HashMap::new(),
                released: Counts::default(),
            },
        );
        drop(tables);
        SourceMetrics {
            metrics: self.clone(),
            number,
            link,
        }
    }

    /// What was counted so far, for connection `asked_by`.
    pub(super) fn snapshot(&self, asked_by: u64) -> Stats {
        let group = self.travels.stats();
        let tables = self.tables();
        let now = Instant::now();
        let since = |then: Instant| u64::try_from((now - then).as_nanos()).unwrap_or(u64::MAX);
        let mut total = tables.closed.clone();
        let mut of_ifuncs: HashMap<IfuncKey, IfuncCounts> = HashMap::new();
        let mut sources = Vec::with_capacity(tables.sources.len());
        for source in tables.sources.values() {
            let mut counts = source.link.counts();
            counts.merge(&source.released);
            for handle in source.handles.values() {
                let counted = handle.counts();
                add_invocations(&mut counts, &counted, handle.frames());
                of_ifuncs.entry(handle.key).or_default().merge(&counted);
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
        for (key, record) in &tables.ifuncs {
            let mut counts = of_ifuncs.remove(key).unwrap_or_default();
            counts.merge(&record.released);
            counts.times = locked(&record.times).clone();
            // The entries of an image share its memory.
            if key.entry == 0 {
                code.used += record.memory;
                code.images += u64::from(record.memory != 0);
            }
            ifuncs.push(IfuncStats {
                id: key.id,
                name: record.name.clone(),
                size: record.size,
                memory: record.memory,
                installed: record.memory != 0,
                bound: record.bound,
                counts,
            });
        }
        let (connected, forgotten) = (tables.connected, tables.forgotten.clone());
        drop(tables);
        // Most hits first.
        ifuncs.sort_by(|a, b| {
            (Reverse(a.counts.hits), &a.name, a.id).cmp(&(Reverse(b.counts.hits), &b.name, b.id))
        });
        Stats {
            runtime: env!("CARGO_PKG_VERSION").into(),
            address: self.address.clone(),
            pid: std::process::id(),
            uptime_ns: since(self.since),
            connected,
            asked_by,
            code,
            timing: self.timing,
            total,
            sources,
            ifuncs,
            forgotten,
            group,
            exports: *locked(&self.exports),
            runners: *locked(&self.runners),
        }
    }
}

impl Observer for Metrics {
    fn installed(&self, image: &InstalledImage) {
        let mut tables = self.tables();
        // At least 1: 0 says that it is not installed.
        let memory = image.footprint().max(1) as u64;
        for (entry, properties) in (0..).zip(&image.entries) {
            let key = IfuncKey { id: image.id, entry };
            let touched = tables.ifunc(&key, &properties.name, |record| {
                record.memory = memory;
                record.touched
            });
            tables.uninstalled.remove(&touched);
        }
    }

    fn evicted(&self, image: &ImageProperties) {
        let mut guard = self.tables();
        let tables = &mut *guard;
        for (entry, _) in (0..).zip(&image.entries) {
            let key = IfuncKey { id: image.id, entry };
            let record = tables.ifuncs.get_mut(&key);
            if let Some(record) = record.filter(|record| record.memory != 0) {
                record.memory = 0;
                tables.uninstalled.insert(record.touched, key);
            }
        }
        tables.forget(MAX_UNINSTALLED);
    }

    fn exports_changed(&self, change: u64) {
        *locked(&self.exports) = ExportStats {
            changes: change,
            last_ns: None,
        };
    }

    fn change_ended(&self, change: u64, took: Duration) {
        let mut exports = locked(&self.exports);
        if exports.changes == change {
            exports.last_ns = Some(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    fn runners_changed(&self, counts: RunnerCounts) {
        let RunnerCounts {
            running,
            max,
            restarts,
            crashes,
            landlock,
        } = counts;
        *locked(&self.runners) = Some(RunnerStats {
            running: running as u64,
            max: max as u64,
            restarts,
            crashes,
            landlock,
        });
    }
}

impl Tables {
    /// Changes the record of an entry, which is made if there is none, and touches it.
    fn ifunc<R>(&mut self, key: &IfuncKey, name: &str, change: impl FnOnce(&mut IfuncRecord) -> R) -> R {
        self.clock += 1;
        if let Some(record) = self.ifuncs.get_mut(key) {
            if record.memory == 0 {
                self.uninstalled.remove(&record.touched);
                self.uninstalled.insert(self.clock, *key);
            }
            record.touched = self.clock;
            return change(record);
        }
        let mut record = IfuncRecord {
            name: name.to_owned(),
            touched: self.clock,
            ..IfuncRecord::default()
        };
        let result = change(&mut record);
        // Room for it when it is evicted, if it is installed now.
        self.forget(MAX_UNINSTALLED - 1);
        if record.memory == 0 {
            self.uninstalled.insert(self.clock, *key);
        }
        self.ifuncs.insert(*key, record);
        result
    }

    /// Drops records of ifuncs that are not installed until there are at most `most`.
    fn forget(&mut self, most: usize) {
        while self.uninstalled.len() > most {
            let is_free = |key: &IfuncKey| self.ifuncs.get(key).is_none_or(|entry| entry.bound == 0);
            let Some((&touched, &key)) = self.uninstalled.iter().find(|(_, key)| is_free(key)) else {
                return;
            };
            self.uninstalled.remove(&touched);
            let Some(entry) = self.ifuncs.remove(&key) else {
                continue;
            };
            self.forgotten.merge(&entry.released);
            self.forgotten.times.merge(&locked(&entry.times));
        }
    }
}

/// What a connection counts. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct SourceMetrics {
    pub(crate) metrics: Arc<Metrics>,
    number: u64,
    /// Its own counters.
    pub(crate) link: Arc<LinkCounters>,
}

impl SourceMetrics {
    /// An image was installed; its entries are bound next.
    pub(crate) fn installed(&self) {
        self.link.rare().installs += 1;
    }

    /// An entry was bound to a handle that was free.
    pub(crate) fn bound(&self, handle: u32, about: About<'_>) -> HandleMetrics {
        let mut tables = self.metrics.tables();
        let times = tables.ifunc(&about.key, about.name, |record| {
            record.size = record.size.max(about.size as u64);
            record.released.installs += 1;
            record.bound += 1;
            record.times.clone()
        });
        let counters = Arc::new(HandleCounters::new(about.key, times, self.metrics.timing));
        if let Some(source) = tables.sources.get_mut(&self.number) {
            source.handles.insert(handle, counters.clone());
        }
        drop(tables);
        HandleMetrics {
            metrics: self.metrics.clone(),
            source: self.number,
            handle,
            counters,
        }
    }

    /// A handle was bound once more to the entry that it is bound to.
    pub(crate) fn bound_again(&self, handle: &HandleMetrics) {
        if handle.counters.key.entry == 0 {
            self.installed();
        }
        handle.counters.installed_again();
    }

    /// An image was refused. `about` is `None` until its bytes were compared with its id.
    pub(crate) fn refused(&self, reason: Rejection, about: Option<About<'_>>) {
        self.link.rare().refused.add(reason, 1);
        if let Some(about) = about {
            let mut tables = self.metrics.tables();
            tables.ifunc(&about.key, about.name, |record| {
                record.size = record.size.max(about.size as u64);
                record.released.refused.add(reason, 1);
            });
        }
    }
}

impl Drop for SourceMetrics {
    fn drop(&mut self) {
        let mut tables = self.metrics.tables();
        if let Some(source) = tables.sources.remove(&self.number) {
            let mut counts = source.link.counts();
            counts.merge(&source.released);
            tables.closed.merge(&counts);
        }
    }
}

/// What a handle counts. Dropping it releases the handle.
#[derive(Debug)]
pub(crate) struct HandleMetrics {
    metrics: Arc<Metrics>,
    source: u64,
    handle: u32,
    pub(crate) counters: Arc<HandleCounters>,
}

impl Drop for HandleMetrics {
    fn drop(&mut self) {
        let (counted, frames) = (self.counters.counts(), self.counters.frames());
        let mut guard = self.metrics.tables();
        let tables = &mut *guard;
        if let Some(entry) = tables.ifuncs.get_mut(&self.counters.key) {
            entry.released.merge(&counted);
            entry.bound -= 1;
        }
        let mut released = &mut tables.closed;
        if let Some(source) = tables.sources.get_mut(&self.source) {
            source.handles.remove(&self.handle);
            released = &mut source.released;
        }
        add_invocations(released, &counted, frames);
    }
}

/// Adds a handle's invocations to its connection's counts; `frames` of them were frames of their own. The connection itself
/// counts why invocations failed.
fn add_invocations(counts: &mut Counts, of_handle: &IfuncCounts, frames: u64) {
    counts.frames += frames;
    counts.executed += of_handle.hits.saturating_sub(of_handle.failed);
    counts.bytes_in += of_handle.payload_bytes;
    counts.bytes_out += of_handle.answer_bytes;
}
