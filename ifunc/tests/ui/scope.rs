// A reference that the generated code creates ends with a local variable: no signature can keep it longer.

use ifunc::__private as private;
use ifunc::Context;

unsafe fn payload() -> &'static [u8] {
    let scope = ();
    unsafe { private::bytes(&scope, core::ptr::null(), 0) }
}

unsafe fn target(data: *mut core::ffi::c_void) -> &'static u64 {
    let scope = ();
    unsafe { private::target(&scope, data) }
}

unsafe fn target_mut(data: *mut core::ffi::c_void) -> &'static mut u64 {
    let scope = ();
    unsafe { private::target_mut(&scope, data) }
}

unsafe fn context() -> Context<'static> {
    let scope = ();
    unsafe { Context::from_raw(&scope, core::ptr::null_mut()) }
}

unsafe fn reference(data: *const u64) -> &'static u64 {
    let scope = ();
    unsafe { private::reference(&scope, data, "") }
}

unsafe fn reference_mut(data: *mut u64) -> &'static mut u64 {
    let scope = ();
    unsafe { private::reference_mut(&scope, data, "") }
}

unsafe fn optional(data: *const u64) -> Option<&'static u64> {
    let scope = ();
    unsafe { private::optional(&scope, data) }
}

unsafe fn optional_mut(data: *mut u64) -> Option<&'static mut u64> {
    let scope = ();
    unsafe { private::optional_mut(&scope, data) }
}

unsafe fn slice(data: *const u64) -> &'static [u64] {
    let scope = ();
    unsafe { private::slice(&scope, data, 0) }
}

unsafe fn slice_mut(data: *mut u64) -> &'static mut [u64] {
    let scope = ();
    unsafe { private::slice_mut(&scope, data, 0) }
}

unsafe fn string(data: *const u8) -> &'static str {
    let scope = ();
    unsafe { private::string(&scope, data, 0, "") }
}

fn main() {}
