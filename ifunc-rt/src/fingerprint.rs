//! From a canonical text to the number that travels.

use ifunc_abi::Fingerprint;

/// First eight bytes, little-endian, of BLAKE3 of the text.
pub(crate) fn of(text: &str) -> Fingerprint {
    let hash = blake3::hash(text.as_bytes());
    let (first, _) = hash.as_bytes().split_at(8);
    // Zero means "not stated": the one text in 2^64 that hashes to it gets its neighbour.
    first
        .iter()
        .rev()
        .fold(0u64, |n, &byte| n << 8 | u64::from(byte))
        .max(1)
}
