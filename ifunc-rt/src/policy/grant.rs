//! What accepted code may import and use.

use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_abi::symbols::{
    ALLOC, ANSWER, COMPILER_IMPORTS, DEALLOC, MAX_ANSWER, PANIC, REALLOC, RUNTIME_IMPORTS,
};

use super::Quotas;

/// Imports that a refusal names.
const MAX_NAMED: usize = 20;

/// What code that a [`Policy`](crate::Policy) accepts may import and use. It guards against mistakes: code that runs can do
/// whatever the process can.
#[derive(Clone, Debug)]
#[must_use]
pub struct Grant {
    /// `None`: whatever the target provides.
    imports: Option<Vec<String>>,
    is_pure: bool,
    pub(super) quotas: Quotas,
}

impl Default for Grant {
    fn default() -> Self {
        Self {
            imports: None,
            is_pure: false,
            quotas: Quotas::UNLIMITED,
        }
    }
}

impl Grant {
    /// Every import that the target provides, and no quotas beside those of each connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these imports of what the target provides. A name that ends in `*` stands for all that begin so: `kv_*`; a method of
    /// an interface is `TRAIT_METHOD`. What every image needs of the runtime is always granted: memory, panics, and, unless the
    /// image has to be [pure](Self::pure), invocations of other nodes, clocks and random numbers. Called again, those, too.
    pub fn imports(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let imports = self.imports.get_or_insert_default();
        imports.extend(names.into_iter().map(Into::into));
        self
    }

    /// Only images that import nothing but memory and panics: they compute on their payload and the target arguments.
    pub fn pure(mut self) -> Self {
        self.is_pure = true;
        self
    }

    /// What all of this code may use together, beside the quotas of each connection. The default is
    /// [`Quotas::UNLIMITED`].
    ///
    /// ```
    /// use ifunc_rt::{Grant, Quotas};
    ///
    /// let few = Grant::new().quotas(Quotas::UNLIMITED.images(8).installs_per_second(2));
    /// ```
    pub fn quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// Whether an image of `whose` may be installed, by its imports.
    pub(super) fn admits(&self, whose: &str, imports: &[&str], needed: &[&str]) -> Result<(), Refusal> {
        if self.is_pure {
            let impure = imports.iter().filter(|symbol| !is_pure(symbol));
            let impure: Vec<&str> = impure.chain(needed).copied().collect();
            if !impure.is_empty() {
                let why = format!(
                    "{whose} must be pure, and imports {}; help: leave those imports out, or let the target's policy grant them",
                    listed(&impure)
                );
                return Err(Refusal::new(Rejection::NotPure, why));
            }
        }
        let Some(granted) = &self.imports else {
            return Ok(());
        };
        let is_granted = |symbol: &str| {
            granted.iter().any(|name| match name.strip_suffix('*') {
                Some(prefix) => symbol.starts_with(prefix),
                None => symbol == name,
            })
        };
        let refused = imports.iter().copied();
        let refused: Vec<&str> = refused
            .filter(|symbol| !is_of_runtime(symbol) && !is_granted(symbol))
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        let why = format!(
            "{whose} may not import {}; help: add them to the `imports` of its grant in the target's policy",
            listed(&refused)
        );
        Err(Refusal::new(Rejection::Import, why))
    }
}

fn is_of_runtime(symbol: &str) -> bool {
    RUNTIME_IMPORTS.contains(&symbol) || COMPILER_IMPORTS.contains(&symbol)
}

/// What a pure image may import: memory, panics, and where its answer goes.
fn is_pure(symbol: &str) -> bool {
    const PURE: [&str; 6] = [PANIC, ALLOC, DEALLOC, REALLOC, ANSWER, MAX_ANSWER];
    PURE.contains(&symbol) || COMPILER_IMPORTS.contains(&symbol)
}

/// The first of some names.
fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MAX_NAMED) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}
