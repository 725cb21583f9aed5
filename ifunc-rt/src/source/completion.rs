//! What came back, and what it means in words.

use ifunc_proto::link::Body as _;
use std::fmt;

use ifunc::payload::DecodeError;
use ifunc_abi::frame::INLINE;
use ifunc_abi::status::{Failure, PanicDetail, Rejection, Status};

use super::error::Error;
use super::library::Library;
use crate::transport::Body;

/// What a target reported of a request.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) status: Status,
    body: Bytes,
}

/// Answers are small most of the time.
enum Bytes {
    Inline(u8, [u8; INLINE]),
    Heap(Vec<u8>),
}

impl Completion {
    pub(super) fn new(status: Status, body: &Body<'_>) -> Self {
        let body = if body.len() <= INLINE {
            let mut bytes = [0; INLINE];
            body.copy_to(&mut bytes[..body.len()]);
            Bytes::Inline(body.len() as u8, bytes)
        } else {
            let mut bytes = Vec::new();
            body.append_to(&mut bytes);
            Bytes::Heap(bytes)
        };
        Self { status, body }
    }

    pub(super) fn executed() -> Self {
        Self {
            status: Status::Executed,
            body: Bytes::Inline(0, [0; INLINE]),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.body {
            Bytes::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }

    /// The handle that a report is about, and the report as a completion.
    pub(super) fn split_report(&self) -> (u32, Self) {
        let (handle, detail) = self.bytes().split_first_chunk().unwrap_or((&[0xff; 4], &[]));
        (
            u32::from_le_bytes(*handle),
            Self {
                status: self.status,
                body: Bytes::Heap(detail.to_vec()),
            },
        )
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(len, _) => write!(f, "{len} bytes"),
            Self::Heap(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// What a completion that is not `Executed` means, in words.
pub(super) fn explain(library: &Library, completion: &Completion) -> Error {
    let ifunc = library.name.clone();
    let about = library.about();
    let detail = || String::from_utf8_lossy(completion.bytes()).into_owned();
    match completion.status {
        Status::Failed(Failure::Panic) => match PanicDetail::parse(completion.bytes()) {
            Some(panic) => Error::Panic {
                ifunc,
                message: panic.message.to_owned(),
                file: panic.file.to_owned(),
                line: panic.line,
                column: panic.column,
                place: library.describe(&panic.offsets().collect::<Vec<_>>()),
            },
            None => Error::Failed {
                ifunc,
                why: Failure::Panic,
                detail: detail(),
            },
        },
        Status::Failed(why) => Error::Failed {
            ifunc,
            why,
            detail: detail(),
        },
        Status::Rejected(why @ Rejection::TargetType) => {
            let ours = about.target().unwrap_or("(not stated)");
            Error::Rejected {
                ifunc,
                why,
                detail: format!("\n  the image:  {ours}\n  the target: {}", detail()),
            }
        }
        Status::Rejected(why @ Rejection::ImportSignature) => {
            let mut text = String::new();
            for line in detail().lines() {
                let (symbol, theirs) = line.split_once(' ').unwrap_or((line, ""));
                let ours = about.import(symbol).unwrap_or("(not stated)");
                text.push_str(&format!(
                    "\n  `{symbol}`\n    the image:  {ours}\n    the target: {theirs}"
                ));
            }
            Error::Rejected {
                ifunc,
                why,
                detail: text,
            }
        }
        Status::Rejected(why @ Rejection::MissingImport) => Error::Rejected {
            ifunc,
            why,
            detail: explain_missing(&detail()),
        },
        Status::Rejected(why) => Error::Rejected {
            ifunc,
            why,
            detail: detail(),
        },
        // Callers ask only for what did not end well.
        Status::Executed => Error::Answer {
            ifunc,
            error: DecodeError::Invalid,
        },
    }
}

/// The symbols that a target does not provide, and what to do there about them.
fn explain_missing(detail: &str) -> String {
    // A blank parts a symbol from the name of a set that has it; in parentheses stands how many had no room.
    let lines: Vec<(&str, Option<&str>)> = detail
        .lines()
        .map(|line| match line.split_once(' ') {
            Some((symbol, set)) if !line.starts_with('(') => (symbol, Some(set)),
            _ => (line, None),
        })
        .collect();
    let listed = |symbols: &mut dyn Iterator<Item = &str>| {
        let quoted: Vec<String> = symbols.map(|symbol| format!("`{symbol}`")).collect();
        quoted.join(", ")
    };
    let mut text = listed(&mut lines.iter().map(|(symbol, _)| *symbol));
    text.push_str("; help: `#[ifunc::export]` it on the target, or `Target::builder().allow(name, pointer)`");
    let mut sets: Vec<&str> = lines.iter().filter_map(|(_, set)| *set).collect();
    sets.sort_unstable();
    sets.dedup();
    for set in sets {
        let of_it = lines.iter().filter(|(_, of)| *of == Some(set));
        let symbols = listed(&mut of_it.map(|(symbol, _)| *symbol));
        text.push_str(&format!("; help: `allow_set(NamedSet::{set})` has {symbols}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::explain_missing;

    #[test]
    fn missing_symbols_are_sorted_by_who_has_them() {
        assert_eq!(
            explain_missing("f\nprintf Libc\nqsort Libc\n(and 3 more)"),
            "`f`, `printf`, `qsort`, `(and 3 more)`; help: `#[ifunc::export]` it on the target, or \
             `Target::builder().allow(name, pointer)`; help: `allow_set(NamedSet::Libc)` has `printf`, `qsort`"
        );
        assert!(!explain_missing("f").contains("allow_set"));
    }
}
