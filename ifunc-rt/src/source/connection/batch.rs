//! The open batch: invocations that travel together in one frame, when it is full, when it is due, or when something behind
//! them is to be sent.
//!
//! It lies in memory of the source's own and is copied when it is sent: nothing of the transport's is held meanwhile, and a
//! batch whose link is lost goes over the next one. It is a user of every handle that it has entries of, so that none is
//! released or given to another image before the batch is sent.

use std::time::{Duration, Instant};

use ifunc_abi::batch::{ALIGN, EntryHead};
use ifunc_abi::frame::{Header, Kind};
use zerocopy::{FromBytes, IntoBytes};

use super::pending::{Again, What};
use super::{Connection, Error, Report, Submission};
use crate::driver::backoff::after;
use crate::source::options::Aggregation;
use crate::transport::{Link, LinkError, Outbound};
use ifunc_proto::buffer::AlignedBuffer;

/// What is grown to at once.
const FIRST: usize = 4 << 10;

/// The batch, and what is known of its entries.
#[derive(Debug)]
pub(super) struct Batch {
    /// The first `len` bytes are entries.
    bytes: AlignedBuffer,
    len: usize,
    /// Most bytes of a batch over this link.
    limit: usize,
    /// The handles of its entries, each once.
    handles: Vec<u32>,
    /// The connection whose target has all their images, and takes all payloads.
    generation: u64,
    /// It is to be sent now, behind what waits to be sent already.
    pub(super) closing: bool,
    /// Whether any of its entries wants to be answered.
    has_calls: bool,
    /// The handle of the last entry that does not.
    last_send: Option<u32>,
    /// Where payloads are written that ask for more alignment than an entry has.
    scratch: AlignedBuffer,
    delay: Duration,
    /// When it is to be sent, if nothing sends it before.
    due: Option<Instant>,
}

impl Batch {
    pub(super) fn new(options: Aggregation, link: &Link) -> Self {
        let mut batch = Self {
            bytes: AlignedBuffer::default(),
            len: 0,
            limit: 0,
            handles: Vec::new(),
            generation: 0,
            closing: false,
            has_calls: false,
            last_send: None,
            scratch: AlignedBuffer::default(),
            delay: options.delay,
            due: None,
        };
        batch.set_limit(options, link.tx.max_body());
        batch
    }

