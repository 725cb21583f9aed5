//! `Install`: an image is validated, installed and bound to a handle.

use ifunc_proto::link::Body as _;
use std::sync::Arc;

use ifunc_abi::frame::{FrameFlags, Header, InstallHead};
use ifunc_abi::image::ImageFlags;
use ifunc_abi::status::Rejection;

use super::binding::{Binding, Bound, not_shareable, too_many_handles};
use super::state::State;
use super::{Argument, End, broke};
use crate::observe::About;
use crate::policy::ImageInfo;
use crate::target::Host;
use crate::transport::{Body, Frame};
use ifunc_exec::Refusal;
use ifunc_exec::{Executor, InstalledImage, SharedBytes};

impl State {
    pub(super) fn install(
        &mut self,
        host: &Host,
        argument: &Argument,
        header: Header,
        arrived: &Frame<Body<'_>>,
    ) -> Result<Result<(), Refusal>, Box<End>> {
        let handle = header.handle as usize;
        let mut body = Vec::new();
        if header.flags.contains(FrameFlags::ASSEMBLED) {
            let whole = self.assembly.finish(&arrived.body).map_err(broke)?;
            body.extend_from_slice(whole.as_slice());
            self.assembly.clear();
        } else if self.rebinds_the_same(handle, arrived) {
            self.metrics.link.bytes_in.add(arrived.body.len() as u64);
            return Ok(Ok(()));
        } else {
            // Out of the transport's memory: what is hashed, judged and run from here on is this copy.
            arrived.body.append_to(&mut body);
        }
        self.metrics.link.bytes_in.add(body.len() as u64);
        if handle >= host.max_handles {
            self.metrics.refused(Rejection::TooLarge, None);
            return Ok(Err(too_many_handles(host, header.handle)));
        }
        let (head, _signature, image) = InstallHead::split(&body).map_err(broke)?;
        let image = body.len() - image.len()..body.len();
        let image = SharedBytes::new(body, image);
        if self.bindings.len() <= handle {
            self.bindings.resize_with(handle + 1, || Binding::Free);
        }
        // What the handle stood for goes first: its room may be what the new image needs.
        self.bindings[handle] = Binding::Free;
        let mut about = None;
        let (binding, result) = match self.accept(host, argument, &head.id, &image, &mut about) {
            Ok(installed) => {
                let about = About {
                    id: &installed.id,
                    name: &installed.name,
                    size: image.len(),
                };
                let metrics = self.metrics.bound(header.handle, about);
                let image = installed;
                (Binding::Bound(Bound { image, metrics }), Ok(()))
            }
            Err(refusal) => {
                let (reason, detail) = (refusal.reason, &refusal.detail);
                let name = about.map(|about| about.name);
                tracing::warn!(parent: &self.span, source = self.source.connection, name, %reason, %detail, "image refused");
                self.metrics.refused(reason, about);
                (Binding::Refused(refusal.clone()), Err(refusal))
            }
        };
        failpoint!("target.install");
        self.bindings[handle] = binding;
        Ok(result)
    }

    /// An `Install` of the id that the handle already stands for; its image is not looked at.
    fn rebinds_the_same(&self, handle: usize, arrived: &Frame<Body<'_>>) -> bool {
        let Some(Binding::Bound(bound)) = self.bindings.get(handle) else {
            return false;
        };
        let mut id = [0; 32];
        let Some(prefix) = arrived.body.slice(0, id.len()) else {
            return false;
        };
        prefix.copy_to(&mut id);
        let same = id == bound.image.id;
        if same {
            self.metrics.bound_again(&bound.metrics);
        }
        same
    }

    /// Installs an image; `about` says what it is, once that is known to be true.
    fn accept<'a>(
        &self,
        host: &Host,
        argument: &Argument,
        id: &'a [u8; 32],
        bytes: &'a SharedBytes,
        about: &mut Option<About<'a>>,
    ) -> Result<Arc<InstalledImage>, Refusal> {
        if bytes.len() as u64 > host.limits.max_image {
            let detail = format!(
                "an image of {} bytes, the limit is {}",
                bytes.len(),
                host.limits.max_image
            );
            return Err(Refusal::new(Rejection::TooLarge, detail));
        }
        let valid = host.executor.validate(id, bytes)?;
        let image = valid.image();
        *about = Some(About {
            id,
            name: image.name(),
            size: bytes.len(),
        });
        if image.target() != 0 && image.target() != argument.target_type.fingerprint {
            return Err(Refusal::new(Rejection::TargetType, argument.target_type.text));
        }
        if argument.shared && !image.flags().contains(ImageFlags::SHARED) {
            return Err(not_shareable());
        }
        host.policy
            .accepts(
                &self.source,
                &ImageInfo {
                    name: image.name(),
                    id,
                    len: bytes.len(),
                },
            )
            .map_err(|why| Refusal::new(Rejection::Policy, why))?;
        host.executor.install(&valid)
    }
}
