//! Installs images of injected functions and runs them.
//!
//! The seam is [`Executor`]: it takes the bytes of an image, and later a payload, target arguments and room for an answer. It
//! knows no transport, no connection and no policy. [`ImageExecutor`] is the executor that runs images in the process that
//! receives them, or in a [runner process](runner):
//!
//! | step | file |
//! |---|---|
//! | the image is checked | `image/validate.rs` |
//! | its imports are bound to symbols of the host | `symbols` |
//! | it is relocated and written into the arena, its GOT into memory of its own | `image/install.rs`, `arena.rs`, `got.rs` |
//! | it stays in the code cache | `image/cache.rs` |
//! | an invocation enters it through the call gate | `image_executor.rs`, `session.rs`, `gate.rs`, `ended.rs`, `arch` |
//! | what it imports changes, while it runs | `exports`, `entrance.rs`, `threads.rs` |
//! | it calls back into the host, or panics | `imports.rs`, `gate.rs` |
//! | it allocates, and ends early with what it allocated | `allocations.rs` |
//! | it raises a fault, or runs for too long | `contain`, `gate/interrupt.rs` |
//! | it sends others, or travels on | `services.rs` |
//! | it runs in a process of its own | `runner` |
//! | a debugger asks what it is | `debug` |
//!
//! What the source runs of an ifunc, to write payloads, is in [`library`].

mod allocations;
mod answer;
mod arch;
mod arena;
mod contain;
pub mod debug;
mod ended;
mod entrance;
mod executor;
mod exports;
pub mod fingerprint;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gate;
mod got;
mod held;
mod image;
mod image_executor;
mod imports;
pub mod library;
mod page;
mod ranges;
pub mod runner;
pub mod services;
mod session;
mod stack;
mod symbols;
#[cfg(test)]
mod tests;
mod threads;

pub use answer::AnswerMemory;
pub use arch::{ARCH, cpu_features};
pub use contain::ContainOptions;
pub use debug::DebugInfo;
pub use executor::{Batch, BatchAnswers, BatchEnd, Executor, Invocation, Observer};
pub use exports::{ExportError, ExportInfo, Exports, Update};
pub use gate::invoking_connection;
pub use image::{
    EntryProperties, GotEntry, IdHasher, IdMap, ImageProperties, InstalledEntry, InstalledImage, Original,
    ValidImage,
};
pub use image_executor::{ImageExecutor, ImageExecutorOptions, SetupError};
pub use session::{ExecThread, OpenSession, Session};
pub use symbols::{DuplicateExport, HostSymbols, Interfaces, InvalidSoname, NamedSet, Symbol};

/// The target of what this crate logs: it speaks as a part of the runtime.
const LOG: &str = "ifunc_rt::exec";
