//! From the bytes of an image to code that can be called.

pub(crate) mod cache;
mod install;
pub(crate) mod original;
mod validate;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use ifunc_abi::image::{Image, ImageFlags, Import};
use ifunc_abi::{Fingerprint, ImageId};

pub use self::cache::{IdHasher, IdMap};
use self::original::Kept;
pub use self::validate::ValidImage;
pub(crate) use self::validate::validate;
use crate::arena::{self, Arena};
use crate::debug::DebugRecord;
use crate::got::Got;

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
    /// The file of the arena, as long as there is one.
    file: Weak<File>,
    code: arena::Range,
    got: Got,
}

// SAFETY: the address of the entry is bound to no thread, and only `Executor::run` uses it.
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
    /// Restores the bytes as they arrived, of which the id is the hash. Reads the code from the arena's file: a debugger's
    /// breakpoints are in the mapping only.
    ///
    /// # Errors
    /// The executor is gone, the kernel's error from reading the file, or another process has written to it.
    pub fn original(&self) -> io::Result<Original> {
        let file = self.file.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let bytes = self.kept.restore(&file, self.code.offset())?;
        if blake3::hash(&bytes) != self.properties.id {
            return Err(io::Error::other("the code of an installed image was changed"));
        }
        let got = self.got.iter().collect();
        Ok(Original { bytes, got })
    }

    /// Bytes of memory that it takes: code, data, GOT, and what is kept to restore the original.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.code.len() + self.got.len() + self.kept.footprint()
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nothing may run in the image or reach it any more.
    unsafe fn free(self, arena: &mut Arena) {
        drop(self.debug);
        // SAFETY: the caller's promise.
        unsafe { arena.free(self.code) };
    }
}

/// The bytes of an installed image as they arrived, and its GOT.
#[derive(Debug)]
pub struct Original {
    bytes: Vec<u8>,
    got: Vec<usize>,
}

impl Original {
    /// The GOT: each import with the content of its entry. An image has one entry per import, in their order.
    pub fn got_entries(&self) -> impl Iterator<Item = GotEntry<'_>> {
        let image = Image::parse(&self.bytes).ok();
        let imports = image.map(|image| image.imports()).into_iter().flatten();
        imports
            .zip(&self.got)
            .map(|(import, &value)| GotEntry { import, value })
    }
}

impl Deref for Original {
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
    /// The address that the import is bound to; 0 if it is weak and not there.
    pub value: usize,
}
