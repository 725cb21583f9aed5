//! Tests of ifuncs through their real images: the image that travels runs in the process of the test.
//!
//! ```no_run
//! # mod counters { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
//! use counters::add; // the crate that holds `#[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64`
//!
//! #[test]
//! fn adds() {
//!     let mut counter = 37;
//!     assert_eq!(ifunc_rt::test::run::<add>(5, &mut counter).unwrap(), 42);
//!     assert_eq!(counter, 42);
//! }
//! ```
//!
//! `cargo ifunc test` builds the images and runs the tests. Plain `cargo test` does as well, if the images are there: they
//! are looked for where a source looks for them ([`Source::register`](crate::Source::register)). An image that was built from
//! other types is an error. If one is older than the sources of the package, the test prints a note.
//!
//! The code comes from a folder: the one that `IFUNC_LIB_DIR` names, else the build output of the checkout. A fixture assumes
//! that it is the developer's own, as `cargo test` assumes it of the test that it finds in such a folder and runs. This is
//! the one exception to the rule that only `unsafe` makes a process run code that it was not compiled with. It is meant for
//! tests; a program that is no test uses a [`Target`](crate::Target). A fixture runs only the images that it loaded itself.
//!
//! Images may import what the process exports (`#[ifunc::export]`), as on any target. For more, for several calls on one
//! installed image, and for C, there is [`Fixture`].

mod age;
mod fixture;

use std::borrow::Borrow;

use ifunc::payload::Ifunc;

use crate::{LibraryError, SourceError, TargetError};

pub use fixture::Fixture;

/// Runs an ifunc once and returns its answer: on a target of its own, with the exports of this process.
///
/// The payload is given by value or by reference; one that borrows, as the ifunc takes it.
///
/// The code that runs is what lies where libraries are looked for: the developer's own, see [the module](self).
///
/// # Errors
/// No image, or a stale one; and everything that can become of a call: see [`Error`].
pub fn run<'p, F: Ifunc>(
    payload: impl Borrow<F::Payload<'p>>,
    target: &mut F::Target,
) -> Result<F::Answer, Error>
where
    F::Target: 'static,
{
    Fixture::new()?.run::<F>(payload, target)
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no image of this name.
    #[error("{source}\nhelp: {command} builds the images, then runs the tests", command = command())]
    NoImage {
        /// Where it was looked for.
        source: LibraryError,
    },
    /// The image cannot be used: above all, it was built from other types.
    #[error(transparent)]
    Library(LibraryError),
    /// The target within this process could not be made.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no way to the target within this process.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What became of the call.
    #[error(transparent)]
    Call(#[from] crate::Error),
}

impl From<LibraryError> for Error {
    fn from(error: LibraryError) -> Self {
        match error {
            LibraryError::NotFound { .. } => Self::NoImage { source: error },
            other => Self::Library(other),
        }
    }
}

/// The command that builds what the running test needs: cargo tells a test what package it is of.
fn command() -> String {
    match std::env::var("CARGO_PKG_NAME") {
        Ok(package) => format!("`cargo ifunc test -p {package}`"),
        Err(_) => "`cargo ifunc test`".into(),
    }
}
