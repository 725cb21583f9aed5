//! Sources: connections to targets, and the ifuncs that are loaded for them.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use ifunc_rt::{Aggregation, Progress, Source, SourceOptions};

use crate::guard::{Fault, duration, enter, enter_or};
use crate::handle::ifunc_handle;
use crate::stats::ifunc_stats;
use crate::status::ifunc_status;

/// Options of a source. Without a change they are the defaults.
pub struct ifunc_source_options(pub(crate) SourceOptions);

/// A connection to a target. Any number of threads may use it at once. It reconnects when the target comes back.
pub struct ifunc_source {
    pub(crate) source: Source,
    /// How long its calls wait.
    pub(crate) timeout: Duration,
}

/// Which thread makes progress for a source between the caller's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_progress {
    /// The threads that use the source, in their calls. The default.
    Caller = 0,
    /// A thread of the source's.
    Thread = 1,
}

/// Makes options with the defaults. Never null. `ifunc_source_options_destroy` frees them.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_source_options_create() -> *mut ifunc_source_options {
    Box::into_raw(Box::new(ifunc_source_options(SourceOptions::default())))
}

/// Frees options; sources keep what they were made with. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_destroy(options: *mut ifunc_source_options) {
    destroy!(options);
}

/// How long each call, send and flush waits, in nanoseconds, before it gives up. Default 30 s. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_timeout(
    options: *mut ifunc_source_options,
    ns: u64,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.timeout = duration(ns);
        Ok(ifunc_status::Ok)
    })
}

/// How long connecting may take, in nanoseconds, with the wait for a target that does not listen yet. Default 5 s. `options` must not
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_connect_timeout(
    options: *mut ifunc_source_options,
    ns: u64,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.connect_timeout = duration(ns);
        Ok(ifunc_status::Ok)
    })
}

/// How long the next call or send tries to reconnect after the target went away, in nanoseconds; 0: not at all. Default 5 s. `options`
/// must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_reconnect(
    options: *mut ifunc_source_options,
    ns: u64,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.reconnect = duration(ns);
        Ok(ifunc_status::Ok)
    })
}

/// How long a target that vanished with its host may be silent, in nanoseconds, before it is taken for dead. Default 5 s. `options`
/// must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_peer_timeout(
    options: *mut ifunc_source_options,
    ns: u64,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.peer_timeout = duration(ns);
        Ok(ifunc_status::Ok)
    })
}

/// Which thread makes progress: an `ifunc_progress`. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_progress(
    options: *mut ifunc_source_options,
    progress: u32,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.progress = match progress {
            0 => Progress::Caller,
            1 => Progress::Thread,
            other => return Err(Fault::invalid(format!("{other} is no `ifunc_progress`"))),
        };
        Ok(ifunc_status::Ok)
    })
}

/// Whether a target of another user, over `shm`, is taken. Default: no. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_other_users(
    options: *mut ifunc_source_options,
    yes: bool,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.other_users = yes;
        Ok(ifunc_status::Ok)
    })
}

/// Largest ring that the source maps for one direction of a connection, in bytes. Default 64 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_max_ring(
    options: *mut ifunc_source_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.max_ring = bytes;
        Ok(ifunc_status::Ok)
    })
}

/// Memory for answers that were received and belong to calls that were not destroyed, in bytes. Default 256 MiB. `options` must not
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_max_answers(
    options: *mut ifunc_source_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.max_answers = bytes;
        Ok(ifunc_status::Ok)
    })
}

/// When batches of `ifunc_handle_aggregated` are sent: when they have so many bytes (default 8 KiB), and so many nanoseconds after
/// their first invocation (default 100 us; IFUNC_NO_LIMIT: not before a caller needs them to be). `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_aggregation(
    options: *mut ifunc_source_options,
    bytes: usize,
    delay_ns: u64,
) -> ifunc_status {
    enter(|| {
        object_mut!(options).0.aggregation = Aggregation::default().bytes(bytes).delay(duration(delay_ns));
        Ok(ifunc_status::Ok)
    })
}

/// Connects to a target: `shm:NAME`, `ucx://HOST:PORT`, `ucx-put://HOST:PORT`, `ucx-worker:HEX` or `loopback:NAME`. Waits for a target
/// that does not listen yet. `options` may be null: the defaults. `address` and `source` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_connect(
    address: *const c_char,
    options: *const ifunc_source_options,
    source: *mut *mut ifunc_source,
) -> ifunc_status {
    enter(|| {
        let out = out!(source);
        let options = options_or_default(object_or_null!(options));
        let source = Source::connect_with(text!(address), options.clone())?;
        Ok(out.set(ifunc_source::new(source, &options)))
    })
}

/// Closes the connection, when its handles, messages and calls are destroyed, too: they may outlive it. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_destroy(source: *mut ifunc_source) {
    destroy!(source);
}

