//! Targets: poll, serve, and change exports.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ifunc_rt::group::Nodes;
use ifunc_rt::{Exports, PolicyHandle, RawArgs, RawType, StatsHandle, StopHandle, Target};

use crate::guard::{Fault, c_string, duration, enter, enter_or, nanoseconds};
use crate::source::{ifunc_source, ifunc_source_options, options_or_default};
use crate::stats::ifunc_stats;
use crate::status::ifunc_status;
use crate::target_options::{ifunc_function, ifunc_target_options, symbol};

/// A target: listens, installs what sources send, and runs it. One thread at a time uses it, except for what a function says that any
/// thread may call.
pub struct ifunc_target {
    target: UnsafeCell<Target>,
    /// A thread is in a function that needs the target for itself.
    in_use: AtomicBool,
    raw_type: RawType,
    address: CString,
    fd: c_int,
    stop: StopHandle,
    stats: StatsHandle,
    exports: Exports,
    policy: PolicyHandle,
    nodes: OnceLock<Nodes>,
}

/// The target, for one function at a time.
pub(crate) struct Exclusive<'a>(&'a ifunc_target);

impl Deref for Exclusive<'_> {
    type Target = Target;

    fn deref(&self) -> &Target {
        // SAFETY: there is one `Exclusive` at a time: `in_use` finds a second one of this thread, and callers in C use a target on
        // one thread at a time.
        unsafe { &*self.0.target.get() }
    }
}

impl DerefMut for Exclusive<'_> {
    fn deref_mut(&mut self) -> &mut Target {
        // SAFETY: as above.
        unsafe { &mut *self.0.target.get() }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.0.in_use.store(false, Ordering::Release);
    }
}

impl ifunc_target {
    pub(crate) fn new(target: Target, raw_type: RawType) -> Self {
        Self {
            in_use: AtomicBool::new(false),
            raw_type,
            address: c_string(&target.address()),
            fd: target.as_fd().as_raw_fd(),
            stop: target.stop_handle(),
            stats: target.stats_handle(),
            exports: target.exports(),
            policy: target.policy(),
            nodes: OnceLock::new(),
            target: UnsafeCell::new(target),
        }
    }

    /// The target, unless a function that was called before uses it: an invocation may call functions of the host, and they this interface.
    #[inline]
    pub(crate) fn exclusive(&self) -> Result<Exclusive<'_>, Fault> {
        // Not exchanged in one step: that costs as much as a poll, and only calls of one thread may meet here.
        if self.in_use.load(Ordering::Acquire) {
            return Err(in_use());
        }
        self.in_use.store(true, Ordering::Relaxed);
        Ok(Exclusive(self))
    }

    fn args(&self, target_args: *mut c_void) -> RawArgs {
        RawArgs::new(target_args, self.raw_type)
    }

    pub(crate) fn set_nodes(&self, nodes: Nodes) {
        // A target joins once.
        let _ = self.nodes.set(nodes);
    }

    pub(crate) fn nodes(&self) -> Result<&Nodes, Fault> {
        self.nodes
            .get()
            .ok_or_else(|| Fault::new(ifunc_status::Group, "this target has joined no group"))
    }
}

#[cold]
fn in_use() -> Fault {
    Fault::new(
        ifunc_status::InUse,
        "this target is being polled or serves; help: a function that an invocation calls must not use the target that runs it",
    )
}

/// Whether a target that serves has served enough: it is called after each poll that ran something. A value other than 0: it has.
pub type ifunc_done_function =
    Option<unsafe extern "C" fn(target_args: *mut c_void, user: *mut c_void) -> c_int>;

/// Makes a target that listens: `shm:NAME`, `ucx://HOST:PORT`, `ucx-put://HOST:PORT`, `ucx-worker:` or `loopback:NAME`. Port 0 stands for any
/// free port. `options` may be null: then the target accepts no code. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_listen(
    address: *const c_char,
    options: *const ifunc_target_options,
    target: *mut *mut ifunc_target,
) -> ifunc_status {
    enter(|| {
        let out = out!(target);
        let (builder, raw_type) = ifunc_target_options::builder(object_or_null!(options));
        Ok(out.set(ifunc_target::new(builder.listen(text!(address))?, raw_type)))
    })
}

/// Closes the connections and frees the target. IFUNC_STATUS_IN_USE: it is being polled or serves, and nothing was done. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_destroy(target: *mut ifunc_target) -> ifunc_status {
    enter(|| {
        if let Some(this) = object_or_null!(target) {
            drop(this.exclusive()?);
        }
        destroy!(target);
        Ok(ifunc_status::Ok)
    })
}

/// The address that sources connect to, with the port that was chosen, valid as long as the target; null if `target` is null. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_address(target: *const ifunc_target) -> *const c_char {
    enter_or(std::ptr::null(), || Ok(object!(target).address.as_ptr()))
}

