//! Distinct images of a given size.

use anyhow::{Result, ensure};
use ifunc_abi::image::{Image, ImageParts};

/// The smallest image of the figures: that of `count` has 445 bytes.
pub(crate) const SMALL: usize = 512;

/// Builds images with the same function and different ids.
pub(crate) struct Images {
    parts: ImageParts,
    /// Size in bytes of the original image.
    least: usize,
    /// Number of the next image. Concurrent processes start with different numbers.
    number: u64,
}

impl Images {
    pub(crate) fn of(image: &[u8], namespace: u32) -> Result<Self> {
        let parts = ImageParts::from(&Image::parse(image)?);
        ensure!(parts.rw_mem == 0, "{} has writable data", names(&parts));
        Ok(Self {
            parts,
            least: image.len(),
            number: u64::from(namespace) << 32,
        })
    }

    /// Builds an image of `size` bytes.
    pub(crate) fn next(&mut self, size: usize) -> Result<Vec<u8>> {
        let code = self.parts.rx.len();
        ensure!(
            size >= self.least + 8,
            "{} has {} bytes and cannot be padded to {size}",
            names(&self.parts),
            self.least
        );
        self.number += 1;
        // Padding that is never executed: to the target, these are constants.
        self.parts.rx.resize(code + size - self.least - 8, 0x5a);
        self.parts.rx.extend(self.number.to_le_bytes());
        let image = self.parts.encode();
        self.parts.rx.truncate(code);
        Ok(image?)
    }
}

/// The names of the entries, for messages.
fn names(parts: &ImageParts) -> String {
    let names: Vec<_> = parts.entries.iter().map(|entry| &*entry.name).collect();
    format!("`{}`", names.join("`, `"))
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::EntryPart;

    use super::*;

    #[test]
    fn images_have_the_size_and_distinct_ids() {
        let image = ImageParts {
            entries: vec![EntryPart::new("seven")],
            arch: ifunc_abi::image::ARCH_X86_64,
            rx: vec![0xb8, 7, 0, 0, 0, 0xc3],
            ..ImageParts::default()
        };
        let bytes = image.encode().unwrap();
        let mut images = Images::of(&bytes, 1).unwrap();
        let [a, b] = [200, 4096].map(|size| (size, images.next(size).unwrap()));
        for (size, image) in [&a, &b] {
            assert_eq!(image.len(), *size);
            let parsed = Image::parse(image).unwrap();
            assert_eq!(
                (parsed.entries().next().unwrap().name, &parsed.rx()[..6]),
                ("seven", &[0xb8, 7, 0, 0, 0, 0xc3][..])
            );
        }
        assert_ne!(images.next(200).unwrap(), a.1);
        assert!(images.next(bytes.len()).is_err());
    }
}
