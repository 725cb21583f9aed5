//! The way out: connected, installed, in order, in fragments where need be.

use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use zerocopy::IntoBytes;

use super::pending::{Again, What};
use super::{Connection, Error};
use crate::transport::{Link, LinkError, Outbound};
use crate::wire::order::Order;

/// A body under way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) header: Header,
    body: Vec<u8>,
    sent: usize,
    number: u32,
    /// It was sent before, over a link that was lost.
    pub(super) again: bool,
}

impl Connection {
    /// Connected, nothing large under way, and the handle's image installed: sent once more, if `again`. `false`: not now.
    #[inline]
    pub(super) fn ready(&mut self, handle: u32, again: bool) -> Result<bool, Error> {
        let installed = self.handles[handle as usize].installed == self.generation;
        if installed && self.link.is_some() && self.is_idle() && self.batch.is_empty() {
            return Ok(true);
        }
        self.make_ready(handle, again)
    }

    #[cold]
    fn make_ready(&mut self, handle: u32, again: bool) -> Result<bool, Error> {
        self.close_soon();
        Ok(self.link.is_some() && self.drive() && self.installed(handle, again)? && self.drive())
    }

    /// Goes on over a new link: nothing is installed over it, and what may be sent again will be.
    pub(in crate::source) fn adopt(&mut self, link: Link) {
        tracing::info!(address = %self.route, "connected again");
        self.link = Some(link);
        self.generation += 1;
        self.order = Order::new();
        self.unbind.clear();
        self.adopt_batch();
        self.signals.link_changed();
        self.drive();
    }

    /// The target does not come back: what would have been sent again may have run, and is not.
    pub(super) fn resend_no_more(&mut self) {
        while let Some(token) = self.resend.pop_front() {
            if let Some(what) = self.pending.waiting(token) {
                let what = self.name(what);
                let error = Error::Indeterminate { what };
                self.pending
                    .complete(token, Err(Box::new(error)), &mut self.signals);
            }
        }
    }

    /// The handle's image is installed or on its way, in order; with `again` it has travelled since the last that carried it.
    /// `false`: no room now.
    pub(super) fn installed(&mut self, handle: u32, again: bool) -> Result<bool, Error> {
        // The image is borrowed, not held: to count those who hold it would wait for all stores before, and that is the image.
        let Self {
            handles,
            link,
            generation,
            signals,
            ..
        } = self;
        let slot = &mut handles[handle as usize];
        if slot.is_bound(*generation) && !(again && slot.is_due_again()) {
            return Ok(true);
        }
        let Some(link) = link else {
            return Ok(false);
        };
        let library = &*slot.library;
        let limit = link.hello.limits.max_image;
        if library.image.len() as u64 > limit {
            return Err(Error::ImageTooLarge {
                ifunc: library.name.clone(),
                len: library.image.len() as u64,
                limit,
            });
        }
        let head = InstallHead::unsigned(library.id);
        let len = InstallHead::SIZE + library.image.len();
        let header = Header::new(Kind::Install, handle, 0);
        if len > link.tx.max_body() {
            let mut body = head.as_bytes().to_vec();
            body.extend_from_slice(&library.image);
            slot.installed = *generation;
            self.start(header, body);
            return Ok(true);
        }
        match link.tx.reserve(len, 8) {
            Ok(Some(room)) => {
                let (to_head, to_image) = room[..len].split_at_mut(InstallHead::SIZE);
                to_head.copy_from_slice(head.as_bytes());
                to_image.copy_from_slice(&library.image);
                link.tx.commit(header, len);
                slot.installed = *generation;
                failpoint!("source.installed");
                Ok(true)
            }
            Ok(None) => {
                signals.lacks(len);
                Ok(false)
            }
            Err(gone) => {
                self.lost(&gone);
                Ok(false)
            }
        }
    }

    /// Publishes what was reserved, and remembers its place for the day the target goes away.
    pub(super) fn commit(&mut self, header: Header, len: usize) {
        let Some(link) = &mut self.link else { return };
        let place = link.tx.commit(header, len);
        if header.kind == Kind::Exec && header.token == 0 {
            self.last_send = Some((place, header.handle));
        } else {
            self.pending.sent(header.token, place);
        }
    }

