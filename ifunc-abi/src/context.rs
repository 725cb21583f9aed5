//! The fourth argument of `X_main`: the services that a target offers to an invocation.
//!
//! The full call is `u32 X_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context
//! *ctx)`. A C `main` with three arguments and no result ignores the fourth, which both System V ABIs allow;
//! [`ImageFlags::IGNORE_RESULT`](crate::image::ImageFlags) then tells the target to ignore the result
//! register. `ctx` may be null: the invocation then has no sender to answer.

use core::ffi::c_void;

/// `X_main` returned normally.
pub const MAIN_OK: u32 = 0;
/// The payload did not decode.
pub const MAIN_BAD_PAYLOAD: u32 = 1;
/// The answer did not fit or did not encode.
pub const MAIN_BAD_ANSWER: u32 = 2;

/// Result of [`REPLACE_EXPORT`](crate::symbols::REPLACE_EXPORT): it was replaced.
pub const REPLACE_OK: u32 = 0;
/// It was refused; the target logs why.
pub const REPLACE_REFUSED: u32 = 1;
/// A text is not UTF-8 or too long, or the address is not of the image.
pub const REPLACE_BAD_ARGUMENT: u32 = 2;

/// [`Context::answer_len`] of an answer in the memory of [`__ifunc_answer`](crate::symbols::ANSWER).
pub const ANSWER_ELSEWHERE: usize = usize::MAX;

/// Levels of [`Context::log`], as in the `log` and `tracing` crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something unexpected happened.
    Warn = 2,
    /// Normal progress.
    Info = 3,
    /// Details for the ifunc's author.
    Debug = 4,
    /// Finer details for the ifunc's author.
    Trace = 5,
}

/// Where an invocation is on its way through a group of nodes: `struct ifunc_travel` in C, which the import
/// [`__ifunc_travel`](crate::symbols::TRAVEL) returns. A later version adds fields at the end only; [`size`](Self::size) tells which
/// fields exist.
#[derive(Debug)]
#[repr(C)]
pub struct Travel {
    /// Size of this struct in bytes on the target.
    pub size: u32,
    /// The number of this node; [`NO_NODE`](crate::travel::NO_NODE): the target is not a node of a group.
    pub node: u32,
    /// How many nodes forwarded or sent before; 0: the source invoked it.
    pub hops: u16,
    /// How often it may be forwarded or sent on.
    pub hops_left: u16,
    /// Number of `peers`.
    pub peer_count: u32,
    /// The deadline of the call, in nanoseconds on the clock of [`__ifunc_now`](crate::symbols::NOW);
    /// [`NO_DEADLINE`](crate::travel::NO_DEADLINE): none.
    pub deadline: u64,
    /// The numbers of the other nodes, ascending.
    pub peers: *const u32,
}

/// The versioned context. A later version adds fields at the end only; [`size`](Self::size) tells which
/// fields exist.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// [`ABI_VERSION`](crate::ABI_VERSION) of the target.
    pub version: u32,
    /// Size of this struct in bytes on the target.
    pub size: u32,
    /// The connection that the frame arrived on: a number that the target assigns to each connection and
    /// never reuses.
    pub sender: u64,
    /// Buffer for an answer that is not long; null if the source expects none.
    pub answer: *mut u8,
    /// Capacity of `answer` in bytes.
    pub answer_capacity: usize,
    /// Length of the answer in bytes, set by the ifunc. A value above the capacity means that the answer was not written there: it
    /// lies in the memory of [`__ifunc_answer`](crate::symbols::ANSWER), which sets [`ANSWER_ELSEWHERE`], or it did not fit.
    pub answer_len: usize,
    /// Logs a UTF-8 message of `len` bytes at a [`Level`]. Never null.
    pub log: unsafe extern "C" fn(ctx: *mut Context, level: u32, message: *const u8, len: usize),
    /// Private to the target.
    pub host: *mut c_void,
}

/// The first argument of `X_batch`, which an image may have beside `X_main`: entries of a batch with payloads of one length.
///
/// The full call is `u32 X_batch(struct ifunc_batch *batch, size_t size_of_batch, void *target_args, struct
/// ifunc_context *ctx)`. `X_batch` calls `X_main` for each entry in order. Before each call it stores the number of entries
/// begun so far, that one included, in [`started`](Self::started): whatever ends the call names the entry. It returns
///
/// * [`MAIN_OK`] after the last entry; before an entry, but not before the first, for whose answer there is not
///   [`max_answer`](Self::max_answer) memory left; and after one that set [`Context::answer_len`] above its capacity;
/// * the result of `X_main` after an entry for which that is not [`MAIN_OK`].
///
/// The target calls it again for the entries that are left. `ctx` is never null; its `answer` and `answer_capacity` are those of the
/// first entry. Before each entry, `X_batch` sets `answer_len` to 0. After it, `X_batch` stores the length of the answer, and moves
/// `answer` to where the next answer begins: after this one, at a multiple of 8 bytes from the first. If no answers are wanted, the
/// target lends memory for one length, at a stride of 0. The lengths are 0 at the call, so the `X_batch` of an ifunc that never answers
/// leaves all of this as it is.
///
/// `#[ifunc]` writes `X_batch` for Rust, and the builder for C: authors do not.
#[derive(Debug)]
#[repr(C)]
pub struct Batch {
    /// [`ABI_VERSION`](crate::ABI_VERSION) of the target. A later version adds fields at the end only.
    pub version: u32,
    /// Size of this struct in bytes on the target.
    pub size: u32,
    /// The first payload, never null. Each is aligned as the image asks.
    pub payloads: *const u8,
    /// Length of each payload in bytes.
    pub payload_size: usize,
    /// Distance between two payloads in bytes.
    pub stride: usize,
    /// Number of entries, at least 1.
    pub count: u32,
    /// Number of entries that were begun; 0 at the call.
    pub started: u32,
    /// Memory for the answers, at least `max_answer` bytes; null if none is wanted.
    pub answers: *mut u8,
    /// Size of that memory in bytes.
    pub answers_capacity: usize,
    /// Length of the longest answer in bytes.
    pub max_answer: usize,
    /// Lengths of the answers, never null, 0 at the call.
    pub answer_lens: *mut u32,
    /// Distance between two lengths in bytes; 0 if no answers are wanted.
    pub answer_lens_stride: usize,
}
