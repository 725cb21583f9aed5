//! Errors: the last one of each thread, and the status of each error of the runtime.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use ifunc_rt::group::GroupError;
use ifunc_rt::ucx::WorkerError;
use ifunc_rt::{
    ConnectError, Error, ExportError, LibraryError, ListenError, SourceError, StatsError, TargetError,
};

use crate::guard::{Fault, c_string};
use crate::status::ifunc_status;

/// The last error of a thread.
#[derive(Default)]
struct Last {
    text: CString,
    reason: u32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Makes a fault the calling thread's last error.
#[cold]
pub(crate) fn record(fault: Fault) -> ifunc_status {
    let Fault { status, reason, text } = fault;
    let last = Last {
        text: c_string(&text),
        reason,
    };
    // A thread that ends has no last error.
    let _ = LAST.try_with(|place| place.replace(last));
    status
}

/// The version of the library, such as `0.1.0`; never null. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_rt_version() -> *const c_char {
    const { concat!(env!("CARGO_PKG_VERSION"), "\0") }.as_ptr().cast()
}

/// The text of the calling thread's last error: what went wrong, where, and what to do. Never null; empty if there was none. A
/// function that succeeds leaves it as it is. It is valid until the next error of the thread, and no longer than the thread.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_rt_last_error() -> *const c_char {
    // Its memory is that of the string in the cell, which only `record` replaces.
    let text = LAST.try_with(|last| last.borrow().text.as_ptr());
    text.unwrap_or(c"".as_ptr())
}

/// More about the calling thread's last error: an `ifunc_failure` of IFUNC_STATUS_FAILED, an `ifunc_rejection` of
/// IFUNC_STATUS_REJECTED, what `payload_init` returned of IFUNC_STATUS_PAYLOAD; otherwise 0. IFUNC_STATUS_EARLIER has the
/// reason of the send that failed.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_rt_last_reason() -> u32 {
    LAST.try_with(|last| last.borrow().reason).unwrap_or(0)
}

impl From<Error> for Fault {
    #[cold]
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (status, reason) = of_error(&error);
        Self { status, reason, text }
    }
}

/// Status and reason of an error of a source.
fn of_error(error: &Error) -> (ifunc_status, u32) {
    use ifunc_status as S;
    match error {
        Error::Panic { .. } => (S::Panic, 0),
        Error::Failed { why, .. } => (S::Failed, *why as u32),
        Error::Rejected { why, .. } => (S::Rejected, *why as u32),
        Error::PeerGone { .. } => (S::PeerGone, 0),
        Error::Indeterminate { .. } => (S::Indeterminate, 0),
        Error::Incomplete { .. } => (S::Incomplete, 0),
        Error::Timeout { .. } => (S::Timeout, 0),
        Error::Serving { .. } => (S::WouldDeadlock, 0),
        Error::NoThread { .. } => (S::System, 0),
        Error::WouldBlock { .. } => (S::WouldBlock, 0),
        Error::Payload { .. } => (S::Payload, 0),
        Error::PayloadInit { code, .. } => (S::Payload, code.cast_unsigned()),
        Error::PayloadTooLarge { .. } | Error::AnswersTooLarge { .. } | Error::ImageTooLarge { .. } => {
            (S::TooLarge, 0)
        }
        Error::NoSlice { .. } => (S::Rejected, ifunc_rt::Rejection::Architecture as u32),
        Error::OtherIfunc { .. } => (S::OtherIfunc, 0),
        Error::Earlier(earlier) => (S::Earlier, of_error(earlier).1),
        // `Answer`: sources here take answers as bytes, which need not decode. The enum may grow: this crate is of the same release.
        _ => (S::Internal, 0),
    }
}

/// Faults of errors whose text says everything.
macro_rules! faults {
    ($($error:ty => $status:expr;)+) => {$(
        impl From<$error> for Fault {
            #[cold]
            fn from(error: $error) -> Self {
                let status: fn(&$error) -> ifunc_status = $status;
                Self::new(status(&error), error.to_string())
            }
        }
    )+};
}

