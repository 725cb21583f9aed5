//! The statuses of the interface, and the reasons of failures and rejections.

use std::ffi::{CStr, c_char};

use ifunc_rt::Failure;

macro_rules! statuses {
    ($($name:ident = $say:literal),+ $(,)?) => {
        /// The name of a status as C writes it.
        fn name(status: i32) -> &'static CStr {
            $(if status == ifunc_status::$name as i32 { return $say; })+
            c"(unknown status)"
        }
    };
}

/// How a function ended. 0 is success; positive values are no errors; negative values are errors, and `ifunc_rt_last_error` has
/// the text of the calling thread's last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_status {
    /// Success.
    Ok = 0,
    /// Not yet: ask again.
    InProgress = 1,
    /// A stream has ended.
    End = 2,
    /// An argument is null that may not be.
    NullArgument = -1,
    /// An argument has a value that it cannot have: a string that is not UTF-8, an unknown number, a name that names nothing.
    InvalidArgument = -2,
    /// An address does not parse.
    InvalidAddress = -3,
    /// The target is being polled or serves, maybe by the caller itself: an invocation called the function. Or a worker
    /// is closed while a poll reads from its buffers. Nothing was done.
    InUse = -4,
    /// The object belongs to another thread.
    WrongThread = -5,
    /// The runtime panicked, which is a fault of it.
    Internal = -6,
    /// The kernel refused something.
    System = -7,
    /// No target listens at the address, or it does not answer.
    Unreachable = -8,
    /// The other side refuses: the connection, its counters.
    Refused = -9,
    /// The other side has another version.
    Version = -10,
    /// What the other side sends does not follow the protocol.
    Protocol = -11,
    /// Another target listens at the address.
    AddressInUse = -12,
    /// There is no UCX, or it refused something.
    Ucx = -13,
    /// A size that cannot be, or that this side does not take.
    Limit = -14,
    /// No folder has the library of the ifunc.
    NoLibrary = -15,
    /// The file or the bytes are no library or image of an ifunc, or hold several and no name was given.
    BadLibrary = -16,
    /// The library cannot be opened.
    LibraryOpen = -17,
    /// The deadline passed. A call may still run.
    Timeout = -18,
    /// It would have waited for credit. Nothing was sent.
    WouldBlock = -19,
    /// The thread would wait for itself: it serves the connection.
    WouldDeadlock = -20,
    /// The ifunc panicked on the target, which goes on.
    Panic = -21,
    /// The ifunc started and failed; `ifunc_rt_last_reason` is an `ifunc_failure`.
    Failed = -22,
    /// The target did not start it; `ifunc_rt_last_reason` is an `ifunc_rejection`.
    Rejected = -23,
    /// The target is gone. It was not sent.
    PeerGone = -24,
    /// It was sent, then the connection was lost: it may or may not have run.
    Indeterminate = -25,
    /// Nodes died while invocations of a scope may have been on them.
    Incomplete = -26,
    /// `payload_init` failed, and nothing was sent; `ifunc_rt_last_reason` is what it returned.
    Payload = -27,
    /// A payload, an image or the answers exceed a limit.
    TooLarge = -28,
    /// An earlier send failed; `ifunc_rt_last_error` says how. This one was not sent.
    Earlier = -30,
    /// The answer is longer than the caller's memory, which has its beginning.
    Truncated = -31,
    /// The message is for another ifunc than the handle.
    OtherIfunc = -32,
    /// Exports that conflict, or cannot be changed.
    Export = -33,
    /// The nodes of a group do not find each other, or a number that no node can have.
    Group = -34,
    /// An environment variable has a value that it cannot have.
    Environment = -35,
    /// The worker is closed, or sends shorter headers of active messages than the runtime needs.
    Worker = -36,
    /// A function that the caller passed returned another value than 0.
    Cancelled = -37,
    /// A policy cannot be used: its file, or at this address.
    Policy = -38,
}

statuses! {
    Ok = c"IFUNC_STATUS_OK",
    InProgress = c"IFUNC_STATUS_IN_PROGRESS",
    End = c"IFUNC_STATUS_END",
    NullArgument = c"IFUNC_STATUS_NULL_ARGUMENT",
    InvalidArgument = c"IFUNC_STATUS_INVALID_ARGUMENT",
    InvalidAddress = c"IFUNC_STATUS_INVALID_ADDRESS",
    InUse = c"IFUNC_STATUS_IN_USE",
    WrongThread = c"IFUNC_STATUS_WRONG_THREAD",
    Internal = c"IFUNC_STATUS_INTERNAL",
    System = c"IFUNC_STATUS_SYSTEM",
    Unreachable = c"IFUNC_STATUS_UNREACHABLE",
    Refused = c"IFUNC_STATUS_REFUSED",
    Version = c"IFUNC_STATUS_VERSION",
    Protocol = c"IFUNC_STATUS_PROTOCOL",
    AddressInUse = c"IFUNC_STATUS_ADDRESS_IN_USE",
    Ucx = c"IFUNC_STATUS_UCX",
    Limit = c"IFUNC_STATUS_LIMIT",
    NoLibrary = c"IFUNC_STATUS_NO_LIBRARY",
    BadLibrary = c"IFUNC_STATUS_BAD_LIBRARY",
    LibraryOpen = c"IFUNC_STATUS_LIBRARY_OPEN",
    Timeout = c"IFUNC_STATUS_TIMEOUT",
    WouldBlock = c"IFUNC_STATUS_WOULD_BLOCK",
    WouldDeadlock = c"IFUNC_STATUS_WOULD_DEADLOCK",
    Panic = c"IFUNC_STATUS_PANIC",
    Failed = c"IFUNC_STATUS_FAILED",
    Rejected = c"IFUNC_STATUS_REJECTED",
    PeerGone = c"IFUNC_STATUS_PEER_GONE",
    Indeterminate = c"IFUNC_STATUS_INDETERMINATE",
    Incomplete = c"IFUNC_STATUS_INCOMPLETE",
    Payload = c"IFUNC_STATUS_PAYLOAD",
    TooLarge = c"IFUNC_STATUS_TOO_LARGE",
    Earlier = c"IFUNC_STATUS_EARLIER",
    Truncated = c"IFUNC_STATUS_TRUNCATED",
    OtherIfunc = c"IFUNC_STATUS_OTHER_IFUNC",
    Export = c"IFUNC_STATUS_EXPORT",
    Group = c"IFUNC_STATUS_GROUP",
    Environment = c"IFUNC_STATUS_ENVIRONMENT",
    Worker = c"IFUNC_STATUS_WORKER",
    Cancelled = c"IFUNC_STATUS_CANCELLED",
    Policy = c"IFUNC_STATUS_POLICY",
}