/// Number of connected sources; 0 if `target` is null, or is being polled or serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_connections(target: *const ifunc_target) -> usize {
    enter_or(0, || Ok(object!(target).exclusive()?.connections()))
}

/// Number of installed images; 0 if `target` is null, or is being polled or serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_images(target: *const ifunc_target) -> usize {
    enter_or(0, || Ok(object!(target).exclusive()?.images()))
}

/// Polls every connection once and runs what has arrived, at most 64 frames of each; never blocks. `handled` may be null; otherwise it
/// receives the number of frames, and of invocations in batches. `target_args` is what ifuncs get, any pointer, null included; it is what
/// the accepted code takes it for (`ifunc_target_options_set_target_type`). `target` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_poll(
    target: *mut ifunc_target,
    target_args: *mut c_void,
    handled: *mut usize,
) -> ifunc_status {
    enter(|| {
        let this = object!(target);
        let args = this.args(target_args);
        // SAFETY: the promise that the header asks for.
        let frames = unsafe { this.exclusive()?.poll_raw(args) };
        write_to!(handled, frames);
        Ok(ifunc_status::Ok)
    })
}

/// Serves until `ifunc_target_stop`. An idle target sleeps. `target_args` as for `ifunc_target_poll`. `target` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_serve(
    target: *mut ifunc_target,
    target_args: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let this = object!(target);
        let args = this.args(target_args);
        // SAFETY: the promise that the header asks for.
        unsafe { this.exclusive()?.serve_raw(args, || false) }?;
        Ok(ifunc_status::Ok)
    })
}

/// Serves until `done` returns another value than 0, or until `ifunc_target_stop`. `target_args` as for `ifunc_target_poll`; `user` may be
/// null, too. `target` and `done` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_serve_until(
    target: *mut ifunc_target,
    target_args: *mut c_void,
    done: ifunc_done_function,
    user: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let this = object!(target);
        let done = done.ok_or_else(|| Fault::new(ifunc_status::NullArgument, "`done` is a null pointer"))?;
        let args = this.args(target_args);
        // SAFETY: callers in C pass a function of this type.
        let done = || unsafe { done(target_args, user) } != 0;
        // SAFETY: the promise that the header asks for.
        unsafe { this.exclusive()?.serve_raw(args, done) }?;
        Ok(ifunc_status::Ok)
    })
}

/// Serves on `threads` threads, the calling one included, until `ifunc_target_stop`. Only ifuncs run that are shareable
/// (IFUNC_SHAREABLE in C, `&T` in Rust). `target_args` as for `ifunc_target_poll`, for several threads. `target` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_serve_shared(
    target: *mut ifunc_target,
    target_args: *mut c_void,
    threads: usize,
) -> ifunc_status {
    enter(|| {
        let this = object!(target);
        if threads == 0 {
            return Err(Fault::invalid("no thread would serve: `threads` is 0"));
        }
        let args = this.args(target_args);
        // SAFETY: the promise that the header asks for.
        unsafe { this.exclusive()?.serve_raw_shared(args, threads) }?;
        Ok(ifunc_status::Ok)
    })
}

/// Makes a target that serves return soon, now and in every later call. Any thread, an invocation included. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_stop(target: *const ifunc_target) {
    enter_or((), || {
        if let Some(target) = object_or_null!(target) {
            target.stop.stop();
        }
        Ok(())
    });
}

/// Sleeps until there may be something to poll for, at most `timeout_ns` nanoseconds. IFUNC_STATUS_IN_PROGRESS: the time has passed. After
/// `ifunc_target_stop` it returns at once. `target` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_wait(target: *mut ifunc_target, timeout_ns: u64) -> ifunc_status {
    enter(|| {
        let is_ready = object!(target).exclusive()?.wait(duration(timeout_ns))?;
        Ok(if is_ready {
            ifunc_status::Ok
        } else {
            ifunc_status::InProgress
        })
    })
}

/// The descriptor of a target, for event loops, valid as long as it; -1 if `target` is null. The loop is: `ifunc_target_poll` until nothing
/// was handled; `ifunc_target_arm`; if that returned true, wait until the descriptor is readable, at most `ifunc_target_poll_interval`;
/// `ifunc_target_disarm`; repeat. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_fd(target: *const ifunc_target) -> c_int {
    enter_or(-1, || Ok(object!(target).fd))
}

/// Arms the descriptor of a target. False: there is something to do already; poll instead of waiting. False if `target` is null, or is being
/// polled or serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_arm(target: *mut ifunc_target) -> bool {
    enter_or(false, || Ok(object!(target).exclusive()?.arm()))
}

/// Undoes `ifunc_target_arm`. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_disarm(target: *mut ifunc_target) {
    enter_or((), || {
        if let Some(target) = object_or_null!(target) {
            target.exclusive()?.disarm();
        }
        Ok(())
    });
}

