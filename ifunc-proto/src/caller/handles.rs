//! Images bound to handles: what the peer has of them, and which image a report is about.
//!
//! An image has a *span* of handles, one per entry, in the order of its table. All users of an image share its span, so the image
//! travels once.

use std::ops::Range;

use ifunc_abi::frame::{CompanionHead, Header, INLINE, InstallHead, Kind, MAX_COMPANIONS};
use ifunc_abi::signature::Signature;
use zerocopy::IntoBytes;

use super::{Caller, Image, ImageBytes, MAX_REPORTS, Report};
use crate::attention::Attention;
use crate::calls::{Lost, Outcome};
use crate::link::{LinkError, Outbound};

/// A handle.
#[derive(Debug)]
pub(super) struct Handle<I> {
    pub(super) image: I,
    pub(super) users: usize,
    /// The open batch is one of the users.
    pub(super) is_batched: bool,
    /// It had users, so the peer may report on its invocations.
    was_used: bool,
    /// Index in its span.
    entry: u8,
    /// Length of its span.
    entries: u8,
    /// The generation of the link over which the image was sent, with [`RESEND`](Self::RESEND); 0: over none.
    pub(super) installed: u64,
}

impl<I> Handle<I> {
    /// A bit of [`installed`](Self::installed): the next invocation that carries its code sends the image again. One
    /// comparison with the generation therefore tells whether anything must be sent ahead of an invocation.
    const RESEND: u64 = 1 << 63;

    /// Whether the peer of this link has the image.
    fn is_installed(&self, generation: u64) -> bool {
        generation != 0 && self.installed & !Self::RESEND == generation
    }
}

/// An image whose handle was bound to another one. The peer may still report on its invocations.
#[derive(Debug)]
pub(super) struct Former<I> {
    handle: u32,
    image: I,
    /// Sequence number of the frame that installed the other image; `None`: it was not sent.
    until: Option<u32>,
}

/// Former images kept.
const MAX_FORMER: usize = 64;

impl<I: Image + Clone, U> Caller<I, U> {
    /// Binds an entry of an image to a handle. Nothing is sent before its first use.
    pub fn bind(&mut self, image: I) -> u32 {
        let (entry, entries) = (image.entry(), image.entries());
        debug_assert!(entry < entries);
        // A span without users is one of its image until a part of it is bound to another one.
        let same = self
            .handles
            .iter()
            .position(|handle| handle.entries == entries && handle.image.id() == image.id());
        let span = match same {
            Some(handle) => self.span(handle as u32),
            None => self.new_span(&image, entries.into()),
        };
        let index = span.start + usize::from(entry);
        let handle = &mut self.handles[index];
        handle.image = image;
        handle.users += 1;
        handle.was_used = true;
        if handle.is_installed(self.generation) {
            self.unbind.retain(|&first| first as usize != span.start);
        }
        index as u32
    }

    /// The handles of the image of this one.
    pub(super) fn span(&self, handle: u32) -> Range<usize> {
        let slot = &self.handles[handle as usize];
        let first = handle as usize - usize::from(slot.entry);
        first..first + usize::from(slot.entries)
    }

    /// Whether a handle may be bound to another image.
    fn is_free(&self, index: usize) -> bool {
        let mut span = self.span(index as u32);
        // A call that may be sent again still names its handle.
        span.all(|index| self.handles[index].users == 0 && !self.calls.has_retry_of(index as u32))
    }

    /// Makes the span of an image out of the first handles in a row that are free.
    fn new_span(&mut self, image: &I, entries: usize) -> Range<usize> {
        let mut first = 0;
        for index in 0..self.handles.len() {
            if index == first + entries {
                break;
            }
            if !self.is_free(index) {
                first = index + 1;
            }
        }
        let span = first..first + entries;
        let known = self.handles.len();
        self.at_hand = 0;
        // A peer that has another image of these handles is still told to release it.
        for index in span.start..span.end.min(known) {
            for other in self.span(index as u32) {
                let handle = &mut self.handles[other];
                (handle.entry, handle.entries, handle.installed) = (0, 1, 0);
            }
        }
        for (entry, index) in (0..).zip(span.clone()) {
            let new = Handle {
                image: image.clone(),
                users: 0,
                is_batched: false,
                was_used: false,
                entry,
                entries: entries as u8,
                installed: 0,
            };
            match self.handles.get_mut(index) {
                Some(handle) => {
                    let former = std::mem::replace(handle, new);
                    if former.was_used {
                        self.remember(index as u32, former.image);
                    }
                }
                None => self.handles.push(new),
            }
        }
        span
    }

    fn remember(&mut self, handle: u32, image: I) {
        if self.former.len() == MAX_FORMER {
            self.former.pop_front();
        }
        self.former.push_back(Former {
            handle,
            image,
            until: None,
        });
    }

