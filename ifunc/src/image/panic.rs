//! The panic handler. It passes to the target what the package's panic policy keeps, and does not return.
//!
//! No code here names what the policy drops, so link-time optimisation removes the strings and the formatting
//! code. The default policy is `message`.

use core::panic::PanicInfo;

unsafe extern "C" {
    fn __ifunc_panic(
        message: *const u8,
        message_len: usize,
        file: *const u8,
        file_len: usize,
        line: u32,
        column: u32,
    ) -> !;
}

#[cfg(ifunc_panic = "minimal")]
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    report("", None)
}

#[cfg(ifunc_panic = "location")]
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report("", info.location())
}

#[cfg(not(any(ifunc_panic = "minimal", ifunc_panic = "location")))]
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let message = info.message();
    if let Some(message) = message.as_str() {
        report(message, info.location())
    }
    let mut line = crate::context::LineBuffer::<512>::new();
    // A full buffer truncates the message; that is not an error.
    let _ = core::fmt::write(&mut line, format_args!("{message}"));
    report(line.as_str(), info.location())
}

fn report(message: &str, location: Option<&core::panic::Location<'_>>) -> ! {
    let (file, line, column) = location.map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
    // SAFETY: every target provides the function (`ifunc_abi::symbols`); the strings live until it ends the invocation.
    unsafe {
        __ifunc_panic(
            message.as_ptr(),
            message.len(),
            file.as_ptr(),
            file.len(),
            line,
            column,
        )
    }
}