/// Loads an ifunc by its name: from `NAME.so` in a folder of IFUNC_LIB_DIR, of UCX_IFUNC_LIB_DIR, beside the executable, or in
/// `target/ifunc/release`. Opens the library, whose `payload_init` then makes the payload from the arguments of each call. So its author
/// is trusted with this process. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_load(
    source: *const ifunc_source,
    name: *const c_char,
    handle: *mut *mut ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let out = out!(handle);
        let (source, name) = (object!(source), text!(name));
        // SAFETY: the promise that the header asks for.
        let handle = unsafe { source.source.load(name) }?;
        Ok(out.set(ifunc_handle::new(handle, source.timeout)))
    })
}

/// As `ifunc_source_load`, from this file. `entry` is the name of the ifunc; null: the only one in it. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_load_path(
    source: *const ifunc_source,
    path: *const c_char,
    entry: *const c_char,
    handle: *mut *mut ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let out = out!(handle);
        let (source, path) = (object!(source), text!(path));
        let handle = match text_or_null!(entry) {
            // SAFETY: the promise that the header asks for.
            Some(entry) => unsafe { source.source.load_entry_path(path, entry) },
            // SAFETY: as above.
            None => unsafe { source.source.load_path(path) },
        }?;
        Ok(out.set(ifunc_handle::new(handle, source.timeout)))
    })
}

/// Loads an ifunc from the bytes of its library or of its image, which are copied. Nothing is opened: the arguments of each call are the
/// payload. `entry` is the name of the ifunc; null: the only one in it. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_load_bytes(
    source: *const ifunc_source,
    bytes: *const c_void,
    len: usize,
    entry: *const c_char,
    handle: *mut *mut ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let out = out!(handle);
        let (source, bytes) = (object!(source), bytes!(bytes, len));
        let handle = match text_or_null!(entry) {
            Some(entry) => source.source.load_entry(bytes, entry),
            None => source.source.load_bytes(bytes),
        }?;
        Ok(out.set(ifunc_handle::new(handle, source.timeout)))
    })
}

/// Waits until the target has consumed everything that was sent before, at most the source's timeout. The error may be that of an
/// earlier send. `source` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_flush(source: *const ifunc_source) -> ifunc_status {
    enter(|| {
        object!(source).source.flush()?;
        Ok(ifunc_status::Ok)
    })
}

/// As `ifunc_source_flush`, but waits at most `timeout_ns` nanoseconds. `source` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_flush_for(
    source: *const ifunc_source,
    timeout_ns: u64,
) -> ifunc_status {
    enter(|| {
        object!(source).source.flush_timeout(duration(timeout_ns))?;
        Ok(ifunc_status::Ok)
    })
}

/// Sends the open batch of `ifunc_handle_aggregated`, and does not wait for the target to run it. `source` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_push(source: *const ifunc_source) -> ifunc_status {
    enter(|| {
        object!(source).source.push()?;
        Ok(ifunc_status::Ok)
    })
}

/// Writes what carries the connection now, such as `shm` or `tcp/eth0`: at most `capacity` bytes, the final zero included. Returns the
/// length of the whole text without it; 0 while there is no connection, or if `source` is null. `text` may be null if `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_transport(
    source: *const ifunc_source,
    text: *mut c_char,
    capacity: usize,
) -> usize {
    enter_or(0, || {
        let carried_by = object!(source).source.transport();
        if !text.is_null() && capacity > 0 {
            let len = carried_by.len().min(capacity - 1);
            // SAFETY: callers in C pass memory of `capacity` bytes.
            let text = unsafe { std::slice::from_raw_parts_mut(text.cast::<u8>(), len + 1) };
            text[..len].copy_from_slice(&carried_by.as_bytes()[..len]);
            text[len] = 0;
        }
        Ok(carried_by.len())
    })
}

/// Asks the target for its counters, and waits at most `timeout_ns` nanoseconds. `ifunc_stats_destroy` frees them. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_target_stats(
    source: *const ifunc_source,
    timeout_ns: u64,
    stats: *mut *mut ifunc_stats,
) -> ifunc_status {
    enter(|| {
        let out = out!(stats);
        let stats = object!(source).source.target_stats(duration(timeout_ns))?;
        Ok(out.set(ifunc_stats::new(stats)))
    })
}

impl ifunc_source {
    pub(crate) fn new(source: Source, options: &SourceOptions) -> Self {
        Self {
            source,
            timeout: options.timeout,
        }
    }
}

/// The options that were passed, or the defaults.
pub(crate) fn options_or_default(options: Option<&ifunc_source_options>) -> SourceOptions {
    options.map_or_else(SourceOptions::default, |options| options.0.clone())
}
