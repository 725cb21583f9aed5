//! From the bytes of an image to code that can be called.

pub(crate) mod cache;
mod install;
mod original;
mod validate;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use ifunc_abi::image::{Image, ImageFlags, Import};
use ifunc_abi::{Fingerprint, ImageId};

pub use self::cache::{IdHasher, IdMap};
use self::original::Kept;
pub use self::validate::ValidImage;
pub(crate) use self::validate::validate;
use crate::arena::{self, Arena};
use crate::debug::DebugRecord;

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
    kept: Arc<Kept>,
    /// The file of the arena.
    file: Arc<File>,
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
    /// The bytes as they arrived, of which the id is the hash. Reads the code from the arena's file, in which no debugger sets
    /// breakpoints.
    ///
    /// # Errors
    /// The kernel's, for the file.
    pub fn original(&self) -> io::Result<Original<'_>> {
        let bytes = self.kept.restore(&self.file, self.code.offset())?;
        Ok(Original { bytes, image: self })
    }

    /// Bytes of memory that it takes: code, data, GOT, and what is kept to restore the original.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.code.len() + self.got.as_ref().map_or(0, arena::Range::len) + self.kept.footprint()
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

/// The bytes of an installed image as they arrived.
#[derive(Debug)]
pub struct Original<'a> {
    bytes: Vec<u8>,
    image: &'a InstalledImage,
}

impl Original<'_> {
    /// The GOT: each import with the entry that holds its address. An image has one entry per import, in their order.
    pub fn got_entries(&self) -> impl Iterator<Item = GotEntry<'_>> {
        let image = Image::parse(&self.bytes).ok();
        let imports = image.map(|image| image.imports()).into_iter().flatten();
        imports.enumerate().map(|(index, import)| GotEntry {
            import,
            address: self.image.got_address + index * size_of::<usize>(),
        })
    }
}

impl Deref for Original<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
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
