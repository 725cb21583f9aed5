//! Who counts what, and what those that are gone had counted.
//!
//! Connections count for themselves, without a lock. The metrics knows their counters, and takes over what they have counted when a handle is given
//! back or a connection ends: under one lock, so that whoever reads finds everything once.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::stats::{Counts, IfuncCounts, Timing};
use ifunc_abi::status::Rejection;

use super::counters::{HandleCounters, LinkCounters, SharedTimes};
use crate::policy::SourceInfo;
use ifunc_exec::{InstalledImage, Observer};

/// Most ifuncs that are remembered of those that are not installed.
const REMEMBERED: usize = 1024;

/// What a target has counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(super) address: String,
    pub(super) since: Instant,
    pub(super) timing: Timing,
    pub(super) code_bytes: u64,
    pub(super) max_images: u64,
    /// Snapshots taken so far: a number for each.
    pub(super) snapshots: AtomicU64,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) sources: BTreeMap<u64, SourceEntry>,
    pub(super) ifuncs: HashMap<ImageId, IfuncEntry>,
    pub(super) connected: u64,
    /// What the connections counted that are over.
    pub(super) departed: Counts,
    /// What was counted of ifuncs that are not remembered.
    pub(super) forgotten: IfuncCounts,
    /// Entries of `ifuncs` that are not installed, by when they were touched: the one touched longest ago is first.
    gone: BTreeMap<u64, ImageId>,
    clock: u64,
}

#[derive(Debug)]
pub(super) struct SourceEntry {
    pub(super) info: SourceInfo,
    pub(super) since: Instant,
    pub(super) lanes: Vec<String>,
    pub(super) link: Arc<LinkCounters>,
    pub(super) handles: HashMap<u32, Arc<HandleCounters>>,
    /// What handles counted that were given back.
    pub(super) past: Counts,
}

#[derive(Debug, Default)]
pub(super) struct IfuncEntry {
    pub(super) name: String,
    pub(super) size: u64,
    /// 0: not installed.
    pub(super) memory: u64,
    /// What handles counted that were given back; and installs and refusals.
    pub(super) past: IfuncCounts,
    pub(super) times: Arc<SharedTimes>,
    /// Handles that stand for it.
    pub(super) bound: u64,
    touched: u64,
}

/// What an image says of itself.
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
            ledger: Mutex::default(),
        })
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Numbers: those of a thread that panicked are as good as any.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which snapshot this is.
    pub(crate) fn next_snapshot(&self) -> u64 {
        self.snapshots.fetch_add(1, Relaxed) + 1
    }

    /// A source has connected.
    pub(crate) fn connected(self: &Arc<Self>, info: SourceInfo, lanes: Vec<String>) -> SourceMetrics {
        let link = Arc::<LinkCounters>::default();
        let mut ledger = self.ledger();
        ledger.connected += 1;
        ledger.sources.insert(
            info.connection,
            SourceEntry {
                info,
                since: Instant::now(),
                lanes,
                link: link.clone(),
                handles: HashMap::new(),
                past: Counts::default(),
            },
        );
        drop(ledger);
        SourceMetrics {
            metrics: self.clone(),
            number: info.connection,
            link,
        }
    }
}

impl Observer for Metrics {
    /// An image was written into code memory.
    fn installed(&self, image: &InstalledImage) {
        let mut ledger = self.ledger();
        let entry = ledger.ifunc(&image.id, &image.name, 0);
        // At least 1: nothing that is installed takes nothing.
        entry.memory = image.footprint().max(1) as u64;
        let touched = entry.touched;
        ledger.gone.remove(&touched);
    }

    /// An image was taken out of code memory.
    fn evicted(&self, id: &ImageId) {
        let mut guard = self.ledger();
        let ledger = &mut *guard;
        if let Some(entry) = ledger.ifuncs.get_mut(id).filter(|entry| entry.memory != 0) {
            entry.memory = 0;
            ledger.gone.insert(entry.touched, *id);
            ledger.forget(REMEMBERED);
        }
    }
}

