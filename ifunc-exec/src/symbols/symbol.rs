//! A symbol of the host: what an export is bound to.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use ifunc::host::{EXPORTS, Export, ExportKind, HostType, NameConflict, NamedType, NamedTypes};
use ifunc_abi::Fingerprint;
use ifunc_abi::image::ImportKind;

use crate::fingerprint;

/// What must live as long as injected code may use a symbol.
pub(crate) type Guard = Arc<dyn Any + Send + Sync>;

/// A function or a variable that a target exports: a name, an address, and a type.
///
/// Most come from `#[ifunc::export]`: [`exported`](Self::exported) finds one of this process by its name, and
/// [`named`](Self::named) gives it another, so that a second version of a function can take the place of the first.
#[derive(Clone)]
pub struct Symbol {
    name: Cow<'static, str>,
    address: usize,
    signature: Option<Signature>,
    /// Those of earlier builds, as which an image may import it.
    earlier: Vec<Signature>,
    /// The types of this process that the signature names.
    types: Vec<NamedType>,
    guard: Option<Guard>,
    kind: Option<ExportKind>,
    method_of: Option<HostType>,
    /// It enters the host through the call gate, or is no function.
    has_gate: bool,
    /// Injected code that calls it computes with floats as before.
    keeps_float_control: bool,
}

/// The type of a symbol.
#[derive(Clone, Debug)]
struct Signature {
    text: Cow<'static, str>,
    fingerprint: Fingerprint,
}

impl Signature {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let fingerprint = fingerprint::of(&text);
        Self { text, fingerprint }
    }

    /// Changes the name in it, if it has the name `before`.
    fn rename(&mut self, before: &str, name: &str) {
        // `unsafe fn NAME(..` or `static NAME:..`.
        let head = self.text.find(['(', ':']).unwrap_or(self.text.len());
        if let Some(begin) = self.text[..head].strip_suffix(before) {
            *self = Self::new(format!("{begin}{name}{}", &self.text[head..]));
        }
    }
}

impl Symbol {
    /// A symbol of a type: the text that `#[ifunc::export]` gives a function or a variable of this name, such as `fn
    /// score(u32)->u32` ([`Export::signature`]).
    ///
    /// # Safety
    /// `address` is the address of what the text describes, in the form that `#[ifunc::export]` makes of it, for the types
    /// that this target knows by the opaque names in it; and it stays valid: as long as the [guard](Self::owned_by), if there is one, and otherwise as long as the target.
    #[must_use]
    pub unsafe fn typed(
        name: impl Into<Cow<'static, str>>,
        signature: impl Into<Cow<'static, str>>,
        address: *const c_void,
    ) -> Self {
        let signature = Signature::new(signature);
        let kind = match signature.text.starts_with("static ") {
            true => ExportKind::Data,
            false => ExportKind::Function,
        };
        Self {
            kind: Some(kind),
            signature: Some(signature),
            // SAFETY: the caller's promise.
            ..unsafe { Self::untyped(name, address) }
        }
    }

    /// A symbol whose type is not stated, such as a function in C: an image may import it as whatever it says.
    ///
    /// # Safety
    /// As [`typed`](Self::typed), for whatever type the accepted code takes it for.
    #[must_use]
    pub unsafe fn untyped(name: impl Into<Cow<'static, str>>, address: *const c_void) -> Self {
        Self {
            name: name.into(),
            address: address.expose_provenance(),
            signature: None,
            earlier: Vec::new(),
            types: Vec::new(),
            guard: None,
            kind: None,
            method_of: None,
            has_gate: false,
            keeps_float_control: false,
        }
    }

    /// A function of the runtime's that stands for one of another process, and passes the call gate.
    ///
    /// # Safety
    /// As [`untyped`](Self::untyped).
    pub(crate) unsafe fn forwarding(name: String, address: *const c_void) -> Self {
        Self {
            kind: Some(ExportKind::Function),
            has_gate: true,
            keeps_float_control: true,
            // SAFETY: the caller's promise.
            ..unsafe { Self::untyped(name, address) }
        }
    }