    /// Removes a user of a handle. Without users of any entry the peer is told to release the image.
    pub fn unbind(&mut self, handle: u32) {
        let slot = &mut self.handles[handle as usize];
        slot.users -= 1;
        if slot.is_installed(self.generation) {
            self.release_unused(handle);
        }
    }

    /// Has the peer told to release the image of a handle, if no entry of it has users.
    pub(super) fn release_unused(&mut self, handle: u32) {
        let span = self.span(handle);
        let first = span.start as u32;
        let is_unused = self.handles[span].iter().all(|slot| slot.users == 0);
        if is_unused && !self.unbind.contains(&first) {
            self.unbind.push(first);
            self.attention.set(Attention::BACKLOG, true);
        }
    }

    /// The next invocation of this handle that carries its code sends the image.
    pub fn resend_image(&mut self, handle: u32) {
        self.at_hand = 0;
        self.handles[handle as usize].installed |= Handle::<I>::RESEND;
    }

    /// Whether nothing precedes an invocation of this handle, and the peer accepts any payload of at most [`INLINE`] bytes. `false`
    /// decides nothing.
    #[inline(always)]
    pub(super) fn is_at_hand(&self, handle: u32, wants_completion: bool) -> bool {
        let needs_attention = if wants_completion {
            !self.attention.is_none()
        } else {
            !self.attention.is_none_but_duplex()
        };
        // No bit is set while there are more handles than bits.
        !needs_attention && self.at_hand >> (handle % u64::BITS) & 1 != 0
    }

    /// Notes whether the peer has the image of a handle and accepts any short payload.
    #[inline]
    pub(super) fn note_at_hand(&mut self, handle: u32) {
        let is_installed = self.handles[handle as usize].installed == self.generation;
        let has_bits = self.handles.len() <= u64::BITS as usize;
        let takes_short = self.limits.max_payload >= INLINE as u64;
        if has_bits && is_installed && takes_short {
            self.at_hand |= 1 << handle;
        }
    }

    /// The entry that a handle is bound to.
    ///
    /// # Panics
    /// If [`bind`](Self::bind) did not return the handle.
    #[must_use]
    pub fn image(&self, handle: u32) -> &I {
        &self.handles[handle as usize].image
    }

    /// Reports on an invocation of a handle. `is_former`: whether it is one of an image whose handle was bound to another
    /// one, which was installed by this frame, or is not installed yet.
    pub(super) fn report(&mut self, handle: u32, outcome: Outcome, is_former: impl Fn(Option<u32>) -> bool) {
        let mut former = self.former.iter();
        let former = former.find(|former| former.handle == handle && is_former(former.until));
        let former = former.map(|former| &former.image);
        let current = || self.handles.get(handle as usize).map(|slot| &slot.image);
        if self.reports.len() < MAX_REPORTS
            && let Some(image) = former.or_else(current).cloned()
        {
            self.reports.push_back(Report { image, outcome });
            self.attention.set(Attention::REPORTS, true);
        }
    }

    /// Reports on an invocation that was sent in this frame.
    pub(super) fn report_sent(&mut self, handle: u32, sequence: u32, outcome: Outcome) {
        self.report(handle, outcome, |until| {
            until.is_none_or(|until| (sequence.wrapping_sub(until) as i32) < 0)
        });
    }

    /// The image of a handle was sent: invocations before this frame are of former images.
    pub(super) fn installed(&mut self, handle: u32, sequence: u32) {
        let span = self.span(handle);
        for former in &mut self.former {
            if span.contains(&(former.handle as usize)) {
                former.until.get_or_insert(sequence);
            }
        }
    }

    /// Sends the image of a handle, unless the peer has it. With `again` it is sent if it was not sent since the last
    /// invocation that carried its code. `false`: the window is closed. The inner error: the peer does not accept it.
    #[inline(always)]
    pub(super) fn install(
        &mut self,
        tx: &mut impl Outbound,
        handle: u32,
        again: bool,
    ) -> Result<Result<bool, Lost>, LinkError> {
        match self.send_image(tx, handle, again) {
            Ok(()) => Ok(Ok(true)),
            Err(None) => Ok(Ok(false)),
            Err(Some(why)) => match *why {
                NotInstalled::Lost(lost) => Ok(Err(lost)),
                NotInstalled::Link(error) => Err(error),
            },
        }
    }

