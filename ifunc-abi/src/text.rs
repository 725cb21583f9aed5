//! Canonical texts of types and signatures, composed at compile time.
//!
//! A source and a target agree on a type when their texts are equal. At run time they compare the
//! [`Fingerprint`] of the text; on a mismatch, the error prints both texts. The grammar by example:
//!
//! ```text
//! u64                                          a primitive
//! struct Point{0:x:f64,8:y:f64}[16,8]          fixed layout: offset:field:type, then [size,align]
//! enum Color:u8{Red=1,Green=7}[1,1]            an enum of fixed layout
//! enum KvError:i32{..}                         an enum that may grow, where it crosses as an integer
//! [u8;16]                                      an array
//! [f64]                                        elements in place, up to the end of the payload
//! (u8,Option<f64>,Vec<u16>)                    fixed layouts behind each other; `Vec`: the number of elements (u64) first
//! parts(str,[f64],u64)                         the lengths of several parts, then the parts
//! postcard struct Record{key:str,value:bytes}  a serde shape (no offsets)
//! postcard enum Tree{Leaf,Node([^Tree])}       `^`: the type around it of this name
//! raw bytes, raw str                           raw payloads
//! opaque store/1                               a type accessed only through host functions
//! interface Kv                                 any type of the host that exports this interface
//! fn insert(&opaque store/1,&[u8],&[u8])->Result<(),i32>
//! fn Kv_scan(&self,&[u8],&mut FnMut(&[u8])->ControlFlow<()>)
//! unsafe fn printf(*const i8,...)->i32         an `unsafe` function takes what C takes
//! static HITS:atomic u64                       a variable
//! ```
//!
//! [`Fingerprint`]: crate::Fingerprint

/// Longest text in bytes. A longer text is a compile error at the type.
pub const MAX_TEXT: usize = 4096;

/// A string of bounded length that `const` code can build.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; MAX_TEXT],
    len: usize,
}

impl Text {
    /// The empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; MAX_TEXT],
            len: 0,
        }
    }

    /// This text followed by `s`.
    ///
    /// # Panics
    /// When the text gets longer than [`MAX_TEXT`] (in `const` code: a compile error).
    #[must_use]
    pub const fn str(mut self, s: &str) -> Self {
        let s = s.as_bytes();
        assert!(
            self.len + s.len() <= MAX_TEXT,
            "the description of this type is longer than 4096 bytes"
        );
        let mut i = 0;
        while i < s.len() {
            self.bytes[self.len] = s[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    /// This text followed by `n` in decimal.
    #[must_use]
    pub const fn number(self, n: usize) -> Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut n = n;
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let (_, digits) = digits.split_at(at);
        match core::str::from_utf8(digits) {
            Ok(s) => self.str(s),
            Err(_) => self,
        }
    }

    /// This text followed by `other`.
    #[must_use]
    pub const fn text(self, other: &Text) -> Self {
        self.str(other.as_str())
    }

    /// The text.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.len);
        match core::str::from_utf8(text) {
            Ok(s) => s,
            // `str` appends whole strings only.
            Err(_) => "",
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the text is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The text as an array, for a `static` of exactly its length.
    ///
    /// # Panics
    /// When `N` is not [`len`](Self::len).
    #[must_use]
    pub const fn to_array<const N: usize>(&self) -> [u8; N] {
        assert!(N == self.len, "the array is not as long as the text");
        let mut out = [0; N];
        let mut i = 0;
        while i < N {
            out[i] = self.bytes[i];
            i += 1;
        }
        out
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Text {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl core::fmt::Display for Text {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn composes_in_const_code() {
        const INNER: Text = Text::new().str("u").number(64);
        const T: Text = Text::new()
            .str("struct P{")
            .number(0)
            .str(":x:")
            .text(&INNER)
            .str("}");
        static BYTES: [u8; T.len()] = T.to_array();
        assert_eq!(T.as_str(), "struct P{0:x:u64}");
        assert_eq!(&BYTES, b"struct P{0:x:u64}");
    }

    #[test]
    fn only_a_text_without_characters_is_empty() {
        assert!(Text::new().is_empty() && !Text::new().str("a").is_empty());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn a_text_is_shown_as_it_is() {
        assert_eq!(
            alloc::format!("{}", Text::new().str("[u8;").number(16).str("]")),
            "[u8;16]"
        );
    }
}
