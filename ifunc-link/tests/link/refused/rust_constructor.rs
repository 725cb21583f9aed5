#![no_std]
use core::sync::atomic::{AtomicU64, Ordering};
static READY: AtomicU64 = AtomicU64::new(0);
extern "C" fn early() {
    READY.store(1, Ordering::Relaxed);
}
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = early;
#[unsafe(no_mangle)]
pub extern "C" fn rust_constructor_main() -> u64 {
    READY.load(Ordering::Relaxed)
}
