//! The open batch: invocations that travel in one frame.
//!
//! The batch lies in private memory and is copied into a frame when it is sent. It holds nothing of the transport's
//! meanwhile, so a batch whose link dies is sent over the next link.

use ifunc_abi::batch::{ALIGN, EntryHead};
use zerocopy::{FromBytes, IntoBytes};

use crate::buffer::AlignedBuffer;

/// First allocation, in bytes.
const FIRST: usize = 4 << 10;

/// The open batch of a connection.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    /// The first `len` bytes are entries.
    bytes: AlignedBuffer,
    len: usize,
    /// Most bytes of a batch over the current link.
    limit: usize,
    /// The handles of its entries, each once. The batch is a user of each of them.
    pub(crate) handles: Vec<u32>,
    /// The link whose peer has the images of all entries and accepts all payloads.
    pub(crate) generation: u64,
    /// The batch is sent as soon as the window allows.
    pub(crate) is_closing: bool,
    /// An entry wants a completion.
    pub(crate) has_calls: bool,
    /// The handle of the last entry that wants none.
    pub(crate) last_send: Option<u32>,
    /// Payloads that need more alignment than an entry has are encoded here.
    scratch: AlignedBuffer,
    /// Number of batches that were opened.
    pub(crate) opened: u64,
}

impl OpenBatch {
    /// `size`: bytes that a batch may have; `max_body`: those that a frame may have.
    pub(crate) fn set_limit(&mut self, size: usize, max_body: usize) {
        self.limit = size.min(max_body).min(u32::MAX as usize) / ALIGN * ALIGN;
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Allocates capacity for an entry of `size` bytes. `false`: the batch is full.
    #[inline]
    pub(crate) fn reserve(&mut self, size: usize) -> bool {
        self.len + size <= self.bytes.len() || self.grow(size)
    }

    #[cold]
    fn grow(&mut self, size: usize) -> bool {
        let needed = self.len + size;
        let wanted = (2 * self.bytes.len()).max(FIRST).max(needed).min(self.limit);
        needed <= self.limit && self.bytes.try_resize(wanted).is_some()
    }

    /// Encodes the payload of the next entry, of at most `bound` bytes.
    #[inline]
    pub(crate) fn encode<E>(
        &mut self,
        bound: usize,
        align: usize,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let at = self.len + EntryHead::SIZE;
        let memory = &mut self.bytes.as_mut_slice()[at..at + bound];
        let len = if align <= ALIGN {
            encode(memory)?
        } else {
            self.scratch.resize(bound);
            let len = encode(self.scratch.as_mut_slice())?;
            memory[..len].copy_from_slice(&self.scratch.as_slice()[..len]);
            len
        };
        assert!(len <= bound, "a payload is longer than its bound");
        Ok(len)
    }

    /// The payload that was encoded last and not pushed yet.
    pub(crate) fn encoded(&self, len: usize) -> &[u8] {
        let at = self.len + EntryHead::SIZE;
        &self.bytes.as_slice()[at..at + len]
    }

    /// Adds the entry whose payload was encoded last. `true`: it is the first of its batch.
    #[inline]
    pub(crate) fn push(&mut self, handle: u32, token: u64, len: usize) -> bool {
        let at = self.len;
        let entry = EntryHead::new(handle, len as u32, token);
        let end = at + size_of_entry(entry);
        let bytes = &mut self.bytes.as_mut_slice()[at..end];
        bytes[..EntryHead::SIZE].copy_from_slice(entry.as_bytes());
        bytes[EntryHead::SIZE + len..].fill(0);
        self.len = end;
        if at == 0 {
            self.opened += 1;
        }
        at == 0
    }

    /// Bytes of the first entries that fit into one frame.
    pub(crate) fn first_frame(&self, max_body: usize) -> usize {
        if self.len <= max_body {
            return self.len;
        }
        self.entries()
            .map(|(at, entry)| at + size_of_entry(entry))
            .take_while(|&end| end <= max_body)
            .last()
            .unwrap_or(0)
    }

    /// The first `len` bytes.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        &self.bytes.as_slice()[..len]
    }

