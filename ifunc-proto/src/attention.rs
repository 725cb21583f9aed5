//! Why the next submission cannot take the fast path.

/// A set of reasons. The fast path tests all of them in one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attention(u8);

impl Attention {
    pub(crate) const NONE: Self = Self(0);
    /// Something waits to be sent: a body in fragments, calls to send again or to cancel, handles to release, a batch that is
    /// closing.
    pub(crate) const BACKLOG: Self = Self(1);
    /// A batch is open.
    pub(crate) const BATCH: Self = Self(2);
    /// The link carries invocations both ways, which bounds the calls under way.
    pub(crate) const DUPLEX: Self = Self(4);
    /// Reports were not taken.
    pub(crate) const REPORTS: Self = Self(8);
    /// Calls ended, or the driver set it: the driver has something to do after the submission.
    pub(crate) const DRIVER: Self = Self(32);
    /// There is no link.
    pub(crate) const UNLINKED: Self = Self(16);

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether nothing but the bound of a duplex link keeps a submission from the fast path.
    #[inline]
    pub(crate) fn is_none_but_duplex(self) -> bool {
        self.0 & !Self::DUPLEX.0 == 0
    }

    #[inline]
    pub(crate) fn has(self, reason: Self) -> bool {
        self.0 & reason.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, reason: Self, is_set: bool) {
        if is_set {
            self.0 |= reason.0;
        } else {
            self.0 &= !reason.0;
        }
    }
}
