//! Errors of the source.

use std::path::PathBuf;
use std::time::Duration;

use ifunc::payload::{DecodeError, EncodeError};
use ifunc_abi::Counted;
use ifunc_abi::image::ImageError;
use ifunc_abi::status::{Failure, Rejection};

use crate::keys::KeyError;

/// Why a call has no answer, or a send did not go out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ifunc panicked on the target. The target continues to serve.
    #[error("`{ifunc}` panicked on the target{}{}: {message}", at(file, *line, *column), inside(place))]
    Panic {
        /// Name of the ifunc.
        ifunc: String,
        /// The panic's message, as far as the package's panic policy kept it.
        message: String,
        /// Source file; empty if not kept.
        file: String,
        /// Line; 0 if not kept.
        line: u32,
        /// Column; 0 if not kept.
        column: u32,
        /// The function that panicked, as `NAME+0xOFFSET`. Where the library has no symbols, the image offsets of the
        /// calls that led to the panic, innermost first: `IFUNC+[0xOFFSET < 0xOFFSET]`. Empty if unknown.
        place: String,
    },
    /// The ifunc started and failed.
    #[error("`{ifunc}` failed on the target: {why}{}", behind(detail))]
    Failed {
        /// Name of the ifunc.
        ifunc: String,
        /// Why.
        why: Failure,
        /// Details in prose.
        detail: String,
    },
    /// The target did not start it.
    #[error("the target rejected `{ifunc}`: {why}{}", behind(detail))]
    Rejected {
        /// Name of the ifunc.
        ifunc: String,
        /// Why.
        why: Rejection,
        /// Details in prose; for types and signatures, both texts.
        detail: String,
    },
    /// The target is gone, and the source did not send this.
    #[error("`{what}` was not sent: the target is gone: {why}")]
    PeerGone {
        /// What would have been sent.
        what: String,
        /// Why the source could not reconnect.
        why: String,
    },
    /// The source sent it, then the connection was lost: it may or may not have run.
    #[error("`{what}` was sent, then the target went away: it may or may not have run{}", about_again(*idempotent))]
    Indeterminate {
        /// What was sent.
        what: String,
        /// Whether it is an invocation of an ifunc that is declared `idempotent`; `None`: it is no invocation. The source sends a call of
        /// such an ifunc again once.
        idempotent: Option<bool>,
    },
    /// Nodes of the group died while invocations of a scope may have been on them ([`Source::finish`](crate::Source::finish)):
    /// how these ended is not known.
    #[error(
        "the scope is incomplete: {} died; {} ended well, {failed} failed, and how the others ended is not known",
        crate::group::listed(lost),
        Counted(*executed, "invocation")
    )]
    Incomplete {
        /// The numbers of the nodes.
        lost: Vec<u32>,
        /// Invocations that succeeded.
        executed: u64,
        /// Invocations that failed.
        failed: u64,
    },
    /// The deadline passed. The call may still be running; its answer is dropped.
    #[error(
        "`{what}` did not end within {waited:?}: the target does not serve, the ifunc still runs, or the source is still reconnecting"
    )]
    Timeout {
        /// The operation that the caller waited for.
        what: String,
        /// The deadline's length.
        waited: Duration,
    },
    /// The caller's thread serves the connection (see [`Target::connect`](crate::Target::connect)) and would wait for
    /// itself. A call that was sent may run; its answer is dropped.
    #[error(
        "`{what}` would wait for this thread, which serves the connection; help: wait on another thread or in a future, or poll the target until `Call::try_wait` returns the answer"
    )]
    Serving {
        /// What the caller would have waited for.
        what: String,
    },
    /// The thread that receives for futures cannot be started. What was sent may run; the caller can still block for
    /// the answer.
    #[error(
        "`{what}` cannot be awaited: no thread can be started that receives for it: {error}; help: `Source::driver` needs none"
    )]
    NoThread {
        /// What was awaited.
        what: String,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// There is no credit now; nothing was sent.
    #[error(
        "`{what}` cannot be sent now: the target has not consumed what was sent before (there is no credit); help: `send` and `call` wait"
    )]
    WouldBlock {
        /// What would have been sent.
        what: String,
    },
    /// The payload does not encode; nothing was sent.
    #[error("the payload of `{ifunc}` cannot be sent: {error}")]
    Payload {
        /// Name of the ifunc.
        ifunc: String,
        /// Why.
        error: EncodeError,
    },
    /// A library's `payload_init` returned an error or panicked; nothing was sent.
    #[error("`{ifunc}_payload_init` refused the arguments: it returned {code}; nothing was sent")]
    PayloadInit {
        /// Name of the ifunc.
        ifunc: String,
        /// Its return value.
        code: i32,
    },
    /// The payload exceeds the target's limit; nothing was sent.
    #[error(
        "a payload of {len} bytes for `{ifunc}`, and the target takes at most {limit}; help: `payload_bytes` of the quotas in the target's policy"
    )]
    PayloadTooLarge {
        /// Name of the ifunc.
        ifunc: String,
        /// Its length.
        len: u64,
        /// The target's limit.
        limit: u64,
    },
    /// The invocation ended, and its answer was dropped: the source would hold more of them than it may.
    #[error(
        "the answer of `{what}` has {len} bytes, with which this source would hold more than {limit} bytes of answers; help: drop earlier ones first, or `SourceOptions::max_answers`"
    )]
    AnswersTooLarge {
        /// The request.
        what: String,
        /// Length of the answer.
        len: u64,
        /// The limit of all answers that the source holds.
        limit: u64,
    },
    /// The image exceeds the target's limit; nothing was sent.
    #[error(
        "the image of `{ifunc}` has {len} bytes, and the target takes at most {limit}; help: `image_bytes` of the quotas in the target's policy"
    )]
    ImageTooLarge {
        /// Name of the ifunc.
        ifunc: String,
        /// Its length.
        len: u64,
        /// The target's limit.
        limit: u64,
    },
    /// The library has slices for several kinds of machines, and none for that of the target; nothing was sent.
    #[error("`{ifunc}` cannot be sent: {why}")]
    NoSlice {
        /// Name of the ifunc.
        ifunc: String,
        /// What the target is, which slices there are, and the command that builds the missing one.
        why: String,
    },
    /// The answer arrived and is no value of its type.
    #[error("the answer of `{ifunc}` does not decode: {error}")]
    Answer {
        /// Name of the ifunc.
        ifunc: String,
        /// Why.
        error: DecodeError,
    },
    /// A [message](crate::Message::to) is for another ifunc than the handle that was to send it; nothing was sent.
    #[error(
        "a message for `{message}` cannot be sent by the handle of `{handle}`, which is another ifunc or another build of it; help: make the message of a handle of the same library"
    )]
    OtherIfunc {
        /// The ifunc that the message is for.
        message: String,
        /// The ifunc of the handle.
        handle: String,
    },
    /// An earlier `send` failed. The present operation was *not* sent.
    #[error("an earlier send did not end well: {0}")]
    Earlier(Box<Error>),
}

