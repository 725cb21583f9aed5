//! Free ranges of a region of memory.

use std::collections::BTreeMap;
use std::ops::Range;

/// Free ranges, offset → length; neighbours are merged.
#[derive(Debug)]
pub(crate) struct FreeRanges(BTreeMap<usize, usize>);

impl FreeRanges {
    /// All of a region of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self(BTreeMap::from([(0, len)]))
    }

    /// Takes the first range of `len` bytes whose offset is a multiple of `align` (a power of two) and at least `from`.
    /// Returns its offset; `None`: no free range is large enough.
    pub(crate) fn take(&mut self, len: usize, align: usize, from: usize) -> Option<usize> {
        let (start, free, at) = self.0.iter().find_map(|(&start, &free)| {
            let at = start.max(from).next_multiple_of(align);
            (at.checked_add(len)? <= start + free).then_some((start, free, at))
        })?;
        self.0.remove(&start);
        if at > start {
            self.0.insert(start, at - start);
        }
        if at + len < start + free {
            self.0.insert(at + len, start + free - at - len);
        }
        Some(at)
    }

    /// Takes a range back. Returns the free range that it is a part of now.
    pub(crate) fn give_back(&mut self, range: Range<usize>) -> Range<usize> {
        let (mut start, mut len) = (range.start, range.len());
        if let Some((&before, &free)) = self.0.range(..start).next_back()
            && before + free == start
        {
            self.0.remove(&before);
            (start, len) = (before, len + free);
        }
        if let Some(free) = self.0.remove(&(start + len)) {
            len += free;
        }
        self.0.insert(start, len);
        start..start + len
    }

    /// Whether all of a region of `len` bytes is free.
    #[cfg(test)]
    pub(crate) fn is_whole(&self, len: usize) -> bool {
        self.0 == BTreeMap::from([(0, len)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_merged() {
        let mut free = FreeRanges::new(1000);
        assert_eq!(free.take(100, 1, 0), Some(0));
        assert_eq!(free.take(100, 64, 0), Some(128));
        assert_eq!(free.take(10, 1, 500), Some(500));
        assert_eq!(free.take(28, 1, 0), Some(100));
        assert_eq!(free.take(1001, 1, 0), None);
        assert_eq!(free.take(usize::MAX, 1, 0), None);
        for range in [128..228, 0..100, 500..510, 100..128] {
            free.give_back(range);
        }
        assert!(free.is_whole(1000), "{free:?}");
    }

    #[test]
    fn a_range_is_taken_from_both_ends_and_from_the_middle() {
        for (len, align, from, left) in [
            (100, 1, 0, &[][..]),
            (60, 1, 0, &[(60, 100)][..]),
            (60, 1, 40, &[(0, 40)][..]),
            (36, 64, 0, &[(36, 100)][..]),
            (36, 64, 1, &[(0, 64)][..]),
            (20, 64, 1, &[(0, 64), (84, 100)][..]),
        ] {
            let mut free = FreeRanges::new(100);
            let at = free.take(len, align, from).unwrap();
            let ranges: Vec<_> = free.0.iter().map(|(&start, &len)| (start, start + len)).collect();
            assert_eq!(ranges, left, "{len} {align} {from}");
            assert_eq!(free.give_back(at..at + len), 0..100);
        }
        let mut free = FreeRanges::new(100);
        assert_eq!((free.take(61, 1, 40), free.take(100, 64, 1)), (None, None));
    }
}
