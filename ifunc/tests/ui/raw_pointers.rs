#![allow(unused)]
use core::ffi::c_void;

#[ifunc::import]
unsafe extern "C" {
    safe fn peek(at: *const u8) -> u8;
    safe fn visit(each: extern "C" fn(u64));
    safe fn print(format: &str, ...);
    fn format(text: &str, ...) -> i32;
    fn rust_function(each: fn(u64));
    fn tuple(at: *const (u8, u8));
    fn variadic_pointer(print: unsafe extern "C" fn(*const u8, ...));
}

#[ifunc::export]
fn poke(at: *mut c_void) {}

fn main() {}