fn at(file: &str, line: u32, column: u32) -> String {
    if file.is_empty() {
        String::new()
    } else {
        format!(" at {file}:{line}:{column}")
    }
}

fn inside(place: &str) -> String {
    match place {
        "" => String::new(),
        place => format!(", in `{place}`"),
    }
}

/// What to do about an invocation that may not have run.
fn about_again(idempotent: Option<bool>) -> &'static str {
    match idempotent {
        None => "",
        Some(false) => {
            "; help: declare the ifunc `idempotent` if it may run twice, and the source sends a call of it again"
        }
        Some(true) => {
            "; the source sends a call of this idempotent ifunc again once, and never a third time: it may be what ends the target, whose \
             log says more"
        }
    }
}

/// What to do about an image that does not parse; some of these errors say it themselves.
fn about_building(error: &ImageError) -> &'static str {
    match error {
        ImageError::AbiVersion { .. } => "",
        _ => "; help: `cargo ifunc build` makes it anew",
    }
}

fn behind(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(": {detail}")
    }
}

/// Why an ifunc library cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// No searched folder has the library.
    #[error("no library `{name}.so`; looked in: {}; help: `cargo ifunc build` in the workspace of the ifunc, or set IFUNC_LIB_DIR", searched.join(", "))]
    NotFound {
        /// Name of the ifunc.
        name: String,
        /// The searched folders.
        searched: Vec<String>,
    },
    /// The name cannot be the name of an ifunc.
    #[error("`{0}` is not the name of an ifunc, which is a C identifier of at most 255 bytes")]
    Name(String),
    /// The file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file of signatures beside the library cannot be used.
    #[error(transparent)]
    Signatures(#[from] KeyError),
    /// The file is no ifunc library.
    #[error("`{}` is not an ifunc library: {why}; help: `cargo ifunc build` makes one", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The image in it does not parse.
    #[error("the image in `{}` cannot be used: {error}{}", path.display(), about_building(error))]
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        error: ImageError,
    },
    /// Its slices are not of the same ifuncs.
    #[error("the slice for {slice} in `{}` is not one of the same ifuncs: {why}; help: `cargo ifunc build` makes all slices anew", path.display())]
    Slices {
        /// The file.
        path: PathBuf,
        /// The machines that the slice is for.
        slice: String,
        /// What differs.
        why: String,
    },
    /// The library was built with other types than this program.
    #[error("`{}` was built with another {what} type\n  this program: {ours}\n  the library:  {theirs}\nhelp: `cargo ifunc build`, then build this program again", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// `payload`, `target` or `answer`.
        what: &'static str,
        /// Text of this program's type.
        ours: String,
        /// Text of the library's type.
        theirs: String,
    },
    /// The library cannot be opened, or lacks a symbol.
    #[error("cannot open `{}`: {why}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The loader's message.
        why: String,
    },
}
