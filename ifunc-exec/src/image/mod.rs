//! From the bytes of an image to code that can be called.

pub(crate) mod cache;
pub(crate) mod imports;
mod install;
pub(crate) mod original;
mod validate;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use ifunc_abi::image::{self, EntryFlags, Image, ImageFlags, Import};
use ifunc_abi::signature::Signature;
use ifunc_abi::{Fingerprint, ImageId};

pub use self::cache::{IdHasher, IdMap};
use self::imports::Imports;
#[cfg(fuzzing)]
pub(crate) use self::install::relocate;
use self::original::Kept;
pub use self::validate::ValidImage;
pub(crate) use self::validate::validate;
use crate::Observer;
use crate::arena::{self, Arena};
use crate::debug::DebugRecord;
use crate::entrance::{Access, Door, Entrance};
use crate::gate::turn_away;
use crate::got::Got;
use crate::runner::RemoteImage;

/// What an image declares about itself, as every executor needs it.
#[derive(Clone, Debug)]
pub struct ImageProperties {
    /// BLAKE3 of its bytes.
    pub id: ImageId,
    /// The image's flags.
    pub flags: ImageFlags,
    /// Whether its invocations may [travel on](Image::travels).
    pub travels: bool,
    /// Its entries, by ascending name.
    pub entries: Box<[EntryProperties]>,
}

impl ImageProperties {
    fn of(id: ImageId, image: &Image<'_>) -> Self {
        Self {
            id,
            flags: image.flags(),
            travels: image.travels(),
            entries: image.entries().map(EntryProperties::from).collect(),
        }
    }

    /// The names of its entries, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.entries.iter().map(|entry| &*entry.name).collect();
        names.join(", ")
    }
}

/// What an image declares about one of its entries.
#[derive(Clone, Debug)]
pub struct EntryProperties {
    /// The ifunc's name.
    pub name: String,
    /// The entry's flags.
    pub flags: EntryFlags,
    /// Offset of `X_main` in the image.
    pub main: u32,
    /// Offset of `X_batch` in the image.
    pub batch: Option<u32>,
    /// Fingerprint of the payload type it takes; 0: not stated.
    pub payload: Fingerprint,
    /// Fingerprint of the target type it takes; 0: any.
    pub target: Fingerprint,
    /// Fingerprint of the answer type; 0: not stated.
    pub answer: Fingerprint,
    /// Alignment of the payload, a power of two.
    pub payload_align: usize,
}

impl From<image::Entry<'_>> for EntryProperties {
    fn from(entry: image::Entry<'_>) -> Self {
        Self {
            name: entry.name.to_owned(),
            flags: entry.flags,
            main: entry.main,
            batch: entry.batch,
            payload: entry.payload,
            target: entry.target,
            answer: entry.answer,
            payload_align: entry.payload_align,
        }
    }
}

impl EntryProperties {
    /// Whether a payload may lie there.
    #[inline]
    #[must_use]
    pub fn is_aligned(&self, payload: *const u8) -> bool {
        // A division costs as much as the rest of a small invocation.
        debug_assert!(self.payload_align.is_power_of_two());
        payload.addr() & (self.payload_align - 1) == 0
    }
}

/// An image that is installed in this process, or in the [runner process](crate::runner) of a tenant.
///
/// The [executor](crate::ImageExecutor) frees its memory once no clone of its `Arc` is held elsewhere and the room is needed.
#[derive(Debug)]
pub struct InstalledImage {
    properties: ImageProperties,
    /// Whether invocations may enter.
    pub(crate) door: Door,
    /// What debuggers know of it.
    pub(crate) debug: DebugRecord,
    kept: Arc<Kept>,
    /// The file of the arena, as long as there is one.
    file: Weak<File>,
    code: arena::Range,
    pub(crate) got: Got,
    pub(crate) imports: Arc<Imports>,
    /// See [`set_signature`](Self::set_signature).
    pub(crate) signature: OnceLock<Signature>,
    /// Its code, if that is in a runner process.
    pub(crate) remote: Option<Remote>,
}

/// The code of an image in a runner process, and who learns of its end.
#[derive(Debug)]
pub(crate) struct Remote {
    image: RemoteImage,
    properties: ImageProperties,
    observer: Arc<dyn Observer>,
}

impl Remote {
    pub(crate) fn new(image: RemoteImage, valid: &ValidImage<'_>, observer: Arc<dyn Observer>) -> Self {
        Self {
            image,
            properties: ImageProperties::of(valid.id, valid.image()),
            observer,
        }
    }

