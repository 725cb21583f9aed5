//! From the source of an injected function to the library that carries its image.
//!
//! Two builders share one static linker, [`ifunc_link`]:
//!
//! * [`build_packages`] builds the ifunc packages of a Cargo workspace: one `cargo rustc` per package, in a target
//!   directory of its own, with everything it needs on the command line. The user's manifest needs the dependency on
//!   `ifunc` and nothing else.
//! * [`build_c`] builds C files, one ifunc per `X_main`.
//!
//! Each ifunc becomes `target/ifunc/release/X.so`: an ordinary shared library for the source that holds the *image*,
//! the part that travels, in a section of its own. [`read_library`] reads it back.
//!
//! ```no_run
//! use ifunc_build::{BuildOptions, Quiet, build_packages};
//!
//! let options = BuildOptions { packages: vec!["hello-ifuncs".into()], ..BuildOptions::default() };
//! for built in build_packages(&options, &mut Quiet)? {
//!     println!("{}: {} bytes in {}", built.name, built.image.len(), built.path.display());
//! }
//! # Ok::<(), ifunc_build::BuildError>(())
//! ```
//!
//! [`script`] does all that in a build script, for programs that carry their images.

#![forbid(unsafe_code)]

mod built;
mod c;
mod cargo;
mod checked;
mod cpu;
mod embedded;
mod error;
mod library;
mod make_rule;
mod names;
mod needed;
mod options;
mod own_crates;
mod progress;
pub mod script;
mod shared_library;
mod slices;
mod triple;

pub use built::{BuiltIfunc, BuiltSlice, Language};
pub use c::{build_c, c_compiler_for, check_c, is_c_source};
pub use cargo::{CheckOptions, View, build_packages, check_packages, expand_package, target_directory};
pub use checked::{Checked, CheckedIfunc};
pub use cpu::Cpu;
pub use embedded::{EmbeddedImage, embedded_images};
pub use error::BuildError;
#[doc(no_inline)]
pub use ifunc_link as link;
pub use library::{Library, LibraryError, LibraryImage, read_library};
pub use options::{BuildOptions, COptions, Color, OptLevel};
pub use own_crates::is_own_crate;
pub use progress::{Progress, Quiet};
pub use slices::Slice;
pub use triple::this_machine;
