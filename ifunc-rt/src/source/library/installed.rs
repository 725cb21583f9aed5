//! Libraries of images that this process runs, to be sent on.

use std::path::Path;
use std::sync::Arc;

use ifunc_abi::image::Image;
use ifunc_exec::{InstalledEntry, InstalledImage};

use super::Library;
use crate::source::slices::Slice;
use crate::travel::companions::Companions;

impl Library {
    /// An entry of an image that this process runs, to be sent on: the image as it arrived, and its companions.
    pub(crate) fn of_installed(
        image: &Arc<InstalledImage>,
        index: usize,
        companions: Option<&Arc<Companions>>,
    ) -> std::io::Result<Self> {
        let entry = InstalledEntry::all(image).nth(index);
        let entry = entry.ok_or(std::io::ErrorKind::NotFound)?;
        let bytes = image.original()?;
        let parsed = Image::parse(&bytes).map_err(std::io::Error::other)?;
        let machine = parsed.machine();
        let own = Slice::new(machine, image.id, bytes.to_vec(), image.signature().copied());
        let others = companions
            .into_iter()
            .flat_map(|companions| companions.iter().cloned());
        let slices = std::iter::once(Arc::new(own)).chain(others);
        let path = Path::new("(installed)");
        let library = Self::of_slices(slices.collect(), Vec::new(), None, Some(&entry.name), path);
        Ok(Self {
            installed: Some(entry),
            companions: companions.cloned(),
            ..library.map_err(std::io::Error::other)?
        })
    }

    /// Whether it is sent as an installed image is sent now: that may have got a signature.
    pub(crate) fn is_sent_as(&self, image: &InstalledImage, companions: Option<&Arc<Companions>>) -> bool {
        let companions = companions.map_or(&[][..], |companions| companions);
        let [own, others @ ..] = self.slices.all() else {
            return false;
        };
        own.signature.as_ref() == image.signature()
            && others.len() == companions.len()
            && others.iter().zip(companions).all(|(one, other)| one.is_as(other))
    }

    /// What accompanies the installed image that it was made of.
    pub(crate) fn companions_kept(&self) -> Option<Arc<Companions>> {
        self.companions.clone()
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
