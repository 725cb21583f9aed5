//! What a target keeps to send an image on to other machines than its own: the image's companions.
//!
//! They belong to the connection that sent them. Its handles hold them, the invocations of these that run, and what such an invocation
//! sends until it has left. Nothing else does: what is kept of an image for the next invocation holds no companions, and a handle of a
//! link to another node refers to them weakly. So they are dropped with the handles of their connection, and what one source sends never
//! accompanies the invocations of another one, even of the same image.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ifunc_abi::ImageId;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use zerocopy::IntoBytes;

use crate::policy::{Charge, Meter};
use crate::source::slices::Slice;

/// The bound on the companions of all connections of a target, and their bytes.
#[derive(Debug)]
pub(crate) struct CompanionMemory {
    max_bytes: usize,
    held: AtomicUsize,
}

impl CompanionMemory {
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            max_bytes,
            held: AtomicUsize::new(0),
        })
    }

    /// Keeps the companions of the image with this id. They count on these meters for as long as they are kept.
    ///
    /// # Errors
    /// There would be too many bytes of them.
    pub(crate) fn keep<'a>(
        self: &Arc<Self>,
        of: &ImageId,
        all: Vec<Companion>,
        meters: impl IntoIterator<Item = &'a Arc<Meter>>,
    ) -> Result<Arc<Companions>, Refusal> {
        let bytes = all.iter().map(|one| one.slice.image.len()).sum();
        let charges = meters.into_iter().map(|meter| meter.charge_companions(bytes));
        let charges = charges.collect::<Result<Vec<Charge>, Refusal>>()?;
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.max_bytes);
        let added = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.map_err(|held| {
            Refusal::new(
                Rejection::CacheFull,
                format!(
                    "the image's slices for other machines have {bytes} bytes, and those of all sources {held} of {}; help: release \
                     handles, or `TargetBuilder::code_cache`",
                    self.max_bytes
                ),
            )
        })?;
        Ok(Arc::new(Companions {
            id: id_with(of, &all),
            all,
            bytes,
            memory: Arc::clone(self),
            _charges: charges,
        }))
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// A slice that accompanies an image.
#[derive(Debug)]
pub(crate) struct Companion {
    pub(crate) slice: Slice,
    /// The key that signed it, whether the policy knows it or not.
    pub(crate) signed_by: Option<[u8; 32]>,
}

/// The companions of an image.
#[derive(Debug)]
pub(crate) struct Companions {
    /// Identifies the image together with them.
    id: ImageId,
    all: Vec<Companion>,
    bytes: usize,
    memory: Arc<CompanionMemory>,
    _charges: Vec<Charge>,
}

impl Companions {
    /// Identifies the image together with them, among those of a link.
    pub(crate) fn id(&self) -> &ImageId {
        &self.id
    }
}

impl Deref for Companions {
    type Target = [Companion];

    fn deref(&self) -> &[Companion] {
        &self.all
    }
}

/// Identifies an image together with what accompanies it. A library of the same slices has another id: a link binds it to other handles.
fn id_with(of: &ImageId, all: &[Companion]) -> ImageId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"companions").update(of);
    for Companion { slice, .. } in all {
        hasher.update(&slice.id);
        if let Some(signature) = &slice.signature {
            hasher.update(signature.as_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

impl Drop for Companions {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ifunc_abi::machine::Machine;

    use super::*;

    #[test]
    fn the_companions_of_all_connections_share_a_bound() {
        let memory = CompanionMemory::new(10);
        let keep = |len: usize| {
            let slice = Slice::new(Machine::default(), [0; 32], vec![0; len], None);
            let signed_by = None;
            memory.keep(&[1; 32], vec![Companion { slice, signed_by }], [])
        };
        let first = keep(6).unwrap();
        let refusal = keep(5).unwrap_err();
        assert_eq!(refusal.reason, Rejection::CacheFull);
        assert!(
            refusal
                .detail
                .contains("have 5 bytes, and those of all sources 6 of 10")
        );
        let second = keep(4).unwrap();
        assert_eq!(memory.held(), 10);
        drop((first, second));
        assert_eq!(memory.held(), 0);
    }
}
