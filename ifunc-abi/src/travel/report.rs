//! How the invocations of a scope ended.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

/// A failure inside a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeFailure {
    /// The node on which it happened.
    pub node: u32,
    /// Why.
    pub status: Status,
    /// As [`status`](crate::status) defines it for the status, cut to [`MAX_DETAIL`](Self::MAX_DETAIL) bytes.
    pub detail: Vec<u8>,
}

impl ScopeFailure {
    /// Most bytes of a detail.
    pub const MAX_DETAIL: usize = 256;
}

/// How the invocations of a scope, or of a part of it, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeReport {
    /// Invocations that succeeded.
    pub executed: u64,
    /// Invocations that failed, or were not started.
    pub failed: u64,
    /// Nodes that were lost while invocations may have been under way on them: the scope is incomplete.
    pub lost: Vec<u32>,
    /// The first failures.
    pub failures: Vec<ScopeFailure>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    executed: U64,
    failed: U64,
    lost: U16,
    failures: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FailureHead {
    node: U32,
    status: U32,
    len: U16,
}

impl ScopeReport {
    /// Most failures that are kept.
    pub const MAX_FAILURES: usize = 32;
    /// Most lost nodes that are named.
    pub const MAX_LOST: usize = 64;
    /// Length of a report that names no failure and no lost node.
    pub const MIN_SIZE: usize = size_of::<Head>();

    /// Whether it states nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds a failure.
    pub fn fail(&mut self, node: u32, status: Status, detail: &[u8]) {
        self.failed += 1;
        if self.failures.len() < Self::MAX_FAILURES {
            let detail = detail[..detail.len().min(ScopeFailure::MAX_DETAIL)].to_vec();
            self.failures.push(ScopeFailure { node, status, detail });
        }
    }

    /// Adds a node that was lost.
    pub fn lose(&mut self, node: u32) {
        if !self.lost.contains(&node) && self.lost.len() < Self::MAX_LOST {
            self.lost.push(node);
        }
    }

    /// Adds what another report states.
    pub fn add(&mut self, other: &Self) {
        self.executed = self.executed.saturating_add(other.executed);
        self.failed = self.failed.saturating_add(other.failed);
        other.lost.iter().for_each(|&node| self.lose(node));
        let room = Self::MAX_FAILURES.saturating_sub(self.failures.len());
        self.failures.extend(other.failures.iter().take(room).cloned());
    }

    /// Appends the report: at most `max` bytes, but at least [`MIN_SIZE`](Self::MIN_SIZE). Failures that do not fit are
    /// left out, and then lost nodes.
    pub fn encode_to(&self, out: &mut Vec<u8>, max: usize) {
        let mut left = max.saturating_sub(Self::MIN_SIZE);
        let lost = self.lost.len().min(Self::MAX_LOST).min(left / size_of::<U32>());
        left -= lost * size_of::<U32>();
        let size = |failure: &ScopeFailure| {
            size_of::<FailureHead>() + failure.detail.len().min(ScopeFailure::MAX_DETAIL)
        };
        let mut failures = 0;
        for failure in self.failures.iter().take(Self::MAX_FAILURES) {
            let Some(rest) = left.checked_sub(size(failure)) else {
                break;
            };
            left = rest;
            failures += 1;
        }
        let head = Head {
            executed: U64::new(self.executed),
            failed: U64::new(self.failed),
            lost: U16::new(lost as u16),
            failures: U16::new(failures as u16),
        };
        out.extend_from_slice(head.as_bytes());
        for &node in &self.lost[..lost] {
            out.extend_from_slice(U32::new(node).as_bytes());
        }
        for failure in &self.failures[..failures] {
            let detail = &failure.detail[..failure.detail.len().min(ScopeFailure::MAX_DETAIL)];
            let head = FailureHead {
                node: U32::new(failure.node),
                status: U32::new(failure.status.code()),
                len: U16::new(detail.len() as u16),
            };
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(detail);
        }
    }

    /// Parses a report, which fills the whole body. `None`: it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (head, mut rest) = Head::read_from_prefix(body).ok()?;
        let (lost, failures) = (usize::from(head.lost.get()), usize::from(head.failures.get()));
        if lost > Self::MAX_LOST || failures > Self::MAX_FAILURES {
            return None;
        }
        let mut report = Self {
            executed: head.executed.get(),
            failed: head.failed.get(),
            ..Self::default()
        };
        for _ in 0..lost {
            let (node, after) = U32::read_from_prefix(rest).ok()?;
            report.lost.push(node.get());
            rest = after;
        }
        for _ in 0..failures {
            let (head, after) = FailureHead::read_from_prefix(rest).ok()?;
            let len = usize::from(head.len.get());
            if len > ScopeFailure::MAX_DETAIL {
                return None;
            }
            let (detail, after) = after.split_at_checked(len)?;
            report.failures.push(ScopeFailure {
                node: head.node.get(),
                status: Status::from_code(head.status.get())?,
                detail: detail.to_vec(),
            });
            rest = after;
        }
        rest.is_empty().then_some(report)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use proptest::prelude::*;

