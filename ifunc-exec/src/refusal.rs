//! Why an image is not installed.

use std::sync::Arc;

use ifunc_abi::status::Rejection;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_bounded() {
        let long = "ä".repeat(5000);
        assert!(Refusal::new(Rejection::Policy, &long).detail.len() <= Refusal::MAX_DETAIL);
        let many = Refusal::listing(
            Rejection::MissingImport,
            std::iter::repeat_n("x".repeat(1000), 1000),
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