impl Ledger {
    /// The entry of an image, made if there is none.
    fn ifunc(&mut self, id: &ImageId, name: &str, size: usize) -> &mut IfuncEntry {
        self.clock += 1;
        if !self.ifuncs.contains_key(id) {
            // It takes a place, as long as it is not installed.
            self.forget(REMEMBERED - 1);
        }
        let entry = self.ifuncs.entry(*id).or_insert_with(|| IfuncEntry {
            name: name.to_owned(),
            ..IfuncEntry::default()
        });
        if entry.memory == 0 {
            self.gone.remove(&entry.touched);
            self.gone.insert(self.clock, *id);
        }
        entry.touched = self.clock;
        entry.size = entry.size.max(size as u64);
        entry
    }

    /// Makes what is remembered of the ifuncs that are not installed fit.
    fn forget(&mut self, most: usize) {
        while self.gone.len() > most {
            let is_free = |id: &ImageId| self.ifuncs.get(id).is_none_or(|entry| entry.bound == 0);
            let Some((&touched, &id)) = self.gone.iter().find(|(_, id)| is_free(id)) else {
                return;
            };
            self.gone.remove(&touched);
            let Some(entry) = self.ifuncs.remove(&id) else {
                continue;
            };
            self.forgotten.merge(&entry.past);
            self.forgotten.times.merge(&entry.times.times());
        }
    }
}

/// What a connection writes into the metrics. Dropped, the connection is over.
#[derive(Debug)]
pub(crate) struct SourceMetrics {
    metrics: Arc<Metrics>,
    number: u64,
    /// What it counts by itself.
    pub(crate) link: Arc<LinkCounters>,
}

impl SourceMetrics {
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// An image was bound to a handle that was free.
    pub(crate) fn bound(&self, handle: u32, about: About<'_>) -> HandleMetrics {
        self.link.installs.add(1);
        let mut ledger = self.metrics.ledger();
        let entry = ledger.ifunc(about.id, about.name, about.size);
        entry.past.installs += 1;
        entry.bound += 1;
        let times = entry.times.clone();
        let counters = Arc::new(HandleCounters::new(*about.id, times, self.metrics.timing));
        if let Some(source) = ledger.sources.get_mut(&self.number) {
            source.handles.insert(handle, counters.clone());
        }
        drop(ledger);
        HandleMetrics {
            metrics: self.metrics.clone(),
            source: self.number,
            handle,
            counters,
        }
    }

    /// A handle was bound to what it already stands for.
    pub(crate) fn bound_again(&self, handle: &HandleMetrics) {
        self.link.installs.add(1);
        handle.counters.installed_again();
    }

    /// An image was not installed. What it says of itself is worth nothing before its bytes were compared with its id.
    pub(crate) fn refused(&self, reason: Rejection, about: Option<About<'_>>) {
        self.link.refused.count(reason);
        if let Some(about) = about {
            let mut ledger = self.metrics.ledger();
            let entry = ledger.ifunc(about.id, about.name, about.size);
            entry.past.refused.add(reason, 1);
        }
    }
}

impl Drop for SourceMetrics {
    fn drop(&mut self) {
        let mut ledger = self.metrics.ledger();
        if let Some(source) = ledger.sources.remove(&self.number) {
            let mut counts = source.link.counts();
            counts.merge(&source.past);
            ledger.departed.merge(&counts);
        }
    }
}

/// What a handle counts. Dropped, it is given back.
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
        let mut guard = self.metrics.ledger();
        let ledger = &mut *guard;
        if let Some(entry) = ledger.ifuncs.get_mut(&self.counters.id) {
            entry.past.merge(&counted);
            entry.bound -= 1;
        }
        let mut past = &mut ledger.departed;
        if let Some(source) = ledger.sources.get_mut(&self.source) {
            source.handles.remove(&self.handle);
            past = &mut source.past;
        }
        add_invocations(past, &counted, frames);
    }
}

/// Adds what a handle counted to what its connection did, and how many of the invocations were `frames` of their own. Why
/// they failed, the connection counts itself.
pub(super) fn add_invocations(counts: &mut Counts, of_handle: &IfuncCounts, frames: u64) {
    counts.frames += frames;
    counts.executed += of_handle.hits.saturating_sub(of_handle.failed);
    counts.bytes_in += of_handle.payload_bytes;
    counts.bytes_out += of_handle.answer_bytes;
}
