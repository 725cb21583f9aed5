//! The application's own UCX: its worker and its endpoints.

use ifunc_rt::Source;
use ifunc_rt::ucx::{Connecting, Worker, WorkerOptions};

use crate::guard::{Fault, enter, enter_or};
use crate::source::{ifunc_source, ifunc_source_options, options_or_default};
use crate::status::ifunc_status;
use crate::target::ifunc_target;
use crate::target_options::ifunc_target_options;

/// UCX's `struct ucp_context`: `ucp_context_h` is a pointer to it.
pub enum ucp_context {}
/// UCX's `struct ucp_worker`: `ucp_worker_h` is a pointer to it.
pub enum ucp_worker {}
/// UCX's `struct ucp_ep`: `ucp_ep_h` is a pointer to it.
pub enum ucp_ep {}

/// A worker of the application's that was lent to the runtime. Its threads keep to the thread mode of the worker, calls of this interface
/// included.
pub struct ifunc_worker(Worker);

/// A source that has said hello over an endpoint of the application's, and waits for the answer.
pub struct ifunc_connecting {
    connecting: Connecting,
    options: ifunc_rt::SourceOptions,
    is_over: bool,
}

/// Flag of `ifunc_worker_attach`: the context has UCP_FEATURE_WAKEUP, so that waits can sleep until UCX wakes them. Without it they poll
/// after 16 microseconds, then at intervals that double up to 1 millisecond.
pub const IFUNC_WORKER_WAKEUP: u32 = 1;
/// Flag of `ifunc_worker_attach`: only the application calls `ucp_worker_progress`. Blocking calls then need another thread that makes
/// progress.
pub const IFUNC_WORKER_NO_PROGRESS: u32 = 2;

/// Lends a worker, and one id of active messages of it, which the application uses for nothing else and which is the same on both sides.
/// The context has UCP_FEATURE_AM. `flags` are IFUNC_WORKER_WAKEUP and IFUNC_WORKER_NO_PROGRESS, or 0. Context, worker and endpoints stay
/// the application's; they live until `ifunc_worker_close` has returned. The application's callbacks must not call this interface. Nothing
/// may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_worker_attach(
    context: *mut ucp_context,
    worker: *mut ucp_worker,
    am_id: u16,
    flags: u32,
    attached: *mut *mut ifunc_worker,
) -> ifunc_status {
    enter(|| {
        let out = out!(attached);
        not_null(context, "context")?;
        not_null(worker, "worker")?;
        if flags & !(IFUNC_WORKER_WAKEUP | IFUNC_WORKER_NO_PROGRESS) != 0 {
            return Err(Fault::invalid(format!("{flags:#x} has unknown flags")));
        }
        let options = WorkerOptions::new(am_id)
            .progress(flags & IFUNC_WORKER_NO_PROGRESS == 0)
            .wakeup(flags & IFUNC_WORKER_WAKEUP != 0);
        // SAFETY: the promise that the header asks for.
        let worker = unsafe { Worker::from_raw(context.cast(), worker.cast(), options) }?;
        Ok(out.set(ifunc_worker(worker)))
    })
}

/// Takes in what has happened, for all sources and targets of the worker; makes progress first, unless that is the application's business.
/// Whether anything had happened; false if `worker` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_worker_poll(worker: *const ifunc_worker) -> bool {
    enter_or(false, || Ok(object!(worker).0.poll()))
}

/// The peer of an endpoint is gone, or the application is about to close the endpoint: the connections over it end, and it is not used
/// again. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_worker_peer_gone(
    worker: *const ifunc_worker,
    ep: *mut ucp_ep,
) -> ifunc_status {
    enter(|| {
        not_null(ep, "ep")?;
        object!(worker).0.peer_gone(ep.cast());
        Ok(ifunc_status::Ok)
    })
}

