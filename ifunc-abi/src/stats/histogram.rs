//! A histogram of durations with constant relative error.

use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Durations of invocations, in nanoseconds.
///
/// A bucket's width is at most a quarter of its lower bound: 0, 1, 2, 3, then four buckets per power of two.
/// A quantile is therefore at most 25 % too high; [`max_ns`](Self::max_ns) and the mean are exact.
///
/// In readable formats (JSON) it is an object of `count`, `mean_ns`, `p50_ns`, `p90_ns`, `p99_ns`, `max_ns`,
/// `sum_ns` and `buckets`, which are pairs of a bucket's upper bound and its count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// The non-empty buckets in order: number and count.
    buckets: Vec<(u8, u64)>,
    /// Sum of all durations.
    pub sum_ns: u64,
    /// The longest duration.
    pub max_ns: u64,
}

impl DurationHistogram {
    /// Number of buckets. The last bucket has no upper bound.
    pub const BUCKETS: usize = 156;

    /// The bucket of a duration.
    #[must_use]
    #[inline]
    pub const fn bucket(ns: u64) -> usize {
        if ns < 4 {
            return ns as usize;
        }
        let octave = 63 - ns.leading_zeros() as usize;
        let bucket = (octave - 1) * 4 + (ns >> (octave - 2) & 3) as usize;
        if bucket < Self::BUCKETS {
            bucket
        } else {
            Self::BUCKETS - 1
        }
    }

    /// Upper bound of a bucket, inclusive; `u64::MAX` for the last one.
    #[must_use]
    pub const fn upper_ns(bucket: usize) -> u64 {
        if bucket >= Self::BUCKETS - 1 {
            return u64::MAX;
        }
        if bucket < 4 {
            return bucket as u64;
        }
        let octave = bucket / 4 + 1;
        let width = 1 << (octave - 2);
        (1 << octave) + (bucket as u64 % 4 + 1) * width - 1
    }

    /// Records a duration.
    pub fn record(&mut self, ns: u64) {
        self.add(Self::bucket(ns) as u8, 1);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |count, (_, more)| count.saturating_add(*more))
    }

    /// The mean; `None` for an empty histogram.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The quantile `part` (0.5 is the median); `None` for an empty histogram.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let rank = (self.count() as f64 * part.clamp(0.0, 1.0)) as u64;
        let mut seen = 0u64;
        for &(bucket, count) in &self.buckets {
            seen = seen.saturating_add(count);
            if seen > rank || seen == self.count() {
                return Some(Self::upper_ns(bucket.into()).min(self.max_ns));
            }
        }
        None
    }

    /// Upper bound and count of each non-empty bucket.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets
            .iter()
            .map(|&(bucket, count)| (Self::upper_ns(bucket.into()).min(self.max_ns), count))
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for &(bucket, count) in &other.buckets {
            self.add(bucket, count);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was recorded since `earlier`, an older state of the same histogram. The exact maximum is lost:
    /// `max_ns` becomes the upper bound of the last bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket| {
            let find = earlier.buckets.iter().find(|(other, _)| *other == bucket);
            find.map_or(0, |(_, count)| *count)
        };
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|&(bucket, count)| (bucket, count.saturating_sub(before(bucket))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let longest = buckets
            .last()
            .map_or(0, |(bucket, _)| Self::upper_ns((*bucket).into()));
        Self {
            buckets,
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            max_ns: longest.min(self.max_ns),
        }
    }

    fn add(&mut self, bucket: u8, count: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(other, _)| *other) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct BinaryForm {
    buckets: Vec<(u8, u64)>,
    sum_ns: u64,
    max_ns: u64,
}

#[derive(Serialize, Deserialize)]
struct JsonForm {
    count: u64,
    mean_ns: Option<u64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: u64,
    sum_ns: u64,
    buckets: Vec<(u64, u64)>,
}

