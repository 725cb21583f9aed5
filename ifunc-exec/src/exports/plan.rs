//! Changes of exports, as they are asked for, and whether they can be made.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ifunc::host::NamedTypes;

use super::ExportError;
use crate::image::imports::Imports;
use crate::symbols::libraries::SharedLibrary;
use crate::symbols::{Changes, HostSymbols, InvalidSoname, Symbol, SymbolsAfter};

/// Changes that take effect together: see [`Exports::update`](super::Exports::update).
#[derive(Debug, Default)]
pub struct Update {
    wanted: Vec<Wanted>,
}

/// A change.
#[derive(Debug)]
enum Wanted {
    Add(Symbol),
    Replace(Symbol),
    Remove(String),
    Library {
        soname: String,
        library: Result<SharedLibrary, InvalidSoname>,
        replaces: bool,
    },
}

impl Update {
    /// As [`Exports::add`](super::Exports::add).
    pub fn add(&mut self, symbol: impl Into<Symbol>) {
        self.wanted.push(Wanted::Add(symbol.into()));
    }

    /// As [`Exports::replace`](super::Exports::replace).
    pub fn replace(&mut self, symbol: impl Into<Symbol>) {
        self.wanted.push(Wanted::Replace(symbol.into()));
    }

    /// As [`Exports::remove`](super::Exports::remove).
    pub fn remove(&mut self, name: impl Into<String>) {
        self.wanted.push(Wanted::Remove(name.into()));
    }

    /// As [`Exports::load_library`](super::Exports::load_library). It is opened at once.
    ///
    /// # Safety
    /// As [`Exports::load_library`](super::Exports::load_library).
    pub unsafe fn load_library(&mut self, soname: impl Into<String>) {
        let soname = soname.into();
        // SAFETY: the caller's promise.
        let library = unsafe { SharedLibrary::open(&soname, &soname) };
        self.wanted.push(Wanted::Library {
            soname,
            library,
            replaces: false,
        });
    }

    /// As [`Exports::replace_library`](super::Exports::replace_library). It is opened at once.
    ///
    /// # Safety
    /// As [`Exports::replace_library`](super::Exports::replace_library).
    pub unsafe fn replace_library(&mut self, soname: impl Into<String>, file: impl AsRef<Path>) {
        let soname = soname.into();
        // SAFETY: the caller's promise.
        let library = unsafe { SharedLibrary::open(&soname, file) };
        self.wanted.push(Wanted::Library {
            soname,
            library,
            replaces: true,
        });
    }
}

/// What an update comes to.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Changes,
    /// Symbols and libraries of which installed images must be able to use the new version.
    replaced: HashSet<String>,
    pub(super) replaced_libraries: Vec<Arc<SharedLibrary>>,
}

impl Plan {
    /// # Errors
    /// A change cannot be made to what there is after those before it.
    pub(super) fn of(update: Update, base: &HostSymbols) -> Result<Self, ExportError> {
        let mut plan = Self::default();
        for wanted in update.wanted {
            plan.add(wanted, base)?;
        }
        Ok(plan)
    }

    /// Notes the types that the new symbols name: all of them or none.
    ///
    /// # Errors
    /// A name stands for another type.
    pub(super) fn name_types(&self, names: &mut NamedTypes) -> Result<(), ExportError> {
        let mut after = names.clone();
        let new = self.changes.symbols.values().flatten();
        new.into_iter()
            .try_for_each(|symbol| symbol.name_types(&mut after))?;
        *names = after;
        Ok(())
    }

    /// The symbols as they are after the changes.
    pub(super) fn after<'a>(&'a self, base: &'a HostSymbols) -> SymbolsAfter<'a> {
        SymbolsAfter {
            base,
            changes: &self.changes,
        }
    }

    /// Whether an image must be able to use what there is after the changes.
    pub(super) fn must_suit(&self, imports: &Imports) -> bool {
        let mut names = imports.symbols.iter().map(|import| &import.name);
        let mut needed = imports.needed.iter();
        names.any(|name| self.replaced.contains(&**name))
            || needed.any(|soname| self.replaced.contains(&**soname))
    }

    fn add(&mut self, wanted: Wanted, base: &HostSymbols) -> Result<(), ExportError> {
        match wanted {
            Wanted::Add(symbol) => {
                let name = free(symbol.name())?;
                is_of_the_same_host(&symbol, base)?;
                if self.after(base).symbol(&name).is_some() {
                    return Err(ExportError::Exists { name });
                }
                self.changes.symbols.insert(name, Some(symbol));
            }
            Wanted::Replace(symbol) => {
                let name = free(symbol.name())?;
                is_of_the_same_host(&symbol, base)?;
                let Some(exported) = self.after(base).symbol(&name) else {
                    return Err(ExportError::NotExported { name });
                };
                if let Some(text) = exported.signature()
                    && symbol.signature() != Some(text)
                {
                    return Err(ExportError::Signature {
                        name,
                        exported: text.to_owned(),
                        replacement: symbol.signature().unwrap_or("(not stated)").to_owned(),
                    });
                }
                let symbol = symbol.with_versions_of(exported);
                self.replaced.insert(name.clone());
                self.changes.symbols.insert(name, Some(symbol));
            }
            Wanted::Remove(name) => {
                let name = free(&name)?;
                if self.after(base).symbol(&name).is_none() {
                    return Err(ExportError::NotExported { name });
                }
                self.replaced.remove(&name);
                self.changes.symbols.insert(name, None);
            }
            Wanted::Library {
                soname,
                library,
                replaces,
            } => {
                let library = library?;
                if let Some(why) = library.problem() {
                    let why = why.to_owned();
                    return Err(ExportError::Library { soname, why });
                }
                let known = self.after(base).library(&soname);
                match (known, replaces) {
                    (None, true) => return Err(ExportError::NotExported { name: soname }),
                    // It is open.
                    (Some(known), false) if known.problem().is_none() => return Ok(()),
                    (Some(known), true) => {
                        let known = Arc::clone(known);
                        self.replaced_libraries.push(known);
                        self.replaced.insert(soname.clone());
                    }
                    (_, false) => {}
                }
                self.changes.libraries.insert(soname, Arc::new(library));
            }
        }
        Ok(())
    }
}

/// A name that is not the runtime's.
fn free(name: &str) -> Result<String, ExportError> {
    let name = name.to_owned();
    if HostSymbols::is_of_runtime(&name) {
        return Err(ExportError::OfRuntime { name });
    }
    Ok(name)
}

/// A method of an interface is of the type that the builder exported the interface for: images were accepted for it.
fn is_of_the_same_host(symbol: &Symbol, base: &HostSymbols) -> Result<(), ExportError> {
    let Some(host) = symbol.method_of() else {
        return Ok(());
    };
    match base.interfaces().host_of(symbol.name()) {
        Some(exported) if exported == host => Ok(()),
        exported => Err(ExportError::HostType {
            name: symbol.name().to_owned(),
            host: host.name(),
            exported: exported.map(|exported| exported.name()),
        }),
    }
}
