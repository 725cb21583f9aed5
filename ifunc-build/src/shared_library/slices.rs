//! The tables of a library's slices.

use ifunc_abi::image::Image;
use ifunc_abi::slices::{NATIVE, Slice, agree, encode};
use ifunc_link::Linked;

use crate::BuildError;

/// The table of the images of an ifunc, and that of their debug objects.
///
/// # Errors
/// The images are not slices of one library, or there are too many.
pub(super) fn tables(name: &str, linked: &[&Linked]) -> Result<(Vec<u8>, Vec<u8>), BuildError> {
    let failed = |why: String| BuildError::Slices {
        name: name.to_owned(),
        why,
    };
    let slices = slices_of(linked).map_err(failed)?;
    let debug_objects: Vec<Slice<'_>> = slices
        .iter()
        .zip(linked)
        .map(|(slice, linked)| Slice {
            bytes: &linked.debug,
            ..*slice
        })
        .collect();
    let table = |slices: &[Slice<'_>]| encode(slices).map_err(|error| failed(error.to_string()));
    Ok((table(&slices)?, table(&debug_objects)?))
}

/// The slices of images that agree.
pub(crate) fn slices_of<'l>(linked: &[&'l Linked]) -> Result<Vec<Slice<'l>>, String> {
    let mut slices: Vec<Slice<'l>> = Vec::new();
    for linked in linked {
        let image = Image::parse(&linked.image).map_err(|error| error.to_string())?;
        let machine = image.machine();
        if let Some(first) = slices.first() {
            let first = Image::parse(first.bytes).map_err(|error| error.to_string())?;
            agree(&first, &image).map_err(|difference| format!("that for {machine}: {difference}"))?;
        }
        if slices.iter().any(|known| known.machine == machine) {
            return Err(format!(
                "two are for {machine}; help: `-march` among the flags of C sets the level of each: remove it, or one level"
            ));
        }
        slices.push(Slice {
            kind: NATIVE,
            machine,
            id: *blake3::hash(&linked.image).as_bytes(),
            bytes: &linked.image,
        });
    }
    Ok(slices)
}
