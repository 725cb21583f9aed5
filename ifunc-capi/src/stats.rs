//! Snapshots of the counters of a target.

use std::ffi::{CString, c_char};

use ifunc_rt::stats::{Counts, IfuncStats, SourceStats, Stats};

use crate::guard::{Fault, c_string, enter, enter_or};
use crate::status::ifunc_status;

/// A snapshot of the counters of a target. Any number of threads may read it.
pub struct ifunc_stats {
    stats: Stats,
    address: CString,
    /// Of the ifuncs, in their order.
    names: Vec<CString>,
}

/// Counters of a connection, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ifunc_counts {
    /// Frames from sources, of any kind.
    pub frames: u64,
    /// Bytes of payloads and images from sources.
    pub bytes_in: u64,
    /// Bytes of answers and reasons to sources.
    pub bytes_out: u64,
    /// Images bound to handles.
    pub installs: u64,
    /// Invocations that succeeded.
    pub executed: u64,
    /// Invocations that started and failed.
    pub failed: u64,
    /// Messages that the target did not run.
    pub rejected: u64,
    /// Images that the target did not install.
    pub refused: u64,
    /// How often frames waited because their source did not read its answers.
    pub stalls: u64,
}

/// What a target says about itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ifunc_target_totals {
    /// The address that it listens at.
    pub address: *const c_char,
    /// Its process id.
    pub pid: u32,
    /// Time since it listens, in nanoseconds.
    pub uptime_ns: u64,
    /// Connections so far.
    pub connected: u64,
    /// Bytes of code memory used by installed images.
    pub code_used: u64,
    /// Installed images.
    pub images: u64,
    /// Sums over all connections, closed ones included.
    pub counts: ifunc_counts,
}

/// Counters of a connected source.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ifunc_source_counts {
    /// Number of its connection on the target.
    pub connection: u64,
    /// Its user id; -1 if the transport does not know it.
    pub uid: i64,
    /// Its process id; -1 if the transport does not know it.
    pub pid: i64,
    /// Time since it connected, in nanoseconds.
    pub connected_ns: u64,
    /// Images bound to its handles.
    pub bound: u64,
    /// Counters of the connection.
    pub counts: ifunc_counts,
}

/// Counters of an ifunc.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ifunc_entry_counts {
    /// The name in the image.
    pub name: *const c_char,
    /// BLAKE3 of the image, 32 bytes.
    pub id: *const u8,
    /// Size of the image in bytes.
    pub size: u64,
    /// Bytes of code memory that the image occupies; 0 if it is not installed.
    pub memory: u64,
    /// Handles bound to it now.
    pub bound: u64,
    /// Invocations that started.
    pub hits: u64,
    /// Invocations that failed.
    pub failed: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes of their answers.
    pub answer_bytes: u64,
    /// Median duration of the timed invocations, in nanoseconds; 0: none was timed.
    pub median_ns: u64,
    /// Longest duration of the timed invocations, in nanoseconds, rounded up; 0: none was timed.
    pub longest_ns: u64,
}

impl ifunc_stats {
    pub(crate) fn new(stats: Stats) -> Self {
        Self {
            address: c_string(&stats.address),
            names: stats.ifuncs.iter().map(|ifunc| c_string(&ifunc.name)).collect(),
            stats,
        }
    }
}

fn counts(counts: &Counts) -> ifunc_counts {
    ifunc_counts {
        frames: counts.frames,
        bytes_in: counts.bytes_in,
        bytes_out: counts.bytes_out,
        installs: counts.installs,
        executed: counts.executed,
        failed: counts.failed.total(),
        rejected: counts.rejected.total(),
        refused: counts.refused.total(),
        stalls: counts.stalls,
    }
}

fn out_of_range(index: usize, count: usize) -> Fault {
    Fault::invalid(format!("`index` is {index}, and there are {count}"))
}

/// What the target says about itself, and the sums over all connections. Strings live as long as the snapshot. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stats_totals(
    stats: *const ifunc_stats,
    totals: *mut ifunc_target_totals,
) -> ifunc_status {
    enter(|| {
        let (this, totals) = (object!(stats), object_mut!(totals));
        let stats = &this.stats;
        *totals = ifunc_target_totals {
            address: this.address.as_ptr(),
            pid: stats.pid,
            uptime_ns: stats.uptime_ns,
            connected: stats.connected,
            code_used: stats.code.used,
            images: stats.code.images,
            counts: counts(&stats.total),
        };
        Ok(ifunc_status::Ok)
    })
}

/// Number of connected sources; 0 if `stats` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stats_source_count(stats: *const ifunc_stats) -> usize {
    enter_or(0, || Ok(object!(stats).stats.sources.len()))
}

/// The counters of a connected source, in the order of connections. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stats_source(
    stats: *const ifunc_stats,
    index: usize,
    source: *mut ifunc_source_counts,
) -> ifunc_status {
    enter(|| {
        let (stats, out) = (&object!(stats).stats, object_mut!(source));
        let source: &SourceStats = stats
            .sources
            .get(index)
            .ok_or_else(|| out_of_range(index, stats.sources.len()))?;
        *out = ifunc_source_counts {
            connection: source.connection,
            uid: source.uid.map_or(-1, i64::from),
            pid: source.pid.map_or(-1, i64::from),
            connected_ns: source.connected_ns,
            bound: source.bound,
            counts: counts(&source.counts),
        };
        Ok(ifunc_status::Ok)
    })
}

/// Number of ifuncs: the installed ones, and refused or evicted ones as far as the target remembers them; 0 if `stats` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stats_entry_count(stats: *const ifunc_stats) -> usize {
    enter_or(0, || Ok(object!(stats).names.len()))
}

/// The counters of an ifunc; those with the most invocations come first. Strings live as long as the snapshot. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stats_entry(
    stats: *const ifunc_stats,
    index: usize,
    entry: *mut ifunc_entry_counts,
) -> ifunc_status {
    enter(|| {
        let (this, out) = (object!(stats), object_mut!(entry));
        let found = this.stats.ifuncs.get(index).zip(this.names.get(index));
        let (ifunc, name): (&IfuncStats, _) = found.ok_or_else(|| out_of_range(index, this.names.len()))?;
        let times = |part| ifunc.counts.times.quantile_ns(part).unwrap_or(0);
        *out = ifunc_entry_counts {
            name: name.as_ptr(),
            id: ifunc.id.as_ptr(),
            size: ifunc.size,
            memory: ifunc.memory,
            bound: ifunc.bound,
            hits: ifunc.counts.hits,
            failed: ifunc.counts.failed,
            payload_bytes: ifunc.counts.payload_bytes,
            answer_bytes: ifunc.counts.answer_bytes,
            median_ns: times(0.5),
            longest_ns: times(1.0),
        };
        Ok(ifunc_status::Ok)
    })
}

/// Frees a snapshot. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stats_destroy(stats: *mut ifunc_stats) {
    destroy!(stats);
}
