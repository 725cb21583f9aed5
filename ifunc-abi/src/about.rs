//! The description that an ifunc library carries beside each image: the canonical texts from which the
//! image's fingerprints are computed.
//!
//! The description stays on the source. When a target refuses an image, the refusal carries the target's
//! texts, and the source prints both.
//!
//! Format: UTF-8, one `key value` line each. A line `entry NAME` begins the lines of each entry of the image: `payload TEXT`, `target
//! TEXT` and `answer TEXT`, which are absent for C ifuncs, and `convention bound|max-size`, the argument order of
//! `X_payload_init`. One line `import SYMBOL SIGNATURE` follows for every import whose signature is known.

/// A view of a description.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    text: &'a str,
}

impl<'a> About<'a> {
    /// Views `bytes`; `None` if they are not UTF-8.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        core::str::from_utf8(bytes).ok().map(|text| Self { text })
    }

    /// The description of an entry.
    #[must_use]
    pub fn entry(&self, name: &str) -> AboutEntry<'a> {
        let lines = || {
            self.text.split_inclusive('\n').scan(0, |at, line| {
                *at += line.len();
                Some((*at, line.strip_prefix("entry ").map(str::trim_end)))
            })
        };
        let begin = lines().find_map(|(at, begins)| (begins == Some(name)).then_some(at));
        let text = begin.and_then(|begin| self.text.get(begin..)).unwrap_or_default();
        AboutEntry { text }
    }

    /// Signature that the image was built against for `symbol`.
    #[must_use]
    pub fn import(&self, symbol: &str) -> Option<&'a str> {
        self.text.lines().find_map(|line| {
            let (name, signature) = line.strip_prefix("import ")?.split_once(' ')?;
            (name == symbol).then_some(signature)
        })
    }
}

/// A view of the description of one entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct AboutEntry<'a> {
    /// Begins with its lines; what follows them is of others.
    text: &'a str,
}

impl<'a> AboutEntry<'a> {
    fn field(&self, key: &str) -> Option<&'a str> {
        self.text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .take_while(|(k, _)| *k != "entry")
            .find_map(|(k, value)| (k == key).then_some(value))
    }

    /// Text of the payload type.
    #[must_use]
    pub fn payload(&self) -> Option<&'a str> {
        self.field("payload")
    }

    /// Text of the target type.
    #[must_use]
    pub fn target(&self) -> Option<&'a str> {
        self.field("target")
    }

    /// Text of the answer type.
    #[must_use]
    pub fn answer(&self) -> Option<&'a str> {
        self.field("answer")
    }

    /// Which argument order `X_payload_init` has: `bound` or `max-size` (see [`symbols`](crate::symbols)).
    #[must_use]
    pub fn convention(&self) -> Option<&'a str> {
        self.field("convention")
    }
}

#[cfg(test)]
mod tests {
    use super::About;

    #[test]
    fn entries_have_lines_of_their_own() {
        let text =
            b"entry add\npayload u64\ntarget u16\nanswer u8\nentry visit\nconvention bound\nimport put fn put(u64)\n";
        let about = About::new(text).unwrap();
        let (add, visit) = (about.entry("add"), about.entry("visit"));
        assert_eq!((add.payload(), add.answer()), (Some("u64"), Some("u8")));
        assert_eq!((add.convention(), add.target()), (None, Some("u16")));
        assert_eq!((visit.payload(), visit.target()), (None, None));
        assert_eq!(visit.convention(), Some("bound"));
        assert_eq!(about.entry("ad").payload(), None);
        assert_eq!(about.import("put"), Some("fn put(u64)"));
    }
}
