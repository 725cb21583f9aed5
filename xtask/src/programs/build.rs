//! Builds the test programs and reads from cargo's messages where they are.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::Program;
use crate::process::{WHOLE, cargo, shown};

/// Builds every test program of the workspace.
pub(crate) fn build() -> Result<Vec<Program>, String> {
    let mut command = cargo(["test", "--no-run"]);
    command
        .args(WHOLE)
        .arg("--message-format=json-render-diagnostics");
    let name = shown(&command);
    eprintln!("    {name}");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("`{name}` does not start: {e}"))?;
    let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
    let mut programs = Vec::new();
    if let Some(messages) = child.stdout.take() {
        for line in BufReader::new(messages).lines() {
            let line = line.map_err(|e| format!("cannot read from `{name}`: {e}"))?;
            programs.extend(artifact(&line, &root));
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("cannot wait for `{name}`: {e}"))?;
    match (status.success(), programs.is_empty()) {
        (false, _) => Err(format!("`{name}`: {status}")),
        (true, true) => Err(format!("`{name}` named no test program")),
        (true, false) => Ok(programs),
    }
}

/// The test program that a message of cargo's reports.
fn artifact(message: &str, root: &Path) -> Option<Program> {
    if !message.contains("\"reason\":\"compiler-artifact\"") {
        return None;
    }
    // The target has a `test`, too: whether it has tests.
    let (_, profile) = message.split_once("\"profile\":{")?;
    if !profile.split_once('}')?.0.contains("\"test\":true") {
        return None;
    }
    let executable = PathBuf::from(string(message, "executable")?);
    let source = PathBuf::from(string(message, "src_path")?);
    let manifest = PathBuf::from(string(message, "manifest_path")?);
    Some(Program {
        source: source
            .strip_prefix(root)
            .unwrap_or(&source)
            .to_string_lossy()
            .into_owned(),
        package: package(&string(message, "package_id")?)?.to_owned(),
        folder: manifest.parent()?.to_owned(),
        executable,
    })
}

/// The name in a package id: `path+file:///FOLDER#NAME@VERSION`, or `path+file:///…/NAME#VERSION`.
fn package(id: &str) -> Option<&str> {
    let (url, fragment) = id.split_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

/// The string that a JSON object has under `key`. Cargo writes no blanks between them, and none of the keys that are read here
/// twice in one message.
fn string(message: &str, key: &str) -> Option<String> {
    let (_, rest) = message.split_once(&format!("\"{key}\":\""))?;
    let mut text = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next().filter(|c| matches!(c, '"' | '\\' | '/'))?),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Program, artifact, package, string};

    #[test]
    fn a_test_program_is_read_from_its_message() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///c/tests#ifunc-tests@0.1.0","manifest_path":"/c/tests/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"mixed","src_path":"/c/tests/tests/mixed.rs","edition":"2024","test":true},"profile":{"opt_level":"0","debuginfo":"line-tables-only","debug_assertions":true,"overflow_checks":true,"test":true},"features":[],"filenames":["/c/target/debug/deps/mixed-1"],"executable":"/c/target/debug/deps/mixed-1","fresh":true}"#;
        let program = Program {
            source: "tests/tests/mixed.rs".into(),
            package: "ifunc-tests".into(),
            folder: PathBuf::from("/c/tests"),
            executable: PathBuf::from("/c/target/debug/deps/mixed-1"),
        };
        assert_eq!(artifact(message, Path::new("/c")), Some(program.clone()));
        assert_eq!(program.name(), "mixed");
        let of_modules = Program {
            source: "tests/tests/it/main.rs".into(),
            ..program.clone()
        };
        assert_eq!(of_modules.name(), "it");
        // A program that tests start.
        let binary = message.replace(r#""test":true},"features""#, r#""test":false},"features""#);
        assert_ne!(binary, message);
        assert_eq!(artifact(&binary, Path::new("/c")), None);
        // A library that tests link, and the end of the build.
        let library = message.replace(
            r#""executable":"/c/target/debug/deps/mixed-1""#,
            r#""executable":null"#,
        );
        assert_eq!(artifact(&library, Path::new("/c")), None);
        assert_eq!(
            artifact(r#"{"reason":"build-finished","success":true}"#, Path::new("/c")),
            None
        );
    }

    #[test]
    fn a_package_is_named_in_its_id() {
        assert_eq!(
            package("path+file:///c/tests#ifunc-tests@0.1.0"),
            Some("ifunc-tests")
        );
        assert_eq!(package("path+file:///c/ifunc-abi#0.1.0"), Some("ifunc-abi"));
        assert_eq!(package("ifunc-abi"), None);
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(
            string(r#"{"a":"b\"c\\d","e":1}"#, "a").as_deref(),
            Some(r#"b"c\d"#)
        );
        assert_eq!(string(r#"{"a":null}"#, "a"), None);
        assert_eq!(string(r#"{"a":"b"#, "a"), None);
    }
}
