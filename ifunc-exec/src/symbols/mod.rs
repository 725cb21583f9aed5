//! The symbols of the host that images may import: exports, what the host allows one by one, in sets or as a library, and
//! the few that need no permission.

mod interfaces;
mod libraries;
mod sets;

use std::collections::HashMap;

use ifunc::host::{EXPORTS, Export};
use ifunc_abi::Fingerprint;
use ifunc_abi::image::{Image, ImportFlags};
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

pub use self::interfaces::Interfaces;
pub use self::libraries::InvalidSoname;
use self::libraries::SharedLibrary;
pub use self::sets::NamedSet;
use crate::fingerprint;
use crate::imports::runtime_imports;

/// A symbol of the host.
#[derive(Clone, Copy, Debug)]
struct HostSymbol {
    address: *const (),
    /// The signature's text and fingerprint, where it is known.
    signature: Option<(&'static str, Fingerprint)>,
}

// SAFETY: an address of code or data of the host. What the host allows lives as long as the target, by `accept_code`'s
// contract.
unsafe impl Send for HostSymbol {}
// SAFETY: as above; the runtime never writes through it.
unsafe impl Sync for HostSymbol {}

impl HostSymbol {
    fn unsigned(address: *const ()) -> Self {
        Self {
            address,
            signature: None,
        }
    }
}

/// What the images of one target may import.
#[derive(Debug)]
pub struct HostSymbols {
    symbols: HashMap<String, HostSymbol>,
    libraries: HashMap<String, SharedLibrary>,
    interfaces: Interfaces,
}

/// Two host functions with one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two host functions have the name `{0}`; help: rename one")]
pub struct DuplicateExport(pub String);

impl HostSymbols {
    /// The exports of this process and what is always allowed.
    ///
    /// # Errors
    /// Two exports have one name.
    pub fn new() -> Result<Self, DuplicateExport> {
        let symbols = runtime_imports()
            .into_iter()
            .map(|(name, address)| (name.to_owned(), HostSymbol::unsigned(address)));
        let interfaces = Interfaces::of_process();
        let mut all = Self {
            symbols: symbols.collect(),
            libraries: HashMap::new(),
            interfaces: interfaces.clone(),
        };
        for export in EXPORTS.iter().chain(interfaces.methods()) {
            all.add(export)?;
        }
        Ok(all)
    }

    /// Adds an export.
    fn add(&mut self, export: &'static Export) -> Result<(), DuplicateExport> {
        let symbol = HostSymbol {
            address: export.address(),
            signature: Some((export.signature(), fingerprint::of(export.signature()))),
        };
        match self.symbols.insert(export.name().to_owned(), symbol) {
            Some(_) => Err(DuplicateExport(export.name().to_owned())),
            None => Ok(()),
        }
    }

    fn remove(&mut self, name: &str) {
        self.symbols.remove(name);
    }

    #[cfg(test)]
    fn has(&self, name: &str) -> bool {
        self.symbols.contains_key(name)
    }

    /// Adds a symbol.
    ///
    /// # Errors
    /// An export has the name: its signature is known, and it keeps its address.
    pub fn allow(&mut self, name: &str, address: *const ()) -> Result<(), DuplicateExport> {
        let known = self.symbols.get(name);
        if known.is_some_and(|known| known.signature.is_some()) {
            return Err(DuplicateExport(name.to_owned()));
        }
        self.symbols
            .insert(name.to_owned(), HostSymbol::unsigned(address));
        Ok(())
    }

    /// Adds a symbol of a set. A symbol of this name that was chosen by itself keeps its address.
    pub fn allow_of_set(&mut self, name: &str, address: *const ()) {
        self.symbols
            .entry(name.to_owned())
            .or_insert(HostSymbol::unsigned(address));
    }

    /// Opens a shared library for the images that need it. If it cannot be opened, those images are refused with the
    /// reason.
    ///
    /// # Safety
    /// The library's constructors must be harmless to this process.
    ///
    /// # Errors
    /// The name is no soname.
    pub unsafe fn allow_library(&mut self, soname: &str) -> Result<(), InvalidSoname> {
        // SAFETY: the caller's promise.
        let library = unsafe { SharedLibrary::open(soname) }?;
        self.libraries.insert(soname.to_owned(), library);
        Ok(())
    }

    /// The GOT of an image: one address per import.
    ///
    /// # Errors
    /// What the host does not provide, or provides with another signature.
    pub fn resolve(&self, image: &Image<'_>) -> Result<Vec<usize>, Refusal> {
        let libraries = self.needed(image.needed())?;
        let mut got = Vec::with_capacity(image.imports().len());
        let mut missing = Vec::new();
        let mut differing = Vec::new();
        for import in image.imports() {
            // The host's own symbols win.
            let of_host = self.symbols.get(import.symbol).copied();
            let found = of_host.or_else(|| {
                let address = libraries.iter().find_map(|library| library.get(import.symbol))?;
                Some(HostSymbol::unsigned(address))
            });
            match found {
                None if import.flags.contains(ImportFlags::WEAK) => got.push(0),
                None => missing.push(match NamedSet::of(import.symbol) {
                    None => import.symbol.to_owned(),
                    Some(set) => format!("{} {set:?}", import.symbol),
                }),
                Some(HostSymbol { address, signature }) => {
                    if let Some((text, fingerprint)) = signature
                        && import.fingerprint != 0
                        && import.fingerprint != fingerprint
                    {
                        differing.push(format!("{} {text}", import.symbol));
                    }
                    got.push(address.addr());
                }
            }
        }
        if !missing.is_empty() {
            return Err(Refusal::listing(Rejection::MissingImport, missing));
        }
        if !differing.is_empty() {
            return Err(Refusal::listing(Rejection::ImportSignature, differing));
        }
        Ok(got)
    }

    /// The libraries that an image needs, each once.
    fn needed<'a>(&self, needed: impl Iterator<Item = &'a str>) -> Result<Vec<&SharedLibrary>, Refusal> {
        let mut libraries: Vec<&SharedLibrary> = Vec::new();
        let mut problems = Vec::new();
        for soname in needed {
            match self.libraries.get(soname) {
                // However often an image names it: there are no more than the host allows.
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
        if problems.is_empty() {
            Ok(libraries)
        } else {
            Err(Refusal::listing(Rejection::NeededLibrary, problems))
        }
    }
}