    fn set_limit(&mut self, options: Aggregation, max_body: usize) {
        self.limit = options.bytes.min(max_body).min(u32::MAX as usize) / ALIGN * ALIGN;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes sure of room for an entry. `false`: it does not fit in any more.
    #[inline]
    fn make_room(&mut self, room: usize) -> bool {
        self.len + room <= self.bytes.len() || self.grow(room)
    }

    #[cold]
    fn grow(&mut self, room: usize) -> bool {
        let needed = self.len + room;
        let wanted = (2 * self.bytes.len()).max(FIRST).max(needed).min(self.limit);
        needed <= self.limit && self.bytes.try_resize(wanted).is_some()
    }

    /// How many bytes of entries at its begin fit into a frame.
    fn part(&self, max_body: usize) -> usize {
        if self.len <= max_body {
            return self.len;
        }
        let mut end = 0;
        for (at, entry) in self.entries(self.len) {
            let next = at + room_of(entry);
            if next > max_body {
                break;
            }
            end = next;
        }
        end
    }

    /// The heads of the entries in the first `end` bytes, and where they stand.
    fn entries(&self, end: usize) -> impl Iterator<Item = (usize, EntryHead)> {
        let bytes = &self.bytes.as_slice()[..end];
        let mut at = 0;
        std::iter::from_fn(move || {
            let (entry, _) = EntryHead::read_from_prefix(&bytes[at..]).ok()?;
            let here = at;
            at += room_of(entry);
            Some((here, entry))
        })
    }

    /// Takes the first `end` bytes out.
    fn remove_first(&mut self, end: usize) {
        self.bytes.as_mut_slice().copy_within(end..self.len, 0);
        self.len -= end;
    }
}

/// What an entry of this process's own takes.
fn room_of(entry: EntryHead) -> usize {
    (EntryHead::SIZE + entry.len.get() as usize).next_multiple_of(ALIGN)
}

impl Connection {
    /// Puts an invocation into the open batch; `None` if there is no room. With `wants` the result is the token, otherwise
    /// 0. One that fits into no batch is sent by itself, behind the batch.
    pub(super) fn try_append(&mut self, submission: &mut Submission<'_>) -> Result<Option<u64>, Error> {
        let room = match EntryHead::padded_len(submission.bound) {
            Some(room) if room <= self.batch.limit => room,
            _ => return self.try_send(submission),
        };
        if !submission.wants
            && let Some(report) = self.take_report()
        {
            return Err(Error::Earlier(Box::new(report.explain())));
        }
        let handle = submission.handle;
        let installed = self.handles[handle as usize].installed == self.generation;
        if (!installed || self.link.is_none()) && !self.may_append(handle)? {
            return Ok(None);
        }
        if !self.batch.make_room(room) && !self.make_room(room) {
            return Ok(None);
        }
        let len = self.write_payload(submission)?;
        let slot = &mut self.handles[handle as usize];
        if !std::mem::replace(&mut slot.batched, true) {
            slot.users += 1;
            self.batch.handles.push(handle);
        }
        let token = if submission.wants {
            let repeatable = slot.library.is_idempotent();
            let payload = self.batch.len + EntryHead::SIZE;
            let payload = &self.batch.bytes.as_slice()[payload..payload + len];
            let again = repeatable.then(|| Again::new(handle, payload));
            let token = self.pending.wait_for(What::Ifunc(handle), again);
            self.pending.set_in_batch(token, true);
            self.batch.has_calls = true;
            token
        } else {
            self.batch.last_send = Some(handle);
            0
        };
        self.put_entry(handle, token, len);
        // The next one, if it is like this one, would find it full.
        if self.batch.len + room > self.batch.limit || self.batch.delay.is_zero() {
            self.close_batch();
        } else if !self.signals.is_timed {
            self.close_if_due();
        }
        Ok(Some(token))
    }

    /// Writes the payload where the next entry's stands.
    #[inline]
    fn write_payload(&mut self, submission: &mut Submission<'_>) -> Result<usize, Error> {
        let batch = &mut self.batch;
        let at = batch.len + EntryHead::SIZE;
        let room = &mut batch.bytes.as_mut_slice()[at..at + submission.bound];
        let len = if submission.align <= ALIGN {
            (submission.encode)(room)?
        } else {
            batch.scratch.resize(submission.bound);
            let len = (submission.encode)(batch.scratch.as_mut_slice())?;
            room[..len].copy_from_slice(&batch.scratch.as_slice()[..len]);
            len
        };
        assert!(len <= submission.bound, "a payload is longer than its bound");
        let limit = self.link.as_ref().map_or(0, |link| link.hello.limits.max_payload);
        if len as u64 > limit {
            let ifunc = self.name(What::Ifunc(submission.handle));
            let len = len as u64;
            return Err(Error::PayloadTooLarge { ifunc, len, limit });
        }
        Ok(len)
    }

    /// Behind its payload, the entry is written.
    #[inline]
    fn put_entry(&mut self, handle: u32, token: u64, len: usize) {
        let at = self.batch.len;
        let entry = EntryHead::new(handle, len as u32, token);
        let end = at + room_of(entry);
        let bytes = &mut self.batch.bytes.as_mut_slice()[at..end];
        bytes[..EntryHead::SIZE].copy_from_slice(entry.as_bytes());
        bytes[EntryHead::SIZE + len..].fill(0);
        self.batch.len = end;
        if at == 0 {
            self.opened();
        }
    }

