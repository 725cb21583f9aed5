//! What crosses a process or a version, and nothing else: the [image] (the part of an injected function that
//! travels), the [frame]s that carry it, the [context] an injected function is called with, the
//! [status] of an invocation, the [text]s that types and signatures are compared by, and the
//! [records](meta) that the attributes leave for the builder.
//!
//! Everything here is `no_std`, little-endian and free of `unsafe`. Bytes that come from a peer are parsed by this
//! crate before anybody acts on them; no input makes it panic, read out of bounds or allocate.
//!
//! `docs/architecture.md` draws the formats; the doc comments here are their definition.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod about;
pub mod batch;
pub mod context;
pub mod frame;
pub mod image;
pub mod meta;
pub mod name;
#[cfg(feature = "stats")]
pub mod stats;
pub mod status;
pub mod symbols;
pub mod text;

/// Version of the image format, of the call of `X_main` and of [`context::Context`].
pub const ABI_VERSION: u16 = 1;

/// A fingerprint: the first eight bytes, little-endian, of BLAKE3 of a canonical [text](text::Text). Zero: not stated
/// (C ifuncs, whose types nobody described).
pub type Fingerprint = u64;

/// The fingerprint of a text, from BLAKE3 of the text. The one text in 2^64 that would get zero gets its neighbour.
#[must_use]
pub const fn fingerprint(hash: &[u8; 32]) -> Fingerprint {
    match hash.first_chunk() {
        Some(&first) => match Fingerprint::from_le_bytes(first) {
            0 => 1,
            fingerprint => fingerprint,
        },
        None => 1,
    }
}

/// An image's identity: BLAKE3 of all its bytes.
pub type ImageId = [u8; 32];

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn no_text_is_not_stated() {
        let mut hash = [0; 32];
        assert_eq!(fingerprint(&hash), 1);
        hash[1] = 2;
        assert_eq!(fingerprint(&hash), 0x200);
        hash[8] = 1;
        assert_eq!(fingerprint(&hash), 0x200, "the first eight bytes only");
    }
}
