//! A target directory in which the SDK is compiled already.

use std::path::Path;
use std::process::Command;

/// Copies it to `target`, if `cargo xtask test` has made one.
pub fn copy_to(target: &Path) {
    let Some(warm) = std::env::var_os("IFUNC_WARM_TARGET") else {
        return;
    };
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--reflink=auto"]).arg(warm).arg(target);
    assert!(
        cp.status().unwrap().success(),
        "the target directory is not copied"
    );
}