faults! {
    SourceError => of_source;
    LibraryError => of_library;
    TargetError => of_target;
    StatsError => of_stats;
    ExportError => of_export;
    GroupError => of_group;
    WorkerError => of_worker;
    std::io::Error => |_| ifunc_status::System;
    ifunc_rt::rendezvous::RendezvousError => |_| ifunc_status::Group;
}

fn of_source(error: &SourceError) -> ifunc_status {
    match error {
        SourceError::Connect(error) => of_connect(error),
        _ => ifunc_status::InvalidAddress,
    }
}

fn of_connect(error: &ConnectError) -> ifunc_status {
    use ifunc_status as S;
    match error {
        ConnectError::NobodyListens { .. } | ConnectError::Busy { .. } | ConnectError::Timeout { .. } => {
            S::Unreachable
        }
        ConnectError::Library { .. } | ConnectError::Ucx { .. } => S::Ucx,
        ConnectError::Worker => S::InvalidAddress,
        ConnectError::WorkerClosed => S::Worker,
        ConnectError::Refused { .. }
        | ConnectError::OtherUser { .. }
        | ConnectError::UnknownTarget { .. }
        | ConnectError::Certificate { .. } => S::Refused,
        ConnectError::Version { .. } => S::Version,
        ConnectError::Protocol { .. } => S::Protocol,
        ConnectError::Ring { .. } => S::Limit,
        ConnectError::Keys { .. } => S::InvalidArgument,
        _ => S::System,
    }
}

fn of_library(error: &LibraryError) -> ifunc_status {
    use ifunc_status as S;
    match error {
        LibraryError::NotFound { .. } => S::NoLibrary,
        LibraryError::Name(_) => S::InvalidArgument,
        LibraryError::Read { error, .. } if error.kind() == std::io::ErrorKind::NotFound => S::NoLibrary,
        LibraryError::Read { .. } => S::System,
        LibraryError::Open { .. } => S::LibraryOpen,
        _ => S::BadLibrary,
    }
}

fn of_listen(error: &ListenError) -> ifunc_status {
    use ifunc_status as S;
    match error {
        ListenError::InUse { .. } | ListenError::PortInUse { .. } => S::AddressInUse,
        ListenError::Library { .. } | ListenError::Ucx { .. } => S::Ucx,
        ListenError::Worker => S::InvalidAddress,
        ListenError::WorkerClosed => S::Worker,
        ListenError::Ring { .. } => S::Limit,
        ListenError::Keys { .. } => S::InvalidArgument,
        _ => S::System,
    }
}

fn of_target(error: &TargetError) -> ifunc_status {
    use ifunc_status as S;
    match error {
        TargetError::Address(_) => S::InvalidAddress,
        TargetError::Listen(error) => of_listen(error),
        TargetError::Export(_) | TargetError::Names(_) => S::Export,
        TargetError::Library(_) => S::InvalidArgument,
        TargetError::Policy(_) => S::Policy,
        TargetError::Environment { .. } => S::Environment,
        TargetError::OneThread => S::WrongThread,
        _ => S::System,
    }
}

fn of_stats(error: &StatsError) -> ifunc_status {
    use ifunc_status as S;
    match error {
        StatsError::NotShared(_) => S::Refused,
        StatsError::Version { .. } => S::Version,
        StatsError::TooLarge(_) => S::TooLarge,
        StatsError::Source(error) => of_error(error).0,
        _ => S::Protocol,
    }
}

fn of_export(error: &ExportError) -> ifunc_status {
    match error {
        ExportError::Timeout(_) => ifunc_status::Timeout,
        ExportError::Soname(_) => ifunc_status::InvalidArgument,
        _ => ifunc_status::Export,
    }
}

fn of_group(error: &GroupError) -> ifunc_status {
    match error {
        GroupError::Address(_) => ifunc_status::InvalidAddress,
        GroupError::Connect { why, .. } => of_connect(why),
        _ => ifunc_status::Group,
    }
}

fn of_worker(error: &WorkerError) -> ifunc_status {
    match error {
        WorkerError::Library(_) | WorkerError::Ucx { .. } => ifunc_status::Ucx,
        WorkerError::OtherThread => ifunc_status::WrongThread,
        WorkerError::InUse => ifunc_status::InUse,
        WorkerError::Os(_) => ifunc_status::System,
        _ => ifunc_status::Worker,
    }
}
