//! The metrics of a target: what its connections count, and what closed ones had counted.
//!
//! A connection counts into counters of its own. The metrics know these counters, and add up what they hold
//! when a handle is released or a connection ends. Both happen under one lock, so that a reader finds every count once.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::stats::{Counts, IfuncCounts, Timing};
use ifunc_abi::status::Rejection;
use ifunc_exec::{IdMap, InstalledImage, Observer};

use super::counters::{HandleCounters, LinkCounters, SharedTimes};
use crate::policy::SourceInfo;

/// Most ifuncs that are kept of those that are not installed.
const MAX_UNINSTALLED: usize = 1024;

/// What a target has counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(super) address: String,
    pub(super) since: Instant,
    pub(super) timing: Timing,
    pub(super) code_bytes: u64,
    pub(super) max_images: u64,
    /// Number of the last snapshot.
    pub(super) snapshots: AtomicU64,
    tables: Mutex<Tables>,
}

/// What is counted by connection and by ifunc.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) sources: BTreeMap<u64, SourceRecord>,
    pub(super) ifuncs: IdMap<IfuncRecord>,
    /// Connections so far.
    pub(super) connected: u64,
    /// The sum of closed connections.
    pub(super) closed: Counts,
    /// The sum of ifuncs whose records were dropped.
    pub(super) forgotten: IfuncCounts,
    /// Records of `ifuncs` that are not installed, by when they were touched: the one touched longest ago is first.
    uninstalled: BTreeMap<u64, ImageId>,
    clock: u64,
}

#[derive(Debug)]
pub(super) struct SourceRecord {
    pub(super) info: SourceInfo,
    pub(super) since: Instant,
    pub(super) lanes: Vec<String>,
    pub(super) link: Arc<LinkCounters>,
    pub(super) handles: HashMap<u32, Arc<HandleCounters>>,
    /// The sum of released handles.
    pub(super) released: Counts,
}

#[derive(Debug, Default)]
pub(super) struct IfuncRecord {
    pub(super) name: String,
    pub(super) size: u64,
    /// 0: not installed.
    pub(super) memory: u64,
    /// The sum of released handles, with installs and refusals.
    pub(super) released: IfuncCounts,
    pub(super) times: Arc<SharedTimes>,
    /// Handles that it is bound to.
    pub(super) bound: u64,
    touched: u64,
}

/// An image by its own account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) id: &'a ImageId,
    pub(crate) name: &'a str,
    pub(crate) size: usize,
}

impl Metrics {
    pub(crate) fn new(address: String, timing: Timing, code_bytes: usize, max_images: usize) -> Arc<Self> {
        Arc::new(Self {
            address,
            since: Instant::now(),
            timing,
            code_bytes: code_bytes as u64,
            max_images: max_images as u64,
            snapshots: AtomicU64::new(0),
            tables: Mutex::default(),
        })
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        // Counts stay usable after a panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new snapshot.
    pub(crate) fn next_snapshot(&self) -> u64 {
        self.snapshots.fetch_add(1, Relaxed) + 1
    }

    /// A source has connected.
    pub(crate) fn connected(self: &Arc<Self>, info: SourceInfo, lanes: Vec<String>) -> SourceMetrics {
        let link = Arc::<LinkCounters>::default();
        let mut tables = self.tables();
        tables.connected += 1;
        tables.sources.insert(
            info.connection,
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
            number: info.connection,
            link,
        }
    }
}

impl Observer for Metrics {
    fn installed(&self, image: &InstalledImage) {
        let mut tables = self.tables();
        // At least 1: 0 says that it is not installed.
        let memory = image.footprint().max(1) as u64;
        let touched = tables.ifunc(&image.id, &image.name, |record| {
            record.memory = memory;
            record.touched
        });
        tables.uninstalled.remove(&touched);
    }

    fn evicted(&self, id: &ImageId) {
        let mut guard = self.tables();
        let tables = &mut *guard;
        if let Some(record) = tables.ifuncs.get_mut(id).filter(|record| record.memory != 0) {
            record.memory = 0;
            tables.uninstalled.insert(record.touched, *id);
            tables.forget(MAX_UNINSTALLED);
        }
    }
}

impl Tables {
    /// Changes the record of an image, which is made if there is none, and touches it.
    fn ifunc<R>(&mut self, id: &ImageId, name: &str, change: impl FnOnce(&mut IfuncRecord) -> R) -> R {
        self.clock += 1;
        if let Some(record) = self.ifuncs.get_mut(id) {
            if record.memory == 0 {
                self.uninstalled.remove(&record.touched);
                self.uninstalled.insert(self.clock, *id);
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
            self.uninstalled.insert(self.clock, *id);
        }
        self.ifuncs.insert(*id, record);
        result
    }

    /// Drops records of ifuncs that are not installed until there are at most `most`.
    fn forget(&mut self, most: usize) {
        while self.uninstalled.len() > most {
            let is_free = |id: &ImageId| self.ifuncs.get(id).is_none_or(|entry| entry.bound == 0);
            let Some((&touched, &id)) = self.uninstalled.iter().find(|(_, id)| is_free(id)) else {
                return;
            };
            self.uninstalled.remove(&touched);
            let Some(entry) = self.ifuncs.remove(&id) else {
                continue;
            };
            self.forgotten.merge(&entry.released);
            self.forgotten.times.merge(&entry.times.times());
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
    /// An image was bound to a handle that was free.
    pub(crate) fn bound(&self, handle: u32, about: About<'_>) -> HandleMetrics {
        self.link.rare().installs += 1;
        let mut tables = self.metrics.tables();
        let times = tables.ifunc(about.id, about.name, |record| {
            record.size = record.size.max(about.size as u64);
            record.released.installs += 1;
            record.bound += 1;
            record.times.clone()
        });
        let counters = Arc::new(HandleCounters::new(*about.id, times, self.metrics.timing));
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

    /// A handle was bound once more to the image that it is bound to.
    pub(crate) fn bound_again(&self, handle: &HandleMetrics) {
        self.link.rare().installs += 1;
        handle.counters.installed_again();
    }

    /// An image was refused. `about` is `None` until its bytes were compared with its id.
    pub(crate) fn refused(&self, reason: Rejection, about: Option<About<'_>>) {
        self.link.rare().refused.add(reason, 1);
        if let Some(about) = about {
            let mut tables = self.metrics.tables();
            tables.ifunc(about.id, about.name, |record| {
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
        if let Some(entry) = tables.ifuncs.get_mut(&self.counters.id) {
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
pub(super) fn add_invocations(counts: &mut Counts, of_handle: &IfuncCounts, frames: u64) {
    counts.frames += frames;
    counts.executed += of_handle.hits.saturating_sub(of_handle.failed);
    counts.bytes_in += of_handle.payload_bytes;
    counts.bytes_out += of_handle.answer_bytes;
}
