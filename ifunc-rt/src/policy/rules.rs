//! The policy of a target that serves.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use ifunc_abi::ImageId;
use ifunc_abi::image::Image;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::signature::Signature;
use ifunc_abi::status::Rejection;

use super::verified::Verified;
use super::{
    Allowance, Authority, Check, ImageInfo, Policy, PolicyError, Quotas, SourceInfo, TrustedKey, Verdict,
};
use crate::keys::Hex;

/// The policy of a target that serves, and what it has counted and verified.
pub(crate) struct Rules {
    same_user: Option<Arc<Authority>>,
    every_peer: Option<Arc<Authority>>,
    keys: HashMap<[u8; 32], Arc<Authority>>,
    revoked: HashSet<[u8; 32]>,
    check: Option<Check>,
    verified: Verified,
    quotas: Quotas,
}

/// An image that asks to be installed: its bytes have its id, and parse.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) source: &'a SourceInfo,
    pub(crate) id: &'a ImageId,
    pub(crate) len: usize,
    /// Bytes of what accompanies it.
    pub(crate) beside: usize,
    pub(crate) image: &'a Image<'a>,
    pub(crate) signature: Option<&'a Signature>,
}

/// An image that was installed by the rules before, or that is kept beside one.
#[derive(Clone, Copy)]
pub(crate) struct Readmission<'a> {
    pub(crate) source: &'a SourceInfo,
    /// By whose authority it was installed.
    pub(crate) authority: &'a Authority,
    /// The key that signed it.
    pub(crate) signed_by: Option<&'a [u8; 32]>,
    pub(crate) id: &'a ImageId,
    /// Its size in bytes.
    pub(crate) len: usize,
    /// Names of its entries.
    pub(crate) names: &'a [&'a str],
    /// Names of its imports, and of the libraries that it needs.
    pub(crate) imports: &'a [&'a str],
    pub(crate) needed: &'a [&'a str],
}

impl Policy {
    /// The rules of one target. What was counted by those `before` them still counts.
    ///
    /// # Errors
    /// One key has two grants.
    pub(crate) fn rules(&self, before: Option<&Rules>) -> Result<Rules, PolicyError> {
        let mut keys = HashMap::new();
        for TrustedKey { name, key, grant } in &self.keys {
            let before = before.and_then(|before| before.keys.get(key.as_bytes()));
            let authority = Authority::new(Some(name.clone()), grant.clone(), before);
            if let Some(other) = keys.insert(*key.as_bytes(), authority) {
                return Err(PolicyError::SameKey {
                    first: other.signer().unwrap_or_default().to_owned(),
                    second: name.clone(),
                    key: *key,
                });
            }
        }
        let unsigned = |grant: &Option<_>, before: Option<&Arc<Authority>>| {
            grant.clone().map(|grant| Authority::new(None, grant, before))
        };
        Ok(Rules {
            same_user: unsigned(
                &self.same_user,
                before.and_then(|before| before.same_user.as_ref()),
            ),
            every_peer: unsigned(
                &self.every_peer,
                before.and_then(|before| before.every_peer.as_ref()),
            ),
            keys,
            revoked: self.revoked.iter().map(|key| *key.as_bytes()).collect(),
            check: self.check.clone(),
            verified: Verified::default(),
            quotas: self.quotas,
        })
    }
}

impl Rules {
    /// What each connection may use.
    pub(crate) fn quotas(&self) -> Quotas {
        self.quotas
    }

    /// Lets the quotas of these rules hold for what was counted before them.
    pub(crate) fn settle(&self) {
        let unsigned = self.same_user.iter().chain(&self.every_peer);
        unsigned
            .chain(self.keys.values())
            .for_each(|authority| authority.settle());
    }

    /// By whose authority an image runs that was installed by that of earlier rules, and whose allowance its invocations use beside
    /// that. What accompanies an image is asked for in the same way.
    ///
    /// # Errors
    /// Why it runs no more.
    pub(crate) fn readmit(
        &self,
        installed: Readmission<'_>,
    ) -> Result<(Arc<Authority>, Option<Allowance>), Refusal> {
        let Readmission {
            source,
            authority: before,
            signed_by,
            id,
            len,
            names,
            imports,
            needed,
        } = installed;
        let unsigned = || self.unsigned(source).cloned();
        let authority = match signed_by {
            Some(key) if self.revoked.contains(key) => return Err(Self::refuse_revoked(key)),
            // Only a signature by a key that was known has been verified.
            Some(key) => match self.keys.get(key).filter(|_| before.signer().is_some()) {
                Some(authority) => Ok(Arc::clone(authority)),
                None => unsigned().ok_or_else(|| self.refuse_unknown(key)),
            },
            None => unsigned().ok_or_else(|| self.refuse_unsigned()),
        }?;
        authority.grants(imports, needed)?;
        let about = ImageInfo {
            name: "",
            id,
            len,
            signer: authority.signer(),
            imports,
            is_installed: true,
        };
        let allowance = self.ask(source, names.iter().copied(), about)?;
        Ok((authority, allowance))
    }

