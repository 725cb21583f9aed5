//#Flags: -Ccode-model=large
#![no_std]
unsafe extern "C" {
    fn host_counter() -> u64;
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_large_model_main() -> u64 {
    // SAFETY: the test only links it.
    unsafe { host_counter() }
}
