//! From the bytes of an image to code that can be called.

pub(crate) mod cache;
mod install;
mod validate;

use std::ffi::c_void;
use std::ops::{Deref, Range};
use std::sync::Arc;

use ifunc_abi::image::{Image, ImageFlags, Import};
use ifunc_abi::{Fingerprint, ImageId};

pub use self::cache::{IdHasher, IdMap};
pub use self::validate::ValidImage;
pub(crate) use self::validate::validate;
use crate::arena::{self, Arena};
use crate::debug::DebugRecord;

/// Bytes that several owners share: a part of a buffer that none of them changes.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    buffer: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl SharedBytes {
    /// A part of a buffer.
    ///
    /// # Panics
    /// The part is not in the buffer.
    #[must_use]
    pub fn new(buffer: Vec<u8>, part: Range<usize>) -> Self {
        assert!(
            part.start <= part.end && part.end <= buffer.len(),
            "a part of the buffer"
        );
        Self {
            buffer: Arc::new(buffer),
            part,
        }
    }

    /// Bytes of memory that it keeps.
    fn footprint(&self) -> usize {
        self.buffer.capacity()
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(buffer: Vec<u8>) -> Self {
        let part = 0..buffer.len();
        Self::new(buffer, part)
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.part.clone()]
    }
}

/// What an image declares about itself, as every executor needs it.
#[derive(Clone, Debug)]
pub struct ImageProperties {
    /// BLAKE3 of its bytes.
    pub id: ImageId,
    /// The ifunc's name.
    pub name: String,
    /// The image's flags.
    pub flags: ImageFlags,
    /// Alignment of the payload, a power of two.
    pub payload_align: usize,
    /// Fingerprint of the target type it takes; 0: any.
    pub target: Fingerprint,
}

impl ImageProperties {
    /// Whether a payload may lie there.
    #[inline]
    #[must_use]
    pub fn is_aligned(&self, payload: *const u8) -> bool {
        // A division costs as much as the rest of a small invocation.
        debug_assert!(self.payload_align.is_power_of_two());
        payload.addr() & (self.payload_align - 1) == 0
    }
}

/// An image that is installed in this process. The [executor](crate::InProcess) frees its memory once no clone of its `Arc` is
/// held elsewhere and the room is needed.
#[derive(Debug)]
pub struct InstalledImage {
    properties: ImageProperties,
    /// Address of `X_main`.
    pub(crate) main: *const c_void,
    /// What debuggers know of it.
    pub(crate) debug: DebugRecord,
    /// The bytes as they arrived: they travel on from here.
    original: SharedBytes,
    code: arena::Range,
    got: Option<arena::Range>,
    /// Address of the GOT; 0 without one.
    got_address: usize,
}

// SAFETY: the addresses are of the arena, which the executor keeps as long as this value.
unsafe impl Send for InstalledImage {}
// SAFETY: immutable.
unsafe impl Sync for InstalledImage {}

impl Deref for InstalledImage {
    type Target = ImageProperties;

    #[inline]
    fn deref(&self) -> &ImageProperties {
        &self.properties
    }
}

impl InstalledImage {
    /// The bytes as they arrived, of which the id is the hash.
    #[must_use]
    pub fn original(&self) -> &SharedBytes {
        &self.original
    }

    /// The GOT: each import with the entry that holds its address. An image has one entry per import, in their order.
    pub fn got_entries(&self) -> impl Iterator<Item = GotEntry<'_>> {
        let image = Image::parse(&self.original).ok();
        let imports = image.map(|image| image.imports()).into_iter().flatten();
        imports.enumerate().map(|(index, import)| GotEntry {
            import,
            address: self.got_address + index * size_of::<usize>(),
        })
    }

    /// Bytes of memory that it takes: code, data, GOT and the original.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.code.len() + self.got.as_ref().map_or(0, arena::Range::len) + self.original.footprint()
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nothing may run in the image or reach it any more.
    unsafe fn free(self, arena: &mut Arena) {
        drop(self.debug);
        // SAFETY: the caller's promise; the GOT is reached through the image only.
        unsafe {
            arena.free(self.code);
            if let Some(got) = self.got {
                arena.free(got);
            }
        }
    }
}

/// An entry of an image's GOT.
#[derive(Clone, Copy, Debug)]
pub struct GotEntry<'a> {
    /// What the image imports.
    pub import: Import<'a>,
    /// Where the entry lies.
    address: usize,
}

impl GotEntry<'_> {
    /// The address that the import is bound to; 0 if it is weak and not there.
    #[must_use]
    pub fn value(&self) -> usize {
        // SAFETY: the image is borrowed, so its GOT is mapped, and readable like all of the arena.
        unsafe { std::ptr::with_exposed_provenance::<usize>(self.address).read() }
    }
}
