//! The canonical text of a signature.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::{PointerMutability, ReturnType, Type};

use super::{Callback, CallbackOutput, HostFn, Kind, Output, Param, Parts, Reference, Returned, Slice};
use crate::errors::span_of;
use crate::types;

impl HostFn {
    /// The parts of the canonical text, as expressions of type `&str`.
    pub(crate) fn text(&self) -> TokenStream {
        self.parts().finish()
    }

    /// A function for each type that the text names: see `ifunc::host::Export::with_types`.
    pub(crate) fn named_types(&self) -> TokenStream {
        self.parts().named_types()
    }

    /// See `ifunc::host::Export::with_earlier`; `parts` is the name of a constant that holds [`text`](Self::text).
    pub(crate) fn earlier(&self, parts: &Ident) -> TokenStream {
        self.parts().earlier(parts)
    }

    fn parts(&self) -> Parts {
        let Self {
            symbol,
            is_unsafe,
            receiver,
            params,
            is_variadic,
            output,
        } = self;
        let mut parts = Parts::default();
        parts.push(if *is_unsafe { "unsafe fn " } else { "fn " });
        parts.push(symbol);
        parts.push("(");
        match receiver {
            Some(true) => parts.push("&mut self"),
            Some(false) => parts.push("&self"),
            None => {}
        }
        let mut is_first = receiver.is_none();
        for param in params {
            parts.push(if is_first { "" } else { "," });
            is_first = false;
            param.text(&mut parts);
        }
        if *is_variadic {
            parts.push(if is_first { "..." } else { ",..." });
        }
        parts.push(")");
        match output {
            Output::Unit => {}
            Output::Plain(returned) => {
                parts.push("->");
                match returned {
                    Returned::Value(ty) => parts.value(ty, &quote!(::ifunc::ffi::Value)),
                    returned => returned.text(&mut parts),
                }
            }
            Output::Option(returned) => {
                parts.push("->Option<");
                returned.text(&mut parts);
                parts.push(">");
            }
            Output::Result(ok, error) => {
                parts.push("->Result<");
                match ok {
                    Some(ok) => ok.text(&mut parts),
                    None => parts.push("()"),
                }
                parts.push(",");
                parts.text(error, &quote!(::ifunc::ffi::ErrorCode));
                parts.push(">");
            }
        }
        parts
    }
}

/// The canonical text of a variable.
pub(crate) fn of_variable(symbol: &str, ty: &Type, mutable: bool) -> Parts {
    let mut parts = Parts::default();
    parts.push(if mutable { "static mut " } else { "static " });
    parts.push(symbol);
    parts.push(":");
    parts.lent(ty);
    parts
}

impl Param {
    fn text(&self, parts: &mut Parts) {
        match &self.kind {
            Kind::Value(ty) => parts.value(ty, &quote!(::ifunc::ffi::Value)),
            Kind::OptionValue(ty) => {
                parts.push("Option<");
                parts.text(ty, &quote!(::ifunc::Layout));
                parts.push(">");
            }
            Kind::Reference(reference) => reference.text(parts),
            Kind::Slice(slice) => slice.text(parts),
            Kind::Callback(callback) => callback.text(parts),
            Kind::Raw(ty) => parts.raw(ty),
        }
    }
}

impl Returned {
    fn text(&self, parts: &mut Parts) {
        match self {
            Self::Value(ty) => parts.value(ty, &quote!(::ifunc::Layout)),
            Self::Reference(reference) => reference.text_of(parts, Parts::lent),
            Self::Slice(slice) => slice.text(parts),
            Self::Raw(ty) => parts.raw(ty),
        }
    }
}

impl Reference {
    fn text(&self, parts: &mut Parts) {
        self.text_of(parts, Parts::target);
    }

