//! Programs for AArch64 run on this machine like any other: the kernel hands them to QEMU.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::tools::Tools;
use crate::process::status;

const FORMATS: &str = "/proc/sys/fs/binfmt_misc";
/// How Debian describes AArch64's programs to the kernel. Its service does that where services run.
const DESCRIPTION: &str = "/usr/lib/binfmt.d/qemu-aarch64.conf";

/// Makes the kernel run AArch64's programs.
pub(super) fn ensure(tools: &Tools) -> Result<(), String> {
    if runs(tools)? {
        return Ok(());
    }
    let help =
        format!("help: as root: mount -t binfmt_misc none {FORMATS}; cat {DESCRIPTION} > {FORMATS}/register");
    if !Path::new(FORMATS).join("register").exists() {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "binfmt_misc", "none", FORMATS])
            .stdin(Stdio::null());
        status(&mut mount).map_err(|e| format!("{e}\n{help}"))?;
    }
    let description = fs::read(DESCRIPTION).map_err(|e| format!("cannot read `{DESCRIPTION}`: {e}"))?;
    fs::write(Path::new(FORMATS).join("register"), description)
        .map_err(|e| format!("the kernel takes no program loader: {e}\n{help}"))?;
    match runs(tools)? {
        true => Ok(()),
        false => Err(format!("the kernel does not run programs for AArch64\n{help}")),
    }
}

/// Whether a program for AArch64 runs.
fn runs(tools: &Tools) -> Result<bool, String> {
    let source = crate::scratch().join("aarch64/runs.c");
    let program = source.with_extension("");
    fs::write(&source, "int main(void) { return 42; }\n")
        .map_err(|e| format!("cannot write `{}`: {e}", source.display()))?;
    let mut compile = Command::new("aarch64-linux-gnu-gcc");
    status(compile.arg(&source).arg("-o").arg(&program).stdin(Stdio::null()))?;
    let mut run = Command::new(&program);
    run.envs(tools.environment()).stdin(Stdio::null());
    // Fails where the kernel knows no loader for it.
    Ok(run.status().is_ok_and(|status| status.code() == Some(42)))
}
