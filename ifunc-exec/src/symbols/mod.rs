//! The symbols of the host that images may import: exports, what the host allows one by one, in sets or as a library, and
//! the few that need no permission.

mod interfaces;
pub(crate) mod libraries;
mod sets;
mod symbol;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ifunc::host::{EXPORTS, ExportKind, NameConflict, NamedTypes};
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_abi::symbols::{COMPILER_IMPORTS, REPLACE_EXPORT, RUNTIME_IMPORTS, STACK_GUARD};

pub use self::interfaces::Interfaces;
pub use self::libraries::InvalidSoname;
use self::libraries::SharedLibrary;
pub use self::sets::NamedSet;
pub(crate) use self::symbol::Guard;
pub use self::symbol::Symbol;
use crate::allocations::note_all;
use crate::exports::remote::replace_export;
use crate::image::imports::{Imported, Imports};
use crate::imports::{runtime_imports, stack_guard};

/// What the images of one target may import.
#[derive(Debug)]
pub struct HostSymbols {
    symbols: HashMap<String, Symbol>,
    libraries: HashMap<String, Arc<SharedLibrary>>,
    interfaces: Interfaces,
    /// There is, or was, a function that runs as a part of the invocation that calls it, beside those of the runtime.
    has_unguarded: Arc<AtomicBool>,
}

/// Two symbols with one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "two exports have the name `{0}`; help: rename one, or choose what this target exports: `TargetBuilder::exports`"
)]
pub struct DuplicateExport(pub String);

impl HostSymbols {
    /// The exports of this process and what is always allowed.
    ///
    /// # Errors
    /// Two exports have one name.
    pub fn new() -> Result<Self, DuplicateExport> {
        Self::with(EXPORTS.iter().map(Symbol::from))
    }

    /// These exports, the interfaces that one type only exports in this process, and what is always allowed.
    ///
    /// # Errors
    /// Two exports have one name.
    pub fn with(exports: impl IntoIterator<Item = Symbol>) -> Result<Self, DuplicateExport> {
        let mut all = Self::of_runtime();
        all.interfaces = Interfaces::of_process();
        let methods = all.interfaces.clone();
        for export in exports.into_iter().chain(methods.methods().map(Symbol::from)) {
            all.add(export)?;
        }
        Ok(all)
    }

    /// What is always allowed, and nothing of the host's.
    pub(crate) fn of_runtime() -> Self {
        let runtime = runtime_imports().into_iter().map(|(name, address)| {
            // SAFETY: functions of this crate and of the C library, which live as long as the process.
            let symbol = unsafe { Symbol::untyped(name, address.cast()) }.of_kind(ExportKind::Function);
            (name.to_owned(), symbol.keeping_float_control())
        });
        // SAFETY: a static of this crate.
        let guard = unsafe { Symbol::untyped(STACK_GUARD, stack_guard()) }.of_kind(ExportKind::Data);
        let guard = (STACK_GUARD.to_owned(), guard.keeping_float_control());
        Self {
            symbols: runtime.chain([guard]).collect(),
            libraries: HashMap::new(),
            interfaces: Interfaces::default(),
            has_unguarded: Arc::default(),
        }
    }

