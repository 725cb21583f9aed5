//! Compares the text search example with `grep`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::examples::Setting;

/// The least size of the text.
const ENOUGH: u64 = 30_000_000;
/// The patterns: a word that occurs in several cases, and a regular expression.
const PATTERNS: [&str; 2] = ["error", "^#define +[A-Z_]+ +0x[0-9a-f]+$"];

/// Runs the example and compares every line that it finds with those of `grep`. Returns the example's line about how much it
/// searched and how much came back.
pub(crate) fn beside_grep(setting: Setting<'_>) -> Result<String, String> {
    let folder = crate::scratch().join("text-search");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
    let text = folder.join("text");
    make_text(&text).map_err(|e| format!("cannot write `{}`: {e}", text.display()))?;
    let name = |path: &Path| {
        path.to_str()
            .map(str::to_owned)
            .ok_or("a folder's name is not UTF-8")
    };
    let (text_name, folder_name) = (name(&text)?, name(&folder)?);

    let mut notes = Vec::new();
    for pattern in PATTERNS {
        let said = setting.run("03-text-search", &[&text_name, pattern, &folder_name])?;
        let sums = said
            .lines()
            .filter_map(|line| line.split_once("searched ").map(|(_, rest)| rest));
        notes.extend(sums.map(str::to_owned));
        for (ifunc, flags) in [("search", &["-E"][..]), ("search_folded", &["-F", "-i"])] {
            let lines = equal_lines(&folder.join(ifunc).with_extension("txt"), &text, pattern, flags)?;
            eprintln!(
                "    {ifunc}: the {lines} lines that `grep -n {}` finds",
                flags.join(" ")
            );
        }
    }
    match notes.len() == 2 * PATTERNS.len() {
        true => Ok(notes.swap_remove(0)),
        false => Err("the example did not say `searched N` once for each search".into()),
    }
}

/// Writes C headers, one after the other, until the text is large enough.
fn make_text(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.len() >= ENOUGH) {
        return Ok(());
    }
    let mut headers = Vec::new();
    find_headers(Path::new("/usr/include"), &mut headers);
    headers.sort();
    let mut all = Vec::new();
    for header in headers {
        // Unreadable headers are left out.
        all.extend(fs::read(header).unwrap_or_default());
        if all.len() as u64 >= ENOUGH {
            break;
        }
    }
    if all.is_empty() {
        return Err(io::Error::other("there are no C headers below `/usr/include`"));
    }
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    let mut written = 0;
    while written < ENOUGH {
        file.write_all(&all)?;
        written += all.len() as u64;
    }
    fs::rename(new, path)
}

fn find_headers(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find_headers(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Compares the file with the output of `grep -n`. Returns the number of lines.
fn equal_lines(found: &Path, text: &Path, pattern: &str, flags: &[&str]) -> Result<usize, String> {
    let mut grep = Command::new("grep");
    grep.args(["-n", "-a"])
        .args(flags)
        .args(["-e", pattern])
        .arg(text);
    // `grep` treats all bytes above ASCII as no letters.
    grep.env("LC_ALL", "C").stdin(Stdio::null());
    let expected = grep.output().map_err(|e| format!("`grep` does not start: {e}"))?;
    // Exit code 1: no line matches.
    if !matches!(expected.status.code(), Some(0 | 1)) {
        return Err(format!("`grep`: {}", expected.status));
    }
    let found = fs::read(found).map_err(|e| format!("cannot read `{}`: {e}", found.display()))?;
    if found == expected.stdout {
        return Ok(found.iter().filter(|&&byte| byte == b'\n').count());
    }
    let lines = |bytes: &[u8]| {
        bytes
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = (lines(&found), lines(&expected.stdout));
    let first = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    let at = first.unwrap_or(ours.len().min(theirs.len()));
    let shown = |lines: &[Vec<u8>]| {
        lines
            .get(at)
            .map(|line| String::from_utf8_lossy(line).into_owned())
    };
    Err(format!(
        "for `{pattern}` we find `{}` where `grep {}` finds `{}`",
        shown(&ours).unwrap_or_default(),
        flags.join(" "),
        shown(&theirs).unwrap_or_default()
    ))
}
