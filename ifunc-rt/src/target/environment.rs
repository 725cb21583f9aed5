//! Sizes from the environment, for targets whose program sets none: `IFUNC_CREDITS` and `IFUNC_RING`.
//!
//! With the smallest sizes, 2 and 65536, every test of a program waits for credit, wraps around and sends fragments,
//! which are otherwise rare.

use super::TargetError;

/// Variable for [`credits`](crate::TargetBuilder::credits).
pub(super) const CREDITS: &str = "IFUNC_CREDITS";
/// Variable for [`ring`](crate::TargetBuilder::ring).
pub(super) const RING: &str = "IFUNC_RING";

/// The variable's number; `None` if it is not set.
///
/// # Errors
/// The value is no number of 32 bits. The builder checks later whether a ring may have that size.
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
            let message = parse(CREDITS, value).unwrap_err().to_string();
            assert!(message.contains(&format!("IFUNC_CREDITS={value}")), "{message}");
        }
    }
}
