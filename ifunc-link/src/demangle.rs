//! Names of symbols as in the source: Rust and C++.

use std::fmt;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Maximum length of a demangled name in bytes. A mangled name can demangle to an exponentially longer one.
const LONGEST: usize = 4096;
/// Maximum nesting of C++ names; names that compilers write nest less.
const DEEPEST: u32 = 96;

/// The name as in the source. A name that is not mangled, or that would be too long, is returned unchanged.
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
        // Each pair holds the previous one twice.
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
