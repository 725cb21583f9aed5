//! From the bytes of an image to code that can be called.

pub(crate) mod cache;
pub(crate) mod install;
pub(crate) mod names;

use ifunc_abi::status::Rejection;

/// An image that was not installed: the reason and what the source is told beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Rejection,
    pub(crate) detail: String,
}

impl Refusal {
    pub(crate) fn new(reason: Rejection, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}
