//! Fingerprints of canonical texts.

use ifunc_abi::Fingerprint;

/// The fingerprint of a text.
#[must_use]
pub fn of(text: &str) -> Fingerprint {
    ifunc_abi::fingerprint(blake3::hash(text.as_bytes()).as_bytes())
}
