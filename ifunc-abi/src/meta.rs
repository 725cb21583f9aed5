//! Records that the attributes leave in the section [`META_SECTION`](crate::symbols::META_SECTION) for the builder.
//!
//! A record is text: `key value` lines, the first of which names its kind, ended by a NUL byte. Records of one object
//! file may stand in one section or in many; a section may hold several, one behind the other.
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

/// What one `#[ifunc]` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfuncRecord<'a> {
    /// The ifunc's name; `NAME_main` is its entry.
    pub name: &'a str,
    /// Crate (with underscores) whose source holds it.
    pub crate_name: &'a str,
    /// Text of the payload type, codec included.
    pub payload: &'a str,
    /// Text of the target type.
    pub target: &'a str,
    /// Text of the answer type.
    pub answer: &'a str,
    /// Alignment of the payload in bytes.
    pub align: u32,
    /// May be run again when nobody knows whether it ran.
    pub idempotent: bool,
    /// Its address outlives the invocation (a callback, a thread): never evicted.
    pub pinned: bool,
    /// Takes the target arguments by shared reference: may run on several serving threads at once.
    pub shared: bool,
}

/// What one function of an `#[ifunc::import]` block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportRecord<'a> {
    /// Symbol that the image leaves undefined.
    pub symbol: &'a str,
    /// Crate that declares it.
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
    /// The SDK that made the record speaks another version.
    #[error(
        "section `.ifunc.meta` holds a record of another SDK version; help: use one version of `ifunc` and `cargo-ifunc`"
    )]
    Version,
    /// A line is missing or does not parse.
    #[error("a record of section `.ifunc.meta` lacks or garbles `{0}`")]
    Field(&'static str),
}

/// The records of one section's bytes, in order.
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
}
