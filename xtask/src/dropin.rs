//! `cargo xtask install-ucp-ifunc`: the UCX ifunc interface of the systems before this one, for C programs.

use std::path::Path;
use std::process::ExitCode;

use crate::install::{self, copy};
use crate::process::{cargo, status};

/// The name that programs look for when they start; `ifunc-ucp/build.rs` gives it to the library.
const SONAME: &str = "libucp_ifunc.so.0";

/// `cargo xtask install-ucp-ifunc --prefix DIR [--debug]`
pub(crate) fn command(options: &[String]) -> ExitCode {
    install::command("install-ucp-ifunc", options, install)
}

/// Builds the library and installs it with the headers of each variant.
pub(crate) fn install(prefix: &Path, profile: &str) -> Result<(), String> {
    let mut build = cargo(["build", "--package", "ifunc-ucp"]);
    if profile == "release" {
        build.arg("--release");
    }
    status(&mut build)?;
    install::library(prefix, profile, "ucp_ifunc", "ucp_ifunc", SONAME)?;
    let compat = Path::new("include/ifunc/compat");
    let (from, to) = (crate::root().join("ifunc-ucp").join(compat), prefix.join(compat));
    let header = "ucp/api/ucp.h";
    copy(&from.join("common.h"), &to.join("common.h"))?;
    for variant in ["paper", "slides", "threechains"] {
        copy(&from.join(variant).join(header), &to.join(variant).join(header))?;
    }
    Ok(())
}
