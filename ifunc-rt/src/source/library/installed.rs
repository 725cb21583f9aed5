//! Libraries of images that this process runs, to be sent on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ifunc_abi::image::Image;
use ifunc_exec::{InstalledEntry, InstalledImage};

use super::Library;
use crate::source::slices::Slice;
use crate::travel::companions::Companions;

impl Library {
    /// An entry of an image that this process runs, to be sent on: the image as it arrived.
    pub(crate) fn of_installed(image: &Arc<InstalledImage>, index: usize) -> std::io::Result<Self> {
        let entry = InstalledEntry::all(image).nth(index);
        let entry = entry.ok_or(std::io::ErrorKind::NotFound)?;
        let bytes = image.original()?;
        let parsed = Image::parse(&bytes).map_err(std::io::Error::other)?;
        let machine = parsed.machine();
        let own = Slice::new(machine, image.id, bytes.to_vec(), image.signature().copied());
        let path = Path::new("(installed)");
        let library = Self::of_slices(vec![Arc::new(own)], Vec::new(), None, Some(&entry.name), path);
        Ok(Self {
            installed: Some(entry),
            ..library.map_err(std::io::Error::other)?
        })
    }

    /// The same entry of an installed image, to be bound to a handle of a link and sent with what accompanies it, as long as that is
    /// kept.
    pub(crate) fn accompanied_by(&self, companions: &Arc<Companions>) -> Self {
        Self {
            path: self.path.clone(),
            name: self.name.clone(),
            library_name: self.library_name.clone(),
            slices: self.slices.clone(),
            sent: AtomicUsize::new(0),
            entry: self.entry,
            entries: self.entries,
            stale_signatures: None,
            about: Vec::new(),
            flags: self.flags,
            travels: self.travels,
            payload_align: self.payload_align,
            installed: self.installed.clone(),
            companions: Some((Arc::downgrade(companions), *companions.id())),
            source_functions: None,
        }
    }

    /// Whether it is sent as an installed image is sent now: that may have got a signature.
    pub(crate) fn is_sent_as(&self, image: &InstalledImage) -> bool {
        self.slices.get(0).signature.as_ref() == image.signature()
    }

    /// The installed entry that it was made of.
    pub(crate) fn installed(&self) -> Option<&Arc<InstalledEntry>> {
        self.installed.as_ref()
    }

    /// Whether it is this entry of an installed image.
    pub(crate) fn is_entry(&self, image: &Arc<InstalledImage>, index: usize) -> bool {
        self.installed.as_ref().is_some_and(|entry| {
            let is_of_image = Arc::ptr_eq(entry.image(), image) || entry.image().id == image.id;
            let of_image = image.entries.get(index).filter(|_| is_of_image);
            of_image.is_some_and(|of_image| of_image.main == entry.main_offset())
        })
    }
}
