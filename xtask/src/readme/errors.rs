//! The index of errors has an entry for every variant that a program can meet, and the book names only settings that exist.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BOOK, entries};

/// The crates whose errors users meet.
const CRATES: [&str; 8] = [
    "ifunc",
    "ifunc-abi",
    "ifunc-exec",
    "ifunc-proto",
    "ifunc-rt",
    "ifunc-test",
    "ifunc-build",
    "ifunc-link",
];

/// Types that no user meets: other errors contain their text.
const INTERNAL: [&str; 14] = [
    "ArenaError",
    "AssemblyError",
    "Closed",
    "Difference",
    "FrameError",
    "HelloError",
    "InputError",
    "LinkError",
    "Lost",
    "MalformedFrame",
    "MetaError",
    "SetupError",
    "SlicesError",
    "UnknownSignature",
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("cannot read `{}`: {why}", path.display()))
}

/// The Rust files of a folder, without tests.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with("tests") {
                sources(&path, files);
            }
        } else if name.ends_with(".rs") && !name.starts_with("tests") {
            files.push(path);
        }
    }
}

/// An error type: its name and its variants; a struct is its own only variant.
#[derive(Debug, PartialEq, Eq)]
struct ErrorType {
    name: String,
    variants: Vec<String>,
}

/// The public error types of a file: those that derive `Error` or implement it, and the tables of `reasons!`.
fn error_types(text: &str) -> Vec<ErrorType> {
    let lines: Vec<&str> = text.lines().collect();
    let mut types = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_enum = line.strip_prefix("pub enum ");
        let Some(rest) = is_enum.or_else(|| line.strip_prefix("pub struct ")) else {
            continue;
        };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        let derives = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("#[") || line.starts_with("///") || line.starts_with(' '))
            .any(|line| line.starts_with("#[derive(") && line.contains("Error"));
        let implements = ["Error", "core::error::Error", "std::error::Error"]
            .iter()
            .any(|of| text.contains(&format!("impl {of} for {name}")));
        // The rules of the linker are the reasons of one error.
        if !derives && !implements && name != "Rule" {
            continue;
        }
        let variants = match is_enum.is_some() {
            true => names(&lines[at + 1..], 4, "}"),
            false => vec![name.clone()],
        };
        types.push(ErrorType { name, variants });
    }
    if let Some(at) = lines.iter().position(|line| line.starts_with("reasons! {")) {
        for (from, line) in lines.iter().enumerate().skip(at) {
            let rest = line.strip_prefix("    ").and_then(|line| line.strip_suffix(" {"));
            if let Some(name) = rest.filter(|name| name.chars().all(char::is_alphabetic)) {
                types.push(ErrorType {
                    name: name.into(),
                    variants: names(&lines[from + 1..], 8, "    }"),
                });
            }
        }
    }
    types
}

/// The names that stand at this indentation, up to the line `end`.
fn names(lines: &[&str], indentation: usize, end: &str) -> Vec<String> {
    lines
        .iter()
        .take_while(|line| **line != end)
        .filter_map(|line| line.strip_prefix(&" ".repeat(indentation)))
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect())
        .collect()
}

/// The entries of a section of the index: what the first cell of each row names.
fn section(index: &str, is_it: impl Fn(&str) -> bool) -> Vec<&str> {
    index
        .split("\n## ")
        .filter(|section| is_it(section.lines().next().unwrap_or_default()))
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(entry, _)| entry)
        .collect()
}

#[test]
fn every_error_has_an_entry() {
    let index = read(&crate::root().join(BOOK).join("errors.md"));
    let mut missing = Vec::new();
    let mut files = Vec::new();
    for krate in CRATES {
        sources(&crate::root().join(krate).join("src"), &mut files);
    }
    let mut entries = 0;
    for file in &files {
        for ErrorType { name, variants } in error_types(&read(file)) {
            if INTERNAL.contains(&name.as_str()) {
                continue;
            }
            let krate = file.strip_prefix(crate::root()).unwrap().components().next();
            let krate = krate.unwrap().as_os_str().to_string_lossy().replace('-', "_");
            let known = section(&index, |title| match title.rsplit_once("::") {
                // A type that another crate defines, and one re-exports, has the section of the latter.
                Some((path, last)) => {
                    let of = path.split("::").next();
                    last == name
                        && (of == Some(&krate) || !matches!(krate.as_str(), "ifunc_rt" | "ifunc_build"))
                }
                None => title == name || title == "Errors of one value",
            });
            for variant in variants {
                entries += 1;
                if !known.contains(&variant.as_str()) && !known.contains(&name.as_str()) {
                    missing.push(format!("{krate} {name}: {variant}"));
                }
            }
        }
    }
    assert!(entries > 200, "{entries}");
    let header = read(&crate::root().join("ifunc-capi/include/ifunc_rt.h"));
    let known = section(&index, |title| title.starts_with("C: "));
    let statuses = header
        .lines()
        .map(str::trim)
        .filter_map(|line| line.split_once(" = "));
    for (status, _) in statuses.filter(|(name, _)| name.starts_with("IFUNC_STATUS_")) {
        if !known.contains(&status) {
            missing.push(status.into());
        }
    }
    assert!(
        missing.is_empty(),
        "docs/book/src/errors.md has no entry for\n{}\nhelp: add a row to the section of its type",
        missing.join("\n")
    );
}

/// The types whose settings the book names.
const SETTINGS: [&str; 7] = [
    "Policy",
    "Quotas",
    "Grant",
    "SourceOptions",
    "TargetBuilder",
    "Target",
    "Source",
];

#[test]
fn the_book_names_settings_that_exist() {
    let mut files = Vec::new();
    sources(&crate::root().join("ifunc-rt/src"), &mut files);
    let text: String = files.iter().map(|file| read(file)).collect();
    let mut unknown = Vec::new();
    for chapter in entries(BOOK).unwrap() {
        let page = read(&crate::root().join(BOOK).join(&chapter));
        for code in page.split('`').skip(1).step_by(2) {
            let Some((of, rest)) = code.split_once("::") else {
                continue;
            };
            let name: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let exists = || {
                [
                    format!("fn {name}("),
                    format!("fn {name}<"),
                    format!("pub {name}:"),
                ]
                .iter()
                .any(|form| text.contains(form.as_str()))
            };
            if SETTINGS.contains(&of) && !exists() {
                unknown.push(format!("{chapter}: `{code}`"));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn variants_are_found() {
    let text = "#[derive(Debug, thiserror::Error)]\npub enum E {\n    /// A.\n    #[error(\"a\")]\n    A(u8),\n    B {\n        C: u8,\n    },\n}\n";
    let found = error_types(text);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].variants, ["A", "B"]);
}
