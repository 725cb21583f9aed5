//! Valid names of a project.

use crate::error::Failure;

/// Names that a crate cannot have: keywords, the standard crates, and the crates of ifunc.
const TAKEN: &[&str] = &[
    "Self",
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "ifunc",
    "ifunc_rt",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];
/// The host package's library and its binaries are separate crates.
const BINARIES: &[&str] = crate::workspace::HOST_BINS.as_slice();

/// Checks that `name` is valid for a package, a crate and a part of an address.
pub(super) fn check(name: &str) -> Result<(), Failure> {
    let refuse = |why: String| {
        let help =
            "use a name like `hello` or `my-counter`: letters, digits, `-` and `_`, with a leading letter";
        Err(Failure::Usage(format!(
            "`{name}` cannot name a project: {why}\nhelp: {help}"
        )))
    };
    let Some(first) = name.chars().next() else {
        return refuse("it is empty or not UTF-8".into());
    };
    if !first.is_ascii_alphabetic() {
        return refuse(format!("it begins with `{first}`"));
    }
    if let Some(other) = name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "-_".contains(*c)))
    {
        return refuse(format!("it contains `{other}`"));
    }
    if name.len() > 48 {
        return refuse("it is longer than 48 bytes".into());
    }
    let krate = name.replace('-', "_");
    if TAKEN.contains(&&*krate) {
        return refuse("it is a Rust keyword or a crate that the project needs".into());
    }
    if BINARIES.contains(&&*krate) {
        return refuse("one of the project's binaries has this name".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn refuses_names_that_cargo_refuses() {
        for good in ["hello", "my-counter", "a1", "A_b"] {
            assert!(check(good).is_ok(), "{good}");
        }
        let long = "a".repeat(49);
        for bad in [
            "", "1st", "-a", "_a", "a.b", "fn", "self", "std", "ifunc", "ifunc-rt", "target", "both", "é",
            &long,
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
