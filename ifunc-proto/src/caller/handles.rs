//! Images bound to handles: what the peer has of them, and which image a report is about.

use ifunc_abi::frame::{Header, InstallHead, Kind};
use zerocopy::IntoBytes;

use super::{Caller, Image, MAX_REPORTS, Report};
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
    /// Binds an image to a handle. Nothing is sent before its first use.
    pub fn bind(&mut self, image: I) -> u32 {
        let same = self
            .handles
            .iter()
            .position(|handle| handle.users > 0 && handle.image.id() == image.id());
        // A call that may be sent again still names its handle.
        let mut handles = self.handles.iter().enumerate();
        let unused = || {
            handles
                .find(|(index, handle)| handle.users == 0 && !self.calls.has_retry_of(*index as u32))
                .map(|(index, _)| index)
        };
        let index = match same.or_else(unused) {
            Some(index) => {
                let handle = &mut self.handles[index];
                let is_other = handle.image.id() != image.id();
                let former = std::mem::replace(&mut handle.image, image);
                handle.users += 1;
                // A peer that has another image of the handle is still told to release it.
                if !is_other && handle.is_installed(self.generation) {
                    self.unbind.retain(|&handle| handle as usize != index);
                }
                if is_other {
                    handle.installed = 0;
                    if self.former.len() == MAX_FORMER {
                        self.former.pop_front();
                    }
                    self.former.push_back(Former {
                        handle: index as u32,
                        image: former,
                        until: None,
                    });
                }
                index
            }
            None => {
                self.handles.push(Handle {
                    image,
                    users: 1,
                    is_batched: false,
                    installed: 0,
                });
                self.handles.len() - 1
            }
        };
        index as u32
    }

    /// Removes a user of a handle. Without users the peer is told to release the image.
    pub fn unbind(&mut self, handle: u32) {
        let slot = &mut self.handles[handle as usize];
        slot.users -= 1;
        if slot.users == 0 && slot.is_installed(self.generation) {
            self.unbind.push(handle);
            self.attention.set(Attention::BACKLOG, true);
        }
    }

    /// The next invocation of this handle that carries its code sends the image.
    pub fn resend_image(&mut self, handle: u32) {
        self.handles[handle as usize].installed |= Handle::<I>::RESEND;
    }

    /// The image of a handle.
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
        for former in &mut self.former {
            if former.handle == handle {
                former.until.get_or_insert(sequence);
            }
        }
    }

    /// Sends the image of a handle, unless the peer has it. With `again` it is sent if it was not sent since the last
    /// invocation that carried its code. `false`: the window is closed. The inner error: the peer does not accept it.
    pub(super) fn install(
        &mut self,
        tx: &mut impl Outbound,
        handle: u32,
        again: bool,
    ) -> Result<Result<bool, Lost>, LinkError> {
        // The image is borrowed, not cloned: a reference count would wait for the stores of the image itself.
        let slot = &mut self.handles[handle as usize];
        let is_due_again = again && slot.installed & Handle::<I>::RESEND != 0;
        if slot.is_installed(self.generation) && !is_due_again {
            return Ok(Ok(true));
        }
        let image = slot.image.bytes();
        if image.len() as u64 > self.limits.max_image {
            return Ok(Err(Lost::ImageTooLarge {
                len: image.len() as u64,
                limit: self.limits.max_image,
            }));
        }
        let head = InstallHead::unsigned(*slot.image.id());
        let len = InstallHead::SIZE + image.len();
        let header = Header::new(Kind::Install, handle, 0);
        if len > tx.max_body() {
            let mut body = head.as_bytes().to_vec();
            body.extend_from_slice(image);
            slot.installed = self.generation;
            self.start(header, body);
            return Ok(Ok(true));
        }
        let Some(memory) = tx.reserve(len, 8)? else {
            self.lacking = len;
            return Ok(Ok(false));
        };
        let (to_head, to_image) = memory[..len].split_at_mut(InstallHead::SIZE);
        to_head.copy_from_slice(head.as_bytes());
        to_image.copy_from_slice(image);
        let sequence = tx.commit(header, len);
        slot.installed = self.generation;
        self.installed(handle, sequence);
        failpoint!("source.installed");
        Ok(Ok(true))
    }
}
