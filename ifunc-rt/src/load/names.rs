//! The names of the host that images may bind: what was exported, what the builder allowed, and the few that need no permission.

use std::collections::HashMap;

use ifunc::host::EXPORTS;
use ifunc_abi::Fingerprint;

use crate::exec::host::always_allowed;
use crate::fingerprint;

/// What a name is bound to.
#[derive(Clone, Debug)]
pub(crate) struct HostName {
    pub(crate) address: *const (),
    /// The signature's text and fingerprint, where it is known.
    pub(crate) signature: Option<(&'static str, Fingerprint)>,
}

// SAFETY: an address of code or data of the host; what the builder allowed lives as long as the target by its contract.
unsafe impl Send for HostName {}

/// The allow-list of a target.
#[derive(Clone, Debug)]
pub(crate) struct HostNames(HashMap<String, HostName>);

/// Two host functions with one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two host functions have the name `{0}`; help: rename one")]
pub struct DuplicateExport(pub String);

impl HostNames {
    /// The exports of this process and what is always allowed.
    pub(crate) fn new() -> Result<Self, DuplicateExport> {
        let mut names: HashMap<_, _> = always_allowed()
            .into_iter()
            .map(|(name, address)| {
                (
                    name.to_owned(),
                    HostName {
                        address,
                        signature: None,
                    },
                )
            })
            .collect();
        for export in EXPORTS {
            let signature = Some((export.signature(), fingerprint::of(export.signature())));
            let name = HostName {
                address: export.address(),
                signature,
            };
            if names.insert(export.name().to_owned(), name).is_some() {
                return Err(DuplicateExport(export.name().to_owned()));
            }
        }
        Ok(Self(names))
    }

    /// Adds a name. One that is exported keeps what it stands for: its signature is known.
    pub(crate) fn allow(&mut self, name: &str, address: *const ()) -> Result<(), DuplicateExport> {
        if self.0.get(name).is_some_and(|known| known.signature.is_some()) {
            return Err(DuplicateExport(name.to_owned()));
        }
        self.0.insert(
            name.to_owned(),
            HostName {
                address,
                signature: None,
            },
        );
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&HostName> {
        self.0.get(name)
    }
}
