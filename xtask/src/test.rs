//! `cargo xtask test`

use std::fs;
use std::path::{Path, PathBuf};

use crate::again;
use crate::bench;
use crate::build_time;
use crate::corpus;
use crate::debian;
use crate::faults;
use crate::instructions;
use crate::launcher;
use crate::soak;
use crate::steps::{Steps, cargo, ifunc, last_line, output};
use crate::text_search;
use crate::two_hosts;
use crate::ucx_bindings;

const NEEDS: &str = "what the tests need";
/// How many files the database example is shown with.
const MANY: usize = 1000;

/// What the examples are run over: UCX where it was installed.
pub(crate) fn transports() -> &'static [&'static str] {
    const ALL: [&str; 4] = ["shm", "loopback", "ucx", "ucx-put"];
    &ALL[..if debian::is_debian() { 4 } else { 2 }]
}

/// Those of them that cross between processes.
pub(crate) fn between_processes() -> impl Iterator<Item = &'static str> {
    transports().iter().copied().filter(|name| *name != "loopback")
}

/// What must be there first.
pub(crate) fn needs(steps: &mut Steps) {
    steps.step(NEEDS, debian::ensure);
}

/// Everything that a test can say.
pub(crate) fn run(steps: &mut Steps) {
    if !steps.step(NEEDS, debian::ensure) {
        return;
    }
    let mut tests = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    if debian::is_debian() {
        // It was installed: a test that does not find it fails.
        tests.env("IFUNC_REQUIRE_UCX", "1");
    }
    steps.tests("tests", &mut tests);
    if debian::is_debian() {
        steps.tests(
            "UCX, linked",
            &mut cargo(["test", "--package", "ucx-sys", "--features", "link", "--locked"]),
        );
    }
    again::brief(steps);
    ucx_bindings::check_if_possible(steps);
    corpus::run(steps);
    faults::quick(steps);
    for &transport in transports() {
        steps.step(&format!("01-hello over {transport}"), || {
            let said = output(&mut ifunc(&["run", "01-hello", "--transport", transport])?)?;
            Ok(last_line(&said))
        });
    }
    for &transport in transports() {
        steps.step(&format!("02-compressed-insert over {transport}"), || {
            let folder = many_files()?;
            let folder = folder.to_str().ok_or("the folder's name is not UTF-8")?;
            let said = output(&mut ifunc(&[
                "run",
                "02-compressed-insert",
                "--transport",
                transport,
                "--",
                folder,
            ])?)?;
            let verified = said
                .lines()
                .find_map(|line| line.split_once("verified ").map(|(_, rest)| rest));
            let verified = verified.ok_or("the example did not say `verified N files`")?;
            Ok(format!("{verified} of {folder}"))
        });
    }
    for &transport in transports() {
        steps.step(&format!("03-text-search over {transport}"), || {
            text_search::beside_grep(transport)
        });
    }
    steps.step("a short soak", || soak::run(&["--quick".to_owned()]));
    steps.step("every figure, briefly", bench::quick);
    instructions::run(steps);
    launcher::run(steps);
    two_hosts::quick(steps);
    build_time::run(steps);
}

/// A folder with at least [`MANY`] real files: the C headers, which are there wherever there is a C compiler, or what
/// else a machine has many of.
fn many_files() -> Result<PathBuf, String> {
    let mut folders: Vec<PathBuf> = [
        "/usr/include",
        "/usr/share/perl",
        "/usr/share/doc",
        "/usr/share/zoneinfo",
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect();
    folders.push(crate::target().join("debug/deps"));
    folders
        .into_iter()
        .find(|folder| count(folder, MANY) >= MANY)
        .ok_or_else(|| format!("no folder with {MANY} files was found"))
}

/// Readable regular files below `folder`; counting ends at `enough`.
fn count(folder: &Path, enough: usize) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files += count(&entry.path(), enough.saturating_sub(files)),
            Ok(kind) if kind.is_file() => files += usize::from(fs::File::open(entry.path()).is_ok()),
            _ => {}
        }
        if files >= enough {
            break;
        }
    }
    files
}
