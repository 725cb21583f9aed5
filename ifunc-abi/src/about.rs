//! The description that an ifunc library carries beside each image: the canonical texts from which the
//! image's fingerprints are computed.
//!
//! The description stays on the source. When a target refuses an image, the refusal carries the target's
//! texts, and the source prints both.
//!
//! Format: UTF-8, one `key value` line each. `payload TEXT`, `target TEXT` and `answer TEXT` are absent for C
//! ifuncs. One line `import SYMBOL SIGNATURE` follows for every import whose signature is known. `convention
//! bound|max-size` names the argument order of `X_payload_init`.

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

    fn field(&self, key: &str) -> Option<&'a str> {
        self.text
            .lines()
            .find_map(|line| line.split_once(' ').filter(|(k, _)| *k == key).map(|(_, v)| v))
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

    /// Signature that the image was built against for `symbol`.
    #[must_use]
    pub fn import(&self, symbol: &str) -> Option<&'a str> {
        self.text.lines().find_map(|line| {
            let (name, signature) = line.strip_prefix("import ")?.split_once(' ')?;
            (name == symbol).then_some(signature)
        })
    }
}
