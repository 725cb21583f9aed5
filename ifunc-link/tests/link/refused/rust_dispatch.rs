//#Declared: host_add
// A closure behind a trait object: the reference chain goes through a vtable.
#![no_std]
unsafe extern "C" {
    fn host_log(level: u64) -> u64;
}
pub trait Stage {
    fn run(&self, input: u64) -> u64;
}
pub struct Logged<F>(F);
impl<F: Fn(u64) -> u64> Stage for Logged<F> {
    #[inline(never)]
    fn run(&self, input: u64) -> u64 {
        (self.0)(input)
    }
}
#[inline(never)]
fn stage(input: u64) -> &'static dyn Stage {
    // SAFETY: the test only links it.
    if input > 3 { &Logged(|x| unsafe { host_log(x) }) } else { &Logged(|x| x + 1) }
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_dispatch_main(input: u64) -> u64 {
    stage(input).run(input)
}
