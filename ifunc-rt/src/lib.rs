//! The runtime of injected functions: a [`Source`] sends a payload and, once per connection, the machine code of a
//! function; a [`Target`] installs the code and runs it on its own data.
//!
//! ```no_run
//! // In one process …
//! let mut counter = 0u64;
//! // SAFETY: only processes of this user connect, and they may do here whatever they like.
//! let mut target = unsafe { ifunc_rt::Target::builder().accept_code() }.listen("shm:counter")?;
//! target.serve(&mut counter)?;
//! # Ok::<(), ifunc_rt::TargetError>(())
//! ```
//!
//! ```no_run
//! # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
//! // … and in another. `hello` is the crate that holds `#[ifunc] pub fn add(..)`.
//! let source = ifunc_rt::Source::connect("shm:counter")?;
//! let add = source.register::<hello::add>()?;
//! let now: u64 = add.call(&5)?.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A source makes progress on the threads that use it; for futures, or always ([`Progress`]), on a thread of its own
//! or in the caller's event loop ([`Source::driver`]). A target makes progress on the thread that polls or serves,
//! which may be one of its own ([`Target::spawn`]). One background thread per process watches for connections that
//! open and close. A process that forks (a daemon) forks before it listens or connects: a child inherits neither that
//! thread nor the connections.
//!
//! A target counts what it does ([`Target::stats`], [`Source::target_stats`], `cargo ifunc top`). Both sides emit
//! `tracing` events:
//!
//! | level | what | fields |
//! |---|---|---|
//! | `ERROR`, `WARN` | faults that stop a target or a source; rejected images; sources that violate the protocol; which peers can reach an address | `source`, `name`, `reason`, … |
//! | `INFO` | connections that open, close and reconnect, each in a span `connection`; exports that are added, replaced and removed | `source` (its number), `uid`, `pid`, `over` (its transports); `name`, `images` |
//! | `DEBUG` | images installed and evicted, invocations that failed, panics and their locations | `name`, `bytes`, `ifunc`, `why`, … |
//! | `TRACE` | a span `invocation` around each invocation, within that of its connection | `ifunc`, `sequence`, `payload_bytes`, and at its end `answer_bytes` or `failed` |
//!
//! The targets of these events are the module paths below `ifunc_rt`; events of the ifuncs themselves have the target
//! `ifunc`. While no subscriber enables `TRACE`, an invocation costs one comparison.
//!
//! `docs/architecture.md` shows what travels and which part validates it.

#[cfg(test)]
extern crate self as ifunc_rt;

#[macro_use]
mod failpoint;

mod driver;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod group;
mod hello;
pub mod keys;
pub mod library;
mod observe;
mod os;
mod policy;
pub mod rendezvous;
mod serve;
mod source;
mod target;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticks;
mod transport;
mod travel;
#[cfg(feature = "ucx")]
pub mod ucx;

#[cfg(feature = "failpoints")]
pub use failpoint::failpoints;
use ifunc_exec::fingerprint;
pub use ifunc_exec::runner::{RunnerOptions, run_if_started_by_target, try_runner};
pub use ifunc_exec::{
    DebugInfo, DuplicateExport, ExportError, ExportInfo, Exports, InvalidSoname, NamedSet, Symbol, Update,
    invoking_connection,
};
pub use observe::{SUPPRESSED as SUPPRESSED_EVENTS, StatsHandle};
pub use policy::{
    AddressRange, Allowance, Grant, ImageInfo, InvalidRange, Policy, PolicyError, PolicyFileError,
    PolicyHandle, Quotas, SourceInfo, Unsigned, Verdict,
};
pub use serve::doorbell::StopHandle;
#[doc(hidden)]
pub use source::include as __include;
pub use source::{
    Aggregation, Answers, ByName, Call, Driver, EmbeddedImage, Encoding, Error, Finished, Handle,
    LibraryError, Message, MessageTo, NotAllSent, Progress, Scope, Source, SourceError, SourceOptions,
    StatsError, Stream,
};
pub use target::{
    AfterEscape, Escaped, Level, Peers, RawArgs, RawType, ServeEnd, ServeError, Serving, Target,
    TargetBuilder, TargetError, TooManyTypes,
};
pub use transport::address::{Address, AddressError, HostPort};
pub use transport::worker_address::WorkerAddress;
pub use transport::{ConnectError, ListenError};

pub use ifunc_abi::stats;
pub use ifunc_abi::status::{Failure, Rejection};
