//! `call`: which library it takes.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Ran, ran, write};

/// `cargo ifunc call` by the command at this path.
fn call(command: &Path, folder: &Path) -> Ran {
    let mut command = Command::new(command);
    command
        .args(["ifunc", "call", "shm:nobody-listens-here", "add"])
        .current_dir(folder)
        .stdin(Stdio::null());
    for name in ["CARGO_TARGET_DIR", "IFUNC_LIB_DIR", "UCX_IFUNC_LIB_DIR"] {
        command.env_remove(name);
    }
    ran(&mut command)
}

#[test]
fn the_library_is_that_of_the_workspace_and_not_one_beside_the_command() {
    // In the file system of the command, which gets a second name there.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    let (of_command, project) = (folder.path().join("checkout"), folder.path().join("project"));
    let manifest = "[workspace]\n";
    let library = "target/ifunc/release/add.so";
    write(
        &of_command,
        &[("Cargo.toml", manifest), (library, "of the checkout")],
    );
    write(
        &project,
        &[
            ("Cargo.toml", manifest),
            (library, "of the project"),
            ("src/deep/main.rs", ""),
        ],
    );
    let command = of_command.join("target/debug/cargo-ifunc");
    std::fs::create_dir(of_command.join("target/debug")).expect("folder");
    std::fs::hard_link(env!("CARGO_BIN_EXE_cargo-ifunc"), &command).expect("link");

    let within = project.join("src/deep");
    let read = format!("`{}`", project.join(library).display());
    for place in [&project, &within] {
        call(&command, place).failed(1, &[&read]);
    }
    std::fs::remove_dir_all(project.join("target")).expect("folder");
    let searched = format!(
        "no library `add.so`; looked in: `{}`\n",
        project.join("target/ifunc/release").display()
    );
    call(&command, &within).failed(1, &[&searched]);
}