    /// The `#[ifunc::export]` of this process with that name. `None`: none has it, or its crate is not linked (`use
    /// that_crate as _;`).
    #[must_use]
    pub fn exported(name: &str) -> Option<Self> {
        EXPORTS
            .iter()
            .find(|export| export.name() == name)
            .map(Self::from)
    }

    /// The same symbol with another name. The name in its signature changes, too.
    #[must_use]
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        for signature in self.signature.iter_mut().chain(&mut self.earlier) {
            signature.rename(&self.name, &name);
        }
        self.name = name;
        self
    }

    /// States whether it is a function or a variable, where its type does not. An image that takes it for the other is refused.
    #[must_use]
    pub fn of_kind(mut self, kind: ExportKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Hands over what must live as long as injected code may use the symbol, such as the library that it lies in. It is
    /// dropped after the symbol was replaced or removed, when the last invocation that may have used it has ended; or
    /// with the target.
    #[must_use]
    pub fn owned_by(mut self, guard: Arc<dyn Any + Send + Sync>) -> Self {
        self.guard = Some(match self.guard.take() {
            None => guard,
            Some(before) => Arc::new((before, guard)),
        });
        self
    }

    /// The name that images import it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text of its type; `None` if that is not stated.
    #[must_use]
    pub fn signature(&self) -> Option<&str> {
        self.signature.as_ref().map(|signature| &*signature.text)
    }

    /// Lets images import it as what they may import `replaced` as, which has the same type.
    pub(crate) fn with_versions_of(mut self, replaced: &Self) -> Self {
        if self.signature() == replaced.signature() {
            self.earlier.clone_from(&replaced.earlier);
        }
        self
    }

    /// Its address, for code.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Whether it keeps no pointer that it is passed, by its type: a function that safe code may call borrows, and a variable that holds
    /// no pointer takes none.
    pub(crate) fn only_borrows(&self) -> bool {
        let mut all = self.signature.iter().chain(&self.earlier);
        let is_safe = |text: &str| !text.starts_with("unsafe ") && !text.contains('*');
        self.signature.is_some() && all.all(|signature| is_safe(&signature.text))
    }

    /// Whether an image may import it with a type of this fingerprint; 0: not stated.
    pub(crate) fn has_type(&self, fingerprint: Fingerprint) -> bool {
        let Some(signature) = &self.signature else {
            return true;
        };
        let mut all = std::iter::once(signature).chain(&self.earlier);
        fingerprint == 0 || all.any(|signature| signature.fingerprint == fingerprint)
    }

    /// Whether an image may take it for that.
    pub(crate) fn has_kind(&self, kind: ImportKind) -> bool {
        match self.kind {
            None => true,
            Some(ExportKind::Function) => kind != ImportKind::Variable,
            Some(ExportKind::Data) => kind != ImportKind::Function,
        }
    }

    /// Its type, or as much of it as is stated.
    pub(crate) fn description(&self) -> &str {
        self.signature().unwrap_or(match self.kind {
            None => "",
            Some(ExportKind::Function) => "a function",
            Some(ExportKind::Data) => "a variable",
        })
    }

    /// The host type whose method it is.
    pub(crate) fn method_of(&self) -> Option<HostType> {
        self.method_of
    }

    /// Notes the types that its signature names.
    ///
    /// # Errors
    /// A name stands for another type.
    pub(crate) fn name_types(&self, names: &mut NamedTypes) -> Result<(), NameConflict> {
        let user = || format!("the export `{}`", self.name);
        self.types.iter().try_for_each(|named| names.add(*named, &user()))
    }

    /// Whether it enters the host through the call gate, or is no function.
    pub(crate) fn has_gate(&self) -> bool {
        self.has_gate
    }

    /// States that injected code that calls it computes with floats as before.
    pub(crate) fn keeping_float_control(mut self) -> Self {
        self.keeps_float_control = true;
        self
    }

    /// Whether injected code that calls it computes with floats as before. A function without the call gate may be `fesetround`.
    pub(crate) fn keeps_float_control(&self) -> bool {
        self.keeps_float_control
    }

    pub(crate) fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }
}

