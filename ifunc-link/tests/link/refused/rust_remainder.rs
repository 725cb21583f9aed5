//#Declared: host_add
//#Flags: -Cno-prepopulate-passes
// Operators that are functions.
#![no_std]
#[inline(never)]
fn remainder(a: f64, b: f64) -> f64 {
    a % b
}
#[inline(never)]
fn quotient(a: u128, b: u128) -> u128 {
    if b == 0 { 0 } else { a / b }
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_remainder_main(a: f64, b: u64) -> u64 {
    remainder(a, 2.5) as u64 + quotient(u128::from(b), 7) as u64
}