    /// As [`install`](Self::install). `None`: the window is closed. Two registers hold the result. In memory, it would be read back only when the
    /// stores before it are complete, which are those of the image.
    #[inline(never)]
    fn send_image(
        &mut self,
        tx: &mut impl Outbound,
        handle: u32,
        again: bool,
    ) -> Result<(), Option<Box<NotInstalled>>> {
        let span = self.span(handle);
        // The image is borrowed, not cloned: a reference count would wait for the stores of the image itself.
        let slot = &self.handles[handle as usize];
        let is_due_again = again && slot.installed & Handle::<I>::RESEND != 0;
        if slot.is_installed(self.generation) && !is_due_again {
            return Ok(());
        }
        let (limit, entries) = (self.limits.max_image, slot.image.entries().into());
        let written = slot
            .image
            .send_to(self.machine, |slice, companions| -> Result<Written, LinkError> {
                let len = slice.bytes.len() as u64;
                if len > limit {
                    return Ok(Written::TooLarge(len));
                }
                let body = InstallBody::new(slice, companions, entries, limit);
                let len = body.len();
                if len > tx.max_body() {
                    let mut whole = vec![0; len];
                    body.write(&mut whole);
                    return Ok(Written::Apart(whole));
                }
                let Some(memory) = tx.reserve(len, 8)? else {
                    return Ok(Written::NoRoom(len));
                };
                body.write(&mut memory[..len]);
                Ok(Written::InPlace(len))
            });
        let header = Header::new(Kind::Install, span.start as u32, 0);
        let len = match written {
            Err(why) => return Err(NotInstalled::of(Lost::NoSlice { why })),
            Ok(Err(error)) => return Err(Some(NotInstalled::Link(error).into())),
            Ok(Ok(written)) => match written {
                Written::TooLarge(len) => return Err(NotInstalled::of(Lost::ImageTooLarge { len, limit })),
                Written::Apart(whole) => {
                    self.set_installed(handle);
                    self.start(header, whole);
                    return Ok(());
                }
                Written::NoRoom(len) => {
                    self.lacking = len;
                    return Err(None);
                }
                Written::InPlace(len) => len,
            },
        };
        let sequence = tx.commit(header, len);
        self.set_installed(handle);
        self.installed(handle, sequence);
        failpoint!("source.installed");
        Ok(())
    }

    /// The image of a handle is sent over this link, for all its entries.
    fn set_installed(&mut self, handle: u32) {
        for index in self.span(handle) {
            let slot = &mut self.handles[index];
            // Another entry whose next invocation carries the image still does.
            let resend = slot.installed & Handle::<I>::RESEND;
            slot.installed = self.generation | resend;
        }
        self.handles[handle as usize].installed = self.generation;
    }
}

/// Why an image was not sent and will not be.
enum NotInstalled {
    /// The peer does not accept it.
    Lost(Lost),
    /// The link died.
    Link(LinkError),
}

impl NotInstalled {
    #[cold]
    fn of(lost: Lost) -> Option<Box<Self>> {
        Some(Self::Lost(lost).into())
    }
}

/// What became of the body of an `Install`.
enum Written {
    /// It has so many bytes, in the memory of the next frame.
    InPlace(usize),
    /// It is to be sent in fragments.
    Apart(Vec<u8>),
    /// The window is closed for so many bytes.
    NoRoom(usize),
    /// The peer does not accept an image of so many bytes.
    TooLarge(u64),
}

/// The body of an `Install`.
struct InstallBody<'a> {
    head: InstallHead,
    image: ImageBytes<'a>,
    companions: Vec<ImageBytes<'a>>,
}

impl<'a> InstallBody<'a> {
    /// With those companions that the peer takes: it takes at most `limit` bytes of all images together.
    fn new(image: ImageBytes<'a>, mut companions: Vec<ImageBytes<'a>>, entries: u16, limit: u64) -> Self {
        let mut left = limit - image.bytes.len() as u64;
        companions.retain(|companion| {
            let rest = left.checked_sub(companion.bytes.len() as u64);
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        companions.truncate(MAX_COMPANIONS);
        let head = match image.signature {
            Some(_) => InstallHead::signed(*image.id, entries),
            None => InstallHead::unsigned(*image.id, entries),
        };
        Self {
            head: head.with_companions(companions.len() as u16),
            image,
            companions,
        }
    }

    fn len(&self) -> usize {
        let companions = self.companions.iter();
        let companions = companions.map(|companion| CompanionHead::SIZE + size_of_slice(companion));
        InstallHead::SIZE + size_of_slice(&self.image) + companions.sum::<usize>()
    }

    /// Writes it to memory of its [length](Self::len).
    fn write(&self, memory: &mut [u8]) {
        let mut rest = memory;
        let mut put = |bytes: &[u8]| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            to.copy_from_slice(bytes);
            rest = after;
        };
        let signature_of =
            |slice: &ImageBytes<'a>| slice.signature.map_or(&[][..], |signature| signature.as_bytes());
        put(self.head.as_bytes());
        put(signature_of(&self.image));
        for companion in &self.companions {
            let head = CompanionHead::new(
                *companion.id,
                companion.bytes.len() as u32,
                companion.signature.is_some(),
            );
            put(head.as_bytes());
            put(signature_of(companion));
            put(companion.bytes);
        }
        put(self.image.bytes);
    }
}

/// Bytes of an image and its signature.
fn size_of_slice(slice: &ImageBytes<'_>) -> usize {
    slice.signature.map_or(0, |_| Signature::SIZE) + slice.bytes.len()
}
