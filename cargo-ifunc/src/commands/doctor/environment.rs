//! Environment variables, and the folders that they name.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::finding::Finding;

pub(super) fn checks() -> Vec<Finding> {
    let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let mut findings = vec![
        libraries("IFUNC_LIB_DIR", variable("IFUNC_LIB_DIR").as_deref()),
        runtime_directory(
            variable("IFUNC_RUNTIME_DIR").as_deref(),
            variable("XDG_RUNTIME_DIR").as_deref(),
            rustix::process::geteuid().as_raw(),
        ),
    ];
    if let Some(value) = variable("UCX_IFUNC_LIB_DIR") {
        findings.push(libraries("UCX_IFUNC_LIB_DIR", Some(&value)));
    }
    findings.extend(runner(variable("IFUNC_RUNNER").as_deref()));
    findings.extend(transport(variable("IFUNC_TRANSPORT").as_deref()));
    findings
}

/// A list of folders with ifunc libraries.
fn libraries(name: &'static str, value: Option<&OsStr>) -> Finding {
    let Some(value) = value else {
        return Finding::ok(name, "not set: `cargo ifunc run` and `test` set it");
    };
    let shown = Path::new(value).display();
    let problem = std::env::split_paths(value)
        .filter(|folder| !folder.as_os_str().is_empty())
        .find_map(|folder| {
            let what = if !folder.exists() {
                "does not exist"
            } else if !folder.is_dir() {
                "is not a folder"
            } else if !has_library(&folder) {
                "contains no library (`.so`)"
            } else if folder.is_relative() {
                "is relative: it depends on the directory that a program starts in"
            } else {
                return None;
            };
            Some(format!("`{}` {what}", folder.display()))
        });
    match problem {
        None => Finding::ok(name, shown.to_string()),
        Some(problem) => Finding::warning(
            name,
            problem,
            format!(
                "`unset {name}`, or set it to the folders that `cargo ifunc build` writes to, such as \"$PWD/target/ifunc/release\""
            ),
        ),
    }
}

fn has_library(folder: &Path) -> bool {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.path().extension().is_some_and(|e| e == "so"))
}

/// The folder of the sockets of `shm:`, by the rules of `ifunc-rt`.
fn runtime_directory(prepared: Option<&OsStr>, session: Option<&OsStr>, user: u32) -> Finding {
    let name = "runtime dir";
    if let Some(folder) = prepared.map(Path::new) {
        let found = format!("IFUNC_RUNTIME_DIR is `{}`", folder.display());
        return match folder.is_dir() {
            true => Finding::ok(name, found),
            false => Finding::missing(
                name,
                format!("{found}, which is not a folder"),
                format!("`mkdir -p {}`, or `unset IFUNC_RUNTIME_DIR`", folder.display()),
            ),
        };
    }
    let (folder, why) = match session.map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        Some(session) => {
            if !session.is_dir() {
                return Finding::missing(
                    name,
                    format!(
                        "XDG_RUNTIME_DIR is `{}`, which is not a folder",
                        session.display()
                    ),
                    "log in again, or `unset XDG_RUNTIME_DIR`",
                );
            }
            (session.join("ifunc"), "in XDG_RUNTIME_DIR")
        }
        None => (
            PathBuf::from(format!("/tmp/ifunc-{user}")),
            "XDG_RUNTIME_DIR is not set",
        ),
    };
    let found = format!("`{}` ({why})", folder.display());
    let Ok(metadata) = std::fs::symlink_metadata(&folder) else {
        return Finding::ok(name, format!("{found}, which the first target creates"));
    };
    if metadata.is_dir() && metadata.uid() == user && metadata.permissions().mode() & 0o077 == 0 {
        return Finding::ok(name, found);
    }
    Finding::missing(
        name,
        format!("{found} is accessible to other users or owned by one: targets refuse it"),
        format!(
            "`chmod 700 {0}` if it is yours; otherwise set XDG_RUNTIME_DIR to a folder of your own",
            folder.display()
        ),
    )
}

