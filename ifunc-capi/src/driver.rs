//! Drivers: a source's progress in an event loop of the caller's.

use std::os::fd::AsRawFd;
use std::time::Instant;

use ifunc_rt::Driver;

use crate::guard::{enter, enter_or, nanoseconds};
use crate::source::ifunc_source;
use crate::status::ifunc_status;

/// Makes progress for a source in an event loop: it sends what waits for credit and what is due, and receives. The loop is:
/// `ifunc_driver_progress`; test the calls; `ifunc_driver_arm`; if that returned true, wait until the descriptor is readable or
/// `ifunc_driver_time_left` has passed; repeat. One thread at a time may use it.
pub struct ifunc_driver(Driver);

/// Makes the driver of a source, which has at most one. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_driver_create(
    source: *const ifunc_source,
    driver: *mut *mut ifunc_driver,
) -> ifunc_status {
    enter(|| {
        let out = out!(driver);
        Ok(out.set(ifunc_driver(object!(source).source.driver()?)))
    })
}

/// The descriptor to wait for, until the driver is destroyed; -1 if `driver` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_driver_fd(driver: *const ifunc_driver) -> i32 {
    enter_or(-1, || Ok(object!(driver).0.as_raw_fd()))
}

/// Receives what has arrived, and sends what is due. Whether anything arrived; false if `driver` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_driver_progress(driver: *const ifunc_driver) -> bool {
    enter_or(false, || Ok(object!(driver).0.progress()))
}

/// Arms the descriptor. False: there is something to do already, or `driver` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_driver_arm(driver: *const ifunc_driver) -> bool {
    enter_or(false, || Ok(object!(driver).0.arm()))
}

/// Nanoseconds until the next `ifunc_driver_progress` at the latest; IFUNC_NO_LIMIT: the descriptor reports everything; 0 if `driver` is
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_driver_time_left(driver: *const ifunc_driver) -> u64 {
    enter_or(0, || {
        let deadline = object!(driver).0.deadline();
        let left = |at: Instant| nanoseconds(at.saturating_duration_since(Instant::now()));
        Ok(deadline.map_or(u64::MAX, left))
    })
}

/// Frees a driver: the threads that use the source make progress again. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_driver_destroy(driver: *mut ifunc_driver) {
    destroy!(driver);
}
