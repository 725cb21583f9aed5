//#Flags: -Crelocation-model=static
#![no_std]
static TABLE: [u64; 5] = [3, 1, 4, 1, 5];
#[inline(never)]
fn pick(index: usize) -> u64 {
    TABLE[index % 5]
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_static_model_main(index: usize) -> u64 {
    pick(index)
}