    /// Whether images may call functions of the host that do not pass the call gate.
    pub(crate) fn has_unguarded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_unguarded)
    }

    /// Called before images may call such a function.
    pub(crate) fn note_unguarded(&self, is_unguarded: bool) {
        self.has_unguarded.fetch_or(is_unguarded, Ordering::Relaxed);
    }

    /// Adds an export.
    fn add(&mut self, export: Symbol) -> Result<(), DuplicateExport> {
        self.interfaces.note(&export);
        self.note_unguarded(!export.has_gate());
        match self.symbols.insert(export.name().to_owned(), export) {
            Some(known) => Err(DuplicateExport(known.name().to_owned())),
            None => Ok(()),
        }
    }

    fn remove(&mut self, name: &str) {
        self.interfaces.forget(name);
        self.symbols.remove(name);
    }

    /// Adds a symbol.
    ///
    /// # Errors
    /// An export has the name: its signature is known, and it keeps its address.
    pub fn allow(&mut self, symbol: Symbol) -> Result<(), DuplicateExport> {
        let name = symbol.name().to_owned();
        let known = self.symbols.get(&name);
        if known.is_some_and(|known| known.signature().is_some()) {
            return Err(DuplicateExport(name));
        }
        self.interfaces.note(&symbol);
        self.note_unguarded(!symbol.has_gate());
        self.symbols.insert(name, symbol);
        Ok(())
    }

    /// Adds a symbol of a set. A symbol of this name that was chosen by itself keeps its address.
    pub fn allow_of_set(&mut self, symbol: Symbol) {
        self.note_unguarded(!symbol.has_gate());
        self.symbols.entry(symbol.name().to_owned()).or_insert(symbol);
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
        let library = unsafe { SharedLibrary::open(soname, soname) }?;
        self.note_unguarded(true);
        self.libraries.insert(soname.to_owned(), Arc::new(library));
        Ok(())
    }

    /// Lets images replace exports by functions and variables of their own.
    pub fn allow_remote_exports(&mut self) {
        // SAFETY: a function of this crate.
        let symbol = unsafe { Symbol::untyped(REPLACE_EXPORT, replace_export as *const _) };
        let symbol = symbol.of_kind(ExportKind::Function);
        self.symbols.insert(REPLACE_EXPORT.to_owned(), symbol);
    }

    /// Whether the runtime itself provides it: no export may take its place.
    pub(crate) fn is_of_runtime(name: &str) -> bool {
        name == REPLACE_EXPORT
            || name == STACK_GUARD
            || runtime_imports().iter().any(|(runtime, _)| *runtime == name)
    }

    /// The address of the function of this name and signature, and what has to live while it is called.
    pub(crate) fn function(&self, name: &str, signature: &str) -> Option<(usize, Option<Guard>)> {
        let symbol = self.symbols.get(name)?;
        let is_same = symbol.signature() == Some(signature);
        is_same.then(|| (symbol.address(), symbol.guard().cloned()))
    }

    /// The symbol of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Symbol> {
        self.symbols.get(name)
    }

    /// Whether there is a symbol of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.symbols.contains_key(name)
    }

    /// Which type of this process each name in the signatures stands for.
    ///
    /// # Errors
    /// A name stands for two types.
    pub(crate) fn named_types(&self) -> Result<NamedTypes, NameConflict> {
        let mut names = NamedTypes::new();
        let mut symbols: Vec<_> = self.symbols.values().collect();
        symbols.sort_unstable_by_key(|symbol| symbol.name());
        symbols
            .into_iter()
            .try_for_each(|symbol| symbol.name_types(&mut names))?;
        Ok(names)
    }

    /// All symbols but those of the runtime.
    pub(crate) fn exports(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols
            .values()
            .filter(|symbol| !Self::is_of_runtime(symbol.name()))
    }

    /// What the imports of an image are bound to.
    ///
    /// # Errors
    /// What the host does not provide, or provides with another signature.
    pub(crate) fn resolve(&self, imports: &Imports) -> Result<Bound, Refusal> {
        SymbolsAfter {
            base: self,
            changes: &Changes::default(),
        }
        .resolve(imports)
    }

    /// Makes changes. Returns what they replaced.
    pub(crate) fn apply(&mut self, changes: Changes) -> Vec<Guard> {
        let mut replaced = Vec::new();
        for (name, symbol) in changes.symbols {
            let before = match symbol {
                Some(symbol) => self.symbols.insert(name, symbol),
                None => self.symbols.remove(&name),
            };
            replaced.extend(before.and_then(|symbol| symbol.guard().cloned()));
        }
        for (soname, library) in changes.libraries {
            if let Some(before) = self.libraries.insert(soname, library) {
                replaced.push(before);
            }
        }
        replaced
    }
}

/// Changes of symbols, before they are made.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// By name; `None`: removed.
    pub(crate) symbols: HashMap<String, Option<Symbol>>,
    /// By soname.
    pub(crate) libraries: HashMap<String, Arc<SharedLibrary>>,
}

impl Changes {
    /// Whether there is a function in them that runs as a part of the invocation that calls it.
    pub(crate) fn has_unguarded(&self) -> bool {
        let mut symbols = self.symbols.values().flatten();
        !self.libraries.is_empty() || symbols.any(|symbol| !symbol.has_gate())
    }
}

/// The symbols as changes would make them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SymbolsAfter<'a> {
    pub(crate) base: &'a HostSymbols,
    pub(crate) changes: &'a Changes,
}