impl Serialize for DurationHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            ref buckets,
            sum_ns,
            max_ns,
        } = *self;
        if !serializer.is_human_readable() {
            let buckets = buckets.clone();
            return BinaryForm {
                buckets,
                sum_ns,
                max_ns,
            }
            .serialize(serializer);
        }
        JsonForm {
            count: self.count(),
            mean_ns: self.mean_ns(),
            p50_ns: self.quantile_ns(0.5),
            p90_ns: self.quantile_ns(0.9),
            p99_ns: self.quantile_ns(0.99),
            max_ns,
            sum_ns,
            buckets: self.iter().collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DurationHistogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (buckets, sum_ns, max_ns) = if deserializer.is_human_readable() {
            let read = JsonForm::deserialize(deserializer)?;
            let number = |&(upper, count): &(u64, u64)| (Self::bucket(upper) as u8, count);
            (
                read.buckets.iter().map(number).collect(),
                read.sum_ns,
                read.max_ns,
            )
        } else {
            let read = BinaryForm::deserialize(deserializer)?;
            (read.buckets, read.sum_ns, read.max_ns)
        };
        let mut times = Self {
            sum_ns,
            max_ns,
            ..Self::default()
        };
        // A peer may send buckets unordered or twice: `add` sorts and merges them.
        for (bucket, count) in Vec::<(u8, u64)>::into_iter(buckets) {
            times.add(bucket, count);
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut from = 0;
        for bucket in 0..DurationHistogram::BUCKETS - 1 {
            let upper = DurationHistogram::upper_ns(bucket);
            assert_eq!(DurationHistogram::bucket(from), bucket);
            assert_eq!(DurationHistogram::bucket(upper), bucket);
            assert!(upper - from <= from / 4, "{from}..={upper}");
            from = upper + 1;
        }
        assert_eq!(DurationHistogram::bucket(from), DurationHistogram::BUCKETS - 1);
        assert_eq!(
            DurationHistogram::bucket(u64::MAX),
            DurationHistogram::BUCKETS - 1
        );
        assert!(from > 1_000_000_000 * 60 * 8, "{from}");
    }

    #[test]
    fn quantiles_and_differences() {
        let mut times = DurationHistogram::default();
        assert_eq!((times.mean_ns(), times.quantile_ns(0.5)), (None, None));
        for ns in 1..=100 {
            times.record(ns);
        }
        assert_eq!(times.mean_ns(), Some(50));
        for (part, exact) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let estimate = times.quantile_ns(part).unwrap();
            assert!(
                (exact..=exact + exact / 4 + 1).contains(&estimate),
                "{part}: {estimate}"
            );
        }
        let before = times.clone();
        times.record(1000);
        times.record(7);
        let since = times.since(&before);
        assert_eq!((since.count(), since.sum_ns, since.max_ns), (2, 1007, 1000));
        let mut both = before;
        both.merge(&since);
        assert_eq!(both, times);
    }

    #[test]
    fn the_last_bucket_has_no_bound() {
        for bucket in [
            DurationHistogram::BUCKETS - 1,
            DurationHistogram::BUCKETS,
            usize::MAX,
        ] {
            assert_eq!(DurationHistogram::upper_ns(bucket), u64::MAX);
        }
        let longest = (0..64).flat_map(|bit| (4..8).map(move |quarter| (quarter << bit) >> 2));
        assert!(
            longest
                .map(DurationHistogram::bucket)
                .all(|bucket| bucket < DurationHistogram::BUCKETS)
        );
    }

    #[test]
    fn ranks_are_exact() {
        let mut times = DurationHistogram::default();
        // Each is a bucket of its own.
        (0..4).for_each(|ns| times.record(ns));
        let quantiles = [0.0, 0.24, 0.25, 0.5, 0.75, 1.0].map(|part| times.quantile_ns(part));
        assert_eq!(quantiles, [0, 0, 1, 2, 3, 3].map(Some));
        assert_eq!(times.since(&times), DurationHistogram::default());
    }
}