    /// It has its first entry.
    fn opened(&mut self) {
        self.batch.generation = self.generation;
        if self.batch.delay == Duration::MAX {
            return;
        }
        self.batch.due = Some(after(self.batch.delay));
        self.signals.due_changed();
    }

    /// Whether there is a target that has the handle's image, or has it on its way.
    #[cold]
    fn may_append(&mut self, handle: u32) -> Result<bool, Error> {
        Ok(self.link.is_some() && self.drive() && self.installed(handle, false)?)
    }

    /// Sends the full batch, so that the entry fits into the next one. `false`: not now.
    #[cold]
    fn make_room(&mut self, room: usize) -> bool {
        if !self.signals.admits(self.batch.len) {
            return false;
        }
        self.close_batch();
        if !self.batch.is_empty() {
            return false;
        }
        self.signals.took_credit();
        // The link may have been lost.
        self.link.is_some() && self.batch.make_room(room)
    }

    /// Sends what is open, behind everything that waits to be sent. If there is no room now, whoever uses the source goes on
    /// with it.
    #[cold]
    pub(super) fn close_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.progress();
        self.ask();
        self.close_soon();
        self.drive();
    }

    /// Whoever sends on what waits to be sent sends what is open, too.
    #[inline]
    pub(super) fn close_soon(&mut self) {
        if !self.batch.is_empty() {
            self.batch.closing = true;
            self.has_more = true;
        }
    }

    /// Sends what is open. Whether it was sent.
    pub(in crate::source) fn try_push(&mut self) -> bool {
        self.close_batch();
        self.batch.is_empty()
    }

    /// Sends what is open if this token's invocation is in it, or if it is due and nobody else looks to that.
    #[inline]
    pub(super) fn close_for(&mut self, token: u64) {
        if !self.batch.is_empty() && !self.batch.closing {
            self.close_if_waited_for(token);
        }
    }

    #[cold]
    fn close_if_waited_for(&mut self, token: u64) {
        if self.pending.is_in_batch(token) {
            self.close_batch();
        } else if !self.signals.is_timed {
            self.close_if_due();
        }
    }

    /// Sends what is open if it is due.
    #[cold]
    fn close_if_due(&mut self) {
        if self.batch.due.is_some_and(|due| Instant::now() >= due) {
            self.close_batch();
        }
    }

    /// The thread's: sends what is open if it is due. `false`: not yet, for want of room or of a link.
    pub(super) fn send_due(&mut self) -> bool {
        if self.batch.closing {
            self.progress();
            self.drive();
        } else {
            self.close_if_due();
        }
        !self.batch.closing
    }

    /// When it is due; `None`: none is open.
    pub(super) fn due(&self) -> Option<Instant> {
        self.batch.due
    }

    /// There is another link: what is open goes over that one, now.
    pub(super) fn adopt_batch(&mut self) {
        if let Some(link) = &self.link {
            self.batch.set_limit(self.options.aggregation, link.tx.max_body());
        }
        self.close_soon();
    }

    /// Sends the batch, or a part of it, or finds out that an image must go first. `false`: no room now.
    pub(super) fn send_batch(&mut self) -> Result<bool, LinkError> {
        if self.batch.generation != self.generation {
            return Ok(self.refit());
        }
        let Some(link) = &mut self.link else {
            return Ok(false);
        };
        let part = self.batch.part(link.tx.max_body());
        if part == 0 {
            self.send_first_alone();
            return Ok(true);
        }
        let Some(room) = link.tx.reserve(part, ALIGN)? else {
            self.signals.lacks(part);
            return Ok(false);
        };
        room[..part].copy_from_slice(&self.batch.bytes.as_slice()[..part]);
        let place = link.tx.commit(Header::new(Kind::Batch, 0, 0), part);
        failpoint!("source.batch");
        if self.batch.has_calls {
            for (_, entry) in self.batch.entries(part) {
                self.pending.set_in_batch(entry.token.get(), false);
                self.pending.sent(entry.token.get(), place);
            }
        }
        if let Some(handle) = self.batch.last_send {
            self.last_send = Some((place, handle));
        }
        self.batch.remove_first(part);
        self.end_batch();
        Ok(true)
    }

