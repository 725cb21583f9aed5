//! How much code one connection may have installed at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ifunc_abi::ImageId;
use ifunc_abi::image::ImageFlags;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_exec::InstalledImage;

/// The quota of one connection, and what it uses of it.
#[derive(Debug)]
pub(super) struct CodeQuota {
    max_bytes: usize,
    max_images: usize,
    used: Arc<Used>,
    /// Images that this connection pinned. They count for as long as it lives.
    pinned: BTreeSet<ImageId>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: AtomicUsize,
    images: AtomicUsize,
}

/// What a bound image counts, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    used: Arc<Used>,
    bytes: usize,
}

impl CodeQuota {
    pub(super) fn new((max_bytes, max_images): (usize, usize)) -> Self {
        Self {
            max_bytes,
            max_images,
            used: Arc::default(),
            pinned: BTreeSet::new(),
        }
    }

    /// Whether an image of at least `bytes` bytes may be installed.
    pub(super) fn admits(&self, bytes: usize) -> Result<(), Refusal> {
        let (used, images) = (self.bytes(), self.used.images.load(Ordering::Relaxed));
        if images < self.max_images && used.saturating_add(bytes) <= self.max_bytes {
            return Ok(());
        }
        let (max_bytes, max_images) = (self.max_bytes, self.max_images);
        Err(Refusal::new(
            Rejection::Quota,
            format!(
                "this connection has {images} images of {used} bytes bound, and may have {max_images} of {max_bytes}; help: release handles, or `Target::builder().code_per_connection(..)` on the target"
            ),
        ))
    }

    /// Counts an image that was installed. `None`: it counts already, until the connection ends.
    pub(super) fn charge(&mut self, image: &InstalledImage) -> Result<Option<Charge>, Refusal> {
        let is_pinned = image.flags.contains(ImageFlags::PINNED);
        if is_pinned && self.pinned.contains(&image.id) {
            return Ok(None);
        }
        let bytes = image.footprint();
        self.admits(bytes)?;
        self.used.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used.images.fetch_add(1, Ordering::Relaxed);
        if is_pinned {
            self.pinned.insert(image.id);
            return Ok(None);
        }
        let used = Arc::clone(&self.used);
        Ok(Some(Charge { used, bytes }))
    }

    fn bytes(&self) -> usize {
        self.used.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.used.images.fetch_sub(1, Ordering::Relaxed);
    }
}
