//! Symbols as they stand in the source: Rust's and C++'s.

use std::fmt;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longest name that is shown, in bytes. A mangled name may stand for one that is exponentially longer.
const LONGEST: usize = 4096;
/// How deep names of C++ may nest; compilers are content with less.
const DEEPEST: u32 = 96;

/// The name as it stands in the source; as it is, if it is not mangled or too long when it is not.
pub(crate) fn demangle(symbol: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        let mut out = Bounded::default();
        return match fmt::Write::write_fmt(&mut out, format_args!("{name:#}")) {
            Ok(()) => out.text,
            Err(fmt::Error) => symbol.into(),
        };
    }
    cpp(symbol).unwrap_or_else(|| symbol.into())
}

fn cpp(symbol: &str) -> Option<String> {
    let mangled = ["_Z", "___Z"].iter().any(|prefix| symbol.starts_with(prefix));
    if !mangled || symbol.len() > LONGEST {
        return None;
    }
    let parsed = Symbol::new_with_options(symbol, &ParseOptions::default().recursion_limit(DEEPEST)).ok()?;
    let mut out = Bounded::default();
    let options = DemangleOptions::new().recursion_limit(DEEPEST);
    parsed.structured_demangle(&mut out, &options).ok()?;
    Some(out.text)
}

/// Text up to [`LONGEST`], an error beyond.
#[derive(Default)]
struct Bounded {
    text: String,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_languages_are_shown_as_written() {
        assert_eq!(
            demangle("_ZN4core3fmt9Formatter9write_fmt17h0123456789abcdefE"),
            "core::fmt::Formatter::write_fmt"
        );
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backEOi"),
            "std::vector<int, std::allocator<int> >::push_back(int&&)"
        );
        assert_eq!(demangle("_ZTV5Shape"), "{vtable(Shape)}");
        assert_eq!(demangle("plain_c"), "plain_c");
        assert_eq!(demangle("_Z"), "_Z");
    }

    #[test]
    fn a_name_that_would_be_endless_stays_mangled() {
        // Each pair is made of the one before, twice.
        let mut name = String::from("_Z1fSt4pairIiiE");
        let mut last = String::from("S0_");
        for index in 1..30 {
            name.push_str(&format!("S_I{last}{last}E"));
            last = format!(
                "S{}_",
                std::char::from_digit(index, 36).unwrap().to_ascii_uppercase()
            );
        }
        let shown = demangle(&name);
        assert!(shown.len() <= LONGEST, "{} bytes", shown.len());
        let deep = format!("_Z1f{}i", "P".repeat(3000));
        assert_eq!(demangle(&deep), deep);
        let long = format!("_ZN{}E", "1a".repeat(100_000));
        assert_eq!(demangle(&long), long);
    }
}
