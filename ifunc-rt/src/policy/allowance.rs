//! What several connections may use together.

use std::sync::Arc;

use super::{Meter, Quotas};

/// What several connections may use together, whatever code they send: those of one tenant, for example. A
/// [`Verdict`](crate::Verdict) of [`Policy::accept_if`](crate::Policy::accept_if) states it for each image that it accepts. Clones are the same
/// allowance; it may be used by several targets.
///
/// ```
/// use ifunc_rt::{Allowance, Policy, Quotas, Verdict};
///
/// let ada = Allowance::new("the tenant `ada`", Quotas::UNLIMITED.in_flight(4).invocations_per_second(1000));
/// let policy = Policy::new().accept_if(move |source, _| match source.uid {
///     Some(1001) => Verdict::accept_within(&ada),
///     _ => Verdict::refuse("no tenant of this target has your user"),
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Allowance(Arc<Meter>);

impl Allowance {
    /// An allowance of which nothing is used yet. `whose` begins the message of each refusal.
    #[must_use]
    pub fn new(whose: impl Into<String>, quotas: Quotas) -> Self {
        Self(Meter::new(whose, quotas))
    }

    /// Replaces the quotas, at once. What is used stays used.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.0.set_quotas(quotas);
    }

    /// The quotas.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        self.0.quotas()
    }

    /// The invocations that run now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.0
    }
}
