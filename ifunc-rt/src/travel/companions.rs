//! What a target keeps to send an image on to other machines than its own: the image's companions.
//!
//! They belong to the connection that sent them, and are dropped with its handles: what one source sends never accompanies the
//! invocations of another one, even of the same image.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

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

    /// Keeps the companions of an image.
    ///
    /// # Errors
    /// There would be too many bytes of them.
    pub(crate) fn keep(self: &Arc<Self>, slices: Vec<Arc<Slice>>) -> Result<Arc<Companions>, Refusal> {
        let bytes = slices.iter().map(|slice| slice.image.len()).sum();
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
            slices,
            bytes,
            memory: Arc::clone(self),
        }))
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// The companions of an image.
#[derive(Debug)]
pub(crate) struct Companions {
    slices: Vec<Arc<Slice>>,
    bytes: usize,
    memory: Arc<CompanionMemory>,
}

impl Companions {
    /// Bytes of their images.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Deref for Companions {
    type Target = [Arc<Slice>];

    fn deref(&self) -> &[Arc<Slice>] {
        &self.slices
    }
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
        let slices = |len: usize| {
            vec![Arc::new(Slice::new(
                Machine::default(),
                [0; 32],
                vec![0; len],
                None,
            ))]
        };
        let first = memory.keep(slices(6)).unwrap();
        let refusal = memory.keep(slices(5)).unwrap_err();
        assert_eq!(refusal.reason, Rejection::CacheFull);
        assert!(
            refusal
                .detail
                .contains("have 5 bytes, and those of all sources 6 of 10")
        );
        let second = memory.keep(slices(4)).unwrap();
        assert_eq!((memory.held(), first.bytes()), (10, 6));
        drop((first, second));
        assert_eq!(memory.held(), 0);
    }
}
