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

#[cfg(test)]
mod tests {
    use super::Attention;

    #[test]
    fn a_set_has_what_was_set_and_nothing_else() {
        let all = [
            Attention::BACKLOG,
            Attention::BATCH,
            Attention::DUPLEX,
            Attention::REPORTS,
            Attention::DRIVER,
            Attention::UNLINKED,
        ];
        assert!(Attention::NONE.is_none() && Attention::NONE.is_none_but_duplex());
        for first in all {
            for second in all {
                let mut set = Attention::NONE;
                // To set a reason twice is to set it once.
                for reason in [first, second, first] {
                    set.set(reason, true);
                }
                for reason in all {
                    assert_eq!(set.has(reason), reason == first || reason == second);
                }
                let is_duplex = (first, second) == (Attention::DUPLEX, Attention::DUPLEX);
                assert!(!set.is_none() && set.is_none_but_duplex() == is_duplex);
                set.set(second, false);
                assert_eq!(set.has(first), first != second);
                assert!(!set.has(second));
                for _ in 0..2 {
                    set.set(first, false);
                    assert_eq!(set, Attention::NONE);
                }
            }
        }
    }
}
