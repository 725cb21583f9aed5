//! Maps by image id.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ifunc_abi::ImageId;

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

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;

    #[test]
    fn ids_are_distinguished_by_their_beginning() {
        let hash = |id: ImageId| BuildHasherDefault::<IdHasher>::default().hash_one(id);
        assert_eq!(hash([7; 32]), u64::from_le_bytes([7; 8]));
        assert_ne!(hash([7; 32]), hash([8; 32]));
    }
}
