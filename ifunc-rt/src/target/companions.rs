//! Whether the companions of an image are kept. Nothing of them runs here, but what this target sends on, others may run because
//! this target sent it: so it keeps only what it would have accepted itself, by the authority by which it accepted the image.

use std::sync::Arc;

use ifunc_abi::frame;
use ifunc_abi::image::Image;
use ifunc_abi::machine::Machine;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::signature::Signature;
use ifunc_abi::slices::agree;
use ifunc_abi::status::Rejection;
use ifunc_proto::host::Install;

use crate::keys;
use crate::policy::{Authority, Candidate, Readmission, Rules, SourceInfo};
use crate::source::slices::Slice;
use crate::travel::companions::{Companion, Companions};

/// Validates the companions of an image that was accepted by this authority, and has them kept by `keep`. `None`: it has none.
///
/// # Errors
/// The first one that is refused, and why.
pub(super) fn keep(
    install: &Install<'_>,
    image: &Image<'_>,
    source: &SourceInfo,
    rules: &Rules,
    authority: &Arc<Authority>,
    keep: impl FnOnce(Vec<Companion>) -> Result<Arc<Companions>, Refusal>,
) -> Result<Option<Arc<Companions>>, Refusal> {
    if install.companions.len() == 0 || !image.travels() {
        return Ok(None);
    }
    let valid = install
        .companions
        .map(|sent| validate(&sent, image, source, rules, authority));
    keep(valid.collect::<Result<_, _>>()?).map(Some)
}

fn validate(
    companion: &frame::Companion<'_>,
    of: &Image<'_>,
    source: &SourceInfo,
    rules: &Rules,
    authority: &Arc<Authority>,
) -> Result<Companion, Refusal> {
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
        beside: 0,
        image: &image,
        signature: signature.as_ref(),
    };
    rules.admit_companion(candidate, authority).map_err(refused)?;
    let signed_by = signature.as_ref().map(|signature| signature.key);
    // As of images that travel on: a signature of a key that is not known here is sent on if it is one.
    let is_valid =
        |signature: &Signature| authority.signer().is_some() || keys::verify(id, signature).is_ok();
    let slice = Slice::new(machine, *id, bytes.to_vec(), signature.filter(is_valid));
    Ok(Companion { slice, signed_by })
}

/// Whether companions may stay that were kept beside an image that was accepted by this authority, by an earlier policy: the rules are
/// asked as for the image.
///
/// # Errors
/// The first one that may not, and why.
pub(super) fn readmit(
    companions: &Companions,
    source: &SourceInfo,
    rules: &Rules,
    before: &Authority,
) -> Result<(), Refusal> {
    for Companion { slice, signed_by } in companions.iter() {
        let refused = |refusal| of_slice(Some(slice.machine), refusal);
        let image = Image::parse(&slice.image)
            .map_err(|error| refused(Refusal::new(Rejection::BadImage, error.to_string())))?;
        let installed = Readmission {
            source,
            authority: before,
            signed_by: signed_by.as_ref(),
            id: &slice.id,
            len: slice.image.len(),
            names: &image.entries().map(|entry| entry.name).collect::<Vec<_>>(),
            imports: &image.imports().map(|import| import.symbol).collect::<Vec<_>>(),
            needed: &image.needed().collect::<Vec<_>>(),
        };
        rules.readmit(installed).map_err(refused)?;
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
