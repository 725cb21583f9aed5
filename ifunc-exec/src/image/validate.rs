//! What an image must satisfy on any target of this machine.

use std::borrow::Cow;

use ifunc_abi::ImageId;
use ifunc_abi::image::{ARCH_AARCH64, ARCH_X86_64, Image, ImageError};
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

use crate::arch::{ARCH, cpu_features, explain_lacking_cpu};
use crate::page::page_size;

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
    validate_for(id, bytes, max_memory, page_size())
}

/// As [`validate`], for a machine of this page size.
fn validate_for<'a>(
    id: &ImageId,
    bytes: &'a [u8],
    max_memory: usize,
    page_size: usize,
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
    if let Some((at, _)) = image.rw_range()
        && !(at as usize).is_multiple_of(page_size)
    {
        return Err(Refusal::new(
            Rejection::BadImage,
            format!(
                "its statics lie at {at:#x}, which is no multiple of this machine's page of {page_size} bytes; help: build it with \
                 `cargo ifunc build`, which aligns statics to the largest page of the architecture"
            ),
        ));
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

#[cfg(test)]
mod tests {
    use ifunc_abi::image::{EntryPart, ImageParts};

    use super::*;

    fn refused(parts: &ImageParts, max_memory: usize) -> Option<(Rejection, String)> {
        let bytes = parts.encode().unwrap();
        let refusal = validate(blake3::hash(&bytes).as_bytes(), &bytes, max_memory).err()?;
        Some((refusal.reason, refusal.detail.to_string()))
    }

    #[test]
    fn the_memory_of_an_image_ends_with_its_statics() {
        let code = ImageParts {
            entries: vec![EntryPart::new("add")],
            arch: ARCH,
            rx: vec![0xc3; 40],
            ..ImageParts::default()
        };
        let with_statics = ImageParts {
            rw_at: 4096,
            rw: vec![1; 8],
            rw_mem: 24,
            ..code.clone()
        };
        for (parts, memory) in [(code, 40), (with_statics, 4120)] {
            assert_eq!(refused(&parts, memory), None);
            assert_eq!(refused(&parts, memory + 1), None);
            let (reason, detail) = refused(&parts, memory - 1).unwrap();
            assert_eq!(reason, Rejection::TooLarge);
            let expected = format!(
                "the image takes {memory} bytes of memory, the limit is {}; help: ",
                memory - 1
            );
            assert!(detail.starts_with(&expected), "{detail}");
        }
    }

    #[test]
    fn statics_begin_at_a_page_of_this_machine() {
        let parts = ImageParts {
            entries: vec![EntryPart::new("add")],
            arch: ARCH,
            rx: vec![0xc3; 40],
            rw_at: 0x4000,
            rw: vec![1; 8],
            rw_mem: 8,
            ..ImageParts::default()
        };
        let bytes = parts.encode().unwrap();
        let id = *blake3::hash(&bytes).as_bytes();
        for (page_size, is_refused) in [(4 << 10, false), (16 << 10, false), (64 << 10, true)] {
            let refusal = validate_for(&id, &bytes, 1 << 20, page_size).err();
            assert_eq!(refusal.is_some(), is_refused, "{page_size}");
            let Some(refusal) = refusal else { continue };
            assert_eq!(refusal.reason, Rejection::BadImage);
            let expected = "its statics lie at 0x4000, which is no multiple of this machine's page of 65536 bytes; help: ";
            assert!(refusal.detail.starts_with(expected), "{refusal:?}");
        }
    }

    #[test]
    fn an_image_for_another_machine_is_refused_by_its_name() {
        let (other, here) = match ARCH {
            ARCH_AARCH64 => ((ARCH_X86_64, "x86-64"), "AArch64"),
            _ => ((ARCH_AARCH64, "AArch64"), "x86-64"),
        };
        for (arch, name) in [other, (243, "ELF machine 243")] {
            let parts = ImageParts {
                entries: vec![EntryPart::new("add")],
                arch,
                rx: vec![0xc3; 40],
                ..ImageParts::default()
            };
            let detail = format!("the image is for {name}, this target is {here}; help: build it for {here}");
            assert_eq!(refused(&parts, 4096), Some((Rejection::Architecture, detail)));
        }
    }
}
