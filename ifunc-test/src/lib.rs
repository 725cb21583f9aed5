//! Tests of ifuncs through their real images: the image that travels runs in the process of the test.
//!
//! ```no_run
//! # mod counters { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
//! use counters::add; // the crate that holds `#[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64`
//!
//! #[test]
//! fn adds() {
//!     let mut counter = 37_u64;
//!     assert_eq!(ifunc_test::run::<add>(5, &mut counter).unwrap(), 42);
//!     assert_eq!(counter, 42);
//! }
//! ```
//!
//! `cargo ifunc test` builds the images and runs the tests. Plain `cargo test` also runs them if the images exist:
//! the fixture searches for them as a source does ([`Source::register`](ifunc_rt::Source::register)). An image that was
//! built with other types is an error. If an image is older than the sources of the package, the test prints a note.
//!
//! **The target arguments** are the host's own: a value of a fixed layout, of an opaque type, or of one that exports the
//! interface that the ifunc takes. As on every target, a value of another type is refused with both types in the error.
//!
//! ```no_run
//! # mod ifuncs {
//! #     use ifunc::prelude::*;
//! #     #[derive(Opaque)] #[opaque("series/1")] pub struct Series(ifunc::Foreign);
//! #     #[ifunc::import] unsafe extern "C" { safe fn series_push(series: &mut Series, number: u64) -> u64; }
//! #     #[ifunc] pub fn append(number: u64, series: &mut Series) -> u64 { series_push(series, number) }
//! # }
//! # use ifuncs::append;
//! /// The host's type. The ifunc's crate knows its name alone.
//! #[derive(ifunc::Opaque, Default)]
//! #[opaque("series/1")]
//! struct Series(Vec<u64>);
//!
//! #[ifunc::export]
//! fn series_push(series: &mut Series, number: u64) -> u64 {
//!     series.0.push(number);
//!     series.0.len() as u64
//! }
//!
//! #[test]
//! fn appends() {
//!     let mut series = Series::default();
//!     assert_eq!(ifunc_test::run::<append>(5, &mut series).unwrap(), 1);
//!     assert_eq!(series.0, [5]);
//! }
//! ```
//!
//! This crate is for dev-dependencies: it is the one place where safe code runs code that it was not compiled with. It is apart from the
//! runtime so that programs and tests share one `ifunc-rt`. In the package of the ifuncs, images must not see it:
//!
//! ```toml
//! [target.'cfg(not(ifunc_image))'.dev-dependencies]
//! ifunc-test = "0.1"
//! ```
//!
//! The code comes from the folder that `IFUNC_LIB_DIR` names, or from the build output of the checkout. A fixture
//! trusts that folder as the developer's own, as `cargo test` trusts the test binary that it runs. Programs that are no tests use
//! a [`Target`](ifunc_rt::Target), which accepts code by `unsafe` alone. A fixture runs only the images that it loaded itself.
//!
//! Images may import the exports of the process (`#[ifunc::export]`), as on any target. [`Fixture`] allows further
//! imports, several calls on one installed image, and ifuncs in C.

mod age;
mod fixture;

use std::borrow::Borrow;

use ifunc::payload::{Ifunc, TargetArgs};

use ifunc_rt::{LibraryError, SourceError, TargetError};

pub use fixture::Fixture;

/// Runs an ifunc once and returns its answer: on a target of its own, with the exports of this process.
///
/// The caller passes the payload by value or by reference; a payload that borrows, as the ifunc takes it. `target` is the
/// host's value: of the type that the ifunc takes, of the host's type by its opaque name, or of one that exports its interface.
///
/// The code comes from the search path of libraries: the developer's own, see [the crate](crate).
///
/// # Errors
/// There is no image, or it has other types; the target arguments have another type than the ifunc takes; and every failure of a call: see [`Error`].
pub fn run<'p, F: Ifunc>(
    payload: impl Borrow<F::Payload<'p>>,
    target: &mut (impl TargetArgs + 'static),
) -> Result<F::Answer, Error> {
    Fixture::new()?.run::<F>(payload, target)
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no image of this name.
    #[error("{source}\nhelp: {command} builds the images, then runs the tests", command = command())]
    NoImage {
        /// The searched folders.
        source: LibraryError,
    },
    /// The image cannot be used: most often, it was built with other types.
    #[error(transparent)]
    Library(LibraryError),
    /// The target in this process cannot be made.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The source cannot connect to the target in this process.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] ifunc_rt::Error),
}

impl From<LibraryError> for Error {
    fn from(error: LibraryError) -> Self {
        match error {
            LibraryError::NotFound { .. } => Self::NoImage { source: error },
            other => Self::Library(other),
        }
    }
}

/// The command that builds what the running test needs: cargo passes the package's name to a test.
fn command() -> String {
    match std::env::var("CARGO_PKG_NAME") {
        Ok(package) => format!("`cargo ifunc test -p {package}`"),
        Err(_) => "`cargo ifunc test`".into(),
    }
}
