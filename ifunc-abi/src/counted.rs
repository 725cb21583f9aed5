//! Numbers of things in messages.

use core::fmt;

/// A number of things: `1 image`, `2 images`.
#[derive(Clone, Copy, Debug)]
pub struct Counted<N>(pub N, pub &'static str);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Counted<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        let plural = if *count == N::from(1) { "" } else { "s" };
        write!(f, "{count} {noun}{plural}")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::Counted;

    #[test]
    fn one_thing_is_singular() {
        let texts = [0u64, 1, 2].map(|count| std::format!("{}", Counted(count, "image")));
        assert_eq!(texts, ["0 images", "1 image", "2 images"]);
    }
}
