//! What an image must satisfy on any target of this machine.

use std::borrow::Cow;

use ifunc_abi::ImageId;
use ifunc_abi::image::{ARCH_AARCH64, ARCH_X86_64, Image, ImageError};
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

use crate::arch::{ARCH, cpu_features, explain_lacking_cpu};

/// An image whose bytes have the id it was sent under, that parses, and that this machine can run.
#[derive(Debug)]
pub struct ValidImage<'a> {
    /// BLAKE3 of its bytes.
    pub(crate) id: ImageId,
    pub(crate) bytes: &'a [u8],
    image: Image<'a>,
}

impl<'a> ValidImage<'a> {
    /// The bytes, parsed.
    #[must_use]
    pub fn image(&self) -> &Image<'a> {
        &self.image
    }
}

/// Checks an image that needs at most `max_memory` bytes. Changes nothing.
pub(crate) fn validate<'a>(
    id: &ImageId,
    bytes: &'a [u8],
    max_memory: usize,
) -> Result<ValidImage<'a>, Refusal> {
    if blake3::hash(bytes) != *id {
        return Err(Refusal::new(
            Rejection::IdMismatch,
            "the bytes were changed on the way, or the source is wrong",
        ));
    }
    let image = Image::parse(bytes).map_err(|error| {
        let reason = match error {
            ImageError::AbiVersion { .. } => Rejection::AbiVersion,
            _ => Rejection::BadImage,
        };
        Refusal::new(reason, error.to_string())
    })?;
    if image.arch() != ARCH {
        let (found, here) = (architecture(image.arch()), architecture(ARCH));
        return Err(Refusal::new(
            Rejection::Architecture,
            format!("the image is for {found}, this target is {here}; help: build it for {here}"),
        ));
    }
    if let Some(lacking) = explain_lacking_cpu(image.cpu_features(), cpu_features()) {
        return Err(Refusal::new(Rejection::CpuFeature, lacking));
    }
    let memory = memory_of(&image);
    if memory > max_memory {
        return Err(Refusal::new(
            Rejection::TooLarge,
            format!(
                "the image takes {memory} bytes of memory, the limit is {max_memory}; help: `TargetBuilder::max_image_memory`"
            ),
        ));
    }
    Ok(ValidImage {
        id: *id,
        bytes,
        image,
    })
}

/// The name of an ELF machine.
fn architecture(machine: u16) -> Cow<'static, str> {
    match machine {
        ARCH_X86_64 => "x86-64".into(),
        ARCH_AARCH64 => "AArch64".into(),
        other => format!("ELF machine {other}").into(),
    }
}

/// Bytes of address space that an image takes.
pub(super) fn memory_of(image: &Image<'_>) -> usize {
    image
        .rw_range()
        .map_or(image.rx().len(), |(at, len)| at as usize + len as usize)
}
