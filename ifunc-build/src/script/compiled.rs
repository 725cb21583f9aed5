//! The dependencies that compilers and build scripts recorded in the target directory of the inner cargo.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::environment::is_set_for_scripts;
use crate::cargo::OWN_FLAGS;
use crate::make_rule::prerequisites;

/// The dependencies of compilations.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    pub(super) files: BTreeSet<PathBuf>,
    pub(super) variables: BTreeSet<String>,
    /// Packages whose build script prints no `rerun-if`: cargo then watches all their files.
    pub(super) silent: BTreeSet<String>,
}

/// Reads the records in a target directory. Records of earlier builds count too: that can only add watched files.
/// `folders_of` returns the folders of the packages of a name, to which paths of their build scripts are relative.
pub(super) fn read(target: &Path, folders_of: impl Fn(&str) -> Vec<PathBuf>) -> Compiled {
    let mut compiled = Compiled::default();
    // `PROFILE` holds what runs at compile time, `TRIPLE/PROFILE` what travels. A package with flags of its own has both in a folder
    // of theirs.
    let mut outer = children(target);
    let is_of_flags = |folder: &&PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(OWN_FLAGS)
    };
    let of_flags: Vec<PathBuf> = outer.iter().filter(is_of_flags).cloned().collect();
    outer.extend(of_flags.iter().flat_map(|folder| children(folder)));
    let inner = outer.iter().flat_map(|folder| children(folder));
    for profile in outer.iter().cloned().chain(inner) {
        // `libNAME.d`: every local file that the archive was made of, from cargo. `deps/NAME-HASH.d`: the files and
        // variables that the compiler read for one crate.
        for file in children(&profile) {
            if is_rule(&file) {
                compiled.files.extend(prerequisites(&text(&file)));
            }
        }
        for file in children(&profile.join("deps")) {
            if is_rule(&file) {
                compiled.variables(&text(&file));
            }
        }
        for folder in children(&profile.join("build")) {
            let output = folder.join("output");
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if let Some((name, _hash)) = name.rsplit_once('-')
                && output.exists()
            {
                compiled.script(name, &text(&output), &folders_of(name));
            }
        }
    }
    compiled
}

impl Compiled {
    /// `# env-dep:NAME=VALUE`, without `=VALUE` if it was not set: the variables of `env!` and `option_env!`.
    fn variables(&mut self, rule: &str) {
        for line in rule.lines() {
            if let Some(asked) = line.strip_prefix("# env-dep:") {
                let name = asked.split_once('=').map_or(asked, |(name, _)| name);
                self.variable(name);
            }
        }
    }

    /// Variables that cargo sets for one crate are not inputs.
    fn variable(&mut self, name: &str) {
        if !is_set_for_scripts(name) {
            self.variables.insert(name.into());
        }
    }

    /// The output of a build script for cargo.
    fn script(&mut self, package: &str, output: &str, folders: &[PathBuf]) {
        let mut silent = true;
        for line in output.lines() {
            let instruction = line
                .strip_prefix("cargo::")
                .or_else(|| line.strip_prefix("cargo:"));
            let Some((key, value)) = instruction.and_then(|instruction| instruction.split_once('=')) else {
                continue;
            };
            match key {
                "rerun-if-changed" => self
                    .files
                    .extend(folders.iter().map(|folder| folder.join(value.trim()))),
                "rerun-if-env-changed" => self.variable(value.trim()),
                _ => continue,
            }
            silent = false;
        }
        if silent {
            self.silent.insert(package.into());
        }
    }
}

fn is_rule(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "d")
}

fn text(file: &Path) -> String {
    let bytes = fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(Into::into).into()
    }

    #[test]
    fn records_of_compilers_and_scripts_are_read() {
        let target = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = target.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "x86_64-unknown-linux-gnu/ifunc/libmine.d",
            "/t/libmine.a: /w/src/lib.rs /w/t.txt\n",
        );
        write(
            "x86_64-unknown-linux-gnu/ifunc/deps/mine-0123.d",
            "/t/mine.d: src/lib.rs\n\nsrc/lib.rs:\n\n# env-dep:CARGO_PKG_NAME=mine\n# env-dep:TAG=a=b\n# env-dep:UNSET\n",
        );
        write("ifunc/deps/macros-0123.d", "# env-dep:OF_A_MACRO\n");
        write(
            "flags-01234567/x86_64-unknown-linux-gnu/ifunc/deps/own-0123.d",
            "# env-dep:WITH_FLAGS\n",
        );
        write(
            "x86_64-unknown-linux-gnu/ifunc/build/mine-0123/output",
            "cargo::rerun-if-changed=table.csv\ncargo:rerun-if-env-changed=SIZE\ncargo::rustc-cfg=big\n",
        );
        write("ifunc/build/two-words-0123/output", "cargo::rustc-cfg=x\nhello\n");
        // The compiled script itself has no output.
        write("ifunc/build/other-0123/build-script-build", "");

        let compiled = super::read(target.path(), |name| match name {
            "mine" => vec![PathBuf::from("/w")],
            _ => Vec::new(),
        });
        assert_eq!(
            compiled.variables,
            names(["OF_A_MACRO", "SIZE", "TAG", "UNSET", "WITH_FLAGS"])
        );
        assert_eq!(compiled.silent, names(["two-words"]));
        let files = ["/w/src/lib.rs", "/w/t.txt", "/w/table.csv"].map(PathBuf::from);
        assert_eq!(compiled.files, BTreeSet::from(files));
    }
}
