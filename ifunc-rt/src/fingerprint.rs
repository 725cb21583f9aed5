//! From a canonical text to the number that travels.

use ifunc_abi::Fingerprint;

/// The fingerprint of a text.
pub(crate) fn of(text: &str) -> Fingerprint {
    ifunc_abi::fingerprint(blake3::hash(text.as_bytes()).as_bytes())
}
