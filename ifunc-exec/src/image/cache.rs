//! The code cache: what is installed, by id, and what is evicted when room is needed.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use ifunc_abi::ImageId;
use ifunc_abi::image::ImageFlags;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

use super::imports::Imports;
use super::install::install;
use super::original::Kept;
use super::validate::memory_of;
use super::{ImageProperties, InstalledImage, Remote, ValidImage};
use crate::Observer;
use crate::arena::{Arena, ArenaError, Range};
use crate::debug::{DebugRecord, DebugRegistry};
use crate::entrance::Door;
use crate::got::{Got, GotMemory};
use crate::symbols::Bound;

/// A map by image id. An id is a cryptographic hash, so it is not hashed again.
pub type IdMap<V> = HashMap<ImageId, V, BuildHasherDefault<IdHasher>>;

/// The first eight bytes of what it is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length of an id is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Installed images. An image of which the cache holds the last reference stays until its room is needed, least recently
/// bound first.
#[derive(Debug)]
pub(crate) struct CodeCache {
    arena: Arena,
    gots: Arc<GotMemory>,
    debug: DebugRegistry,
    images: IdMap<Entry>,
    /// When they were last bound → which: the one bound longest ago is first.
    ages: BTreeMap<u64, ImageId>,
    /// Limit of the sum of all images' footprints.
    max_bytes: usize,
    /// Bytes that they take.
    bytes: usize,
    max_images: usize,
    /// Pinned images, which are never evicted, and the bytes that they take.
    pinned: (usize, usize),
    clock: u64,
    observer: Arc<dyn Observer>,
}

impl Entry {
    /// Neither bound nor pinned.
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.image) == 1 && !self.image.flags.contains(ImageFlags::PINNED)
    }
}

/// What is kept of an image beside its memory.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) kept: Arc<Kept>,
    pub(crate) imports: Arc<Imports>,
}

impl Record {
    pub(crate) fn of(valid: &ValidImage<'_>) -> Self {
        Self {
            kept: Arc::new(Kept::of(valid.image(), valid.bytes)),
            imports: Arc::new(Imports::of(valid.image())),
        }
    }

    fn footprint(&self) -> usize {
        self.kept.footprint() + self.imports.footprint()
    }
}

#[derive(Debug)]
struct Entry {
    image: Arc<InstalledImage>,
    last_bound: u64,
}

impl CodeCache {
    pub(crate) fn new(
        max_bytes: usize,
        max_images: usize,
        debug: DebugRegistry,
        observer: Arc<dyn Observer>,
    ) -> rustix::io::Result<Self> {
        Ok(Self {
            arena: Arena::new(max_bytes)?,
            // An entry is smaller than what an image's table of imports says of it.
            gots: GotMemory::new(max_bytes)?,
            debug,
            images: IdMap::default(),
            ages: BTreeMap::new(),
            max_bytes,
            bytes: 0,
            max_images,
            pinned: (0, 0),
            clock: 0,
            observer,
        })
    }

    /// An image whose code is in a runner process.
    pub(crate) fn remote(
        &self,
        valid: &ValidImage<'_>,
        remote: Remote,
        imports: Imports,
    ) -> Result<InstalledImage, ArenaError> {
        Ok(InstalledImage {
            properties: ImageProperties::of(valid.id, valid.image()),
            door: Door::default(),
            debug: DebugRecord::none(),
            kept: Arc::default(),
            file: Weak::new(),
            code: Range::EMPTY,
            got: self.gots.allocate(&[])?,
            imports: Arc::new(imports),
            signature: OnceLock::new(),
            remote: Some(remote),
        })
    }

    /// Writes instructions of the runtime's own into code memory, where they stay. Returns their address.
    pub(crate) fn write_code(&mut self, code: &[u8]) -> Result<usize, ArenaError> {
        let range = self.arena.allocate(code.len(), 16, false)?;
        self.arena.write(&range, code, &[])?;
        Ok(self.arena.address(&range))
    }

    /// The file of the arena.
    pub(crate) fn file(&self) -> Weak<File> {
        self.arena.file()
    }

    /// Where code of images lies.
    pub(crate) fn code(&self) -> std::ops::Range<usize> {
        self.arena.addresses()
    }

    /// The installed image of this id.
    pub(crate) fn get(&mut self, id: &ImageId) -> Option<Arc<InstalledImage>> {
        let entry = self.images.get_mut(id)?;
        self.ages.remove(&entry.last_bound);
        self.clock += 1;
        entry.last_bound = self.clock;
        self.ages.insert(self.clock, *id);
        Some(entry.image.clone())
    }

