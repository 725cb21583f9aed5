//! Whether an image is installed: its size, its bytes, the policy, its types, the quotas.

use std::sync::Arc;
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::image::{Entry, EntryFlags, Image};
use ifunc_abi::refusal::Refusal;
use ifunc_abi::signature::Signature;
use ifunc_abi::status::Rejection;
use ifunc_exec::runner::Tenant;
use ifunc_exec::{Executor, InstalledImage};
use ifunc_proto::host::Install;

use super::companions;
use super::served::{NOT_SHAREABLE, Served};
use crate::keys::{self, Hex};
use crate::observe::{About, IfuncKey, limited};
use crate::policy::{Allowance, Authority, Candidate, Charge, Limited};
use crate::travel::companions::Companions;

/// An image that was installed.
pub(super) struct Accepted {
    pub(super) image: Arc<InstalledImage>,
    pub(super) authority: Arc<Authority>,
    pub(super) allowance: Option<Allowance>,
    pub(super) charges: Arc<Charges>,
    /// The key that signed it, whether the policy knows it or not.
    pub(super) signed_by: Option<[u8; 32]>,
    /// What accompanies it when it is sent on.
    pub(super) companions: Option<Arc<Companions>>,
}

/// What a bound image counts of the quotas of its connection, of its authority and of its allowance, until its last entry is released.
pub(super) type Charges = Vec<Charge>;

impl<const TAKES: bool> Served<'_, '_, TAKES> {
    /// Installs an image, or logs why not.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn accept(&mut self, install: &Install<'_>) -> Result<Accepted, Refusal> {
        let signature = Signature::parse(install.scheme, install.signature);
        let mut about = None;
        let accepted = self.try_accept(install, signature.as_ref().map(Option::as_ref), &mut about);
        accepted.inspect_err(|refusal| {
            let (reason, detail) = (refusal.reason, &refusal.detail);
            let ifunc = about.map(|about| about.name);
            let source = self.state.source.connection;
            let signer = signature.ok().flatten().map(|signature| {
                let rules = self.execution.host.policy.rules();
                let name = rules.name_of(&signature.key);
                name.map_or_else(|| Hex(&signature.key).to_string(), str::to_owned)
            });
            limited!(warn, [parent: &self.state.span] refused = "image", source, ifunc, signer, %reason, %detail, "image refused");
            self.state.metrics.refused(reason, about);
        })
    }

    /// `about` describes the image after its bytes matched its id.
    fn try_accept<'b>(
        &self,
        install: &Install<'b>,
        signature: Result<Option<&Signature>, &ifunc_abi::signature::UnknownSignature>,
        about: &mut Option<About<'b>>,
    ) -> Result<Accepted, Refusal> {
        let (id, bytes) = (&install.id, install.image);
        let (host, state, len) = (self.execution.host, &*self.state, bytes.len());
        if let Some(refusal) = &state.ending {
            return Err(refusal.clone());
        }
        let beside = install.companions.image_bytes();
        let with_companions = len + beside;
        // Before the bytes are looked at.
        state.meter.attempt(with_companions, Instant::now())?;
        let limit = host.hello.limits.max_image;
        if len as u64 > limit {
            let detail = format!("an image of {len} bytes, the limit is {limit}");
            return Err(Refusal::new(Rejection::TooLarge, detail));
        }
        if with_companions as u64 > limit {
            let detail = format!("an image and its slices of {with_companions} bytes, the limit is {limit}");
            return Err(Refusal::new(Rejection::TooLarge, detail));
        }
        let valid = host.executor.validate(id, bytes)?;
        let image = valid.image();
        *about = describe(id, len, image).next();
        let (here, needed) = (host.hello.machine(), image.machine());
        if !here.runs(needed) {
            let cpu = here
                .level()
                .map_or_else(String::new, |level| format!(" --cpu {level}"));
            let detail = format!(
                "the image was built for {needed}, and this target states that it is {here}; help: `cargo ifunc build{cpu}`"
            );
            return Err(Refusal::new(Rejection::CpuFeature, detail));
        }
        let signature =
            signature.map_err(|unknown| Refusal::new(Rejection::Signature, unknown.to_string()))?;
        let rules = host.policy.rules();
        let (authority, allowance) = rules.admit(Candidate {
            source: &state.source,
            id,
            len,
            beside,
            image,
            signature,
        })?;
        let limited = Limited::new(&authority, allowance.as_ref());
        if let Some(whose) = limited.as_ref().and_then(|limited| limited.of_run_time())
            && !host.executor.has_deadlines()
        {
            let why = format!(
                "the quotas of {whose} limit the time of an invocation, and the policy has no `max_run_time`; help: state one, which holds for all"
            );
            return Err(Refusal::new(Rejection::Policy, why));
        }
        self.check_types(id, len, image, about)?;
        *about = describe(id, len, image).next();
        let meters = || {
            let of_allowance = allowance.as_ref().map(Allowance::meter);
            [&state.meter, authority.meter()].into_iter().chain(of_allowance)
        };
        let companions = companions::keep(install, image, &state.source, &rules, &authority, |all| {
            host.companions.keep(id, all, meters())
        })?;
        let tenant = host.uses_runners.then(|| match authority.signer() {
            Some(key) => Tenant::Key(key.to_owned()),
            None => Tenant::Connection(state.source.connection),
        });
        let image = host.executor.install(&valid, tenant.as_ref())?;
        let charges = meters().filter_map(|meter| meter.charge(&image).transpose());
        let charges = charges.collect::<Result<Charges, Refusal>>()?;
        // A node that sends the image on sends its signature, too.
        if let Some(signature) = signature
            && (authority.signer().is_some() || image.travels && keys::verify(id, signature).is_ok())
        {
            image.set_signature(*signature);
        }
        Ok(Accepted {
            image,
            authority,
            allowance,
            charges: Arc::new(charges),
            signed_by: signature.map(|signature| signature.key),
            companions,
        })
    }

    /// Whether the image runs on these target arguments.
    fn check_types<'b>(
        &self,
        id: &ImageId,
        len: usize,
        image: &Image<'b>,
        about: &mut Option<About<'b>>,
    ) -> Result<(), Refusal> {
        let (executor, argument) = (&self.execution.host.executor, &self.execution.argument);
        for (described, entry) in describe(id, len, image).zip(image.entries()) {
            *about = Some(described);
            if !argument.has_type(executor, entry.target) {
                return Err(argument.wrong_target(executor, entry.target));
            }
            if entry.target != 0 && self.execution.host.uses_runners {
                argument.check_lent(executor)?;
            }
            if argument.is_shared() && !entry.flags.contains(EntryFlags::SHARED) {
                return Err(Refusal::new(Rejection::NotShareable, NOT_SHAREABLE));
            }
        }
        argument.admits_imports(executor, image.imports().map(|import| import.symbol))
    }
}

/// The entries of an image, for the counters.
fn describe<'b>(id: &ImageId, size: usize, image: &Image<'b>) -> impl Iterator<Item = About<'b>> {
    let describe = move |(entry, Entry { name, .. })| About {
        key: IfuncKey { id: *id, entry },
        name,
        size,
    };
    (0..).zip(image.entries()).map(describe)
}
