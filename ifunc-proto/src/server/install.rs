//! The installation of an image: its entries take handles in a row.

use std::mem;

use ifunc_abi::Counted;
use ifunc_abi::frame::{FrameError, FrameFlags, Header, InstallBody, InstallHead};
use ifunc_abi::status::Rejection;
use zerocopy::{FromZeros, IntoBytes};

use super::{Images, too_many_handles};
use crate::assembly::no_memory;
use crate::closed::Closed;
use crate::host::{Event, Host, Install, Refusal};
use crate::link::{Body, Frame};

/// Memory that stays allocated for copies of images: each connection that installs one keeps it.
const KEPT_COPY: usize = 16 << 10;

impl<B> Images<B> {
    /// Binds handles to the entries of an image. What keeps it from running is bound as well.
    pub(super) fn install<H: Host<Image = B>, P: Body>(
        &mut self,
        host: &mut H,
        header: Header,
        frame: &Frame<P>,
    ) -> Result<Result<(), Refusal>, Box<Closed>> {
        if header.flags.contains(FrameFlags::ASSEMBLED) {
            let whole = self.assembly.finish(host, frame.body).map_err(Closed::broke)?;
            let kept = whole.map(|_| ());
            // Also of a body that was not kept.
            let head = InstallHead::read(self.assembly.front());
            let body = self.assembly.take();
            self.assembly.clear(host);
            return self.install_private(host, header, head, kept.map(|()| body.as_slice()));
        }
        if self.is_same_image(host, header.handle as usize, frame.body) {
            host.observe(Event::ImageBytes(frame.body.len()));
            return Ok(Ok(()));
        }
        let mut copy = mem::take(&mut self.copy);
        let body = private_copy(frame.body, &mut copy);
        let head = match &body {
            Ok(body) => InstallHead::read(body),
            Err(_) => InstallHead::read(head_of(frame.body).as_bytes()),
        };
        let installed = self.install_private(host, header, head, body);
        copy.clear();
        copy.shrink_to(KEPT_COPY);
        self.copy = copy;
        installed
    }

    /// The same of a private copy of the body: what is hashed, validated and run.
    fn install_private<H: Host<Image = B>>(
        &mut self,
        host: &mut H,
        header: Header,
        head: Result<InstallHead, FrameError>,
        body: Result<&[u8], Refusal>,
    ) -> Result<Result<(), Refusal>, Box<Closed>> {
        host.observe(Event::ImageBytes(body.as_ref().map_or(0, |body| body.len())));
        let first = header.handle as usize;
        let entries = usize::from(head.map_err(Closed::broke)?.entries.get());
        let (handles, max) = (first..first + entries, self.config.max_handles);
        // The old image is released first: the new one may need its memory.
        self.bindings.release_overlapping(handles.clone());
        let body = match body {
            Ok(body) if handles.end <= max => body,
            Ok(_) => {
                let last = header.handle.saturating_add(entries as u32 - 1);
                return Ok(Err(self.refuse(
                    host,
                    first.min(max)..max,
                    too_many_handles(last, max),
                )));
            }
            Err(refusal) => {
                let handles = first.min(max)..handles.end.min(max);
                return Ok(Err(self.refuse(host, handles, refusal)));
            }
        };
        let InstallBody {
            head,
            signature,
            companions,
            image,
        } = InstallHead::split(body).map_err(Closed::broke)?;
        let install = Install {
            handle: header.handle,
            entries,
            id: head.id,
            scheme: head.signature_scheme.get(),
            signature,
            companions,
            image,
        };
        let installed = host.install(install);
        failpoint!("target.install");
        match installed {
            Ok(installed) if installed.len() == entries => {
                self.bindings.bind(first, installed);
                Ok(Ok(()))
            }
            Ok(installed) => {
                let found = Counted(installed.len(), "entry");
                let why = format!("the image has {found}, its frame states {entries}");
                Ok(Err(self.refuse(
                    host,
                    handles,
                    Refusal::new(Rejection::BadImage, why),
                )))
            }
            Err(refusal) => {
                self.bindings.refuse(handles, &refusal);
                Ok(Err(refusal))
            }
        }
    }

    /// Refuses an image that the host did not.
    #[cold]
    fn refuse(&mut self, host: &mut impl Host, handles: std::ops::Range<usize>, refusal: Refusal) -> Refusal {
        host.observe(Event::Refused(refusal.reason));
        self.bindings.refuse(handles, &refusal);
        refusal
    }

    /// Whether the handles are bound to the image that the body names. Its bytes are not looked at then.
    fn is_same_image<H: Host<Image = B>>(&self, host: &mut H, first: usize, body: impl Body) -> bool {
        let head = head_of(body);
        let handles = first..first + usize::from(head.entries.get());
        let entries = self.bindings.entries(handles);
        entries.is_some_and(|mut entries| entries.all(|entry| host.has_id(entry, &head.id)))
    }
}

/// A copy of the head of an `Install`'s body; zeros if it is too short for one.
fn head_of(body: impl Body) -> InstallHead {
    let mut head = InstallHead::new_zeroed();
    if let Some(prefix) = body.slice(0, InstallHead::SIZE) {
        prefix.copy_to(head.as_mut_bytes());
    }
    head
}

/// Makes `copy` that of an `Install`'s body.
fn private_copy(body: impl Body, copy: &mut Vec<u8>) -> Result<&[u8], Refusal> {
    copy.clear();
    copy.try_reserve_exact(body.len())
        .map_err(|_| no_memory(body.len()))?;
    body.append_to(copy);
    Ok(copy)
}