    /// Installs an image, and evicts images that no connection has bound as far as room is needed.
    pub(crate) fn insert(
        &mut self,
        valid: &ValidImage<'_>,
        bound: &Bound,
        record: &Record,
    ) -> Result<Arc<InstalledImage>, Refusal> {
        let needed = memory_of(valid.image()) + Got::size_of(bound.got.len()) + record.footprint();
        let is_pinned = valid.image().flags().contains(ImageFlags::PINNED);
        if is_pinned {
            self.admit_pinned(needed)?;
        }
        let installed = loop {
            // The number of images, or the bytes for which there is no room.
            let full = if self.images.len() >= self.max_images {
                None
            } else if self.bytes + needed > self.max_bytes {
                Some(needed)
            } else {
                match install(&mut self.arena, &self.gots, &self.debug, valid, bound, record) {
                    Ok(installed) => break Arc::new(installed),
                    Err(ArenaError::Full(bytes)) => Some(bytes),
                    Err(error) => return Err(Refusal::new(Rejection::Resources, error.to_string())),
                }
            };
            if !self.evict_one() {
                let full = match full {
                    None => {
                        let images = ifunc_abi::Counted(self.max_images, "image");
                        format!("it may hold {images}, all in use")
                    }
                    Some(bytes) => ArenaError::Full(bytes).to_string(),
                };
                let help = "help: drop handles that are not needed, or `TargetBuilder::code_cache`";
                return Err(Refusal::new(Rejection::CacheFull, format!("{full}; {help}")));
            }
        };
        tracing::debug!(target: crate::LOG, name = %installed.names(), bytes = installed.footprint(), "installed");
        self.observer.installed(&installed);
        self.bytes += installed.footprint();
        if is_pinned {
            self.pinned.0 += 1;
            self.pinned.1 += installed.footprint();
        }
        self.clock += 1;
        self.ages.insert(self.clock, installed.id);
        self.images.insert(
            installed.id,
            Entry {
                image: installed.clone(),
                last_bound: self.clock,
            },
        );
        Ok(installed)
    }

    /// Whether another image may be pinned: those are never evicted, and half of the cache is left for all others.
    fn admit_pinned(&self, needed: usize) -> Result<(), Refusal> {
        let (images, bytes) = self.pinned;
        if images < self.max_images.div_ceil(2) && bytes + needed <= self.max_bytes / 2 {
            return Ok(());
        }
        let detail = format!(
            "{images} pinned images take {bytes} bytes, and those may take half of the code cache; help: `Target::builder().code_cache(..)` on the target"
        );
        Err(Refusal::new(Rejection::Quota, detail))
    }

    /// Evicts the unbound image that was bound longest ago; `false` if every image is bound or pinned.
    fn evict_one(&mut self) -> bool {
        let oldest = self
            .ages
            .values()
            .find(|id| self.images.get(*id).is_some_and(Entry::is_unused))
            .copied();
        oldest.is_some_and(|id| self.evict_unused(&id))
    }

    /// Evicts an image, unless it is bound or pinned: then it is returned.
    pub(crate) fn evict(&mut self, image: Arc<InstalledImage>) -> Option<Arc<InstalledImage>> {
        let (id, weak) = (image.id, Arc::downgrade(&image));
        drop(image);
        if self.images.get(&id).is_some_and(Entry::is_unused) {
            self.evict_unused(&id);
        }
        weak.upgrade()
    }

    /// Evicts an image that is neither bound nor pinned.
    fn evict_unused(&mut self, id: &ImageId) -> bool {
        let Some(entry) = self.images.remove(id) else {
            return false;
        };
        self.ages.remove(&entry.last_bound);
        let Some(installed) = Arc::into_inner(entry.image) else {
            return false;
        };
        tracing::debug!(target: crate::LOG, name = %installed.names(), "evicted");
        self.observer.evicted(&installed);
        self.bytes -= installed.footprint();
        // SAFETY: no connection has it bound (the count was one), so no invocation runs in it, and it did not declare
        // that its address outlives its invocations.
        unsafe { installed.free(&mut self.arena) };
        true
    }

    /// The installed images for which `concerns` holds.
    pub(crate) fn images(&self, concerns: impl Fn(&InstalledImage) -> bool) -> Vec<Arc<InstalledImage>> {
        let images = self.images.values().map(|entry| &entry.image);
        images.filter(|image| concerns(image)).cloned().collect()
    }

    /// Number of installed images.
    pub(crate) fn len(&self) -> usize {
        self.images.len()
    }
}