impl From<&Export> for Symbol {
    fn from(export: &Export) -> Self {
        // SAFETY: what `Export`'s constructors were promised, of what lives as long as the process.
        let symbol = unsafe { Self::typed(export.name(), export.signature(), export.address().cast()) };
        Self {
            method_of: export.method_of(),
            types: export.types().collect(),
            earlier: export
                .earlier_signatures()
                .into_iter()
                .map(Signature::new)
                .collect(),
            has_gate: true,
            keeps_float_control: true,
            ..symbol
        }
    }
}

impl From<Export> for Symbol {
    fn from(export: Export) -> Self {
        Self::from(&export)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbol")
            .field("name", &self.name)
            .field("signature", &self.signature())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(name: &'static str, text: &'static str) -> Symbol {
        // SAFETY: never used.
        unsafe { Symbol::typed(name, text, std::ptr::null()) }
    }

    #[test]
    fn an_export_of_this_process_is_found_by_its_name() {
        #[ifunc::export]
        fn found_by_its_name(of: u64) -> u64 {
            of
        }
        let found = Symbol::exported("found_by_its_name").unwrap();
        assert_eq!(found.name(), "found_by_its_name");
        assert_eq!(found.signature(), Some("fn found_by_its_name(u64)->u64"));
        assert!(Symbol::exported("found_by_no_name").is_none());
    }

    #[test]
    fn another_name_is_another_text() {
        for (name, text, renamed) in [
            ("fast", "fn fast(&[u8])->u32", "fn score(&[u8])->u32"),
            ("fast", "unsafe fn fast(fast:u32)", "unsafe fn score(fast:u32)"),
            ("level", "static level:u32", "static score:u32"),
            ("level", "something else", "something else"),
        ] {
            let symbol = typed(name, text).named("score");
            assert_eq!((symbol.name(), symbol.signature()), ("score", Some(renamed)));
            assert!(symbol.has_type(0) && symbol.has_type(fingerprint::of(renamed)));
            assert_eq!(symbol.has_type(fingerprint::of(text)), text == renamed);
        }
        // The signatures of earlier builds have the new name, too, and what replaces the symbol has them.
        let mut symbol = typed("fast", "fn fast()->&struct S{0:a:u8,1:b:u8}[2,1]");
        symbol.earlier = vec![Signature::new("fn fast()->&struct S{0:a:u8}[1,1]")];
        let earlier = fingerprint::of("fn score()->&struct S{0:a:u8}[1,1]");
        let symbol = symbol.named("score");
        assert!(symbol.has_type(earlier));
        let replacement = typed("score", "fn score()->&struct S{0:a:u8,1:b:u8}[2,1]");
        assert!(!replacement.has_type(earlier) && replacement.with_versions_of(&symbol).has_type(earlier));

        // SAFETY: never used.
        let untyped = unsafe { Symbol::untyped("x", std::ptr::null()) };
        assert!(untyped.has_type(7) && untyped.description().is_empty());
        // What a symbol is counts as far as both sides state it.
        let of_kind = |kind| untyped.clone().of_kind(kind);
        for (symbol, function, variable, described) in [
            (untyped.clone(), true, true, ""),
            (of_kind(ExportKind::Function), true, false, "a function"),
            (of_kind(ExportKind::Data), false, true, "a variable"),
            (typed("f", "unsafe fn f()"), true, false, "unsafe fn f()"),
            (typed("v", "static v:u8"), false, true, "static v:u8"),
        ] {
            assert!(symbol.has_kind(ImportKind::Unknown));
            assert_eq!(symbol.has_kind(ImportKind::Function), function, "{described}");
            assert_eq!(symbol.has_kind(ImportKind::Variable), variable, "{described}");
            assert_eq!(symbol.description(), described);
        }
    }
}
