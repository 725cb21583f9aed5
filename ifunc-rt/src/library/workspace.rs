//! The root of the cargo workspace around a folder.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What a manifest says of its workspace.
#[derive(Default, Deserialize)]
struct Manifest {
    package: Option<Package>,
    workspace: Option<Workspace>,
}

#[derive(Deserialize)]
struct Package {
    /// The root, if it is no folder around the package.
    workspace: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Workspace {
    #[serde(default)]
    members: Vec<PathBuf>,
    #[serde(default)]
    exclude: Vec<PathBuf>,
}

/// The root of the workspace of the package around `folder`, as cargo finds it: the nearest manifest with a `[workspace]`
/// that does not exclude the package. Without one the package is its own root. `None`: there is no manifest around `folder`.
pub(super) fn root_around(folder: &Path) -> Option<PathBuf> {
    let package = folder
        .ancestors()
        .find(|folder| folder.join("Cargo.toml").is_file())?;
    let named = manifest(package).package.and_then(|package| package.workspace);
    if let Some(root) = named {
        return Some(package.join(root));
    }
    let root = package.ancestors().find(|root| includes(root, package));
    Some(root.unwrap_or(package).to_owned())
}

/// Whether the manifest in `root` is that of a workspace to which this package belongs. Cargo takes the entries of `exclude` and
/// `members` as they are here, without their wildcards.
fn includes(root: &Path, package: &Path) -> bool {
    let Some(workspace) = manifest(root).workspace else {
        return false;
    };
    let holds = |paths: &[PathBuf]| paths.iter().any(|path| package.starts_with(root.join(path)));
    holds(&workspace.members) || !holds(&workspace.exclude)
}

/// The manifest in a folder; empty if there is none, or none that can be read.
fn manifest(folder: &Path) -> Manifest {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    toml::from_str(&text).unwrap_or_default()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fs;

    use super::*;

    /// Folders with these manifests, removed when dropped.
    struct Folders(PathBuf);

    impl Folders {
        fn new(manifests: &[(&str, &str)]) -> Self {
            static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let name = format!("ifunc-workspace-{}-{number}", std::process::id());
            let folders = Self(std::env::temp_dir().join(name));
            for (folder, manifest) in manifests {
                let folder = folders.0.join(folder);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("Cargo.toml"), manifest).unwrap();
                // Only a root should have one, but a member may have one of the time before it was a member.
                fs::write(folder.join("Cargo.lock"), "").unwrap();
            }
            folders
        }

        #[track_caller]
        fn root_of(&self, folder: &str, root: &str) {
            let folder = self.0.join(folder);
            fs::create_dir_all(&folder).unwrap();
            assert_eq!(
                root_around(&folder),
                Some(self.0.join(root)),
                "{}",
                folder.display()
            );
        }
    }

    impl Drop for Folders {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const PACKAGE: &str = "[package]\nname = \"p\"\nversion = \"0.1.0\"\n";

    #[test]
    fn of_two_workspaces_the_inner_one_is_the_root() {
        let folders = Folders::new(&[
            ("outer", "[workspace]\nmembers = [\"a\"]\n"),
            ("outer/a", PACKAGE),
            ("outer/projects/inner", "[workspace]\nmembers = [\"b\"]\n"),
            ("outer/projects/inner/b", PACKAGE),
        ]);
        folders.root_of("outer/projects/inner/b/src/bin", "outer/projects/inner");
        folders.root_of("outer/projects/inner/target", "outer/projects/inner");
        folders.root_of("outer/a/src", "outer");
        folders.root_of("outer", "outer");
    }

    #[test]
    fn a_package_that_is_excluded_is_its_own_root() {
        let root = "[workspace]\nmembers = [\"tools/kept\", \"crates/*\"]\nexclude = [\"fuzz\", \"tools\"]\n";
        let folders = Folders::new(&[
            ("outer", root),
            ("outer/fuzz", PACKAGE),
            ("outer/tools/kept", PACKAGE),
            ("outer/crates/a", PACKAGE),
            ("elsewhere", "[package]\nname = \"p\"\nworkspace = \"../outer\"\n"),
            ("broken", "[workspace"),
        ]);
        folders.root_of("outer/fuzz/src", "outer/fuzz");
        folders.root_of("outer/tools/kept/src", "outer");
        folders.root_of("outer/crates/a", "outer");
        folders.root_of("elsewhere/src", "elsewhere/../outer");
        folders.root_of("broken/src", "broken");
    }
}
