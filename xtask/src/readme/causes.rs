//! Every error of the index is caused by a test, which names it.

use std::fs;
use std::path::{Path, PathBuf};

use super::BOOK;

/// Packages whose code that names errors causes none: tools, and models of what may happen.
const NO_TESTS: [&str; 3] = ["benches", "simulate", "xtask"];

/// An entry of the index.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// Its line, from 1.
    line: usize,
    /// What a test writes: `TargetError::Listen`, or the name of a type or of a C constant.
    name: String,
}

/// The entries of the index.
fn entries(index: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut title = "";
    for (number, line) in index.lines().enumerate() {
        if let Some(section) = line.strip_prefix("## ") {
            title = section;
        }
        let row = line.strip_prefix("| `").and_then(|row| row.split_once("` |"));
        let Some((entry, _)) = row.filter(|_| !title.is_empty()) else {
            continue;
        };
        let name = match title.rsplit("::").next() {
            Some(of) if !of.contains(' ') => format!("{of}::{entry}"),
            _ => entry.to_owned(),
        };
        entries.push(Entry {
            line: number + 1,
            name,
        });
    }
    entries
}

/// Whether the text has the name, and not a part of a longer one.
fn has_name(text: &str, name: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_of_name) && !text[at + name.len()..].starts_with(is_of_name))
}

/// The test code of a source file, and the modules of files of their own that are tests.
fn test_modules(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut code, mut modules) = (Vec::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let attribute = line.trim_start();
        if attribute != "#[cfg(test)]" && !attribute.starts_with("#[cfg(all(test") {
            continue;
        }
        let Some(item) = lines.find(|line| !line.trim_start().starts_with("#[")) else {
            break;
        };
        let indentation = &item[..item.len() - item.trim_start().len()];
        if let Some(name) = item.trim_start().strip_suffix(';') {
            modules.extend(name.rsplit(' ').next().filter(|_| name.contains("mod ")));
        } else if item.ends_with('{') {
            let end = format!("{indentation}}}");
            code.extend(lines.by_ref().take_while(|line| *line != end));
        }
    }
    (code, modules)
}

/// Adds the test code of a folder, without comments. `is_test`: all of it is.
fn gather(folder: &Path, is_test: bool, code: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_test = is_test || name.starts_with("tests");
        if entry.file_type().unwrap().is_dir() {
            let is_built = path == crate::root().join("target") || path.join("CACHEDIR.TAG").exists();
            if !name.starts_with('.') && !is_built && !NO_TESTS.contains(&name.as_str()) {
                gather(&path, is_test, code);
            }
        } else if [".rs", ".c", ".h"].iter().any(|end| name.ends_with(end)) {
            let text = fs::read_to_string(&path).unwrap();
            if is_test {
                add(code, text.lines());
                continue;
            }
            let (lines, modules) = test_modules(&text);
            add(code, lines);
            for module in modules {
                let file = module_file(&path, module);
                if let Ok(text) = fs::read_to_string(file) {
                    add(code, text.lines());
                }
            }
        }
    }
}

fn add<'t>(code: &mut String, lines: impl IntoIterator<Item = &'t str>) {
    for line in lines {
        if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
}

/// The file of a module that a file declares.
fn module_file(declared_in: &Path, module: &str) -> PathBuf {
    let beside = ["mod.rs", "lib.rs", "main.rs"].map(|name| declared_in.with_file_name(name));
    match beside.iter().any(|file| file == declared_in) {
        true => declared_in.with_file_name(format!("{module}.rs")),
        false => declared_in.with_extension("").join(format!("{module}.rs")),
    }
}

#[test]
fn every_error_is_caused_by_a_test() {
    let file = Path::new(BOOK).join("errors.md");
    let index = fs::read_to_string(crate::root().join(&file)).unwrap();
    let mut code = String::new();
    gather(crate::root(), false, &mut code);
    let entries = entries(&index);
    assert!(entries.len() > 200, "{}", entries.len());
    let without: Vec<String> = entries
        .iter()
        .filter(|entry| !has_name(&code, &entry.name))
        .map(|entry| format!("{}:{}: `{}`", file.display(), entry.line, entry.name))
        .collect();
    assert!(
        without.is_empty(),
        "no test names\n{}\nhelp: write a test that causes the error and asserts the variant and what the message says, in the package that \
         returns it; delete an error that cannot occur, and its row",
        without.join("\n")
    );
}

#[test]
fn entries_are_named_as_tests_name_them() {
    let index = "| you see | section |\n| `x` | y |\n\n## a::keys::KeyError\n\n| error | when |\n|---|---|\n| `Form` | It. |\n\n\
                 ## Errors of one value\n| `NotAllSent` | It. |\n## C: ifunc_status\n| `IFUNC_STATUS_OK` | It. |\n## Rule\n| `Hidden` | It. |\n";
    let names: Vec<_> = entries(index)
        .into_iter()
        .map(|entry| (entry.line, entry.name))
        .collect();
    let expected = [
        (8, "KeyError::Form"),
        (11, "NotAllSent"),
        (13, "IFUNC_STATUS_OK"),
        (15, "Rule::Hidden"),
    ];
    assert_eq!(names, expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn a_name_is_a_whole_word() {
    assert!(has_name("Err(ConnectError::Io { .. })", "ConnectError::Io"));
    assert!(!has_name("Err(ConnectError::IoUring)", "ConnectError::Io"));
    assert!(!has_name("Err(SourceError::Io)", "Error::Io"));
    assert!(has_name("matches!(e, crate::Error::Io)", "Error::Io"));
}

#[test]
fn test_modules_are_found_within_files_and_beside_them() {
    let text = "fn a() { Error::A }\n#[cfg(test)]\nmod far;\n#[cfg(all(test, not(loom)))]\n#[expect(x)]\nmod tests {\n    Error::B\n    {\n    }\n}\n\
                impl X {\n    #[cfg(test)]\n    fn only() {\n        Error::C\n    }\n    Error::D\n}\n#[cfg(test)]\nuse std::fs;\n";
    let (code, modules) = test_modules(text);
    assert_eq!(code, ["    Error::B", "    {", "    }", "        Error::C"]);
    assert_eq!(modules, ["far"]);
    assert_eq!(module_file(Path::new("s/mod.rs"), "far"), Path::new("s/far.rs"));
    assert_eq!(
        module_file(Path::new("s/near.rs"), "far"),
        Path::new("s/near/far.rs")
    );
    let mut code = String::new();
    add(&mut code, ["// Error::A", "Error::B // or Error::C"]);
    assert_eq!(code, "Error::B // or Error::C\n");
}
