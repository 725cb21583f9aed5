//! What came back, and what it means in words.

use std::fmt;

use ifunc::payload::DecodeError;
use ifunc_abi::about::About;
use ifunc_abi::frame::INLINE;
use ifunc_abi::status::{Failure, PanicDetail, Rejection, Status};

use super::error::Error;
use crate::transports::Body;

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
            body.copy_to_slice(&mut bytes[..body.len()]);
            Bytes::Inline(body.len() as u8, bytes)
        } else {
            let mut bytes = Vec::new();
            body.copy_to(&mut bytes);
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
pub(super) fn explain(ifunc: &str, about: Option<&About<'_>>, completion: &Completion) -> Error {
    let ifunc = ifunc.to_owned();
    let detail = || String::from_utf8_lossy(completion.bytes()).into_owned();
    match completion.status {
        Status::Failed(Failure::Panic) => match PanicDetail::parse(completion.bytes()) {
            Some(panic) => Error::Panic {
                ifunc,
                message: panic.message.to_owned(),
                file: panic.file.to_owned(),
                line: panic.line,
                column: panic.column,
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
            let ours = about.and_then(About::target).unwrap_or("(not stated)");
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
                let ours = about
                    .and_then(|about| about.import(symbol))
                    .unwrap_or("(not stated)");
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
        Status::Rejected(why @ Rejection::MissingImport) => {
            let symbols: Vec<_> = detail().lines().map(|symbol| format!("`{symbol}`")).collect();
            let help =
                "help: `#[ifunc::export]` it on the target, or `Target::builder().allow(name, pointer)`";
            Error::Rejected {
                ifunc,
                why,
                detail: format!("{}; {help}", symbols.join(", ")),
            }
        }
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
