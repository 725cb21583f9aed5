//! Names of injected functions.

/// Longest name of an ifunc, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest symbol in an import table, in bytes.
pub const MAX_SYMBOL: usize = 1024;

/// Whether `name` is a valid ifunc name: a C identifier of at most [`MAX_NAME`] bytes, because `NAME_main` is
/// a C symbol.
#[must_use]
pub const fn is_valid(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > MAX_NAME || bytes[0].is_ascii_digit() {
        return false;
    }
    let mut i = 0;
    while i < bytes.len() {
        if !(bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_') {
            return false;
        }
        i += 1;
    }
    true
}

/// Longest soname of a shared library, in bytes: the longest file name on Linux.
pub const MAX_SONAME: usize = 255;

/// Whether `symbol` is valid in an import table: printable ASCII without blanks, at most [`MAX_SYMBOL`]
/// bytes.
#[must_use]
pub const fn is_valid_symbol(symbol: &str) -> bool {
    let bytes = symbol.as_bytes();
    if bytes.is_empty() || bytes.len() > MAX_SYMBOL {
        return false;
    }
    let mut i = 0;
    while i < bytes.len() {
        if !bytes[i].is_ascii_graphic() {
            return false;
        }
        i += 1;
    }
    true
}

/// Whether `soname` is a valid name of a needed library: as [`is_valid_symbol`], at most [`MAX_SONAME`] bytes
/// and without `/`.
#[must_use]
pub const fn is_valid_soname(soname: &str) -> bool {
    let bytes = soname.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == b'/' {
            return false;
        }
        i += 1;
    }
    bytes.len() <= MAX_SONAME && is_valid_symbol(soname)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn names_are_identifiers_of_c() {
        for name in ["a", "_", "Z9", "a_b", "x0", &"a".repeat(255)] {
            assert!(is_valid(name), "{name}");
        }
        for name in [
            "",
            "1",
            "9a",
            "a-b",
            "-a",
            "a-",
            "a b",
            "ä",
            "a.b",
            &"a".repeat(256),
        ] {
            assert!(!is_valid(name), "{name}");
        }
    }

    #[test]
    fn symbols_are_printable_and_sonames_are_no_paths() {
        for symbol in ["a", "!", "~", "_ZN1a1bE", "f@@V_1.2", "1"] {
            assert!(is_valid_symbol(symbol) && is_valid_soname(symbol), "{symbol}");
        }
        for symbol in ["", " ", "a b", "a\n", "\u{7f}", "ä", "a\0"] {
            assert!(!is_valid_symbol(symbol) && !is_valid_soname(symbol), "{symbol}");
        }
        for path in ["/", "a/b", "/a", "a/"] {
            assert!(is_valid_symbol(path) && !is_valid_soname(path), "{path}");
        }
        for (len, is_symbol, is_soname) in [
            (255, true, true),
            (256, true, false),
            (1024, true, false),
            (1025, false, false),
        ] {
            let name = "a".repeat(len);
            assert_eq!(
                (is_valid_symbol(&name), is_valid_soname(&name)),
                (is_symbol, is_soname),
                "{len}"
            );
        }
    }
}
