//! [UCX](https://openucx.org), the communication library of high-performance networks, for Rust: its types, its constants
//! and its functions as they are in C, from version 1.13 on.
//!
//! Nothing has to be installed to build this crate. The functions are found **at run time**: [`Ucx::load`] opens
//! `libucp.so.0` and `libucs.so.0`, looks at their version and finds every function, or says which package is missing.
//!
//! ```no_run
//! let ucx = ucx_sys::Ucx::load()?;
//! println!("UCX {}", ucx.version());
//! # Ok::<(), ucx_sys::LoadError>(())
//! ```
//!
//! With feature `link` the program is linked with UCX instead, which is then needed to build and to start it; the interface
//! is the same.
//!
//! # Signal handlers
//!
//! When it is loaded, UCX installs handlers for SIGILL, SIGSEGV, SIGBUS and SIGFPE, which print a backtrace and may wait for
//! a debugger, one for SIGHUP, and an alternate stack for the loading thread. A library has no business there: those of the
//! process, by which Rust tells a stack overflow, would be lost. [`Ucx::load`] puts back what was installed before, unless
//! the environment says which handlers UCX shall have (`UCX_ERROR_SIGNALS`, `UCX_HANDLE_ERRORS` or `UCX_DEBUG_SIGNO` is set).
//! With feature `link` UCX is loaded before `main` and what was there is unknown: set `UCX_HANDLE_ERRORS=none` and
//! `UCX_DEBUG_SIGNO=0` where it matters, with both of which UCX installs nothing. (An empty `UCX_ERROR_SIGNALS` leaves the
//! handler for SIGHUP and the stack.)
//!
//! # Where the bindings come from
//!
//! `src/bindings/types.rs` and `functions.rs` are made by `cargo xtask ucx-bindings` from UCX's headers, and compared with
//! them by `cargo xtask ucx-bindings --check`. Sizes and offsets are asserted when this crate is compiled. What the headers
//! have as macros and inline functions is written by hand: [`UCS_PTR_IS_ERR`] and its kin, [`Ucx::ucp_init`],
//! [`ucp_dt_make_contig`].

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("these bindings are of 64-bit Unix systems, which are what UCX runs on");

#[macro_use]
mod table;

mod bindings;
mod inline;
mod load;
mod print;
#[cfg(not(feature = "link"))]
mod signals;
mod status;

pub use bindings::*;
pub use inline::*;
pub use load::{LoadError, Version};
pub use print::lanes;
pub use status::Status;
