//! The build tools: rustc, cargo and a C compiler.

use std::path::Path;

use super::finding::{Finding, output_of};

/// The oldest supported rustc, from this crate's manifest.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");
const RUSTUP: &str = "install Rust: `curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh`";
const COMPILER: &str = "install a C compiler: `apt-get install gcc libc6-dev` (Debian), `dnf install gcc` (Fedora); or name one in `CC`";

pub(super) fn checks() -> Vec<Finding> {
    let version = output_of(&from_env("RUSTC", "rustc"), ["-vV"]);
    let mut findings = vec![rustc(version.as_deref())];
    if let Some(host) = version.as_deref().and_then(host) {
        findings.push(standard_library(host));
    }
    findings.push(cargo(
        output_of(&from_env("CARGO", "cargo"), ["--version"]).as_deref(),
    ));
    let cc = from_env("CC", "cc");
    let compiler = c_compiler(&cc, output_of(&cc, ["--version"]).as_deref());
    let found = compiler.help.is_none();
    findings.push(compiler);
    if found {
        findings.push(shared_library(&cc, links(&cc)));
        findings.push(libgcc(output_of(&cc, ["-print-libgcc-file-name"]).as_deref()));
    }
    findings
}

fn from_env(variable: &str, default: &str) -> String {
    std::env::var(variable)
        .ok()
        .filter(|value| !value.trim().is_empty())
        .unwrap_or_else(|| default.into())
}

/// `1.95` of `1.95.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn host(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("host: "))
}

/// Checks the output of `rustc -vV`.
fn rustc(text: Option<&str>) -> Finding {
    let Some(text) = text else {
        return Finding::missing("rustc", "does not start", RUSTUP);
    };
    let first = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("rustc ");
    let host = host(text).unwrap_or("unknown host");
    let found = format!("{first}, {host}");
    if version(first) < version(OLDEST) {
        return Finding::missing(
            "rustc",
            found,
            format!("rustc {OLDEST} or newer is needed: `rustup update stable`"),
        );
    }
    if !(host.starts_with("x86_64-") || host.starts_with("aarch64-")) || !host.contains("linux") {
        return Finding::missing("rustc", found, "ifuncs are built on Linux, on x86-64 or AArch64");
    }
    Finding::ok("rustc", found)
}

/// Checks for `core` of the host, which every image contains.
fn standard_library(host: &str) -> Finding {
    let name = "rust-std";
    match has_core(host) {
        true => Finding::ok(name, format!("core of {host}")),
        false => Finding::missing(
            name,
            format!("no `core` for {host}"),
            format!("`rustup target add {host}`"),
        ),
    }
}

/// Whether rustc has `core` for a target triple.
pub(super) fn has_core(triple: &str) -> bool {
    let folder = output_of(
        &from_env("RUSTC", "rustc"),
        ["--print", "target-libdir", "--target", triple],
    );
    std::fs::read_dir(folder.unwrap_or_default().trim())
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

/// Checks the output of `cargo --version`.
fn cargo(text: Option<&str>) -> Finding {
    match text {
        Some(text) => Finding::ok("cargo", text.trim().trim_start_matches("cargo ")),
        None => Finding::missing("cargo", "does not start", RUSTUP),
    }
}

/// Checks the output of `cc --version`.
fn c_compiler(cc: &str, text: Option<&str>) -> Finding {
    match text {
        Some(text) => {
            let first = text.lines().next().unwrap_or_default().trim();
            Finding::ok("C compiler", format!("`{cc}`: {first}"))
        }
        None => Finding::missing("C compiler", format!("`{cc}` does not start"), COMPILER),
    }
}

/// Links a shared library from a file that includes the headers of C ifuncs.
pub(super) fn links(cc: &str) -> Result<(), String> {
    let work = tempfile::tempdir().map_err(|e| format!("no temporary directory: {e}"))?;
    let file = work.path().join("probe.c");
    std::fs::write(
        &file,
        "#include <stddef.h>\n#include <stdint.h>\nint probe(uint8_t *p, size_t n) { return p[n]; }\n",
    )
    .map_err(|e| format!("`{}` cannot be written: {e}", file.display()))?;
    let mut words = cc.split_whitespace();
    let mut command = std::process::Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(["-shared", "-fPIC", "-o"]);
    command.arg(work.path().join("probe.so")).arg(&file);
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(stderr
            .lines()
            .find(|line| line.contains("error"))
            .unwrap_or("it fails")
            .trim()
            .to_owned()),
    }
}

fn shared_library(cc: &str, result: Result<(), String>) -> Finding {
    match result {
        Ok(()) => Finding::ok("C library", "has headers and links shared libraries"),
        Err(reason) => Finding::missing(
            "C library",
            format!("`{cc} -shared` fails: {reason}"),
            "install the headers of the C library and a linker: `apt-get install libc6-dev binutils` (Debian), `dnf install glibc-devel binutils` (Fedora)",
        ),
    }
}

/// Checks the output of `cc -print-libgcc-file-name`.
fn libgcc(text: Option<&str>) -> Finding {
    let path = text.map(str::trim).unwrap_or_default();
    match Path::new(path).is_absolute() && Path::new(path).is_file() {
        true => Finding::ok("libgcc", path),
        false => Finding::warning(
            "libgcc",
            "the C compiler reports none",
            "C ifuncs that divide 128-bit integers or compute with `long double` or `_Float128` need it: `apt-get install libgcc-12-dev` (the version of your compiler)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    const GOOD: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(version("1.95.0 (x)"), Some((1, 95)));
        assert_eq!(version("1.100.0-beta.1"), Some((1, 100)));
        assert!(version("1.100.0") > version("1.95.0"));
        assert_eq!(version("nonsense"), None);
    }

    #[test]
    fn an_old_rustc_is_missing() {
        assert_eq!(rustc(Some(GOOD)).mark, Mark::Ok);
        assert_eq!(
            rustc(Some(GOOD)).found,
            "1.95.0 (59807616e 2026-04-14), x86_64-unknown-linux-gnu"
        );
        let old = rustc(Some(&GOOD.replace("1.95", "1.94")));
        assert_eq!(old.mark, Mark::Missing);
        assert!(old.help.is_some_and(|help| help.contains("rustup update")));
        assert_eq!(rustc(None).mark, Mark::Missing);
        assert_eq!(
            rustc(Some(&GOOD.replace("x86_64", "riscv64gc"))).mark,
            Mark::Missing
        );
        assert_eq!(rustc(Some(&GOOD.replace("x86_64", "aarch64"))).mark, Mark::Ok);
        assert_eq!(
            rustc(Some(&GOOD.replace("unknown-linux-gnu", "apple-darwin"))).mark,
            Mark::Missing
        );
    }

    #[test]
    fn absent_tools_are_missing() {
        assert_eq!(cargo(None).mark, Mark::Missing);
        assert_eq!(c_compiler("no-cc", None).found, "`no-cc` does not start");
        assert_eq!(libgcc(Some("libgcc.a\n")).mark, Mark::Warning);
        assert_eq!(libgcc(None).mark, Mark::Warning);
        let fails = shared_library("cc", Err("fatal error: stdint.h: No such file".into()));
        assert_eq!(fails.mark, Mark::Missing);
        assert!(fails.found.contains("stdint.h"));
    }
}