    pub(crate) fn image(&self) -> &RemoteImage {
        &self.image
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.observer.evicted(&self.properties);
    }
}

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

    /// Keeps a signature of the image that the caller verified, to be sent on with the image. The first one stays.
    pub fn set_signature(&self, signature: Signature) {
        let _ = self.signature.set(signature);
    }

    /// The signature that was kept.
    #[must_use]
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.get()
    }

    /// Lets invocations enter, or not. Returns the access that they had.
    pub(crate) fn set_access(&self, access: Access) -> Access {
        self.door.set(access)
    }

    /// Bytes of memory that it takes: code, data, GOT, imports, and what is kept to restore the original.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let remote = self.remote.as_ref().map_or(0, |remote| remote.image.footprint());
        self.code.len() + self.got.len() + self.kept.footprint() + self.imports.footprint() + remote
    }

    /// Address of the first byte of its code.
    pub(crate) fn base(&self) -> usize {
        self.debug.code().start
    }

    /// The entry whose `X_main` is at this address: what code in the image names an entry by.
    #[must_use]
    pub fn entry_at(&self, main: *const c_void) -> Option<usize> {
        let offset = main.addr().checked_sub(self.base())?;
        self.entries
            .iter()
            .position(|entry| entry.main as usize == offset)
    }

    /// Whether its code is in a [runner process](crate::runner).
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The symbols that it imports.
    pub fn import_names(&self) -> impl Iterator<Item = &str> {
        self.imports.symbols.iter().map(|import| &*import.name)
    }

    /// The shared libraries that it needs.
    pub fn library_names(&self) -> impl Iterator<Item = &str> {
        self.imports.needed.iter().map(|soname| &**soname)
    }

    /// Whether an address is of its code or its data.
    pub(crate) fn contains(&self, address: usize) -> bool {
        address
            .checked_sub(self.base())
            .is_some_and(|offset| offset < self.code.len())
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

/// An entry of an installed image. The image stays installed as long as this is held.
#[derive(Debug)]
pub struct InstalledEntry {
    properties: EntryProperties,
    /// The way into `X_main`.
    pub(crate) entrance: Entrance,
    /// The way into `X_batch`. An image that travels has none: each of its invocations has its own obligation to answer.
    pub(crate) batch: Option<Entrance>,
    image: Arc<InstalledImage>,
}

impl Deref for InstalledEntry {
    type Target = EntryProperties;

    #[inline]
    fn deref(&self) -> &EntryProperties {
        &self.properties
    }
}

impl InstalledEntry {
    /// All entries of an image, in their order.
    pub fn all(image: &Arc<InstalledImage>) -> impl ExactSizeIterator<Item = Arc<Self>> {
        image.entries.iter().map(|properties| {
            let main = match image.remote {
                // Where to turn to: `run` finds out that its code is elsewhere.
                Some(_) => turn_away as *const c_void,
                None => std::ptr::with_exposed_provenance(image.base() + properties.main as usize),
            };
            let entry = Arc::new(Self {
                properties: properties.clone(),
                entrance: Entrance::new(main),
                batch: properties
                    .batch
                    .filter(|_| !image.travels && image.remote.is_none())
                    .map(|batch| {
                        Entrance::new(std::ptr::with_exposed_provenance(image.base() + batch as usize))
                    }),
                image: Arc::clone(image),
            });
            image.door.add(&entry);
            entry
        })
    }

    /// Opens or closes the ways into it.
    pub(crate) fn set_open(&self, is_open: bool) {
        self.entrance.set_open(is_open);
        if let Some(batch) = &self.batch {
            batch.set_open(is_open);
        }
    }

    /// States whether code that it reaches may set how floats are computed.
    pub(crate) fn set_float_control(&self, sets: bool) {
        self.entrance.set_float_control(sets);
        if let Some(batch) = &self.batch {
            batch.set_float_control(sets);
        }
    }

    /// Offset of its `X_main` in the image.
    #[must_use]
    pub fn main_offset(&self) -> u32 {
        self.properties.main
    }

    /// The image that it is an entry of.
    #[must_use]
    pub fn image(&self) -> &Arc<InstalledImage> {
        &self.image
    }
}

/// The bytes of an installed image as they arrived, and its GOT.
#[derive(Debug)]
pub struct Original {
    bytes: Vec<u8>,
    got: Vec<usize>,
}

impl Original {
    /// The GOT: each import with the content that its entry had. An image has one entry per import, in their order.
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
