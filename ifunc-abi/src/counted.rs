//! Numbers of things in messages.

use core::fmt;

/// A number of things: `1 image`, `2 images`; `1 entry`, `2 entries`.
#[derive(Clone, Copy, Debug)]
pub struct Counted<N>(pub N, pub &'static str);

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Counted<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        match noun
            .strip_suffix('y')
            .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']))
        {
            _ if *count == N::from(1) => write!(f, "{count} {noun}"),
            Some(stem) => write!(f, "{count} {stem}ies"),
            None => write!(f, "{count} {noun}s"),
        }
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
        let texts =
            ["entry", "key"].map(|noun| std::format!("{}, {}", Counted(1u64, noun), Counted(2u64, noun)));
        assert_eq!(texts, ["1 entry, 2 entries", "1 key, 2 keys"]);
    }
}
