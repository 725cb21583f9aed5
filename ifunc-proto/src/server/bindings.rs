//! What the handles of a connection are bound to. An image takes one handle per entry, in a row, and they are released together.

use std::collections::BTreeMap;
use std::ops::Range;

use ifunc_abi::image::MAX_ENTRIES;

use crate::host::Refusal;

/// What a handle is bound to, in one cache line if the host needs no more.
#[derive(Debug)]
#[repr(align(64))]
pub(super) enum Binding<B> {
    Free,
    Bound(B),
    /// Invocations are rejected with the reason.
    Refused(Refusal),
}

impl<B> Binding<B> {
    /// The entry that is bound.
    fn bound(&self) -> Option<&B> {
        match self {
            Self::Bound(entry) => Some(entry),
            Self::Free | Self::Refused(_) => None,
        }
    }
}

/// The handles of a connection.
#[derive(Debug)]
pub(super) struct Bindings<B> {
    /// By handle.
    slots: Vec<Binding<B>>,
    /// The first handle of each image, and one past its last.
    spans: BTreeMap<usize, usize>,
}

impl<B> Bindings<B> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            spans: BTreeMap::new(),
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, handle: u32) -> Option<&Binding<B>> {
        self.slots.get(handle as usize)
    }

    /// Binds the handles from `first` on to the entries of an image. They are free.
    pub(super) fn bind(&mut self, first: usize, entries: Vec<B>) {
        self.put(first, entries.into_iter().map(Binding::Bound));
    }

    /// Binds handles to the reason why their image does not run. They are free.
    pub(super) fn refuse(&mut self, handles: Range<usize>, refusal: &Refusal) {
        let first = handles.start;
        self.put(first, handles.map(|_| Binding::Refused(refusal.clone())));
    }

    /// Calls `keeps` with each entry that is bound, and lets those run no more for which it returns a reason.
    pub(super) fn review(&mut self, mut keeps: impl FnMut(&mut B) -> Result<(), Refusal>) {
        for slot in &mut self.slots {
            if let Binding::Bound(entry) = slot
                && let Err(refusal) = keeps(entry)
            {
                *slot = Binding::Refused(refusal);
            }
        }
    }

    fn put(&mut self, first: usize, bindings: impl ExactSizeIterator<Item = Binding<B>>) {
        let end = first + bindings.len();
        if end == first {
            return;
        }
        if self.slots.len() < end {
            self.slots.resize_with(end, || Binding::Free);
        }
        for (slot, binding) in self.slots[first..].iter_mut().zip(bindings) {
            *slot = binding;
        }
        self.spans.insert(first, end);
    }

    /// Releases the image whose first handle this is. Of any other handle nothing happens.
    pub(super) fn release(&mut self, first: usize) {
        if let Some(end) = self.spans.remove(&first) {
            for slot in &mut self.slots[first..end] {
                *slot = Binding::Free;
            }
        }
    }

    /// Releases every image that has one of these handles.
    pub(super) fn release_overlapping(&mut self, handles: Range<usize>) {
        let from = handles.start.saturating_sub(MAX_ENTRIES);
        let spans = self.spans.range(from..handles.end);
        let overlapping = spans.filter(|&(_, &end)| end > handles.start);
        let firsts: Vec<usize> = overlapping.map(|(&first, _)| first).collect();
        firsts.into_iter().for_each(|first| self.release(first));
    }

    /// The entries of an image that is bound to exactly these handles.
    pub(super) fn entries(&self, handles: Range<usize>) -> Option<impl Iterator<Item = &B>> {
        let is_whole = self.spans.get(&handles.start) == Some(&handles.end);
        let slots = self.slots.get(handles).filter(|_| is_whole)?;
        // An image is bound with all its entries, or refused.
        slots.first().and_then(Binding::bound)?;
        Some(slots.iter().filter_map(Binding::bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bindings: &Bindings<char>) -> String {
        let shown = bindings.slots.iter().map(|slot| match slot {
            Binding::Free => '.',
            Binding::Bound(entry) => *entry,
            Binding::Refused(_) => '!',
        });
        shown.collect()
    }

    #[test]
    fn the_handles_of_an_image_are_released_together() {
        let mut bindings = Bindings::new();
        bindings.bind(0, vec!['a']);
        bindings.bind(2, vec!['b', 'c', 'd']);
        bindings.bind(5, vec!['e', 'f']);
        assert_eq!(shown(&bindings), "a.bcdef");
        // No first handle of an image.
        for handle in [1, 3, 4, 6, 7, usize::MAX] {
            bindings.release(handle);
        }
        assert_eq!(shown(&bindings), "a.bcdef");
        assert!(
            bindings
                .entries(2..5)
                .is_some_and(|entries| entries.eq(&['b', 'c', 'd']))
        );
        assert!(bindings.entries(2..4).is_none() && bindings.entries(3..5).is_none());
        bindings.release_overlapping(4..5);
        assert_eq!(shown(&bindings), "a....ef");
        bindings.release_overlapping(1..2);
        assert_eq!(shown(&bindings), "a....ef");
        bindings.release_overlapping(0..6);
        assert_eq!(shown(&bindings), ".......");
        bindings.refuse(1..3, &Refusal::new(ifunc_abi::status::Rejection::Policy, ""));
        assert_eq!(shown(&bindings), ".!!....");
        assert!(bindings.entries(1..3).is_none());
        bindings.refuse(9..9, &Refusal::new(ifunc_abi::status::Rejection::Policy, ""));
        bindings.release(1);
        assert_eq!(shown(&bindings), ".......");
        assert!(bindings.spans.is_empty());
    }
}