/// Ends all connections, and lets go of the worker: the application may destroy it. `IFUNC_STATUS_IN_USE` in the middle of a poll that reads from
/// a buffer of the worker's: nothing was done. Polls on other threads are waited for, for 1 s at most.
/// `worker` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_worker_close(worker: *const ifunc_worker) -> ifunc_status {
    enter(|| {
        object!(worker).0.close()?;
        Ok(ifunc_status::Ok)
    })
}

/// Frees what `ifunc_worker_attach` made. The runtime lets go of the worker when its sources and targets are destroyed, too, or at once by
/// `ifunc_worker_close`. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_worker_destroy(worker: *mut ifunc_worker) {
    destroy!(worker);
}

/// Makes a target that listens on the worker. Sources connect over endpoints to it, or at its address. `options` may be null: then the target
/// accepts no code. `worker` and `target` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_listen_on(
    worker: *const ifunc_worker,
    options: *const ifunc_target_options,
    target: *mut *mut ifunc_target,
) -> ifunc_status {
    enter(|| {
        let out = out!(target);
        let (worker, options) = (object!(worker), object_or_null!(options));
        let (builder, raw_type) = ifunc_target_options::builder(options);
        Ok(out.set(ifunc_target::new(builder.listen_on(&worker.0)?, raw_type)))
    })
}

/// Connects over an endpoint to the target that listens on the worker at its other end. The endpoint lives until the source and what was
/// made of it are destroyed, or `ifunc_worker_peer_gone`. `options` may be null: the defaults. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_connect_over(
    worker: *const ifunc_worker,
    ep: *mut ucp_ep,
    options: *const ifunc_source_options,
    source: *mut *mut ifunc_source,
) -> ifunc_status {
    enter(|| {
        let out = out!(source);
        not_null(ep, "ep")?;
        let (worker, options) = (object!(worker), options_or_default(object_or_null!(options)));
        // SAFETY: the promise that the header asks for.
        let source = unsafe { Source::over(&worker.0, ep.cast(), options.clone()) }?;
        Ok(out.set(ifunc_source::new(source, &options)))
    })
}

/// As `ifunc_source_connect_over`, but does not wait: `ifunc_connecting_poll` has the source. For a single thread that makes progress itself.
/// `options` may be null: the defaults. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_connecting_start(
    worker: *const ifunc_worker,
    ep: *mut ucp_ep,
    options: *const ifunc_source_options,
    connecting: *mut *mut ifunc_connecting,
) -> ifunc_status {
    enter(|| {
        let out = out!(connecting);
        not_null(ep, "ep")?;
        let (worker, options) = (object!(worker), options_or_default(object_or_null!(options)));
        // SAFETY: the promise that the header asks for.
        let connecting = unsafe { worker.0.call(ep.cast(), options.clone()) }?;
        Ok(out.set(ifunc_connecting {
            connecting,
            options,
            is_over: false,
        }))
    })
}

/// The source, when the target has taken it; IFUNC_STATUS_IN_PROGRESS: ask again, after progress was made. After any other status it is
/// over. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_connecting_poll(
    connecting: *mut ifunc_connecting,
    source: *mut *mut ifunc_source,
) -> ifunc_status {
    enter(|| {
        let out = out!(source);
        let connecting = object_mut!(connecting);
        if connecting.is_over {
            return Err(Fault::invalid("`connecting` has ended before"));
        }
        connecting.is_over = true;
        match connecting.connecting.poll()? {
            Some(source) => Ok(out.set(ifunc_source::new(source, &connecting.options))),
            None => {
                connecting.is_over = false;
                Ok(ifunc_status::InProgress)
            }
        }
    })
}

/// Frees it. The source that it made stays. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_connecting_destroy(connecting: *mut ifunc_connecting) {
    destroy!(connecting);
}

fn not_null<T>(pointer: *const T, argument: &str) -> Result<(), Fault> {
    match pointer.is_null() {
        true => Err(Fault::new(
            ifunc_status::NullArgument,
            format!("`{argument}` is a null pointer"),
        )),
        false => Ok(()),
    }
}
