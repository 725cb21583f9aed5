//! A policy in TOML, and what it names: ranges of addresses, keys, signatures.

use ifunc_rt::keys::{PublicKey, Signature};
use ifunc_rt::{AddressRange, Policy};

/// The text as each of them. What is parsed is printed as what parses to the same.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // A file that the text names is another input.
    if !text.contains("file") {
        // SAFETY: no target uses it.
        if let Err(error) = unsafe { Policy::from_toml(text) } {
            let _ = error.to_string();
        }
    }
    if let Ok(range) = text.parse::<AddressRange>() {
        assert_eq!(range.to_string().parse(), Ok(range));
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse::<PublicKey>().ok(), Some(key));
    }
    if let Ok(signature) = text.parse::<Signature>() {
        let _ = signature.verify();
        assert!(signature.to_string().parse::<Signature>().is_ok());
    }
}
