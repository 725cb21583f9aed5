//! The progress of a build.

use std::path::Path;

use crate::BuiltIfunc;

/// Receives the progress of a build. Every method does nothing by default.
pub trait Progress {
    /// A package or a C file is about to be compiled.
    fn compiling(&mut self, what: &str) {
        let _ = what;
    }

    /// The C compiler read this file: a source, or a header that is not the system's. An absolute path.
    fn read(&mut self, file: &Path) {
        let _ = file;
    }

    /// A line that cargo wrote to its standard error (`   Compiling serde v1.0`), without its line end.
    fn cargo(&mut self, line: &str) {
        let _ = line;
    }

    /// A warning or an error of the compiler or of the linker, rendered, ending with a line end.
    fn diagnostic(&mut self, rendered: &str) {
        let _ = rendered;
    }

    /// A message of cargo, in JSON, without its line end; only from a check whose options ask for messages.
    fn message(&mut self, line: &str) {
        let _ = line;
    }

    /// An image is about to be linked.
    fn linking(&mut self, ifunc: &str) {
        let _ = ifunc;
    }

    /// A library is in its place.
    fn built(&mut self, ifunc: &BuiltIfunc) {
        let _ = ifunc;
    }

    /// A library was removed: its package no longer has the ifunc.
    fn removed(&mut self, library: &Path) {
        let _ = library;
    }

    /// A command line that is about to run; only with the option `verbose`.
    fn command(&mut self, line: &str) {
        let _ = line;
    }
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {}