/// Nanoseconds to wait for the descriptor at most; IFUNC_NO_LIMIT: it reports everything; 0 if `target` is null, or is being polled or serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_poll_interval(target: *const ifunc_target) -> u64 {
    enter_or(0, || {
        let interval = object!(target).exclusive()?.poll_interval();
        Ok(interval.map_or(u64::MAX, nanoseconds))
    })
}

/// Takes a snapshot of the counters. `ifunc_stats_destroy` frees it. Any thread. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_stats(
    target: *const ifunc_target,
    stats: *mut *mut ifunc_stats,
) -> ifunc_status {
    enter(|| {
        let out = out!(stats);
        Ok(out.set(ifunc_stats::new(object!(target).stats.read())))
    })
}

/// Exports a function, while the target serves, too: see `ifunc_target_options_export_function`. Any thread, also in an invocation. `signature`
/// may be null: any image may import it. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_add_function(
    target: *const ifunc_target,
    name: *const c_char,
    signature: *const c_char,
    function: ifunc_function,
) -> ifunc_status {
    enter(|| {
        let symbol = symbol::function(text!(name), text_or_null!(signature), function)?;
        object!(target).exports.add(symbol)?;
        Ok(ifunc_status::Ok)
    })
}

/// Exports a variable, while the target serves, too: see `ifunc_target_options_export_data`. Any thread, also in an invocation. `signature`
/// may be null: any image may import it. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_add_data(
    target: *const ifunc_target,
    name: *const c_char,
    signature: *const c_char,
    data: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let symbol = symbol::data(text!(name), text_or_null!(signature), data)?;
        object!(target).exports.add(symbol)?;
        Ok(ifunc_status::Ok)
    })
}

/// Replaces an exported function by another one of the same type; installed ifuncs use it from now on. Any thread, also in an invocation.
/// `signature` may be null. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_replace_function(
    target: *const ifunc_target,
    name: *const c_char,
    signature: *const c_char,
    function: ifunc_function,
) -> ifunc_status {
    enter(|| {
        let symbol = symbol::function(text!(name), text_or_null!(signature), function)?;
        object!(target).exports.replace(symbol)?;
        Ok(ifunc_status::Ok)
    })
}

/// Replaces an exported variable by another one of the same type; installed ifuncs use it from now on. Any thread, also in an invocation.
/// `signature` may be null. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_replace_data(
    target: *const ifunc_target,
    name: *const c_char,
    signature: *const c_char,
    data: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let symbol = symbol::data(text!(name), text_or_null!(signature), data)?;
        object!(target).exports.replace(symbol)?;
        Ok(ifunc_status::Ok)
    })
}

/// Exports a function or variable no more: invocations of images that import it are rejected. Waits until no invocation uses it, 5 s at most.
/// Any thread, also in an invocation. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_remove_export(
    target: *const ifunc_target,
    name: *const c_char,
) -> ifunc_status {
    enter(|| {
        object!(target).exports.remove(text!(name))?;
        Ok(ifunc_status::Ok)
    })
}

/// Replaces the policy of a target while it serves by that of `options`: who connects, whose code runs, what it may import and use. The other
/// settings of `options` are not looked at. The target applies it within its next eight polls, and before it sleeps. A connection that the new
/// policy does not admit is ended, and code that it does not accept runs no more: what was sent and has not run is rejected with the reason.
/// IFUNC_STATUS_POLICY: the policy does not suit the target, or changes what holds for as long as it serves (the level, the limits of time and
/// stack, the runners, the sizes that sources were told); nothing has changed. Any thread, also in an invocation, but `options` on one at a
/// time. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_replace_policy(
    target: *const ifunc_target,
    options: *const ifunc_target_options,
) -> ifunc_status {
    enter(|| {
        let (target, options) = (object!(target), object!(options));
        let replaced = target.policy.replace(options.policy.clone());
        replaced.map_err(|error| Fault::new(ifunc_status::Policy, error.to_string()))?;
        Ok(ifunc_status::Ok)
    })
}

/// Connects a target to another one over a link that carries invocations both ways. The thread that polls or serves the target polls the link:
/// it must not wait for answers (IFUNC_STATUS_WOULD_DEADLOCK). `options` may be null: the defaults. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_connect(
    target: *mut ifunc_target,
    address: *const c_char,
    options: *const ifunc_source_options,
    source: *mut *mut ifunc_source,
) -> ifunc_status {
    enter(|| {
        let out = out!(source);
        let (target, address) = (object!(target), text!(address));
        let options = options_or_default(object_or_null!(options));
        let source = target.exclusive()?.connect_with(address, options.clone())?;
        Ok(out.set(ifunc_source::new(source, &options)))
    })
}
