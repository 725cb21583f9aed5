//! The open batch: invocations that travel in one frame.
//!
//! The batch lies in private memory and is copied into a frame when it is sent. It holds nothing of the transport's
//! meanwhile, so a batch whose link dies is sent over the next link. An invocation that is like the one before it joins
//! that one's run, which costs its payload and nothing else.

use ifunc_abi::batch::{ALIGN, MAX_RUN, RunHead};
use zerocopy::{FromBytes, IntoBytes};

use crate::buffer::AlignedBuffer;

#[cfg(test)]
mod tests;

/// First allocation, in bytes.
const FIRST: usize = 4 << 10;

/// The open batch of a connection.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    /// The first `len` bytes are runs. The head of the open run is not written yet, nor the zeros after it.
    bytes: AlignedBuffer,
    len: usize,
    run: OpenRun,
    /// Offset of the payload that was encoded last.
    encoded_at: usize,
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

/// The last run, to which alike entries are added.
#[derive(Clone, Copy, Debug, Default)]
struct OpenRun {
    /// Offset of its head.
    at: usize,
    handle: u32,
    len: u32,
    stride: u32,
    /// Number of its entries; 0: there is no open run.
    count: u32,
    /// Token of its first entry, or 0.
    token: u64,
}

/// The places of the next entries of the open run.
pub(crate) struct Joining<'a> {
    /// Length of each payload.
    pub(crate) len: usize,
    /// Distance between two payloads. Zeros lie between them.
    pub(crate) stride: usize,
    /// The token of the first entry, or 0.
    pub(crate) first_token: u64,
    /// For as many entries as may join: whole strides.
    pub(crate) memory: &'a mut [u8],
}

