//! Why an image is not installed, and why an invocation has no answer: a status and the details that the source is sent.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

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

/// An invocation has no answer: the reason, and the detail that the source is sent beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// [`Status::Failed`] or [`Status::Rejected`].
    pub status: Status,
    /// As [`status`](crate::status) defines it for the status.
    pub detail: Vec<u8>,
}

impl From<Refusal> for Box<Failed> {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Box::new(Failed {
            status: Status::Rejected(refusal.reason),
            detail: refusal.detail.as_bytes().to_vec(),
        })
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
}