    /// By whose authority an image may be installed, and whose allowance it uses beside that.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn admit(
        &self,
        candidate: Candidate<'_>,
    ) -> Result<(Arc<Authority>, Option<Allowance>), Refusal> {
        let authority = self.authority(&candidate)?;
        let with_companions = candidate.len.saturating_add(candidate.beside);
        authority.attempt(with_companions)?;
        let allowance = self.check(candidate, &authority)?;
        if let Some(allowance) = &allowance {
            allowance.meter().attempt(with_companions, Instant::now())?;
        }
        Ok((authority, allowance))
    }

    /// Whether an image may be kept to be sent on, beside one that was admitted by this authority.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admit_companion(
        &self,
        candidate: Candidate<'_>,
        by: &Arc<Authority>,
    ) -> Result<(), Refusal> {
        let authority = self.authority(&candidate)?;
        if !Arc::ptr_eq(&authority, by) {
            return Err(Refusal::new(
                Rejection::Signature,
                "it is not signed by the key that signed the image; help: `cargo ifunc sign` signs all slices of a library",
            ));
        }
        self.check(candidate, &authority).map(drop)
    }

    /// Whether an image that is not installed yet imports what its authority grants, and what the host's own function says of it. Returns
    /// the allowance that this states.
    fn check(&self, candidate: Candidate<'_>, authority: &Authority) -> Result<Option<Allowance>, Refusal> {
        let Candidate {
            source,
            id,
            len,
            image,
            ..
        } = candidate;
        let imports: Vec<&str> = image.imports().map(|import| import.symbol).collect();
        authority.grants(&imports, &image.needed().collect::<Vec<_>>())?;
        let about = ImageInfo {
            name: "",
            id,
            len,
            signer: authority.signer(),
            imports: &imports,
            is_installed: false,
        };
        self.ask(source, image.entries().map(|entry| entry.name), about)
    }

    /// Asks the host's own function, if there is one, about each entry of an image. Returns the allowance that it grants.
    fn ask<'a>(
        &self,
        source: &SourceInfo,
        names: impl Iterator<Item = &'a str>,
        about: ImageInfo<'a>,
    ) -> Result<Option<Allowance>, Refusal> {
        let Some(check) = &self.check else {
            return Ok(None);
        };
        // The host's function is called by one thread at a time. After a panic it may be called again.
        let check = check.lock().unwrap_or_else(PoisonError::into_inner);
        let mut allowance = None;
        for name in names {
            let Verdict(verdict) = check(source, &ImageInfo { name, ..about });
            allowance = verdict.map_err(|why| {
                let why = why.unwrap_or_else(|| "the target's own check refused it".to_owned());
                Refusal::new(Rejection::Policy, why)
            })?;
        }
        Ok(allowance)
    }

    fn authority(&self, candidate: &Candidate<'_>) -> Result<Arc<Authority>, Refusal> {
        let unsigned = self.unsigned(candidate.source);
        let Some(signature) = candidate.signature else {
            return unsigned.cloned().ok_or_else(|| self.refuse_unsigned());
        };
        let Signature { key, .. } = signature;
        if self.revoked.contains(key) {
            return Err(Self::refuse_revoked(key));
        }
        let Some(authority) = self.keys.get(key) else {
            // It proves nothing here.
            return unsigned.cloned().ok_or_else(|| self.refuse_unknown(key));
        };
        if self.verified.check(candidate.id, signature).is_err() {
            return Err(Refusal::new(
                Rejection::Signature,
                format!(
                    "the signature by the key {} is not one of this image; help: `cargo ifunc sign` it again",
                    Hex(key)
                ),
            ));
        }
        Ok(Arc::clone(authority))
    }

    /// What accepts unsigned code of a source.
    fn unsigned(&self, source: &SourceInfo) -> Option<&Arc<Authority>> {
        let same_user = self.same_user.as_ref().filter(|_| source.is_same_user);
        same_user.or(self.every_peer.as_ref())
    }

    #[cold]
    fn refuse_revoked(key: &[u8; 32]) -> Refusal {
        let key = Hex(key);
        Refusal::new(
            Rejection::Revoked,
            format!("the target's policy revoked the key {key}; help: sign the image with another one"),
        )
    }

    #[cold]
    fn refuse_unsigned(&self) -> Refusal {
        if !self.keys.is_empty() {
            return Refusal::new(
                Rejection::Signature,
                "the image is not signed, and the target accepts code by keys; help: `cargo ifunc sign --key KEY NAME.so` with a key of the target's policy",
            );
        }
        let why = match self.same_user {
            Some(_) => {
                "the target accepts code of its own user alone; help: run both as the same user, or sign the image and let the target's policy `accept_key`"
            }
            None => {
                "this target accepts no code; help: `Target::builder().accept_code()`, or a `Policy`, on the target"
            }
        };
        Refusal::new(Rejection::Policy, why)
    }

    #[cold]
    fn refuse_unknown(&self, key: &[u8; 32]) -> Refusal {
        if self.keys.is_empty() {
            return self.refuse_unsigned();
        }
        Refusal::new(
            Rejection::Signature,
            format!(
                "the target's policy does not know the key {}; help: sign the image with one that it knows, or let it `accept_key`",
                Hex(key)
            ),
        )
    }

    /// The name by which the policy knows a key, for logs.
    pub(crate) fn name_of(&self, key: &[u8; 32]) -> Option<&str> {
        self.keys.get(key)?.signer()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.values().filter_map(|key| key.signer()).collect();
        f.debug_struct("Rules")
            .field("keys", &keys)
            .field("revoked", &self.revoked.len())
            .finish_non_exhaustive()
    }
}
