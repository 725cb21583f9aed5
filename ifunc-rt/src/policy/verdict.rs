//! What a check of the host's says of an image.

use super::Allowance;

/// What a check says of an image: see [`Policy::accept_if`](crate::Policy::accept_if). `true` accepts it, `false` refuses it without a reason.
#[derive(Clone, Debug)]
pub struct Verdict(pub(super) Result<Option<Allowance>, Option<String>>);

impl Verdict {
    /// Accepts the image.
    #[must_use]
    pub fn accept() -> Self {
        Self(Ok(None))
    }

    /// Accepts the image. Its memory and its invocations count against this allowance, beside the quotas of its connection and of the
    /// [`Grant`](crate::Grant) by which it runs.
    #[must_use]
    pub fn accept_within(allowance: &Allowance) -> Self {
        Self(Ok(Some(allowance.clone())))
    }

    /// Refuses the image. The source receives the reason, and the target logs it.
    #[must_use]
    pub fn refuse(why: impl Into<String>) -> Self {
        Self(Err(Some(why.into())))
    }
}

impl From<bool> for Verdict {
    fn from(accepted: bool) -> Self {
        Self(if accepted { Ok(None) } else { Err(None) })
    }
}
