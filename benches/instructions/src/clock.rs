//! A clock that stands still. To stop behind every instruction makes a message take longer than a tick of the clock: what is done
//! once in a tick would be done every time, or not, as fast as the machine is. Here a tick passes when it is told to. Nor does the
//! count depend on the kernel's own way to read its clock, which is code in a page that it maps into every process.

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use libc::timespec;

/// Nanoseconds of every clock; nothing: they are the kernel's.
static NOW: AtomicI64 = AtomicI64::new(0);
const SECOND: i64 = 1_000_000_000;

/// Stands still from now on.
pub(crate) fn stop() -> Result<(), Box<dyn Error>> {
    replace()?;
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    NOW.store(time.tv_sec * SECOND + time.tv_nsec, Ordering::Relaxed);
    Ok(())
}

/// Lets so much time pass.
pub(crate) fn pass(time: Duration) {
    NOW.fetch_add(time.as_nanos() as i64, Ordering::Relaxed);
}

/// What programs call instead of the kernel's function, which returns an error as a negative number.
extern "C" fn clock_gettime(clock: c_int, into: *mut timespec) -> c_int {
    let now = NOW.load(Ordering::Relaxed);
    if now == 0 {
        // SAFETY: as the caller's.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, into) } as c_int;
    }
    let time = timespec {
        tv_sec: now / SECOND,
        tv_nsec: now % SECOND,
    };
    // SAFETY: the caller has a place for the time.
    unsafe { into.write(time) };
    0
}

/// Has the kernel's function jump to the one of this file.
fn replace() -> Result<(), Box<dyn Error>> {
    // SAFETY: what is opened is there already; both are strings that end with a zero.
    let function = unsafe {
        let page = libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if page.is_null() {
            std::ptr::null_mut::<c_void>()
        } else {
            libc::dlsym(page, c"__vdso_clock_gettime".as_ptr())
        }
    };
    if function.is_null() {
        return Err("the kernel has mapped no function that reads the clock".into());
    }
    // `movabs rax, ADDRESS ; jmp rax`
    let mut code = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    code[2..10].copy_from_slice(&(clock_gettime as *const () as u64).to_le_bytes());
    // As debuggers write to code: this process has a copy of the page from here on.
    File::options()
        .write(true)
        .open("/proc/self/mem")?
        .write_all_at(&code, function as u64)?;
    Ok(())
}
