//! The body of an `Install`: an image, its signature, and the slices that accompany it.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FrameError, Kind};
use crate::ImageId;
use crate::image::MAX_ENTRIES;
use crate::signature::{ED25519, Signature};
use crate::slices::MAX_SLICES;

/// Most companions of an image.
pub const MAX_COMPANIONS: usize = MAX_SLICES - 1;

/// The head of an `Install` body. The signature, the [companions](CompanionHead) and the image follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InstallHead {
    /// The id of the image.
    pub id: ImageId,
    /// Length of the signature in bytes; 0: none.
    pub signature_len: U16,
    /// Scheme of the signature. 0: none; 1: [`signature::ED25519`](crate::signature::ED25519).
    pub signature_scheme: U16,
    /// Number of the image's entries. The frame's handle is bound to the first one, and the handles after it to the others.
    pub entries: U16,
    /// Number of its companions.
    pub companions: U16,
}

/// What precedes the signature and the bytes of a companion: another slice of the image, for other machines. The target
/// does not run it, and sends it on to nodes that run it and not the image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CompanionHead {
    /// The id of the companion, which is an image, too.
    pub id: ImageId,
    /// Its length in bytes.
    pub len: U32,
    /// Length of its signature in bytes; 0: none.
    pub signature_len: U16,
    /// Scheme of its signature, as in [`InstallHead::signature_scheme`].
    pub signature_scheme: U16,
}

impl CompanionHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// The head of a companion of `len` bytes.
    #[must_use]
    pub const fn new(id: ImageId, len: u32, is_signed: bool) -> Self {
        let (signature_len, scheme) = if is_signed {
            (Signature::SIZE as u16, ED25519)
        } else {
            (0, 0)
        };
        Self {
            id,
            len: U32::new(len),
            signature_len: U16::new(signature_len),
            signature_scheme: U16::new(scheme),
        }
    }
}

/// A companion of an image.
#[derive(Clone, Copy, Debug)]
pub struct Companion<'a> {
    /// The id under which it was sent.
    pub id: ImageId,
    /// Scheme of its signature.
    pub scheme: u16,
    /// Its signature.
    pub signature: &'a [u8],
    /// Its bytes.
    pub image: &'a [u8],
}

/// The companions of an `Install` body: every length was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Companions<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Companions<'a> {
    /// Bytes of their images.
    #[must_use]
    pub fn image_bytes(&self) -> usize {
        self.map(|companion| companion.image.len()).sum()
    }

    /// The first companion of these bytes, and what follows it.
    fn first(bytes: &'a [u8]) -> Option<(Companion<'a>, &'a [u8])> {
        let (head, rest) = CompanionHead::read_from_prefix(bytes).ok()?;
        let (signature, rest) = rest.split_at_checked(head.signature_len.get().into())?;
        let (image, rest) = rest.split_at_checked(head.len.get() as usize)?;
        let companion = Companion {
            id: head.id,
            scheme: head.signature_scheme.get(),
            signature,
            image,
        };
        Some((companion, rest))
    }

    /// Splits the first `count` companions from bytes.
    fn split(count: usize, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = Self::first(rest)?;
        }
        Some((Self { count, bytes }, rest))
    }
}

impl<'a> Iterator for Companions<'a> {
    type Item = Companion<'a>;

    fn next(&mut self) -> Option<Companion<'a>> {
        self.count = self.count.checked_sub(1)?;
        let (companion, rest) = Self::first(self.bytes)?;
        self.bytes = rest;
        Some(companion)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Companions<'_> {}

/// The parts of an `Install` body.
#[derive(Clone, Copy, Debug)]
pub struct InstallBody<'a> {
    /// The head.
    pub head: InstallHead,
    /// The signature of the image.
    pub signature: &'a [u8],
    /// The companions of the image.
    pub companions: Companions<'a>,
    /// The image.
    pub image: &'a [u8],
}

