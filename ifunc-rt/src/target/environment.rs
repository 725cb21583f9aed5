//! Sizes that the environment gives to targets whose program chose none: `IFUNC_CREDITS` and `IFUNC_RING`.
//!
//! With the smallest that can be, 2 and 65536, every test of a program waits for credits, wraps around and travels in
//! fragments where it otherwise hardly ever does.

use super::TargetError;

/// What [`credits`](crate::TargetBuilder::credits) sets.
pub(super) const CREDITS: &str = "IFUNC_CREDITS";
/// What [`ring`](crate::TargetBuilder::ring) sets.
pub(super) const RING: &str = "IFUNC_RING";

/// What the variable says; `None` if it is not set.
///
/// # Errors
/// It is no number of 32 bits. Whether a ring of that size can be is judged where the builder's own numbers are.
pub(super) fn number(name: &'static str) -> Result<Option<u32>, TargetError> {
    std::env::var_os(name)
        .map(|value| parse(name, &value.to_string_lossy()))
        .transpose()
}

fn parse(name: &'static str, value: &str) -> Result<u32, TargetError> {
    value.trim().parse().map_err(|_| TargetError::Environment {
        name,
        value: value.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_nothing_else() {
        assert_eq!(parse(CREDITS, "2").unwrap(), 2);
        assert_eq!(parse(RING, " 65536\n").unwrap(), 65536);
        for value in ["", "two", "-2", "4294967296", "64k"] {
            let said = parse(CREDITS, value).unwrap_err().to_string();
            assert!(said.contains(&format!("IFUNC_CREDITS={value}")), "{said}");
        }
    }
}
