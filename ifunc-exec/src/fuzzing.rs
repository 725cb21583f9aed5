//! What the fuzz targets reach of this crate, which its users do not: only built with `--cfg fuzzing`, which libFuzzer's builds set.

use ifunc_abi::image::Image;

/// Both parts of an image as they would be at `base`, with its GOT at `got`, bound to these addresses: one for each import.
#[must_use]
pub fn relocate(image: &Image<'_>, base: usize, got: usize, imports: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let (words, rw) = crate::image::relocate(image, base, got, imports);
    let mut rx = image.rx().to_vec();
    for (at, word) in words {
        rx[at..at + word.len()].copy_from_slice(&word);
    }
    (rx, rw)
}