impl Drop for CodeCache {
    fn drop(&mut self) {
        // Code that was given the address of a pinned image may still call it.
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
        // Debuggers learn of it while the code is still mapped: they take their breakpoints back there.
        self.images.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use ifunc_abi::image::{EntryPart, ImageParts, ImportFlags, ImportPart};

    use super::super::validate::validate;
    use super::*;
    use crate::DebugInfo;
    use crate::arch::ARCH;

    fn cache(max_bytes: usize, max_images: usize) -> CodeCache {
        let debug = DebugRegistry::new(DebugInfo::none(), Vec::new);
        CodeCache::new(max_bytes, max_images, debug, Arc::new(())).unwrap()
    }

    /// The bytes of an image of this name, of one line of code.
    fn encoded(name: &str, flags: ImageFlags) -> Vec<u8> {
        let parts = ImageParts {
            entries: vec![EntryPart::new(name)],
            arch: ARCH,
            flags,
            rx_align_log2: 4,
            rx: vec![0xc3; 64],
            slot: Some(8),
            imports: vec![ImportPart {
                symbol: "cos".into(),
                flags: ImportFlags::DATA,
                fingerprint: 0,
            }],
            ..ImageParts::default()
        };
        parts.encode().unwrap()
    }

    fn insert(cache: &mut CodeCache, bytes: &[u8]) -> Result<Arc<InstalledImage>, Refusal> {
        let valid = validate(blake3::hash(bytes).as_bytes(), bytes, 1 << 16)?;
        let bound = Bound {
            got: vec![0x4000],
            ..Bound::default()
        };
        cache.insert(&valid, &bound, &Record::of(&valid))
    }

    fn names(cache: &CodeCache) -> Vec<String> {
        let mut names: Vec<_> = cache
            .images(|_| true)
            .iter()
            .map(|image| image.names().to_string())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_image_that_was_bound_longest_ago_is_evicted() {
        let mut cache = cache(1 << 16, 2);
        for name in ["a", "b"] {
            drop(insert(&mut cache, &encoded(name, ImageFlags::NONE)).unwrap());
        }
        let first = blake3::hash(&encoded("a", ImageFlags::NONE));
        drop(cache.get(first.as_bytes()).unwrap());
        for (name, left) in [("c", ["a", "c"]), ("d", ["c", "d"]), ("e", ["d", "e"])] {
            drop(insert(&mut cache, &encoded(name, ImageFlags::NONE)).unwrap());
            assert_eq!(names(&cache), left);
        }
        assert!(cache.get(first.as_bytes()).is_none());
    }

    #[test]
    fn an_image_is_installed_if_all_that_it_takes_has_room() {
        let bytes = encoded("a", ImageFlags::NONE);
        let valid = validate(blake3::hash(&bytes).as_bytes(), &bytes, 1 << 16).unwrap();
        let record = Record::of(&valid);
        assert_eq!(
            record.footprint(),
            record.kept.footprint() + record.imports.footprint()
        );
        let needed = 64 + Got::size_of(1) + record.footprint();
        for (room, has_room) in [(needed - 1, false), (needed, true)] {
            let mut cache = cache(1 << 16, 2);
            cache.max_bytes = room;
            let installed = insert(&mut cache, &bytes);
            assert_eq!(installed.is_ok(), has_room);
            assert_eq!(cache.bytes, if has_room { needed } else { 0 });
        }
    }

    #[test]
    fn half_of_the_cache_may_be_pinned() {
        let mut cache = cache(1 << 16, 5);
        for (images, bytes, needed, is_admitted) in [
            (2, 0, 1 << 15, true),
            (2, 0, (1 << 15) + 1, false),
            (2, 100, (1 << 15) - 100, true),
            (2, 100, (1 << 15) - 99, false),
            (3, 0, 1, false),
            (0, 0, 1 << 16, false),
        ] {
            cache.pinned = (images, bytes);
            let admitted = cache.admit_pinned(needed).map_err(|refusal| refusal.reason);
            let expected = if is_admitted {
                Ok(())
            } else {
                Err(Rejection::Quota)
            };
            assert_eq!(admitted, expected, "{images} {bytes} {needed}");
        }
        cache.pinned = (0, 0);
        for count in 1..=3 {
            let pinned = insert(
                &mut cache,
                &encoded(&format!("pinned_{count}"), ImageFlags::PINNED),
            )
            .unwrap();
            assert_eq!(cache.pinned, (count, count * pinned.footprint()));
        }
        let refusal = insert(&mut cache, &encoded("pinned_4", ImageFlags::PINNED)).unwrap_err();
        assert_eq!(refusal.reason, Rejection::Quota);
        assert!(
            refusal.detail.starts_with("3 pinned images take "),
            "{}",
            refusal.detail
        );
    }

    #[test]
    fn code_of_the_runtime_lies_in_the_arena() {
        let mut cache = cache(1 << 16, 2);
        let code = crate::arch::testing::code::returns(7);
        let address = cache.write_code(&code).unwrap();
        assert!(cache.code().contains(&address) && address.is_multiple_of(16));
        // SAFETY: the bytes above are this function, and the cache lives.
        let seven: extern "C" fn() -> u32 =
            unsafe { std::mem::transmute(std::ptr::with_exposed_provenance::<()>(address)) };
        assert_eq!(seven(), 7);
        let file = cache.file();
        let mut there = vec![0; code.len()];
        let at = address - cache.code().start;
        std::os::unix::fs::FileExt::read_exact_at(&*file.upgrade().unwrap(), &mut there, at as u64).unwrap();
        assert_eq!(there, code);
        drop(cache);
        assert!(file.upgrade().is_none());
    }

    #[test]
    fn ids_are_distinguished_by_their_beginning() {
        let hash = |id: ImageId| BuildHasherDefault::<IdHasher>::default().hash_one(id);
        assert_eq!(hash([7; 32]), u64::from_le_bytes([7; 8]));
        assert_ne!(hash([7; 32]), hash([8; 32]));
    }
}
