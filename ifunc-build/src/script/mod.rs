//! Images built by a build script, for a program that carries its ifuncs in one file.
//!
//! ```toml
//! # Cargo.toml of the program that sends
//! [dependencies]
//! hello-ifuncs = { path = "../ifuncs" }    # the typed handles
//! ifunc-rt = "0.1"
//!
//! [build-dependencies]
//! ifunc-build = "0.1"
//! ```
//!
//! ```ignore
//! // build.rs
//! fn main() {
//!     ifunc_build::script::Images::new().build();
//! }
//! ```
//!
//! ```ignore
//! // src/main.rs
//! let add = source.register_image(ifunc_rt::include_image!(hello_ifuncs::add))?;
//! ```
//!
//! An image is built from the package that the program takes the typed handle from, whenever that package changes: no
//! second copy can be out of date.
//!
//! The build goes into cargo's `OUT_DIR`, under a lock of its own, without the flags and wrappers of the outer cargo.
//! So it works within `cargo build`, `check`, `clippy`, `test` and `install`, and in rust-analyzer; for every target
//! directory and profile. Images themselves are always built optimised, and for the architecture of the program.

mod compiled;
mod environment;
mod error;
mod output;
mod packages;
mod watch;

use std::path::{Path, PathBuf};

use crate::{BuildError, BuildOptions, BuiltIfunc, COptions, Cpu, Progress, Slice, build_c, build_packages};

use environment::Environment;
pub(crate) use environment::remove_script_variables;
pub use error::ScriptError;
use packages::Group;
use watch::Watched;

/// The images that a program carries. `ifunc_rt::include_image!` finds those that [`build`](Self::build) made. Use it
/// once per build script.
#[derive(Clone, Debug, Default)]
pub struct Images {
    packages: Vec<String>,
    features: Vec<String>,
    c_files: Vec<PathBuf>,
    cflags: Vec<String>,
    needed: Vec<String>,
    cpu: Cpu,
    slices: Vec<Slice>,
}

impl Images {
    /// The images of every ifunc package that the program's manifest depends on by path (those that it depends on
    /// optionally, only if they are [named](Self::package)).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The images of this package and of other named ones alone. The name is that of a dependency in the program's
    /// manifest.
    #[must_use]
    pub fn package(mut self, name: impl Into<String>) -> Self {
        self.packages.push(name.into());
        self
    }

    /// A feature of the ifunc packages, for their images. (Features that the program enables for its dependency apply
    /// to the typed handle: registering a handle whose types differ by a feature fails.)
    #[must_use]
    pub fn feature(mut self, name: impl Into<String>) -> Self {
        self.features.push(name.into());
        self
    }

    /// The ifuncs of a C file, relative to the program's manifest, besides those of the packages.
    #[must_use]
    pub fn c_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.c_files.push(path.into());
        self
    }

    /// An argument for the C compiler, for the files of [`c_file`](Self::c_file). Relative paths begin at the program's
    /// manifest.
    #[must_use]
    pub fn cflag(mut self, flag: impl Into<String>) -> Self {
        self.cflags.push(flag.into());
        self
    }

    /// The soname of a shared library that the C ifuncs need on the target, such as `libz.so.1`.
    #[must_use]
    pub fn needed(mut self, soname: impl Into<String>) -> Self {
        self.needed.push(soname.into());
        self
    }

    /// The least CPU of the images, whatever the program itself is compiled for. It counts if it is of the program's architecture.
    #[must_use]
    pub fn cpu(mut self, cpu: Cpu) -> Self {
        self.cpu = cpu;
        self
    }

    /// One more level: the program embeds a slice for it beside the images of the level of [`cpu`](Self::cpu). Each target is sent
    /// the slice that it runs best.
    #[must_use]
    pub fn slice(mut self, cpu: Cpu) -> Self {
        self.slices.push(Slice::of_cpu(cpu));
        self
    }

    /// Slices for another target triple, such as `aarch64-unknown-linux-gnu`, beside the images for this program's.
    #[must_use]
    pub fn triple(mut self, triple: impl Into<String>) -> Self {
        let slice = Slice {
            triple: Some(triple.into()),
            cpu: Cpu::default(),
        };
        self.slices.push(slice);
        self
    }

    /// Builds the images and reports their dependencies to cargo. On failure it prints the error and ends the build
    /// script.
    pub fn build(&self) {
        if let Err(error) = self.try_build() {
            for line in error.to_string().lines() {
                println!("cargo::error={line}");
            }
            // No panic: the location in the script would not help the reader of the error.
            std::process::exit(1);
        }
    }

    /// As [`build`](Self::build), for scripts that handle errors themselves.
    ///
    /// # Errors
    /// Called outside a build script, nothing to build, or a build that fails.
    pub fn try_build(&self) -> Result<Vec<BuiltIfunc>, ScriptError> {
        let environment = Environment::read()?;
        let mut watched = Watched::new();
        watched.file(&environment.manifest);
        let target = environment.out.join("target");
        // Removes libraries of renamed or moved ifuncs; linking the others again is fast.
        let libraries = crate::cargo::library_folder(&target, environment.triple.as_deref(), "release");
        match std::fs::remove_dir_all(&libraries) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(ScriptError::io("remove", &libraries)(e));
            }
            _ => {}
        }

        let mut built = Vec::new();
        for group in packages::find(&environment, &self.packages)? {
            built.extend(self.build_group(&group, &target, &environment, &mut Listener(&mut watched))?);
            watched.packages(&group, &target)?;
        }
        if !self.c_files.is_empty() {
            let options = COptions {
                target_dir: Some(target.clone()),
                triple: environment.triple.clone(),
                cpu: self.cpu,
                slices: self.slices.clone(),
                needed: self.needed.clone(),
                cflags: self.cflags.clone(),
                ..COptions::default()
            };
            built.extend(build_c(&self.c_files, &options, &mut Listener(&mut watched))?);
        }
        if built.is_empty() {
            return Err(ScriptError::Nothing {
                package: environment.package,
            });
        }
        let index = output::write(&environment.out, &built)?;
        watched.print();
        println!("cargo::rustc-env={}={}", output::VARIABLE, index.display());
        Ok(built)
    }

    fn build_group(
        &self,
        group: &Group,
        target: &Path,
        environment: &Environment,
        listener: &mut Listener<'_>,
    ) -> Result<Vec<BuiltIfunc>, ScriptError> {
        let mut options = BuildOptions {
            current_dir: Some(group.root.clone()),
            manifest_path: Some(group.manifest.clone()),
            packages: group.names(),
            features: self.features.clone(),
            target_dir: Some(target.into()),
            triple: environment.triple.clone(),
            cpu: self.cpu,
            slices: self.slices.clone(),
            ..BuildOptions::default()
        };
        while !options.packages.is_empty() {
            match build_packages(&options, listener) {
                Ok(built) => return Ok(built),
                // A package of shared types also depends on the SDK, without ifuncs.
                Err(BuildError::NoIfuncs { package, .. })
                    if self.packages.is_empty() && options.packages.contains(&package) =>
                {
                    options.packages.retain(|name| *name != package);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Vec::new())
    }
}

/// Prints the compilers' diagnostics, which cargo shows when the script fails, and records the files that they read.
struct Listener<'w>(&'w mut Watched);

impl Progress for Listener<'_> {
    fn read(&mut self, file: &Path) {
        self.0.file(file);
    }

    fn cargo(&mut self, line: &str) {
        eprintln!("{line}");
    }

    fn diagnostic(&mut self, rendered: &str) {
        eprint!("{rendered}");
    }
}
