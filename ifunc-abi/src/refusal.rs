//! Why an image is not installed, and why an invocation has no answer: a status and the details that the source is sent.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::status::{Rejection, Status};

/// An image is not installed: the reason, and the detail that the source is sent beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the completion.
    pub reason: Rejection,
    /// Shared: every frame that names the refused image completes with it.
    pub detail: Arc<str>,
}

impl Refusal {
    /// Longest detail in bytes: a peer chooses names and counts, but not how much is reported about them.
    const MAX_DETAIL: usize = 4096;

    /// With a detail, cut to a bounded length.
    pub fn new(reason: Rejection, detail: impl AsRef<str>) -> Self {
        let detail = detail.as_ref();
        let end = detail.floor_char_boundary(Self::MAX_DETAIL);
        Self {
            reason,
            detail: detail[..end].into(),
        }
    }

    /// With one line for each item, as many as fit.
    pub fn listing(reason: Rejection, items: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut detail = String::new();
        let mut more = 0;
        for item in items {
            let item = item.as_ref();
            if more > 0 || detail.len() + item.len() > Self::MAX_DETAIL - 32 {
                more += 1;
                continue;
            }
            if !detail.is_empty() {
                detail.push('\n');
            }
            detail.push_str(item);
        }
        if more > 0 {
            detail.push_str(&format!("\n(and {more} more)"));
        }
        Self::new(reason, detail)
    }
}

/// Bytes of an answer in memory of its own.
pub trait AnswerBytes: fmt::Debug + Send + Sync {
    /// The answer.
    fn bytes(&self) -> &[u8];
}

impl AnswerBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// An invocation left no answer in the memory that it was lent: why, and the detail that the source is sent beside it. Or its answer
/// is too long for that memory, and lies elsewhere.
#[derive(Debug)]
pub struct Failed {
    /// [`Status::Failed`] or [`Status::Rejected`]; [`Status::Executed`] if there is an answer.
    pub status: Status,
    /// As [`status`](crate::status) defines it for the status.
    pub detail: Vec<u8>,
    /// The answer of an invocation that ended well.
    pub answer: Option<Box<dyn AnswerBytes>>,
}

impl Failed {
    /// An invocation without an answer.
    #[must_use]
    pub fn new(status: Status, detail: Vec<u8>) -> Self {
        Self {
            status,
            detail,
            answer: None,
        }
    }

    /// An invocation that ended well, with an answer in memory of its own.
    #[must_use]
    pub fn answered(answer: Box<dyn AnswerBytes>) -> Self {
        Self {
            status: Status::Executed,
            detail: Vec::new(),
            answer: Some(answer),
        }
    }
}

impl PartialEq for Failed {
    fn eq(&self, other: &Self) -> bool {
        let answer = |failed: &'_ Self| failed.answer.as_ref().map(|answer| answer.bytes().to_vec());
        (self.status, &self.detail, answer(self)) == (other.status, &other.detail, answer(other))
    }
}

impl From<Refusal> for Box<Failed> {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Box::new(Failed::new(
            Status::Rejected(refusal.reason),
            refusal.detail.as_bytes().to_vec(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_bounded() {
        let long = "ä".repeat(5000);
        assert!(Refusal::new(Rejection::Policy, &long).detail.len() <= Refusal::MAX_DETAIL);
        let many = Refusal::listing(
            Rejection::MissingImport,
            core::iter::repeat_n("x".repeat(1000), 1000),
        );
        assert!(
            many.detail.len() <= Refusal::MAX_DETAIL && many.detail.ends_with("(and 996 more)"),
            "{}",
            many.detail
        );
        assert_eq!(
            &*Refusal::listing(Rejection::MissingImport, ["a", "b"]).detail,
            "a\nb"
        );
    }

    #[test]
    fn failures_are_equal_by_all_that_they_state() {
        let failed = |status, detail: &[u8]| Failed::new(status, detail.to_vec());
        let status = Status::Rejected(Rejection::Policy);
        assert!(failed(status, b"a") == failed(status, b"a"));
        assert!(failed(status, b"a") != failed(status, b"b"));
        assert!(failed(status, b"a") != failed(Status::Rejected(Rejection::Quota), b"a"));
        let answered = |bytes: &[u8]| Failed::answered(Box::new(bytes.to_vec()));
        assert!(answered(b"a") == answered(b"a") && answered(b"a") != answered(b"b"));
        assert!(answered(b"a") != failed(Status::Executed, b""));
    }

    #[test]
    fn a_list_that_was_cut_says_so_whatever_fits() {
        for len in Refusal::MAX_DETAIL - 64..=Refusal::MAX_DETAIL {
            let items = ["x".repeat(len), "y".repeat(40)];
            let detail = Refusal::listing(Rejection::MissingImport, items).detail;
            assert!(detail.ends_with(" more)"), "{len}");
        }
    }

    #[test]
    fn the_length_of_a_list_is_exact() {
        let list = |items: &[String]| Refusal::listing(Rejection::MissingImport, items).detail;
        let most = Refusal::MAX_DETAIL - 32;
        assert_eq!(list(&["x".repeat(most)]).len(), most);
        assert_eq!(&*list(&["x".repeat(most + 1)]), "\n(and 1 more)");
        // After an item that does not fit, none is listed, so that the number is of the last ones.
        let items = [String::from("first"), "x".repeat(most), String::from("last")];
        assert_eq!(&*list(&items), "first\n(and 2 more)");
    }
}
