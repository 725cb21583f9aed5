//! What compilers and build scripts left word of in the folder that the inner cargo built in.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::environment::is_set_for_scripts;
use crate::make_rule::prerequisites;

/// What compilations depend on.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    pub(super) files: BTreeSet<PathBuf>,
    pub(super) variables: BTreeSet<String>,
    /// Packages, as `NAME`, whose build script says of nothing when it is to run again: cargo looks at all their files.
    pub(super) silent: BTreeSet<String>,
}

/// Reads what lies in a target directory. What an earlier build left there is looked at too: too much is watched then,
/// never too little. `folders_of` says where packages of a name lie: paths of their build scripts begin there.
pub(super) fn read(target: &Path, folders_of: impl Fn(&str) -> Vec<PathBuf>) -> Compiled {
    let mut compiled = Compiled::default();
    // `PROFILE` for what runs while compiling, `TRIPLE/PROFILE` for what travels.
    let outer = children(target);
    let inner = outer.iter().flat_map(|folder| children(folder));
    for profile in outer.iter().cloned().chain(inner) {
        // `libNAME.d`: every file of the workspace and of folders that the archive was made of, as cargo says it.
        // `deps/NAME-HASH.d`: what the compiler read of one crate, and the variables.
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
    /// `# env-dep:NAME=VALUE`, without `=VALUE` if it was not set: what `env!` and `option_env!` asked for.
    fn variables(&mut self, rule: &str) {
        for line in rule.lines() {
            if let Some(asked) = line.strip_prefix("# env-dep:") {
                let name = asked.split_once('=').map_or(asked, |(name, _)| name);
                self.variable(name);
            }
        }
    }

    /// What cargo sets for one crate is no news from outside.
    fn variable(&mut self, name: &str) {
        if !is_set_for_scripts(name) {
            self.variables.insert(name.into());
        }
    }

    /// What a build script told cargo.
    fn script(&mut self, package: &str, output: &str, folders: &[PathBuf]) {
        let mut silent = true;
        for line in output.lines() {
            let said = line
                .strip_prefix("cargo::")
                .or_else(|| line.strip_prefix("cargo:"));
            let Some((key, value)) = said.and_then(|said| said.split_once('=')) else {
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
    fn what_compilers_and_scripts_say_is_heard() {
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
            "x86_64-unknown-linux-gnu/ifunc/build/mine-0123/output",
            "cargo::rerun-if-changed=table.csv\ncargo:rerun-if-env-changed=SIZE\ncargo::rustc-cfg=big\n",
        );
        write("ifunc/build/two-words-0123/output", "cargo::rustc-cfg=x\nhello\n");
        // The script itself, compiled: it has no output.
        write("ifunc/build/other-0123/build-script-build", "");

        let compiled = super::read(target.path(), |name| match name {
            "mine" => vec![PathBuf::from("/w")],
            _ => Vec::new(),
        });
        assert_eq!(compiled.variables, names(["OF_A_MACRO", "SIZE", "TAG", "UNSET"]));
        assert_eq!(compiled.silent, names(["two-words"]));
        let files = ["/w/src/lib.rs", "/w/t.txt", "/w/table.csv"].map(PathBuf::from);
        assert_eq!(compiled.files, BTreeSet::from(files));
    }
}
