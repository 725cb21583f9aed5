//! Changes of what a target exports, while images that import it run.
//!
//! An import of an installed image is a word in its GOT, which the image loads at each use. So a symbol is replaced by storing
//! another address in the GOT of every image that imports it; a call that is under way ends in the version that it entered. The
//! invariant is that the GOT of an installed image is what an installation would make of it now. An image for which there would
//! be none is closed ([`Door`](crate::entrance::Door)) until there is.
//!
//! An update of several symbols closes the images that it concerns for a moment, waits until no invocation runs that could
//! have used an old version, and stores then: each invocation sees all or nothing of it.
//!
//! The old version is dropped after a grace period ([`Threads`](crate::threads::Threads)): when every invocation that ran at the
//! change has ended.

mod commit;
mod error;
mod latest;
#[cfg(test)]
mod named_types;
mod plan;
pub(crate) mod remote;
mod replaced;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

pub use self::error::ExportError;
pub(crate) use self::latest::LatestChange;
pub use self::plan::Update;
pub(crate) use self::replaced::ReplacedVersions;
use crate::Symbol;
use crate::gate::ChangeByThisThread;
use crate::image_executor::Shared;

/// How long a change waits for invocations, unless it is told.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a target exports, for changes while it serves. Any thread may use it, and a clone of it; it does not keep the target
/// alive.
///
/// A symbol is a function or a variable: see [`Symbol`]. Images that are installed and images that come later are bound to
/// the same version.
///
/// **One change** ([`replace`](Self::replace)) is visible at once, to invocations that run, too: each use of the symbol finds
/// the old version or the new one, and a call that has begun ends in the version that it entered. **Several changes**
/// ([`update`](Self::update)) take effect between invocations: each invocation sees all of them or none.
///
/// **The old version** is dropped when no invocation can use it any more, and not before ([`Symbol::owned_by`]). A change
/// returns after that; only if an invocation runs on for longer than the [timeout](Self::with_timeout), or makes the change
/// itself, the old version is dropped later: after one of the next changes, or when the target is idle.
/// [`waiting`](Self::waiting) counts those.
///
/// **From afar**, exports change through an exported function of the host that has a clone of this value. A source whose code the
/// target accepts may call it in an invocation, and has the authority that the function gives it: which symbols may change, and
/// to what. The change does not wait for the invocation that makes it.
///
/// ```
/// use std::sync::OnceLock;
///
/// use ifunc_exec::{Exports, Symbol};
///
/// #[ifunc::export]
/// fn score(words: u32) -> u32 {
///     words
/// }
///
/// #[ifunc::export]
/// fn score_twice(words: u32) -> u32 {
///     2 * words
/// }
///
/// /// Set after the target was made: `EXPORTS.set(target.exports())`.
/// static EXPORTS: OnceLock<Exports> = OnceLock::new();
///
/// /// Chooses between versions that this program has, and nothing else.
/// #[ifunc::export]
/// fn choose_score(twice: bool) -> bool {
///     let name = if twice { "score_twice" } else { "score" };
///     let (Some(exports), Some(chosen)) = (EXPORTS.get(), Symbol::exported(name)) else {
///         return false;
///     };
///     exports.replace(chosen.named("score")).is_ok()
/// }
/// ```
///
/// An ifunc must not keep the address of a symbol beyond its invocation: the runtime does not know of it. If an image that
/// may be called outside of invocations (`IFUNC_PINNED`) imports a symbol, its versions are never dropped.
#[derive(Clone, Debug)]
pub struct Exports {
    shared: Weak<Shared>,
    timeout: Duration,
}

/// An export: see [`Exports::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportInfo {
    /// The name that images import it by.
    pub name: String,
    /// The text of its type; `None` if that is not stated.
    pub signature: Option<String>,
    /// Number of installed images that import it.
    pub images: usize,
}

