//! The formats that cross a process or version boundary: the [image] of an injected function, the [slices] of a library, the [hello] that opens a
//! connection, the [frame]s that carry it, what lets it [travel] on, the [context] that the target calls it with, the [status] of an invocation, the [signature] beside an image, the canonical
//! [text]s that identify types and signatures, and the [records](meta) that the attributes emit for the
//! builder.
//!
//! The crate is `no_std`, little-endian throughout and free of `unsafe`. It validates every byte from a peer
//! before another crate acts on it. No input makes it panic or read out of bounds, and only `stats`
//! allocates: at most a small multiple of the input's length.
//!
//! The doc comments of this crate define the formats; `docs/architecture.md` draws them.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod about;
pub mod batch;
pub mod context;
mod counted;
pub mod frame;
pub mod hello;
pub mod image;
pub mod machine;
pub mod meta;
pub mod name;
#[cfg(feature = "alloc")]
pub mod rare;
#[cfg(feature = "alloc")]
pub mod refusal;
pub mod signature;
pub mod slices;
#[cfg(feature = "stats")]
pub mod stats;
pub mod status;
pub mod symbols;
pub mod text;
pub mod travel;

pub use counted::Counted;

/// Version of the image format, of the call of `X_main` and of [`context::Context`].
pub const ABI_VERSION: u16 = 2;

/// A fingerprint: the first eight bytes, little-endian, of the BLAKE3 hash of a canonical [text](text::Text).
/// Zero means that the type is not stated, as in C ifuncs.
pub type Fingerprint = u64;

/// Derives the fingerprint of a text from the text's BLAKE3 hash. A hash that would yield zero yields 1.
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

/// An image's identity: the BLAKE3 hash of all its bytes.
pub type ImageId = [u8; 32];

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_are_never_zero() {
        let mut hash = [0; 32];
        assert_eq!(fingerprint(&hash), 1);
        hash[1] = 2;
        assert_eq!(fingerprint(&hash), 0x200);
        hash[8] = 1;
        assert_eq!(fingerprint(&hash), 0x200, "the first eight bytes only");
    }
}
