//! C files in temporary directories, and builds of them.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::fs;
use std::path::PathBuf;

use ifunc_build::{BuiltIfunc, COptions, Quiet, build_c};

/// Files in a temporary directory.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn options(&self) -> COptions {
        COptions {
            target_dir: Some(self.path("target")),
            ..COptions::default()
        }
    }

    pub fn build(&self, files: &[&str]) -> Vec<BuiltIfunc> {
        self.build_with(files, &self.options())
    }

    pub fn build_with(&self, files: &[&str], options: &COptions) -> Vec<BuiltIfunc> {
        let files: Vec<_> = files.iter().map(|file| self.path(file)).collect();
        build_c(&files, options, &mut Quiet).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn refusal(&self, file: &str) -> String {
        build_c(&[self.path(file)], &self.options(), &mut Quiet)
            .unwrap_err()
            .to_string()
    }
}