impl Exports {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            timeout: TIMEOUT,
        }
    }

    /// With another limit of how long a change waits for invocations. Default: 5 s.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Exports a symbol. Installed images whose weak import of this name was not bound are bound to it.
    ///
    /// # Errors
    /// The name is exported, or belongs to the runtime. An opaque name in its signature stands for another type on this
    /// target, from the first export that used it on, or from the first value that was served.
    pub fn add(&self, symbol: impl Into<Symbol>) -> Result<(), ExportError> {
        self.one(|update| update.add(symbol))
    }

    /// Replaces the symbol of that name by another one of the same type.
    ///
    /// # Errors
    /// The name is not exported; it is exported with another type, and the error has both; as for [`add`](Self::add); the static data of a bound image
    /// holds the address.
    pub fn replace(&self, symbol: impl Into<Symbol>) -> Result<(), ExportError> {
        self.one(|update| update.replace(symbol))
    }

    /// Exports a symbol no more. Each further invocation of an image that imports it is rejected
    /// ([`MissingImport`](ifunc_abi::status::Rejection::MissingImport)), until a symbol of this name and type is added again;
    /// a weak import is null from then on.
    ///
    /// # Errors
    /// The name is not exported; the static data of a bound image holds the address.
    pub fn remove(&self, name: &str) -> Result<(), ExportError> {
        // Between invocations: one may have seen that a weak import is there.
        self.update(|update| update.remove(name))
    }

    /// Opens a shared library and lets images import what it defines, as `TargetBuilder::allow_library` does. Does nothing if
    /// it is open. A symbol of it: [`replace_library`](Self::replace_library).
    ///
    /// # Safety
    /// As for `TargetBuilder::allow_library`.
    ///
    /// # Errors
    /// The name is no soname, or the loader's.
    pub unsafe fn load_library(&self, soname: &str) -> Result<(), ExportError> {
        // SAFETY: the caller's promise.
        self.one(|update| unsafe { update.load_library(soname) })
    }

    /// Replaces a shared library by another file of the same interface: everything that images import from it, between
    /// invocations. The old one is closed when no invocation can use it any more.
    ///
    /// # Safety
    /// The constructors of `file` must be harmless, as well as closing the old library; what `file` defines must be what the
    /// images take it for that were built for the old one. The host itself uses no address of the old one.
    ///
    /// # Errors
    /// No such library is allowed; the loader's; an installed image needs what the new one does not define.
    pub unsafe fn replace_library(&self, soname: &str, file: impl AsRef<Path>) -> Result<(), ExportError> {
        // SAFETY: the caller's promise.
        self.update(|update| unsafe { update.replace_library(soname, file) })
    }

    /// Makes several changes together: each invocation sees all of them or none. If one of them cannot be made, none is.
    ///
    /// Invocations of the images that are concerned wait meanwhile. Called in an invocation (by a function of the host), the
    /// changes take effect in the middle of that one.
    ///
    /// # Errors
    /// As the single changes. An invocation ran on for longer than the [timeout](Self::with_timeout).
    pub fn update(&self, changes: impl FnOnce(&mut Update)) -> Result<(), ExportError> {
        let mut update = Update::default();
        changes(&mut update);
        self.shared()?.change(update, true, self.timeout)
    }

    fn one(&self, change: impl FnOnce(&mut Update)) -> Result<(), ExportError> {
        let mut update = Update::default();
        change(&mut update);
        self.shared()?.change(update, false, self.timeout)
    }

    pub(crate) fn shared(&self) -> Result<Arc<Shared>, ExportError> {
        self.shared.upgrade().ok_or(ExportError::TargetGone)
    }

    /// What is exported now, by name; without libraries and what the runtime provides to every image.
    #[must_use]
    pub fn list(&self) -> Vec<ExportInfo> {
        let Ok(shared) = self.shared() else {
            return Vec::new();
        };
        // Another change must not wait for an invocation that waits for its lock.
        let _this = ChangeByThisThread::begin();
        let symbols = shared.symbols.read().unwrap_or_else(PoisonError::into_inner);
        let images = shared.cache().images(|_| true);
        let mut all: Vec<_> = symbols
            .exports()
            .map(|symbol| ExportInfo {
                name: symbol.name().to_owned(),
                signature: symbol.signature().map(ToOwned::to_owned),
                images: images
                    .iter()
                    .filter(|image| image.imports.contains(symbol.name()))
                    .count(),
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Number of replaced and removed versions that an invocation may still use. Drops the others.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let Ok(shared) = self.shared() else {
            return 0;
        };
        shared.drop_replaced();
        shared.replaced.len()
    }
}
