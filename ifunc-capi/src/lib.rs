//! The C interface of [`ifunc_rt`]: `include/ifunc_rt.h`, which `cargo xtask capi-header` generates from this crate, and
//! `libifunc_rt`, which `cargo xtask install-capi --prefix DIR` installs.
//!
//! The functions here only convert: arguments from C, results and errors to C. What they do is what the functions of [`ifunc_rt`] do
//! by the same names. Each one runs in `guard::enter`, which keeps panics from C.
//!
//! Their documentation is the header's, so it is written for readers of C.

#![allow(non_camel_case_types, reason = "the names of C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the head of the header states what callers in C promise, for all functions together"
)]

#[macro_use]
mod guard;
mod call;
mod driver;
mod error;
mod group;
mod handle;
mod message;
mod runner_options;
mod scope;
mod source;
mod stats;
mod status;
mod stream;
mod target;
mod target_options;
mod tls;
mod worker;

pub use call::*;
pub use driver::*;
pub use error::*;
pub use group::*;
pub use handle::*;
pub use message::*;
pub use runner_options::*;
pub use scope::*;
pub use source::*;
pub use stats::*;
pub use status::*;
pub use stream::*;
pub use target::*;
pub use target_options::*;
pub use tls::*;
pub use worker::*;
