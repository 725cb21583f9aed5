//! `cargo xtask install-ucp-ifunc`: the UCX ifunc interface of the systems before this one, for C programs.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::process::{cargo, end, status};

/// The name that programs look for when they start; `ifunc-ucp/build.rs` gives it to the library.
const SONAME: &str = "libucp_ifunc.so.0";

/// `cargo xtask install-ucp-ifunc --prefix DIR [--debug]`
pub(crate) fn command(options: &[String]) -> ExitCode {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (prefix, profile) = match options[..] {
        ["--prefix", prefix] => (prefix, "release"),
        ["--prefix", prefix, "--debug"] | ["--debug", "--prefix", prefix] => (prefix, "debug"),
        _ => {
            return end(Err(
                "usage: cargo xtask install-ucp-ifunc --prefix DIR [--debug]".into()
            ));
        }
    };
    end(install(Path::new(prefix), profile).map(|()| println!("installed to {prefix}")))
}

/// Builds the library and installs it with the headers of each variant.
pub(crate) fn install(prefix: &Path, profile: &str) -> Result<(), String> {
    let mut build = cargo(["build", "--package", "ifunc-ucp"]);
    if profile == "release" {
        build.arg("--release");
    }
    status(&mut build)?;
    let (built, lib) = (crate::target().join(profile), prefix.join("lib"));
    let real = format!("libucp_ifunc.so.{}", env!("CARGO_PKG_VERSION"));
    copy(&built.join("libucp_ifunc.so"), &lib.join(&real))?;
    copy(&built.join("libucp_ifunc.a"), &lib.join("libucp_ifunc.a"))?;
    for name in [SONAME, "libucp_ifunc.so"] {
        let link = lib.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&real, &link)
            .map_err(|e| format!("cannot make the link `{}`: {e}", link.display()))?;
    }
    let compat = Path::new("include/ifunc/compat");
    let (from, to) = (crate::root().join("ifunc-ucp").join(compat), prefix.join(compat));
    let header = "ucp/api/ucp.h";
    copy(&from.join("common.h"), &to.join("common.h"))?;
    for variant in ["paper", "slides", "threechains"] {
        copy(&from.join(variant).join(header), &to.join(variant).join(header))?;
    }
    Ok(())
}

/// Writes a file beside the old one, which programs may use, and puts it in its place.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot copy `{}` to `{}`: {e}", from.display(), to.display());
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    fs::copy(from, &new).map_err(failed)?;
    fs::rename(&new, to).map_err(failed)
}
