//! The fourth argument of `X_main`: what an invocation may ask of its target beside its target arguments.
//!
//! The full call is `u32 X_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)`. A C
//! `main` of three arguments and no result ignores the fourth (both System V ABIs allow it), and
//! [`ImageFlags::IGNORE_RESULT`](crate::image::ImageFlags) tells the target to ignore what is in the result register. `ctx` may be null: then there is nobody to answer.

use core::ffi::c_void;

/// `X_main` returned normally.
pub const MAIN_OK: u32 = 0;
/// The payload did not decode.
pub const MAIN_BAD_PAYLOAD: u32 = 1;
/// The answer did not fit or did not encode.
pub const MAIN_BAD_ANSWER: u32 = 2;

/// Levels of [`Context::log`], as in the `log` and `tracing` crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something looks wrong.
    Warn = 2,
    /// What happens.
    Info = 3,
    /// For the author.
    Debug = 4,
    /// For the author, in detail.
    Trace = 5,
}

/// The versioned context. Fields are only ever added at the end; [`size`](Self::size) tells how many there are.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// [`ABI_VERSION`](crate::ABI_VERSION) of the target.
    pub version: u32,
    /// Size of this struct in bytes on the target.
    pub size: u32,
    /// The connection the frame came over: a number that the target gives each connection, never reused.
    pub sender: u64,
    /// Where an answer goes; null when the source waits for none.
    pub answer: *mut u8,
    /// Room at `answer` in bytes.
    pub answer_capacity: usize,
    /// Bytes of the answer; set by the ifunc. More than the capacity: the answer did not fit, nothing was written.
    pub answer_len: usize,
    /// Logs a UTF-8 message of `len` bytes at a [`Level`]; never null.
    pub log: unsafe extern "C" fn(ctx: *mut Context, level: u32, message: *const u8, len: usize),
    /// The target's own.
    pub host: *mut c_void,
}
