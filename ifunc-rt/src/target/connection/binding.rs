//! What handles stand for.

use std::sync::Arc;

use ifunc_abi::status::Rejection;

use super::Argument;
use crate::observe::HandleMetrics;
use crate::target::Host;
use ifunc_exec::InstalledImage;
use ifunc_exec::Refusal;

/// What a handle stands for.
#[derive(Debug)]
pub(super) enum Binding {
    Free,
    Bound(Bound),
    /// `Exec`s on it complete with the reason.
    Refused(Refusal),
}

/// An image, and what is counted of it.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) image: Arc<InstalledImage>,
    pub(super) metrics: HandleMetrics,
}

/// The image that a handle stands for, if it can run on these target arguments.
#[inline(always)]
pub(super) fn bound<'a>(
    bindings: &'a [Binding],
    host: &Host,
    argument: &Argument,
    handle: u32,
) -> Result<&'a Bound, Refusal> {
    let target_type = argument.target_type;
    match bindings.get(handle as usize) {
        Some(Binding::Bound(bound)) if argument.suits(&bound.image) => Ok(bound),
        Some(Binding::Bound(Bound { image, .. }))
            if image.target != 0 && image.target != target_type.fingerprint =>
        {
            Err(Refusal::new(Rejection::TargetType, target_type.text))
        }
        Some(Binding::Bound(_)) => Err(not_shareable()),
        Some(Binding::Refused(refusal)) => Err(refusal.clone()),
        None if handle as usize >= host.max_handles => Err(too_many_handles(host, handle)),
        None | Some(Binding::Free) => Err(Refusal::new(Rejection::Unbound, format!("handle {handle}"))),
    }
}

pub(super) fn too_many_handles(host: &Host, handle: u32) -> Refusal {
    Refusal::new(
        Rejection::TooLarge,
        format!("handle {handle}, the limit is {} handles", host.max_handles),
    )
}

pub(super) fn not_shareable() -> Refusal {
    Refusal::new(
        Rejection::NotShareable,
        "this target serves on several threads, and the ifunc takes its data for itself alone; help: take `&T` of a type that is `Sync` (atomics, or an opaque type with host functions that take `&T`), in C say `IFUNC_SHAREABLE(name)`, or let the target `serve`",
    )
}
