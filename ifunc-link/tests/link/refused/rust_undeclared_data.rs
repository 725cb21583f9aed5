//#Declared: host_add
#![no_std]
unsafe extern "C" {
    fn host_add(a: u64, b: u64) -> u64;
    fn host_log(a: u64);
    static host_limit: u64;
    static mut host_last: u64;
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_undeclared_data_main(a: u64, b: u64) -> u64 {
    // SAFETY: the test only links it.
    unsafe {
        host_last = a;
        host_log(a);
        host_add(host_limit, b)
    }
}
