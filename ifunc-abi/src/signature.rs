//! Signatures of images: they stand beside an image, in a file and in an `Install` frame, and do not change its id.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ImageId;

/// Scheme of a [`Signature`]: ed25519 (RFC 8032) over the [message] of an id.
pub const ED25519: u16 = 1;

/// What precedes the id in the signed message: a signature of an image is none of anything else.
const DOMAIN: [u8; 16] = *b"ifunc image v1\0\0";

/// Size in bytes of a signed message.
pub const MESSAGE: usize = DOMAIN.len() + size_of::<ImageId>();

/// The message that is signed for an image.
#[must_use]
pub fn message(id: &ImageId) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    let (domain, image) = message.split_at_mut(DOMAIN.len());
    domain.copy_from_slice(&DOMAIN);
    image.copy_from_slice(id);
    message
}

/// A signature as it travels.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Signature {
    /// The public key that signed.
    pub key: [u8; 32],
    /// The signature of the [message].
    pub signature: [u8; 64],
}

impl Signature {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// The signature in an `Install` frame whose head states this scheme; `None`: the frame has none.
    ///
    /// # Errors
    /// The scheme is unknown, or the bytes are no signature of it.
    pub fn parse(scheme: u16, bytes: &[u8]) -> Result<Option<Self>, UnknownSignature> {
        match scheme {
            0 if bytes.is_empty() => Ok(None),
            ED25519 => match Self::read_from_bytes(bytes) {
                Ok(signature) => Ok(Some(signature)),
                Err(_) => Err(UnknownSignature {
                    scheme,
                    len: bytes.len(),
                }),
            },
            _ => Err(UnknownSignature {
                scheme,
                len: bytes.len(),
            }),
        }
    }
}

/// Bytes that are no signature of any known scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a signature of {len} bytes and scheme {scheme}, known is scheme {ED25519} of {} bytes",
    Signature::SIZE
)]
pub struct UnknownSignature {
    /// The scheme.
    pub scheme: u16,
    /// Number of bytes.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read_as_it_was_written() {
        let signature = Signature {
            key: [1; 32],
            signature: [2; 64],
        };
        assert_eq!(
            Signature::parse(ED25519, signature.as_bytes()),
            Ok(Some(signature))
        );
        assert_eq!(Signature::parse(0, b""), Ok(None));
        for (scheme, bytes) in [
            (0, &b"x"[..]),
            (ED25519, &[0; 95]),
            (ED25519, b""),
            (2, signature.as_bytes()),
        ] {
            let len = bytes.len();
            assert_eq!(
                Signature::parse(scheme, bytes),
                Err(UnknownSignature { scheme, len })
            );
        }
        assert_ne!(message(&[1; 32]), message(&[2; 32]));
    }
}
