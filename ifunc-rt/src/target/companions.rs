//! Whether the companions of an image are kept. Nothing of them runs here, but what this target sends on, others may run because
//! this target sent it: so it keeps only what it would have accepted itself, by the authority by which it accepted the image.

use std::sync::Arc;

use ifunc_abi::frame::Companion;
use ifunc_abi::image::Image;
use ifunc_abi::machine::Machine;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::signature::Signature;
use ifunc_abi::slices::agree;
use ifunc_abi::status::Rejection;
use ifunc_proto::host::Install;

use crate::keys;
use crate::policy::{Authority, Candidate, Rules, SourceInfo};
use crate::source::slices::Slice;
use crate::travel::companions::{CompanionMemory, Companions};

/// Judges the companions of an image that was accepted by this authority, and keeps them. `None`: it has none.
///
/// # Errors
/// The first one that is refused, and why.
pub(super) fn keep(
    install: &Install<'_>,
    image: &Image<'_>,
    source: &SourceInfo,
    rules: &Rules,
    authority: &Arc<Authority>,
    memory: &Arc<CompanionMemory>,
) -> Result<Option<Arc<Companions>>, Refusal> {
    if install.companions.len() == 0 || !image.travels() {
        return Ok(None);
    }
    let mut kept = Vec::new();
    for companion in install.companions {
        kept.push(Arc::new(judge(&companion, image, source, rules, authority)?));
    }
    memory.keep(kept).map(Some)
}

fn judge(
    companion: &Companion<'_>,
    of: &Image<'_>,
    source: &SourceInfo,
    rules: &Rules,
    authority: &Arc<Authority>,
) -> Result<Slice, Refusal> {
    let (id, bytes) = (&companion.id, companion.image);
    if blake3::hash(bytes) != *id {
        return Err(of_slice(
            None,
            Refusal::new(
                Rejection::IdMismatch,
                "the bytes were changed on the way, or the source is wrong",
            ),
        ));
    }
    let image = Image::parse(bytes)
        .map_err(|error| of_slice(None, Refusal::new(Rejection::BadImage, error.to_string())))?;
    let machine = image.machine();
    let refused = |refusal| of_slice(Some(machine), refusal);
    agree(of, &image)
        .map_err(|difference| refused(Refusal::new(Rejection::BadImage, difference.to_string())))?;
    let signature = Signature::parse(companion.scheme, companion.signature)
        .map_err(|unknown| refused(Refusal::new(Rejection::Signature, unknown.to_string())))?;
    let candidate = Candidate {
        source,
        id,
        len: bytes.len(),
        image: &image,
        signature: signature.as_ref(),
    };
    rules.admit_companion(candidate, authority).map_err(refused)?;
    // As of images that travel on: a signature of a key that is not known here is sent on if it is one.
    let is_valid =
        |signature: &Signature| authority.signer().is_some() || keys::verify(id, signature).is_ok();
    Ok(Slice::new(
        machine,
        *id,
        bytes.to_vec(),
        signature.filter(is_valid),
    ))
}

/// Whether companions that were kept by an earlier policy may stay.
///
/// # Errors
/// The first one that may not, and why.
pub(super) fn readmit(
    companions: &Companions,
    source: &SourceInfo,
    rules: &Rules,
    authority: &Arc<Authority>,
) -> Result<(), Refusal> {
    for slice in companions.iter() {
        let refused = |refusal| of_slice(Some(slice.machine), refusal);
        let image = Image::parse(&slice.image)
            .map_err(|error| refused(Refusal::new(Rejection::BadImage, error.to_string())))?;
        let candidate = Candidate {
            source,
            id: &slice.id,
            len: slice.image.len(),
            image: &image,
            signature: slice.signature.as_ref(),
        };
        rules.admit_companion(candidate, authority).map_err(refused)?;
    }
    Ok(())
}

/// Says which slice was refused.
#[cold]
fn of_slice(machine: Option<Machine>, refusal: Refusal) -> Refusal {
    let which = machine.map_or_else(|| "another machine".to_owned(), |machine| machine.to_string());
    Refusal::new(
        refusal.reason,
        format!(
            "the image's slice for {which}, which would be sent on: {}",
            refusal.detail
        ),
    )
}
