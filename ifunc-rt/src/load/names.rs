//! The names of the host that images may bind: what was exported, what the builder allowed, name by name or in sets, and
//! the few that need no permission. Behind them come the shared libraries that an image needs and the builder allowed.

use std::collections::HashMap;

use ifunc::host::EXPORTS;
use ifunc_abi::Fingerprint;
use ifunc_abi::status::Rejection;

use super::Refusal;
use super::libraries::SharedLibrary;
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
// SAFETY: as above; nobody writes through it.
unsafe impl Sync for HostName {}

/// The allow-list of a target.
#[derive(Debug)]
pub(crate) struct HostNames {
    names: HashMap<String, HostName>,
    libraries: HashMap<String, SharedLibrary>,
}

/// What one image may bind: the host's names, and behind them the libraries that it needs.
#[derive(Debug)]
pub(crate) struct Reachable<'a> {
    names: &'a HashMap<String, HostName>,
    libraries: Vec<&'a SharedLibrary>,
}

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
        Ok(Self {
            names,
            libraries: HashMap::new(),
        })
    }

    /// Adds a name. One that is exported keeps what it stands for: its signature is known.
    pub(crate) fn allow(&mut self, name: &str, address: *const ()) -> Result<(), DuplicateExport> {
        if self
            .names
            .get(name)
            .is_some_and(|known| known.signature.is_some())
        {
            return Err(DuplicateExport(name.to_owned()));
        }
        self.names.insert(
            name.to_owned(),
            HostName {
                address,
                signature: None,
            },
        );
        Ok(())
    }

    /// Adds a name of a set. One that is there already keeps what it stands for: it was chosen by itself.
    pub(crate) fn allow_of_set(&mut self, name: &str, address: *const ()) {
        self.names.entry(name.to_owned()).or_insert(HostName {
            address,
            signature: None,
        });
    }

    /// Adds a library, for the images that need it.
    pub(crate) fn allow_library(&mut self, library: SharedLibrary) {
        self.libraries.insert(library.soname().to_owned(), library);
    }

    /// What an image that needs these libraries may bind; refused if one is not there.
    pub(crate) fn with<'a>(&self, needed: impl Iterator<Item = &'a str>) -> Result<Reachable<'_>, Refusal> {
        let mut libraries: Vec<&SharedLibrary> = Vec::new();
        let mut problems = Vec::new();
        for soname in needed {
            match self.libraries.get(soname) {
                // However often an image names it: there are no more than the builder allowed.
                Some(known) if libraries.iter().any(|library| library.soname() == known.soname()) => {}
                Some(library) => match library.problem() {
                    None => libraries.push(library),
                    Some(why) => problems.push(format!("`{soname}` is allowed, but cannot be opened: {why}")),
                },
                None => problems.push(format!(
                    "`{soname}` is not allowed; help: `Target::builder().allow_library({soname:?})` on the target"
                )),
            }
        }
        if !problems.is_empty() {
            return Err(Refusal::listing(Rejection::NeededLibrary, problems));
        }
        Ok(Reachable {
            names: &self.names,
            libraries,
        })
    }
}

impl Reachable<'_> {
    /// What a name is bound to: the host's own word first.
    pub(crate) fn get(&self, name: &str) -> Option<HostName> {
        let of_host = self.names.get(name).cloned();
        of_host.or_else(|| {
            let address = self.libraries.iter().find_map(|library| library.get(name))?;
            Some(HostName {
                address,
                signature: None,
            })
        })
    }
}
