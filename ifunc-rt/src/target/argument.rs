//! The target arguments of invocations, and which entries can run on them.

use std::ffi::c_void;

use ifunc_abi::Fingerprint;
use ifunc_abi::image::EntryFlags;
use ifunc_abi::text::Text;
use ifunc_exec::EntryProperties;

/// The target arguments of invocations.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub(super) target: *mut c_void,
    /// The text of their type.
    pub(super) text: &'static Text,
    /// Equal for target arguments that the same entries suit: the fingerprint of their type, inverted if they are shared.
    pub(super) key: u64,
    /// Several threads run invocations on them at the same time.
    pub(super) shared: bool,
}

impl Argument {
    /// Target arguments of the type of this text and fingerprint.
    #[inline]
    pub(super) fn new(
        target: *mut c_void,
        text: &'static Text,
        fingerprint: Fingerprint,
        shared: bool,
    ) -> Self {
        let key = if shared { !fingerprint } else { fingerprint };
        Self {
            target,
            text,
            key,
            shared,
        }
    }

    /// Whether an image takes arguments of this type.
    pub(super) fn has_type(&self, target: Fingerprint) -> bool {
        let fingerprint = if self.shared { !self.key } else { self.key };
        target == 0 || target == fingerprint
    }

    /// Whether an entry can run on them.
    #[cold]
    pub(super) fn suits(&self, entry: &EntryProperties) -> bool {
        // It may have been bound while the target served on one thread.
        self.has_type(entry.target) && (!self.shared || entry.flags.contains(EntryFlags::SHARED))
    }
}
