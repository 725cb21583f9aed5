//! The code cache of a target: what is installed, by id, and what goes when room is needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ifunc_abi::ImageId;
use ifunc_abi::image::{Image, ImageFlags};
use ifunc_abi::status::Rejection;

use super::Refusal;
use super::install::{Installed, install};
use crate::debug::Debugger;
use crate::exec::arena::{Arena, ArenaError};
use crate::target::Book;

/// Installed images. One that no connection has bound stays until its room is needed, least recently bound first.
#[derive(Debug)]
pub(crate) struct Cache {
    arena: Arena,
    debugger: Debugger,
    images: HashMap<ImageId, Entry>,
    /// When they were last bound → which: the one bound longest ago is first.
    ages: BTreeMap<u64, ImageId>,
    max_images: usize,
    clock: u64,
    book: Arc<Book>,
}

#[derive(Debug)]
struct Entry {
    image: Arc<Installed>,
    last_bound: u64,
}

impl Cache {
    /// `book` is told of what is installed and evicted.
    pub(crate) fn new(
        bytes: usize,
        max_images: usize,
        debugger: Debugger,
        book: Arc<Book>,
    ) -> rustix::io::Result<Self> {
        Ok(Self {
            arena: Arena::new(bytes)?,
            debugger,
            images: HashMap::new(),
            ages: BTreeMap::new(),
            max_images,
            clock: 0,
            book,
        })
    }

    /// The installed image of this id.
    pub(crate) fn get(&mut self, id: &ImageId) -> Option<Arc<Installed>> {
        let entry = self.images.get_mut(id)?;
        self.ages.remove(&entry.last_bound);
        self.clock += 1;
        entry.last_bound = self.clock;
        self.ages.insert(self.clock, *id);
        Some(entry.image.clone())
    }

    /// Installs an image that was judged, evicting what nobody has bound.
    pub(crate) fn insert(
        &mut self,
        id: ImageId,
        image: &Image<'_>,
        got: &[usize],
    ) -> Result<Arc<Installed>, Refusal> {
        while self.images.len() >= self.max_images {
            if !self.evict_one() {
                let detail = format!("all {} images are in use", self.max_images);
                return Err(Refusal::new(Rejection::CacheFull, detail));
            }
        }
        let installed = loop {
            match install(&mut self.arena, &self.debugger, id, image, got) {
                Ok(installed) => break Arc::new(installed),
                Err(error @ ArenaError::Full(_)) => {
                    if !self.evict_one() {
                        return Err(Refusal::new(Rejection::CacheFull, error.to_string()));
                    }
                }
                Err(error @ ArenaError::Os(_)) => {
                    return Err(Refusal::new(Rejection::Resources, error.to_string()));
                }
            }
        };
        tracing::debug!(name = %installed.name, bytes = installed.footprint(), "installed");
        self.book.installed(&installed);
        self.clock += 1;
        self.ages.insert(self.clock, id);
        self.images.insert(
            id,
            Entry {
                image: installed.clone(),
                last_bound: self.clock,
            },
        );
        Ok(installed)
    }

    /// Evicts the unbound image that was bound longest ago; `false` if every image is bound or pinned.
    fn evict_one(&mut self) -> bool {
        let may_go = |entry: &Entry| {
            Arc::strong_count(&entry.image) == 1 && !entry.image.flags.contains(ImageFlags::PINNED)
        };
        let oldest = self
            .ages
            .values()
            .find(|id| self.images.get(*id).is_some_and(may_go))
            .copied();
        let Some(entry) = oldest.and_then(|id| self.images.remove(&id)) else {
            return false;
        };
        self.ages.remove(&entry.last_bound);
        let Some(installed) = Arc::into_inner(entry.image) else {
            return false;
        };
        tracing::debug!(name = %installed.name, "evicted");
        self.book.evicted(&installed.id);
        // SAFETY: no connection has it bound (the count was one), so no invocation runs in it, and it did not declare
        // that its address outlives its invocations.
        unsafe { installed.free(&mut self.arena) };
        true
    }

    /// Number of installed images.
    pub(crate) fn len(&self) -> usize {
        self.images.len()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // Whoever was given the address of a pinned image may still call it.
        if self
            .images
            .values()
            .any(|entry| entry.image.flags.contains(ImageFlags::PINNED))
        {
            self.arena.leak();
            // And a debugger may still want to know what it is.
            for entry in self.images.values() {
                std::mem::forget(entry.image.clone());
            }
        }
        // Debuggers are told while the code is still mapped: it is there that they take their breakpoints back.
        self.images.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::install::judge;

    #[test]
    fn a_pinned_image_outlives_its_target() {
        let image = ifunc_abi::image::ImageParts {
            name: "seven".into(),
            arch: crate::exec::ARCH,
            flags: ImageFlags::PINNED,
            rx: vec![0xb8, 7, 0, 0, 0, 0xc3],
            ..Default::default()
        };
        let bytes = image.encode().unwrap();
        let book = Book::new("loopback:cache".into(), Default::default(), 1 << 16, 4);
        let mut cache = Cache::new(1 << 16, 4, Debugger::default(), book).unwrap();
        let installed = cache
            .insert([0; 32], &judge(&bytes, 1 << 16).unwrap(), &[])
            .unwrap();
        // SAFETY: `mov eax, 7 ; ret` is this function, and the image is installed.
        let seven: extern "C" fn() -> u32 = unsafe { std::mem::transmute(installed.main) };
        drop(installed);
        drop(cache);
        assert_eq!(seven(), 7);
    }
}