    /// `target` adds the text of the type behind the reference.
    fn text_of(&self, parts: &mut Parts, target: impl FnOnce(&mut Parts, &Type)) {
        parts.push(match (self.optional, self.mutable) {
            (false, false) => "&",
            (false, true) => "&mut ",
            (true, false) => "Option<&",
            (true, true) => "Option<&mut ",
        });
        target(parts, &self.ty);
        parts.push(if self.optional { ">" } else { "" });
    }
}

impl Slice {
    fn text(&self, parts: &mut Parts) {
        parts.push(match (self.optional, self.mutable) {
            (false, false) => "&",
            (false, true) => "&mut ",
            (true, false) => "Option<&",
            (true, true) => "Option<&mut ",
        });
        match &self.element {
            Some(element) => {
                parts.push("[");
                parts.text(element, &quote!(::ifunc::Layout));
                parts.push("]");
            }
            None => parts.push("str"),
        }
        parts.push(if self.optional { ">" } else { "" });
    }
}

impl Callback {
    fn text(&self, parts: &mut Parts) {
        parts.push(if self.mutable { "&mut FnMut(" } else { "&Fn(" });
        for (i, param) in self.params.iter().enumerate() {
            parts.push(if i > 0 { "," } else { "" });
            param.text(parts);
        }
        match &self.output {
            CallbackOutput::Unit => parts.push(")"),
            CallbackOutput::ControlFlow => parts.push(")->ControlFlow<()>"),
            CallbackOutput::Option(ty) => {
                parts.push(")->Option<");
                parts.text(ty, &quote!(::ifunc::Layout));
                parts.push(">");
            }
        }
    }
}

impl Parts {
    fn text(&mut self, ty: &Type, implements: &TokenStream) {
        let ty = types::with_lifetime(ty, "'static");
        self.expression(quote_spanned!(span_of(&ty)=> <#ty as #implements>::TEXT.as_str()));
    }

    /// The text of a value, or of an object that is held.
    fn value(&mut self, ty: &Type, implements: &TokenStream) {
        match types::arguments_of(ty, "Owned").as_deref() {
            Some(&[object]) => {
                self.push("owned ");
                self.target(object);
            }
            _ => self.text(ty, implements),
        }
    }

    /// The text of a type that may be opaque.
    fn target(&mut self, ty: &Type) {
        self.text(ty, &quote!(::ifunc::TargetArgs));
        let ty = types::with_lifetime(ty, "'static");
        self.named
            .push(quote_spanned!(span_of(&ty)=> <#ty as ::ifunc::TargetArgs>::named_type));
    }

    /// The text of a type whose values the host lends: an image may know fewer of its fields.
    fn lent(&mut self, ty: &Type) {
        self.target(ty);
        self.lent = Some((self.done.len() - 1, types::with_lifetime(ty, "'static")));
    }

    /// The text of a raw or function pointer.
    fn raw(&mut self, ty: &Type) {
        match types::bare(ty) {
            Type::Ptr(pointer) => {
                self.push(if matches!(pointer.mutability, PointerMutability::Mut(_)) {
                    "*mut "
                } else {
                    "*const "
                });
                match types::bare(&pointer.elem) {
                    elem if types::is_named(elem, "c_void") => self.push("void"),
                    elem @ Type::Path(_) => self.target(elem),
                    elem => self.raw(elem),
                }
            }
            Type::FnPtr(function) => {
                self.push("extern fn(");
                for (i, input) in function.inputs.iter().enumerate() {
                    self.push(if i > 0 { "," } else { "" });
                    self.raw(&input.ty);
                }
                self.push(")");
                if let ReturnType::Type(_, ty) = &function.output {
                    self.push("->");
                    self.raw(ty);
                }
            }
            ty => {
                if let Some(&[inner]) = types::arguments_of(ty, "Option").as_deref() {
                    self.push("Option<");
                    self.raw(inner);
                    self.push(">");
                } else {
                    self.text(ty, &quote!(::ifunc::ffi::Value));
                }
            }
        }
    }
}