    use super::*;
    use crate::status::{Failure, Rejection};

    fn report() -> impl Strategy<Value = ScopeReport> {
        let failure = (
            any::<u32>(),
            any::<bool>(),
            prop::collection::vec(any::<u8>(), 0..300),
        );
        (
            any::<u32>(),
            prop::collection::vec(0..100_u32, 0..80),
            prop::collection::vec(failure, 0..40),
        )
            .prop_map(|(executed, lost, failures)| {
                let mut report = ScopeReport {
                    executed: executed.into(),
                    ..ScopeReport::default()
                };
                lost.into_iter().for_each(|node| report.lose(node));
                for (node, has_run, detail) in failures {
                    let status = if has_run {
                        Status::Failed(Failure::Panic)
                    } else {
                        Status::Rejected(Rejection::Policy)
                    };
                    report.fail(node, status, &detail);
                }
                report
            })
    }

    proptest! {
        #[test]
        fn reports_survive_the_link(report in report(), max in 0..3000_usize) {
            let mut bytes = Vec::new();
            report.encode_to(&mut bytes, usize::MAX);
            prop_assert_eq!(ScopeReport::parse(&bytes), Some(report.clone()));
            bytes.clear();
            report.encode_to(&mut bytes, max);
            prop_assert!(bytes.len() <= max.max(ScopeReport::MIN_SIZE));
            let cut = ScopeReport::parse(&bytes).unwrap();
            prop_assert_eq!((cut.executed, cut.failed), (report.executed, report.failed));
            prop_assert!(report.failures.starts_with(&cut.failures) && report.lost.starts_with(&cut.lost));
        }

        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200), lost in 0..70_u8, failures in 0..40_u8) {
            let mut bytes = bytes;
            if let Some(counts) = bytes.get_mut(16..20) {
                counts.copy_from_slice(&[lost, 0, failures, 0]);
            }
            if let Some(report) = ScopeReport::parse(&bytes) {
                let mut again = Vec::new();
                report.encode_to(&mut again, usize::MAX);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut all = ScopeReport::default();
        for node in 0..1000 {
            let mut part = ScopeReport::default();
            part.fail(node, Status::Failed(Failure::Panic), &[0; 1000]);
            part.lose(node);
            all.add(&part);
        }
        assert_eq!((all.failed, all.failures.len(), all.lost.len()), (1000, 32, 64));
        assert!(all.failures.iter().all(|failure| failure.detail.len() == 256));
    }

    #[test]
    fn a_report_is_cut_at_its_exact_length() {
        let mut report = ScopeReport::default();
        assert!(report.is_empty());
        report.lose(7);
        assert!(!report.is_empty());
        report.fail(1, Status::Failed(Failure::Panic), b"abc");
        report.fail(2, Status::Failed(Failure::Panic), &[]);
        // The head, a node, and two failures of 10 bytes with a detail.
        let cut = |max| {
            let mut bytes = Vec::new();
            report.encode_to(&mut bytes, max);
            let parsed = ScopeReport::parse(&bytes).unwrap();
            (bytes.len(), parsed.lost.len(), parsed.failures.len())
        };
        for (max, expected) in [
            (0, (20, 0, 0)),
            (23, (20, 0, 0)),
            (24, (24, 1, 0)),
            (36, (24, 1, 0)),
            (37, (37, 1, 1)),
            (46, (37, 1, 1)),
            (47, (47, 1, 2)),
            (48, (47, 1, 2)),
        ] {
            assert_eq!(cut(max), expected, "{max}");
        }
    }

    #[test]
    fn reports_add_up() {
        let part = ScopeReport {
            executed: 2,
            failed: 3,
            ..ScopeReport::default()
        };
        let mut all = part.clone();
        all.add(&part);
        assert_eq!((all.executed, all.failed), (4, 6));
    }

    #[test]
    fn counts_above_the_limits_are_malformed() {
        let parse = |lost: u16, failures: u16| {
            let head = Head {
                executed: U64::new(1),
                failed: U64::new(2),
                lost: U16::new(lost),
                failures: U16::new(failures),
            };
            // The nodes and the failures, all of which are zeros.
            let len = usize::from(lost) * size_of::<U32>() + usize::from(failures) * size_of::<FailureHead>();
            let parsed = ScopeReport::parse(&[head.as_bytes(), &alloc::vec![0; len]].concat());
            parsed.map(|report| (report.lost.len(), report.failures.len()))
        };
        assert_eq!(parse(64, 32), Some((64, 32)));
        assert_eq!(parse(65, 0), None);
        assert_eq!(parse(0, 33), None);
        assert_eq!(parse(65, 33), None);
    }
}