/// Why an invocation that started failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_failure {
    /// The payload does not decode.
    Payload = 1,
    /// The ifunc panicked.
    Panic = 2,
    /// The ifunc raised a fault.
    Fault = 3,
    /// The ifunc ran over its execution deadline.
    Deadline = 4,
    /// Too little stack is left for a host function.
    StackLow = 5,
    /// A host function panicked.
    HostPanic = 6,
    /// The answer does not fit.
    Answer = 7,
    /// The ifunc returned an unknown code.
    UnknownResult = 8,
    /// The node to which it was forwarded was lost.
    NodeLost = 9,
    /// No answer came before the deadline.
    Indeterminate = 10,
    /// The ifunc forwarded the invocation and answered it, too.
    EndedTwice = 11,
    /// The source dropped the call.
    Cancelled = 12,
}

impl ifunc_failure {
    pub(crate) fn of(failure: Failure) -> Self {
        match failure {
            Failure::Payload => Self::Payload,
            Failure::Panic => Self::Panic,
            Failure::Fault => Self::Fault,
            Failure::Deadline => Self::Deadline,
            Failure::StackLow => Self::StackLow,
            Failure::HostPanic => Self::HostPanic,
            Failure::Answer => Self::Answer,
            Failure::NodeLost => Self::NodeLost,
            Failure::Indeterminate => Self::Indeterminate,
            Failure::EndedTwice => Self::EndedTwice,
            Failure::Cancelled => Self::Cancelled,
            // The enum may grow: this crate is of the same release, and its test has all of them.
            _ => Self::UnknownResult,
        }
    }
}

/// Why a target did not start an invocation or did not install an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_rejection {
    /// No image is bound to the handle.
    Unbound = 1,
    /// The target's policy refuses the image.
    Policy = 2,
    /// The image is malformed.
    BadImage = 3,
    /// The image's bytes do not have the id they were sent under.
    IdMismatch = 4,
    /// The image has another ABI version.
    AbiVersion = 5,
    /// The image is for another architecture.
    Architecture = 6,
    /// The target's CPU lacks a feature.
    CpuFeature = 7,
    /// The image is for another type of target arguments.
    TargetType = 8,
    /// The target does not provide an import.
    MissingImport = 9,
    /// The target provides an import with another signature.
    ImportSignature = 10,
    /// The image needs a shared library that the target does not provide.
    NeededLibrary = 11,
    /// The target's code cache is full.
    CacheFull = 12,
    /// A limit of the target is exceeded.
    TooLarge = 13,
    /// The image's signature is not accepted.
    Signature = 14,
    /// The target runs shareable ifuncs only.
    NotShareable = 16,
    /// The target is out of resources.
    Resources = 17,
    /// A quota of the target is used up.
    Quota = 24,
    /// The group has no such node.
    NoNode = 18,
    /// The node was lost before the invocation was sent to it.
    NodeLost = 19,
    /// The hop limit is reached.
    HopLimit = 20,
    /// The node's outbox is full.
    NodeBusy = 21,
    /// The deadline had passed before it could run.
    TooLate = 22,
    /// The key that signed the image is revoked.
    Revoked = 26,
    /// The target's policy does not grant an import.
    Import = 27,
    /// The target's policy admits pure images only.
    NotPure = 28,
    /// The node does not know the one that awaits the answer.
    UnknownNode = 25,
}

/// The name of a status, such as `IFUNC_STATUS_TIMEOUT`; never null. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_status_name(status: i32) -> *const c_char {
    name(status).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::{ifunc_failure, ifunc_rejection};
    use ifunc_abi::status::{Failure, Rejection};

    /// The numbers that the enums here have for the names of the runtime's.
    macro_rules! numbers {
        ($ours:ident, $theirs:ident: $($name:ident)+) => {
            assert_eq!($theirs::ALL.len(), [$(stringify!($name)),+].len());
            $(assert_eq!($ours::$name as u32, $theirs::$name as u32);)+
        };
    }

    #[test]
    fn the_reasons_are_those_of_the_runtime() {
        numbers!(ifunc_failure, Failure: Payload Panic Fault Deadline StackLow HostPanic Answer UnknownResult NodeLost Indeterminate EndedTwice Cancelled);
        for failure in Failure::ALL {
            assert_eq!(ifunc_failure::of(*failure) as u32, *failure as u32);
        }
        numbers!(ifunc_rejection, Rejection: Unbound Policy BadImage IdMismatch AbiVersion Architecture CpuFeature TargetType MissingImport ImportSignature NeededLibrary CacheFull TooLarge Signature NotShareable Resources Quota NoNode NodeLost HopLimit NodeBusy TooLate Revoked Import NotPure UnknownNode);
    }
}
