//! A clock that stands still. Stopping after every instruction makes a message take longer than a clock tick,
//! so work that runs once per tick would run every time, or not, depending on the machine's speed. Here, time
//! passes only on request. The count also no longer depends on the kernel's clock function, which is code in
//! a page that the kernel maps into every process.

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use libc::timespec;

/// Current time of all clocks in nanoseconds; 0: the kernel's time.
static NOW: AtomicI64 = AtomicI64::new(0);
const SECOND: i64 = 1_000_000_000;

/// Stops the clock.
pub(crate) fn stop() -> Result<(), Box<dyn Error>> {
    replace()?;
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    NOW.store(time.tv_sec * SECOND + time.tv_nsec, Ordering::Relaxed);
    Ok(())
}

/// Advances the clock.
pub(crate) fn pass(time: Duration) {
    NOW.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
}

/// Replaces the kernel's function; returns an error as a negative number, as it does.
extern "C" fn clock_gettime(clock: c_int, into: *mut timespec) -> c_int {
    let now = NOW.load(Ordering::Relaxed);
    if now == 0 {
        // SAFETY: the caller of this function upholds the same contract.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, into) } as c_int;
    }
    let time = timespec {
        tv_sec: now / SECOND,
        tv_nsec: now % SECOND,
    };
    // SAFETY: the caller passes a writable pointer.
    unsafe { into.write(time) };
    0
}

/// Patches the kernel's function to jump to `clock_gettime` of this file.
fn replace() -> Result<(), Box<dyn Error>> {
    // SAFETY: the library is already loaded, and both strings end with a zero.
    let function = unsafe {
        let page = libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if page.is_null() {
            std::ptr::null_mut::<c_void>()
        } else {
            libc::dlsym(page, c"__vdso_clock_gettime".as_ptr())
        }
    };
    if function.is_null() {
        return Err("the kernel maps no function that reads the clock".into());
    }
    // `movabs rax, ADDRESS ; jmp rax`
    let mut code = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    code[2..10].copy_from_slice(&(clock_gettime as *const () as u64).to_le_bytes());
    // Writes as a debugger does: the kernel gives this process a private copy of the page.
    File::options()
        .write(true)
        .open("/proc/self/mem")?
        .write_all_at(&code, function as u64)?;
    Ok(())
}