    /// The first entry fits into no frame of this link: it travels in fragments.
    #[cold]
    fn send_first_alone(&mut self) {
        let Some((_, entry)) = self.batch.entries(self.batch.len).next() else {
            return;
        };
        let payload = EntryHead::SIZE..EntryHead::SIZE + entry.len.get() as usize;
        let payload = self.batch.bytes.as_slice()[payload].to_vec();
        let token = entry.token.get();
        self.pending.set_in_batch(token, false);
        self.batch.remove_first(room_of(entry));
        self.start(Header::new(Kind::Exec, entry.code.get(), token), payload);
        self.end_batch();
    }

    /// If nothing is left of it, the next one may be opened.
    fn end_batch(&mut self) {
        if !self.batch.is_empty() {
            return;
        }
        self.batch.closing = false;
        self.batch.has_calls = false;
        self.batch.last_send = None;
        self.batch.due = None;
        self.signals.due_changed();
        while let Some(handle) = self.batch.handles.pop() {
            self.leave_batch(handle);
        }
    }

    /// The batch is no user of the handle any more.
    fn leave_batch(&mut self, handle: u32) {
        self.handles[handle as usize].batched = false;
        self.release(handle);
    }

    /// Before it goes over another link than it was made for: its target must have the images, and take the payloads. What
    /// it does not take is told. `false`: no room now.
    #[cold]
    fn refit(&mut self) -> bool {
        for index in 0..self.batch.handles.len() {
            let handle = self.batch.handles[index];
            match self.installed(handle, false) {
                // In fragments: they go first.
                Ok(true) if self.job.is_some() => return true,
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    // Each of its entries says so for itself.
                    self.fail_entries(|connection, entry| {
                        let is_one = entry.code == handle;
                        is_one
                            .then(|| connection.installed(handle, false).err())
                            .flatten()
                    });
                    self.batch.handles.swap_remove(index);
                    self.leave_batch(handle);
                    self.end_batch();
                    return true;
                }
            }
        }
        let limit = self.link.as_ref().map_or(0, |link| link.hello.limits.max_payload);
        self.fail_entries(|connection, entry| {
            let len = entry.len.get().into();
            let ifunc = connection.name(What::Ifunc(entry.code.get()));
            (len > limit).then_some(Error::PayloadTooLarge { ifunc, len, limit })
        });
        self.batch.generation = self.generation;
        self.end_batch();
        true
    }

    /// The target does not come back: what is open was never sent.
    pub(super) fn give_up_batch(&mut self, why: &str) {
        if self.batch.is_empty() {
            return;
        }
        self.fail_entries(|connection, entry| {
            Some(Error::PeerGone {
                what: connection.name(What::Ifunc(entry.code.get())),
                why: why.to_owned(),
            })
        });
        self.end_batch();
    }

    /// Takes entries out of the batch for which there is an error, and tells it.
    fn fail_entries(&mut self, mut verdict: impl FnMut(&mut Self, EntryHead) -> Option<Error>) {
        let heads: Vec<_> = self.batch.entries(self.batch.len).collect();
        let mut kept = 0;
        for (at, entry) in heads {
            let (end, token) = (at + room_of(entry), entry.token.get());
            match verdict(self, entry) {
                None => {
                    self.batch.bytes.as_mut_slice().copy_within(at..end, kept);
                    kept += end - at;
                }
                Some(error) if token == 0 => self.report(Report::Known(error)),
                Some(error) => {
                    self.pending.set_in_batch(token, false);
                    self.pending
                        .complete(token, Err(Box::new(error)), &mut self.signals);
                }
            }
        }
        self.batch.len = kept;
    }
}
