//! Signatures that were verified: an image that many sources send is verified once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ifunc_abi::ImageId;
use ifunc_abi::signature::Signature;

use crate::keys::{self, WrongSignature};

/// Signatures that are kept.
const KEPT: usize = 4096;

/// The signatures that were verified last. Another signature of the same image by the same key is verified by itself.
#[derive(Debug, Default)]
pub(super) struct Verified(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// With the number of its last use.
    known: HashMap<(ImageId, Signature), u64>,
    uses: u64,
    #[cfg(test)]
    verifications: u64,
}

impl Verified {
    /// Whether a signature is one of this image by its key.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check(&self, id: &ImageId, signature: &Signature) -> Result<(), WrongSignature> {
        let use_of = |state: &mut State| {
            state.uses += 1;
            state.uses
        };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = use_of(&mut state);
        if let Some(last) = state.known.get_mut(&(*id, *signature)) {
            *last = now;
            return Ok(());
        }
        #[cfg(test)]
        {
            state.verifications += 1;
        }
        // It takes some ten microseconds: other threads go on.
        drop(state);
        keys::verify(id, signature)?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.known.len() >= KEPT {
            // The older half.
            let mut uses: Vec<u64> = state.known.values().copied().collect();
            let (_, median, _) = uses.select_nth_unstable(KEPT / 2);
            let median = *median;
            state.known.retain(|_, last| *last > median);
        }
        let now = use_of(&mut state);
        state.known.insert((*id, *signature), now);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::keys::SecretKey;

    #[test]
    fn an_image_is_verified_once() {
        let key = SecretKey::from_seed([1; 32], "");
        let (verified, id) = (Verified::default(), [7; 32]);
        let signature = key.sign(&id).raw();
        let wrong = Signature {
            signature: [0; 64],
            ..signature
        };
        for _ in 0..5 {
            assert_eq!(verified.check(&id, &signature), Ok(()));
        }
        let verifications = || verified.0.lock().unwrap().verifications;
        assert_eq!(verifications(), 1);
        // What is wrong is not kept, and another image is verified by itself.
        assert_eq!(verified.check(&id, &wrong), Err(WrongSignature));
        assert_eq!(verified.check(&[8; 32], &signature), Err(WrongSignature));
        assert_eq!((verifications(), verified.0.lock().unwrap().known.len()), (3, 1));
    }
}
