//! Options of the processes in which a target of the level `process` runs ifuncs.

use std::ffi::c_char;
use std::time::Duration;

use crate::guard::{Fault, enter, enter_or};
use crate::status::ifunc_status;
use crate::target_options::ifunc_target_options;

/// Becomes a runner process if a target started this program as one, and does not return then. Otherwise it returns at once. Call it at
/// the beginning of `main` in a program that `ifunc_target_options_set_runner_program` names, before anything else is done.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_run_if_started_by_target() {
    enter_or((), || {
        ifunc_rt::run_if_started_by_target();
        Ok(())
    });
}

/// The program that a target with IFUNC_LEVEL_PROCESS starts: `ifunc-runner`, or one whose `main` begins with
/// `ifunc_run_if_started_by_target`, such as this one itself. It is started without environment variables. Default: `ifunc-runner` beside this
/// program, or the program that the environment variable IFUNC_RUNNER names. The first of the functions about runners replaces what a policy
/// file says about them. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_runner_program(
    options: *mut ifunc_target_options,
    path: *const c_char,
) -> ifunc_status {
    enter(|| {
        let (options, path) = (object_mut!(options), text!(path));
        if path.is_empty() {
            return Err(Fault::invalid("`path` is empty"));
        }
        options.change_runners(|runners| runners.program(path))
    })
}

/// Bytes of memory that the ifuncs in a runner process may use. Default 256 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_runner_memory(
    options: *mut ifunc_target_options,
    bytes: u64,
) -> ifunc_status {
    enter(|| object_mut!(options).change_runners(|runners| runners.memory(bytes)))
}

/// CPU time of a runner process until the kernel ends it, in nanoseconds, of which whole seconds count, at least one. Default: without a
/// limit. `ifunc_target_options_set_max_run_time` bounds a single invocation. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_runner_cpu_time(
    options: *mut ifunc_target_options,
    ns: u64,
) -> ifunc_status {
    enter(|| object_mut!(options).change_runners(|runners| runners.cpu_time(Duration::from_nanos(ns))))
}

/// Runner processes at a time. An image for which there is none is refused. Default 64. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_runners(
    options: *mut ifunc_target_options,
    runners: usize,
) -> ifunc_status {
    enter(|| object_mut!(options).change_runners(|options| options.max_runners(runners)))
}

/// Whether runner processes may start on a kernel without Landlock, where the filter of system calls alone keeps them from files. Default: no.
/// `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_without_landlock(
    options: *mut ifunc_target_options,
    yes: bool,
) -> ifunc_status {
    enter(|| object_mut!(options).change_runners(|runners| runners.without_landlock(yes)))
}
