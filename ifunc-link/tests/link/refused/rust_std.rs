//#Declared: host_add
// The standard library, which no image has.
#[unsafe(no_mangle)]
pub extern "C" fn rust_std_main(a: u64) -> u64 {
    std::process::exit(a as i32)
}
