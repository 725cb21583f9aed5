//#Declared: host_add
use std::cell::Cell;
thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}
struct Counter;
impl Counter {
    #[inline(never)]
    fn count(&self) -> u64 {
        CALLS.set(CALLS.get() + 1);
        CALLS.get()
    }
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_thread_local_main(a: u64) -> u64 {
    Counter.count() + a
}