/// The program that targets of the level `process` start.
fn runner(value: Option<&OsStr>) -> Option<Finding> {
    let program = Path::new(value?);
    let name = "IFUNC_RUNNER";
    Some(match program.is_file() {
        true => Finding::ok(name, program.display().to_string()),
        false => Finding::warning(
            name,
            format!("`{}` is not a file", program.display()),
            "`unset IFUNC_RUNNER`, or set it to the program `ifunc-runner` that `cargo install ifunc-exec` installs",
        ),
    })
}

/// The transport that `cargo ifunc run` takes from the environment.
fn transport(value: Option<&OsStr>) -> Option<Finding> {
    let value = value?.to_string_lossy().into_owned();
    let name = "IFUNC_TRANSPORT";
    Some(match &*value {
        "shm" | "tls" | "ucx" | "ucx-put" | "loopback" => Finding::ok(name, value),
        _ => Finding::warning(
            name,
            format!("`{value}` is not a transport"),
            "`unset IFUNC_TRANSPORT`, or set it to `shm`, `tls`, `ucx`, `ucx-put` or `loopback`",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    #[test]
    fn folders_of_libraries() {
        let folder = tempfile::tempdir().expect("folder");
        let check = |value: &Path| libraries("IFUNC_LIB_DIR", Some(value.as_os_str()));
        assert!(check(folder.path()).found.contains("no library"));
        std::fs::write(folder.path().join("add.so"), "").expect("file");
        assert_eq!(check(folder.path()).mark, Mark::Ok);
        assert!(
            check(&folder.path().join("add.so"))
                .found
                .contains("not a folder")
        );
        assert!(
            check(&folder.path().join("absent"))
                .found
                .contains("does not exist")
        );
        assert_eq!(libraries("IFUNC_LIB_DIR", None).mark, Mark::Ok);
        // Tests run in the manifest's folder, which has no library.
        assert_eq!(check(Path::new("src")).mark, Mark::Warning);
    }

    #[test]
    fn the_socket_folder_belongs_to_the_user_alone() {
        let user = rustix::process::geteuid().as_raw();
        let folder = tempfile::tempdir().expect("folder");
        let session = |user| runtime_directory(None, Some(folder.path().as_os_str()), user);
        assert!(session(user).found.contains("the first target creates"));
        let ours = folder.path().join("ifunc");
        std::fs::create_dir(&ours).expect("folder");
        let mode =
            |mode| std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(mode)).expect("mode");
        mode(0o700);
        assert_eq!(session(user).mark, Mark::Ok);
        assert_eq!(session(user + 1).mark, Mark::Missing);
        mode(0o755);
        assert_eq!(session(user).mark, Mark::Missing);
        let absent = folder.path().join("absent");
        assert_eq!(
            runtime_directory(None, Some(absent.as_os_str()), user).mark,
            Mark::Missing
        );
        assert_eq!(
            runtime_directory(Some(absent.as_os_str()), None, user).mark,
            Mark::Missing
        );
        assert_eq!(
            runtime_directory(Some(folder.path().as_os_str()), None, user).mark,
            Mark::Ok
        );
    }

    #[test]
    fn a_runner_program_is_a_file() {
        assert_eq!(runner(None), None);
        let mark = |path: &str| runner(Some(path.as_ref())).map(|finding| finding.mark);
        assert_eq!(mark("/proc/self/exe"), Some(Mark::Ok));
        assert_eq!(mark("/proc/self"), Some(Mark::Warning));
    }

    #[test]
    fn unknown_transports_are_reported() {
        assert_eq!(transport(None), None);
        assert_eq!(transport(Some("shm".as_ref())).map(|f| f.mark), Some(Mark::Ok));
        assert_eq!(
            transport(Some("pigeon".as_ref())).map(|f| f.mark),
            Some(Mark::Warning)
        );
    }
}
