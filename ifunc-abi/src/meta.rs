//! Records that the attributes emit for the builder, in section
//! [`META_SECTION`](crate::symbols::META_SECTION).
//!
//! A record is UTF-8 text that ends with a NUL byte: `key value` lines, the first of which names the record's
//! kind. An object file may have several such sections, and a section may hold several records, one after the
//! other.
//!
//! ```text
//! ifunc 1                 import 1
//! name add                symbol insert
//! crate hello_ifuncs      crate hello_ifuncs
//! payload u64             signature fn insert(&opaque store/1,&[u8])->i32
//! target u64
//! answer u64
//! align 8
//! flags idempotent pinned shared
//! ```

/// The record of one `#[ifunc]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfuncRecord<'a> {
    /// The ifunc's name; `NAME_main` is its entry.
    pub name: &'a str,
    /// Crate (with underscores) that defines it.
    pub crate_name: &'a str,
    /// Text of the payload type, codec included.
    pub payload: &'a str,
    /// Text of the target type.
    pub target: &'a str,
    /// Text of the answer type.
    pub answer: &'a str,
    /// Alignment of the payload in bytes.
    pub align: u32,
    /// Whether a source may send an invocation again when it does not know whether the first attempt ran.
    pub idempotent: bool,
    /// Whether the function's address outlives the invocation (a callback, a thread). The target never evicts
    /// such an image.
    pub pinned: bool,
    /// Whether the ifunc takes the target arguments by shared reference, so that several serving threads may
    /// run it at the same time.
    pub shared: bool,
}

/// The record of one function of an `#[ifunc::import]` block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportRecord<'a> {
    /// Symbol that the image imports.
    pub symbol: &'a str,
    /// Crate (with underscores) that declares it.
    pub crate_name: &'a str,
    /// Text of its signature.
    pub signature: &'a str,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An injected function.
    Ifunc(IfuncRecord<'a>),
    /// A host function that an injected function may call.
    Import(ImportRecord<'a>),
}

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// The record is not UTF-8.
    #[error("a record of section `.ifunc.meta` is not UTF-8")]
    NotText,
    /// Attributes of another SDK version wrote the record.
    #[error(
        "section `.ifunc.meta` holds a record of another SDK version; help: use one version of `ifunc` and `cargo-ifunc`"
    )]
    Version,
    /// A line is missing or malformed.
    #[error("a record of section `.ifunc.meta` has no valid line `{0}`")]
    Field(&'static str),
}

/// Iterates over the records of one section, in order.
pub fn records(section: &[u8]) -> impl Iterator<Item = Result<Record<'_>, MetaError>> {
    section
        .split(|&byte| byte == 0)
        .filter(|record| !record.is_empty())
        .map(parse)
}

fn parse(record: &[u8]) -> Result<Record<'_>, MetaError> {
    let text = core::str::from_utf8(record).map_err(|_| MetaError::NotText)?;
    let field = |key: &'static str| {
        text.lines()
            .find_map(|line| match line.split_once(' ') {
                Some((k, value)) if k == key => Some(value),
                None if line == key => Some(""),
                _ => None,
            })
            .ok_or(MetaError::Field(key))
    };
    match text.lines().next() {
        Some("ifunc 1") => {
            let flags = field("flags")?;
            let has = |flag: &str| flags.split(' ').any(|f| f == flag);
            let name = field("name")?;
            if !crate::name::is_valid(name) {
                return Err(MetaError::Field("name"));
            }
            Ok(Record::Ifunc(IfuncRecord {
                name,
                crate_name: field("crate")?,
                payload: field("payload")?,
                target: field("target")?,
                answer: field("answer")?,
                align: field("align")?.parse().map_err(|_| MetaError::Field("align"))?,
                idempotent: has("idempotent"),
                pinned: has("pinned"),
                shared: has("shared"),
            }))
        }
        Some("import 1") => Ok(Record::Import(ImportRecord {
            symbol: field("symbol")?,
            crate_name: field("crate")?,
            signature: field("signature")?,
        })),
        _ => Err(MetaError::Version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_macros_write() {
        let section = b"ifunc 1\nname add\ncrate hello\npayload u64\ntarget u64\nanswer u64\nalign 8\nflags shared\n\0\0import 1\nsymbol put\ncrate hello\nsignature fn put(u64)\n\0";
        let all: [_; 2] = {
            let mut it = records(section);
            [it.next().unwrap().unwrap(), it.next().unwrap().unwrap()]
        };
        assert!(
            matches!(all[0], Record::Ifunc(r) if r.name == "add" && r.shared && !r.pinned && r.align == 8)
        );
        assert!(matches!(all[1], Record::Import(r) if r.signature == "fn put(u64)"));
        assert_eq!(records(b"ifunc 9\n\0").next(), Some(Err(MetaError::Version)));
    }

    #[test]
    fn a_line_without_a_value_is_of_its_own_key_alone() {
        let section = b"import 1\nweak\nsymbol put\ncrate\nsignature fn put(u64)\n\0";
        let record = records(section).next().unwrap();
        assert!(matches!(record, Ok(Record::Import(r)) if (r.symbol, r.crate_name) == ("put", "")));
        let missing = b"import 1\nsymbols put\ncrate hello\nsignature fn put(u64)\n\0";
        assert_eq!(records(missing).next(), Some(Err(MetaError::Field("symbol"))));
    }
}