impl InstallHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// A head without signature, of an image with so many entries.
    #[must_use]
    pub const fn unsigned(id: ImageId, entries: u16) -> Self {
        Self {
            id,
            signature_len: U16::ZERO,
            signature_scheme: U16::ZERO,
            entries: U16::new(entries),
            companions: U16::ZERO,
        }
    }

    /// A head of an image with so many entries, which a [signature](crate::signature) follows.
    #[must_use]
    pub const fn signed(id: ImageId, entries: u16) -> Self {
        Self {
            signature_len: U16::new(Signature::SIZE as u16),
            signature_scheme: U16::new(ED25519),
            ..Self::unsigned(id, entries)
        }
    }

    /// The head of an image with so many companions.
    #[must_use]
    pub const fn with_companions(self, count: u16) -> Self {
        Self {
            companions: U16::new(count),
            ..self
        }
    }

    /// Reads the head of a body.
    ///
    /// # Errors
    /// A body shorter than a head, a number of entries that no image has, or too many companions.
    pub fn read(body: &[u8]) -> Result<Self, FrameError> {
        let bad = FrameError::Body {
            kind: Kind::Install,
            len: body.len(),
        };
        let (head, _) = Self::read_from_prefix(body).map_err(|_| bad)?;
        if usize::from(head.companions.get()) > MAX_COMPANIONS {
            return Err(FrameError::Companions(head.companions.get()));
        }
        if !(1..=MAX_ENTRIES).contains(&head.entries.get().into()) {
            return Err(FrameError::Entries(head.entries.get()));
        }
        Ok(head)
    }

    /// Splits an `Install` body into head, signature, companions and image.
    ///
    /// # Errors
    /// A body shorter than its heads state, a number of entries that no image has, or too many companions.
    pub fn split(body: &[u8]) -> Result<InstallBody<'_>, FrameError> {
        let bad = FrameError::Body {
            kind: Kind::Install,
            len: body.len(),
        };
        let head = Self::read(body)?;
        let rest = body.get(Self::SIZE..).ok_or(bad)?;
        let (signature, rest) = rest
            .split_at_checked(head.signature_len.get().into())
            .ok_or(bad)?;
        let (companions, image) = Companions::split(head.companions.get().into(), rest).ok_or(bad)?;
        Ok(InstallBody {
            head,
            signature,
            companions,
            image,
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn an_install_has_its_parts() {
        let head = InstallHead::signed([7; 32], 64);
        assert_eq!(head.as_bytes()[32..], [96, 0, 1, 0, 64, 0, 0, 0]);
        assert_eq!(
            InstallHead::unsigned([7; 32], 1).as_bytes()[32..],
            [0, 0, 0, 0, 1, 0, 0, 0]
        );
        let mut body = [head.as_bytes(), &[1; 96], &[2; 3]].concat();
        let InstallBody {
            head: read,
            signature,
            companions,
            image,
        } = InstallHead::split(&body).unwrap();
        assert_eq!(read.as_bytes(), head.as_bytes());
        assert_eq!((signature, image), (&[1; 96][..], &[2; 3][..]));
        assert_eq!(companions.len(), 0);
        assert!(InstallHead::split(&body[..136]).is_ok());
        for len in [0, 39, 40, 135] {
            let kind = Kind::Install;
            let error = FrameError::Body { kind, len };
            assert_eq!(InstallHead::split(&body[..len]).err(), Some(error), "{len}");
        }
        for (entries, is_valid) in [(0, false), (1, true), (64, true), (65, false), (0x100, false)] {
            body[36..38].copy_from_slice(&u16::to_le_bytes(entries));
            let expected = (!is_valid).then_some(FrameError::Entries(entries));
            assert_eq!(InstallHead::read(&body).err(), expected);
        }
        body[36..40].copy_from_slice(&[1, 0, 16, 0]);
        assert_eq!(InstallHead::read(&body).err(), Some(FrameError::Companions(16)));
    }

    #[test]
    fn companions_lie_before_the_image() {
        let head = InstallHead::unsigned([7; 32], 1).with_companions(2);
        let (signed, unsigned) = (
            CompanionHead::new([1; 32], 3, true),
            CompanionHead::new([2; 32], 0, false),
        );
        let parts = [
            head.as_bytes(),
            signed.as_bytes(),
            &[8; 96],
            b"one",
            unsigned.as_bytes(),
            b"image",
        ];
        let body = parts.concat();
        let InstallBody {
            signature,
            mut companions,
            image,
            ..
        } = InstallHead::split(&body).unwrap();
        assert_eq!((signature, image), (&[][..], &b"image"[..]));
        assert_eq!((companions.len(), companions.image_bytes()), (2, 3));
        let first = companions.next().unwrap();
        assert_eq!((first.id, first.scheme, first.image), ([1; 32], 1, &b"one"[..]));
        assert_eq!(first.signature, [8; 96]);
        let second = companions.next().unwrap();
        assert_eq!((second.id, second.scheme, second.image), ([2; 32], 0, &[][..]));
        assert!(second.signature.is_empty() && companions.next().is_none());
        let whole = body.len() - b"image".len();
        for len in InstallHead::SIZE..whole {
            let kind = Kind::Install;
            let error = FrameError::Body { kind, len };
            assert_eq!(InstallHead::split(&body[..len]).err(), Some(error), "{len}");
        }
        assert!(InstallHead::split(&body[..whole]).is_ok());
    }
}