    /// Begins to send a body in fragments.
    pub(super) fn start(&mut self, header: Header, body: Vec<u8>) {
        self.bodies = self.bodies.wrapping_add(1);
        self.job = Some(Job {
            header,
            body,
            sent: 0,
            number: self.bodies,
            again: false,
        });
        self.has_more = true;
    }

    /// Sends on what is under way: fragments, calls to be sent again, handles to be released. `false`: no room for all
    /// of it now.
    #[inline]
    pub(super) fn drive(&mut self) -> bool {
        self.is_idle() || self.drive_on()
    }

    #[cold]
    fn drive_on(&mut self) -> bool {
        match self.try_drive() {
            Ok(done) => done,
            Err(gone) => {
                self.lost(&gone);
                false
            }
        }
    }

    pub(super) fn try_drive(&mut self) -> Result<bool, LinkError> {
        loop {
            let nothing = self.job.is_none() && self.resend.is_empty() && self.unbind.is_empty();
            if nothing && !self.batch.closing {
                self.has_more = false;
                return Ok(true);
            }
            let Some(link) = &mut self.link else {
                return Ok(false);
            };
            if let Some(job) = &mut self.job {
                let left = job.body.len() - job.sent;
                let most = link.tx.max_body();
                let len = left.min(most);
                let Some(room) = link.tx.reserve(len, ifunc_abi::frame::BODY_ALIGN)? else {
                    self.signals.lacks(len);
                    return Ok(false);
                };
                room[..len].copy_from_slice(&job.body[job.sent..job.sent + len]);
                if left > most {
                    let header = Header::new(Kind::Fragment, job.number, job.body.len() as u64);
                    link.tx.commit(header, len);
                    job.sent += len;
                    failpoint!("source.fragment");
                    continue;
                }
                let flags = if job.sent > 0 {
                    FrameFlags::ASSEMBLED
                } else {
                    FrameFlags::NONE
                };
                let header = Header { flags, ..job.header };
                self.job = None;
                self.commit(header, len);
                // Others wait for its end.
                self.signals.unblocked();
            } else if let Some(&token) = self.resend.front() {
                if let Some(What::Ifunc(handle)) = self.pending.waiting(token) {
                    match self.installed(handle, false) {
                        Ok(true) => {}
                        Ok(false) => return Ok(false),
                        Err(error) => {
                            self.resend.pop_front();
                            self.pending
                                .complete(token, Err(Box::new(error)), &mut self.signals);
                            continue;
                        }
                    }
                    if self.job.is_some() {
                        continue;
                    }
                    self.send_again(token);
                }
                self.resend.pop_front();
            } else if self.batch.closing {
                if !self.send_batch()? {
                    return Ok(false);
                }
                // Others wait for its end.
                self.signals.unblocked();
            } else if let Some(handle) = self.unbind.pop() {
                if link.tx.reserve(0, 1)?.is_none() {
                    self.unbind.push(handle);
                    self.signals.lacks(0);
                    return Ok(false);
                }
                link.tx.commit(Header::new(Kind::Unbind, handle, 0), 0);
                self.handles[handle as usize].installed = 0;
            }
        }
    }

    /// Sends what a token may send again, if the target that is there now takes it.
    fn send_again(&mut self, token: u64) {
        let Some(again) = self.pending.take_again(token) else {
            return;
        };
        let Again { handle, payload } = *again;
        let limit = self.link.as_ref().map_or(0, |link| link.hello.limits.max_payload);
        let len = payload.len() as u64;
        if len > limit {
            let ifunc = self.name(What::Ifunc(handle));
            let error = Error::PayloadTooLarge { ifunc, len, limit };
            self.pending
                .complete(token, Err(Box::new(error)), &mut self.signals);
        } else {
            self.start(Header::new(Kind::Exec, handle, token), payload);
            if let Some(job) = &mut self.job {
                job.again = true;
            }
        }
    }
}