    /// The heads of all entries, and their offsets.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, EntryHead)> {
        let bytes = &self.bytes.as_slice()[..self.len];
        let mut at = 0;
        std::iter::from_fn(move || {
            let (entry, _) = EntryHead::read_from_prefix(bytes.get(at..)?).ok()?;
            let here = at;
            at += size_of_entry(entry);
            Some((here, entry))
        })
    }

    /// The handle of the last entry in the first `end` bytes that wants no completion.
    pub(crate) fn last_send_before(&self, end: usize) -> Option<u32> {
        if end == self.len {
            self.last_send
        } else {
            self.find_last_send(end)
        }
    }

    #[cold]
    fn find_last_send(&self, end: usize) -> Option<u32> {
        let entries = self.entries().take_while(|&(at, _)| at < end);
        let sends = entries.filter(|(_, entry)| entry.token == 0);
        sends.last().map(|(_, entry)| entry.code.get())
    }

    /// The payload of an entry that [`entries`](Self::entries) returned.
    pub(crate) fn payload(&self, at: usize, entry: EntryHead) -> &[u8] {
        &self.bytes.as_slice()[at + EntryHead::SIZE..][..entry.len.get() as usize]
    }

    /// Removes the first `end` bytes.
    pub(crate) fn remove_first(&mut self, end: usize) {
        self.bytes.as_mut_slice().copy_within(end..self.len, 0);
        self.len -= end;
        if self.len > 0 {
            self.last_send = self.find_last_send(self.len);
        }
    }

    /// Keeps the entries for which `keep` is true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(EntryHead) -> bool) {
        let heads: Vec<_> = self.entries().collect();
        let mut kept = 0;
        for (at, entry) in heads {
            let end = at + size_of_entry(entry);
            if keep(entry) {
                self.bytes.as_mut_slice().copy_within(at..end, kept);
                kept += end - at;
            }
        }
        self.len = kept;
        self.last_send = self.find_last_send(kept);
    }
}

/// Bytes of an entry that this process encoded, head and padding included.
pub(crate) fn size_of_entry(entry: EntryHead) -> usize {
    (EntryHead::SIZE + entry.len.get() as usize).next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(payloads: &[&[u8]]) -> OpenBatch {
        let mut batch = OpenBatch::default();
        batch.set_limit(1 << 16, 1 << 16);
        for (index, payload) in payloads.iter().enumerate() {
            assert!(batch.reserve(EntryHead::padded_len(payload.len()).unwrap()));
            let len = batch
                .encode::<()>(payload.len(), 1, &mut |memory| {
                    memory[..payload.len()].copy_from_slice(payload);
                    Ok(payload.len())
                })
                .unwrap();
            assert_eq!(batch.push(index as u32, 7, len), index == 0);
        }
        batch
    }

    #[test]
    fn frames_hold_whole_entries() {
        let batch = batch(&[b"a", b"bc", &[0; 100]]);
        assert_eq!(batch.len(), 24 + 24 + 120);
        assert_eq!(batch.first_frame(1 << 20), batch.len());
        assert_eq!(batch.first_frame(60), 48);
        assert_eq!(batch.first_frame(47), 24);
        assert_eq!(batch.first_frame(23), 0);
    }

    #[test]
    fn entries_are_removed_and_keep_their_order() {
        let mut batch = batch(&[b"a", b"bc", b"def"]);
        batch.retain(|entry| entry.code != 1);
        let left: Vec<_> = batch
            .entries()
            .map(|(at, entry)| batch.payload(at, entry).to_vec())
            .collect();
        assert_eq!(left, [b"a".to_vec(), b"def".to_vec()]);
        batch.remove_first(24);
        assert_eq!(batch.entries().count(), 1);
    }

    #[test]
    fn a_batch_grows_to_its_limit_and_no_further() {
        let mut batch = OpenBatch::default();
        batch.set_limit(100, 1 << 16);
        assert_eq!(batch.limit(), 96);
        assert!(batch.reserve(96));
        assert!(!batch.reserve(104));
    }

    #[test]
    fn a_part_is_the_longest_that_fits_into_a_frame() {
        let batch = batch(&[&[1; 5], &[2; 40], &[], &[3; 100]]);
        let ends: Vec<usize> = batch
            .entries()
            .map(|(at, entry)| at + size_of_entry(entry))
            .collect();
        assert_eq!(ends.last(), Some(&batch.len()));
        for max_body in 0..=batch.len() + 1 {
            let fitting = ends.iter().filter(|&&end| end <= max_body);
            assert_eq!(
                batch.first_frame(max_body),
                fitting.max().copied().unwrap_or(0),
                "{max_body}"
            );
        }
    }
}