/// The begin of a batch that one frame holds: whole runs, and some entries of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes of whole runs.
    runs: usize,
    /// Entries of the run after them.
    entries: u32,
    /// Bytes in the frame.
    pub(crate) len: usize,
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

    /// Length in bytes, with the zeros after the last run.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.next_multiple_of(ALIGN)
    }

    /// Allocates capacity for a run of `size` bytes. `false`: the batch is full.
    #[inline]
    pub(crate) fn reserve(&mut self, size: usize) -> bool {
        self.has_capacity(size) || self.grow(size)
    }

    /// Whether `size` more bytes need no allocation.
    #[inline]
    pub(crate) fn has_capacity(&self, size: usize) -> bool {
        self.len() + size <= self.bytes.len()
    }

    #[cold]
    fn grow(&mut self, size: usize) -> bool {
        let needed = self.len() + size;
        let wanted = (2 * self.bytes.len()).max(FIRST).max(needed).min(self.limit);
        needed <= self.limit && self.bytes.try_resize(wanted).is_some()
    }

    /// Whether the last entry invokes this handle, and another one can join its run.
    #[inline]
    pub(crate) fn ends_with(&self, handle: u32) -> bool {
        self.run.handle == handle && self.run.count.wrapping_sub(1) < MAX_RUN - 1
    }

    /// Encodes the payload of the next entry, of at most `bound` bytes. [`reserve`](Self::reserve) made the memory.
    #[inline]
    pub(crate) fn encode<E>(
        &mut self,
        handle: u32,
        bound: usize,
        align: usize,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        // Where the payload lies if it joins the open run. It is moved if it turns out to be unlike the others.
        let joins = self.ends_with(handle) && self.len & (align.min(ALIGN) - 1) == 0;
        let at = if joins {
            self.len
        } else {
            self.len() + RunHead::SIZE
        };
        self.encoded_at = at;
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
        &self.bytes.as_slice()[self.encoded_at..][..len]
    }

    /// Where payloads like those of the open run are encoded, if that invokes this handle. Payloads without bytes have no place.
    #[inline]
    pub(crate) fn joining(&mut self, handle: u32) -> Option<Joining<'_>> {
        let run = &self.run;
        if run.handle != handle || run.count == 0 || run.stride == 0 {
            return None;
        }
        let (len, stride) = (run.len as usize, run.stride as usize);
        // The batch stays open: an entry with a head of its own fits after them.
        let needed = self.len() + RunHead::SIZE + stride.next_multiple_of(ALIGN);
        let fits = self.bytes.len().checked_sub(needed)? / stride;
        let fits = fits.min((MAX_RUN - run.count) as usize);
        let first_token = match run.token {
            0 => 0,
            first => first + u64::from(run.count),
        };
        Some(Joining {
            len,
            stride,
            first_token,
            memory: &mut self.bytes.as_mut_slice()[self.len..][..fits * stride],
        })
    }

    /// Adds the first `count` payloads of [`joining`](Self::joining) to the open run.
    #[inline]
    pub(crate) fn join(&mut self, count: usize) {
        self.run.count += count as u32;
        self.len += count * self.run.stride as usize;
    }

    /// Adds the entry whose payload was encoded last. `true`: it is the first of its batch.
    #[inline]
    pub(crate) fn push(&mut self, handle: u32, token: u64, len: usize, align: usize) -> bool {
        let stride = len.next_multiple_of(align.min(ALIGN));
        let run = &mut self.run;
        let next_token = if run.token == 0 {
            0
        } else {
            run.token + u64::from(run.count)
        };
        let is_alike = run.len as usize == len && run.stride as usize == stride && token == next_token;
        if self.encoded_at != self.len || !is_alike {
            return self.push_unlike(handle, token, len, stride);
        }
        run.count += 1;
        self.len += stride;
        if stride != len {
            self.bytes.as_mut_slice()[self.encoded_at + len..self.len].fill(0);
        }
        false
    }

    /// Opens a run with the entry whose payload was encoded last.
    fn push_unlike(&mut self, handle: u32, token: u64, len: usize, stride: usize) -> bool {
        let (is_first, from) = (self.len == 0, self.encoded_at);
        let at = self.len();
        let payload = at + RunHead::SIZE;
        let bytes = self.bytes.as_mut_slice();
        if from != payload {
            bytes.copy_within(from..from + len, payload);
        }
        bytes[payload + len..payload + stride].fill(0);
        // Writes zeros where the payload may have been.
        self.seal();
        self.run = OpenRun {
            at,
            handle,
            len: len as u32,
            stride: stride as u32,
            count: 1,
            token,
        };
        self.len = payload + stride;
        self.opened += u64::from(is_first);
        is_first
    }

    /// Writes the head of the open run and the zeros after it. The next entry opens another run.
    pub(crate) fn seal(&mut self) {
        let OpenRun {
            at,
            handle,
            len,
            stride,
            count,
            token,
        } = std::mem::take(&mut self.run);
        if count == 0 {
            return;
        }
        let end = self.len();
        let bytes = self.bytes.as_mut_slice();
        let head = RunHead::new(handle, token, len, stride, count);
        bytes[at..at + RunHead::SIZE].copy_from_slice(head.as_bytes());
        bytes[self.len..end].fill(0);
        self.len = end;
    }

    /// The begin of the batch that one frame holds. It is empty if not even one entry fits.
    pub(crate) fn first_part(&mut self, max_body: usize) -> Part {
        self.seal();
        if self.len <= max_body {
            return Part {
                runs: self.len,
                entries: 0,
                len: self.len,
            };
        }
        let mut runs = 0;
        let mut entries = 0;
        for (at, head) in self.runs() {
            if at + size_of_run(head) <= max_body {
                runs = at + size_of_run(head);
                continue;
            }
            // A run of entries without bytes fits as soon as its head does.
            let left = max_body / ALIGN * ALIGN;
            let left = left.saturating_sub(at + RunHead::SIZE);
            entries = (left / (head.stride.get() as usize).max(1)) as u32;
            break;
        }
        self.part(runs, entries)
    }

    /// Whole runs of so many bytes, and so many entries of the next one.
    fn part(&self, runs: usize, entries: u32) -> Part {
        let next = self.head_at(runs).filter(|_| entries > 0);
        let len = runs + next.map_or(0, |head| size_of_run(with_count(head, entries)));
        Part { runs, entries, len }
    }

    /// The first entry alone.
    pub(crate) fn first_entry(&self) -> Part {
        self.part(0, 1)
    }

    /// Copies a part to a frame's body of its length.
    pub(crate) fn write(&self, part: Part, body: &mut [u8]) {
        let (runs, rest) = body.split_at_mut(part.runs);
        runs.copy_from_slice(&self.bytes.as_slice()[..part.runs]);
        if let Some((head, entries)) = self.heads(part).last().filter(|_| part.entries > 0) {
            let (to_head, to_entries) = rest.split_at_mut(RunHead::SIZE);
            to_head.copy_from_slice(head.as_bytes());
            let (to_entries, zeros) = to_entries.split_at_mut(entries.len());
            to_entries.copy_from_slice(entries);
            zeros.fill(0);
        }
    }

    /// The heads of a part and their entries, as [`write`](Self::write) writes them.
    pub(crate) fn heads(&self, part: Part) -> impl Iterator<Item = (RunHead, &[u8])> {
        let whole = self.runs().take_while(move |&(at, _)| at < part.runs);
        let next = self.head_at(part.runs).filter(|_| part.entries > 0);
        let next = next.map(|head| (part.runs, with_count(head, part.entries)));
        whole.chain(next).map(|(at, head)| {
            let len = head.stride.get() as usize * head.count.get() as usize;
            (head, &self.bytes.as_slice()[at + RunHead::SIZE..][..len])
        })
    }

    fn head_at(&self, at: usize) -> Option<RunHead> {
        let bytes = &self.bytes.as_slice()[..self.len];
        let (head, _) = RunHead::read_from_prefix(bytes.get(at..)?).ok()?;
        Some(head)
    }

    /// The heads of all runs but the open one, and their offsets.
    fn runs(&self) -> impl Iterator<Item = (usize, RunHead)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let head = self.head_at(at)?;
            let here = at;
            at += size_of_run(head);
            Some((here, head))
        })
    }

    /// The handle of the last entry of a part that wants no completion.
    pub(crate) fn last_send_of(&self, part: Part) -> Option<u32> {
        if part.len == self.len {
            self.last_send
        } else {
            self.find_last_send(part)
        }
    }

    #[cold]
    fn find_last_send(&self, part: Part) -> Option<u32> {
        let sends = self.heads(part).filter(|(head, _)| head.token == 0);
        sends.last().map(|(head, _)| head.code.get())
    }

    /// Removes the begin of the batch. It has no open run.
    pub(crate) fn remove(&mut self, part: Part) {
        let (mut from, mut to) = (part.runs, 0);
        if let Some(head) = self.head_at(from) {
            let (run, stride) = (size_of_run(head), head.stride.get() as usize);
            let left = with_count(head, head.count.get() - part.entries);
            if left.count > 0 {
                let mut left = left;
                if left.token > 0 {
                    left.token += u64::from(part.entries);
                }
                let entries = from + RunHead::SIZE + stride * part.entries as usize;
                to = size_of_run(left);
                let end = RunHead::SIZE + stride * left.count.get() as usize;
                let bytes = self.bytes.as_mut_slice();
                bytes.copy_within(entries..entries + end - RunHead::SIZE, RunHead::SIZE);
                bytes[..RunHead::SIZE].copy_from_slice(left.as_bytes());
                bytes[end..to].fill(0);
            }
            from += run;
        }
        self.bytes.as_mut_slice().copy_within(from..self.len, to);
        self.len -= from - to;
        if self.len > 0 {
            self.last_send = self.find_last_send(self.whole());
        }
    }

    /// Everything. There is no open run.
    fn whole(&self) -> Part {
        self.part(self.len, 0)
    }

    /// Keeps the runs for which `keep` is true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(RunHead) -> bool) {
        self.seal();
        let heads: Vec<_> = self.runs().collect();
        let mut kept = 0;
        for (at, head) in heads {
            let end = at + size_of_run(head);
            if keep(head) {
                self.bytes.as_mut_slice().copy_within(at..end, kept);
                kept += end - at;
            }
        }
        self.len = kept;
        self.last_send = self.find_last_send(self.whole());
    }
}

fn with_count(head: RunHead, count: u32) -> RunHead {
    RunHead {
        count: count.into(),
        ..head
    }
}

/// Bytes of a run that this process encoded, head and padding included.
fn size_of_run(head: RunHead) -> usize {
    let entries = head.stride.get() as usize * head.count.get() as usize;
    (RunHead::SIZE + entries).next_multiple_of(ALIGN)
}
