// What the attributes' output lends ends with a local: nothing of it can be kept, whatever the signature says.

use ifunc::__private as lent;
use ifunc::Context;

unsafe fn payload() -> &'static [u8] {
    let scope = ();
    unsafe { lent::bytes(&scope, core::ptr::null(), 0) }
}

unsafe fn target(data: *mut core::ffi::c_void) -> &'static u64 {
    let scope = ();
    unsafe { lent::target(&scope, data) }
}

unsafe fn target_mut(data: *mut core::ffi::c_void) -> &'static mut u64 {
    let scope = ();
    unsafe { lent::target_mut(&scope, data) }
}

unsafe fn context() -> Context<'static> {
    let scope = ();
    unsafe { Context::from_raw(&scope, core::ptr::null_mut()) }
}

unsafe fn reference(data: *const u64) -> &'static u64 {
    let scope = ();
    unsafe { lent::reference(&scope, data, "") }
}

unsafe fn reference_mut(data: *mut u64) -> &'static mut u64 {
    let scope = ();
    unsafe { lent::reference_mut(&scope, data, "") }
}

unsafe fn optional(data: *const u64) -> Option<&'static u64> {
    let scope = ();
    unsafe { lent::optional(&scope, data) }
}

unsafe fn optional_mut(data: *mut u64) -> Option<&'static mut u64> {
    let scope = ();
    unsafe { lent::optional_mut(&scope, data) }
}

unsafe fn slice(data: *const u64) -> &'static [u64] {
    let scope = ();
    unsafe { lent::slice(&scope, data, 0) }
}

unsafe fn slice_mut(data: *mut u64) -> &'static mut [u64] {
    let scope = ();
    unsafe { lent::slice_mut(&scope, data, 0) }
}

unsafe fn string(data: *const u8) -> &'static str {
    let scope = ();
    unsafe { lent::string(&scope, data, 0, "") }
}

fn main() {}