/// What the imports of an image are bound to.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// The GOT: one address per import.
    pub(crate) got: Vec<usize>,
    /// Functions among them that do not pass the call gate may set how floats are computed.
    pub(crate) may_set_float_control: bool,
}

/// What an import is bound to.
enum Binding<'a> {
    /// The address, and whether injected code that calls it computes with floats as before; 0 for a weak import that is not there.
    Address(usize, bool),
    /// It is not there.
    Missing,
    /// It has another signature, or is a function where the image takes it for a variable, or the reverse.
    Differs(&'a Symbol),
}

impl<'a> SymbolsAfter<'a> {
    /// The symbol of a name.
    pub(crate) fn symbol(self, name: &str) -> Option<&'a Symbol> {
        match self.changes.symbols.get(name) {
            Some(changed) => changed.as_ref(),
            None => self.base.symbols.get(name),
        }
    }

    /// The library of a soname.
    pub(crate) fn library(self, soname: &str) -> Option<&'a Arc<SharedLibrary>> {
        let changed = self.changes.libraries.get(soname);
        changed.or_else(|| self.base.libraries.get(soname))
    }

    /// Whether the changes may concern an image.
    pub(crate) fn may_concern(self, imports: &Imports) -> bool {
        let Changes { symbols, libraries } = self.changes;
        imports
            .symbols
            .iter()
            .any(|import| symbols.contains_key(&*import.name))
            || imports
                .needed
                .iter()
                .any(|soname| libraries.contains_key(&**soname))
    }

    /// What the imports of an image are bound to.
    ///
    /// # Errors
    /// As [`HostSymbols::resolve`].
    pub(crate) fn resolve(self, imports: &Imports) -> Result<Bound, Refusal> {
        let libraries = self.needed(imports)?;
        let mut got = Vec::with_capacity(imports.symbols.len());
        let mut may_set_float_control = false;
        let mut missing = Vec::new();
        let mut differing = Vec::new();
        for import in &imports.symbols {
            let name = &import.name;
            match self.binding(import, &libraries) {
                Binding::Address(address, keeps_float_control) => {
                    got.push(address);
                    may_set_float_control |= !keeps_float_control;
                }
                Binding::Missing => missing.push(match NamedSet::of(name) {
                    None => name.to_string(),
                    Some(set) => format!("{name} {set:?}"),
                }),
                Binding::Differs(symbol) => {
                    differing.push(format!("{name} {}", symbol.description()));
                }
            }
        }
        if !missing.is_empty() {
            return Err(Refusal::listing(Rejection::MissingImport, missing));
        }
        if !differing.is_empty() {
            return Err(Refusal::listing(Rejection::ImportSignature, differing));
        }
        if self.keeps_no_memory(imports) {
            note_all(&mut got);
        }
        Ok(Bound {
            got,
            may_set_float_control,
        })
    }

    /// Whether no pointer outlives the invocation that wrote it, whatever safe code of an image does.
    fn keeps_no_memory(self, imports: &Imports) -> bool {
        let only_borrows = |import: &Imported| {
            RUNTIME_IMPORTS.contains(&&*import.name)
                || COMPILER_IMPORTS.contains(&&*import.name)
                || import.fingerprint != 0 && self.symbol(&import.name).is_none_or(Symbol::only_borrows)
        };
        imports.keeps_no_memory && imports.needed.is_empty() && imports.symbols.iter().all(only_borrows)
    }

    fn binding(self, import: &Imported, libraries: &[&SharedLibrary]) -> Binding<'a> {
        // The host's own symbols win.
        if let Some(symbol) = self.symbol(&import.name) {
            return match symbol.has_type(import.fingerprint) && symbol.has_kind(import.kind) {
                true => Binding::Address(symbol.address(), symbol.keeps_float_control()),
                false => Binding::Differs(symbol),
            };
        }
        match libraries.iter().find_map(|library| library.get(&import.name)) {
            Some(address) => Binding::Address(address.expose_provenance(), false),
            None if import.is_weak => Binding::Address(0, true),
            None => Binding::Missing,
        }
    }

    /// The libraries that an image needs.
    fn needed(self, imports: &Imports) -> Result<Vec<&'a SharedLibrary>, Refusal> {
        let mut libraries: Vec<&SharedLibrary> = Vec::new();
        let mut problems = Vec::new();
        for soname in &imports.needed {
            match self.library(soname) {
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
