//! The C form of a signature: its prototype for display, and its types in Rust.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::{PointerMutability, ReturnType, Type};

use super::{
    Callback, CallbackOutput, HostFn, Kind, Output, Param, Parts, Returned, Slice, c_len, c_name, out,
    out_len, receiver,
};
use crate::errors::span_of;
use crate::types;

impl HostFn {
    /// The parts of the C prototype, as expressions of type `&str`.
    pub(crate) fn prototype(&self) -> TokenStream {
        let Self {
            symbol,
            is_unsafe: _,
            receiver,
            params,
            is_variadic,
            output,
        } = self;
        let mut parts = Parts::default();
        match output {
            Output::Unit => parts.push("void "),
            Output::Plain(Returned::Value(ty) | Returned::Raw(ty)) => parts.result(ty),
            Output::Plain(Returned::Reference(reference))
            | Output::Option(Returned::Reference(reference)) => {
                parts.push(&pointer(&reference.ty, reference.mutable));
            }
            Output::Plain(Returned::Slice(slice)) | Output::Option(Returned::Slice(slice)) => {
                parts.push(&slice.pointer());
            }
            Output::Option(_) => parts.push("uint8_t "),
            Output::Result(..) => parts.push("int32_t "),
        }
        parts.push(symbol);
        parts.push("(");
        let mut list = List::default();
        if let Some(mutable) = receiver {
            list.next(&mut parts);
            parts.push(if *mutable {
                "void *self"
            } else {
                "const void *self"
            });
        }
        for param in params {
            param.declare(&mut parts, &mut list);
        }
        let name = |wanted: &str| match params.iter().any(|param| param.name == wanted) {
            true => format!("{wanted}_value"),
            false => wanted.to_owned(),
        };
        let (value, length) = match output {
            Output::Result(Some(Returned::Value(ty)), _) | Output::Option(Returned::Value(ty)) => {
                (Some(pointer(ty, true)), false)
            }
            Output::Result(Some(Returned::Reference(reference)), _) => {
                (Some(pointer(&reference.ty, reference.mutable) + "*"), false)
            }
            Output::Result(Some(Returned::Slice(slice)), _) => (Some(slice.pointer() + "*"), true),
            Output::Plain(Returned::Slice(_)) | Output::Option(Returned::Slice(_)) => (None, true),
            _ => (None, false),
        };
        if let Some(value) = value {
            list.next(&mut parts);
            parts.push(&value);
            parts.push(&name("out"));
        }
        if length {
            list.next(&mut parts);
            parts.push("size_t *");
            parts.push(&name("out_len"));
        }
        if *is_variadic {
            list.next(&mut parts);
            parts.push("...");
        }
        if !list.has_any {
            parts.push("void");
        }
        parts.push(");");
        parts.finish()
    }

    /// Parameters and result of the C function, and the names of the parameters. `host` is the type that the receiver
    /// points to.
    pub(crate) fn c_signature(&self, host: &TokenStream) -> (Vec<Ident>, Vec<TokenStream>, TokenStream) {
        let mut names = Vec::new();
        let mut types = Vec::new();
        if let Some(mutable) = self.receiver {
            names.push(receiver());
            types.push(if mutable {
                quote!(*mut #host)
            } else {
                quote!(*const #host)
            });
        }
        c_params(&self.params, &mut names, &mut types);
        let mut more = |name: Ident, ty: TokenStream| {
            names.push(name);
            types.push(ty);
        };
        let result = match &self.output {
            Output::Unit => quote!(()),
            Output::Plain(Returned::Value(ty)) => c_value(ty),
            Output::Plain(Returned::Raw(ty)) => quote!(#ty),
            Output::Plain(Returned::Reference(reference))
            | Output::Option(Returned::Reference(reference)) => raw(&reference.ty, reference.mutable),
            Output::Plain(Returned::Slice(slice)) | Output::Option(Returned::Slice(slice)) => {
                more(out_len(), quote!(*mut usize));
                slice.raw()
            }
            Output::Option(Returned::Value(ty) | Returned::Raw(ty)) => {
                more(out(), quote!(*mut #ty));
                quote!(u8)
            }
            Output::Result(ok, _) => {
                match ok {
                    None => {}
                    Some(Returned::Value(ty) | Returned::Raw(ty)) => more(out(), quote!(*mut #ty)),
                    Some(Returned::Reference(reference)) => {
                        let pointer = raw(&reference.ty, reference.mutable);
                        more(out(), quote!(*mut #pointer));
                    }
                    Some(Returned::Slice(slice)) => {
                        let pointer = slice.raw();
                        more(out(), quote!(*mut #pointer));
                        more(out_len(), quote!(*mut usize));
                    }
                }
                quote!(i32)
            }
        };
        (names, types, result)
    }
}

/// The C parameters of these Rust parameters.
pub(super) fn c_params(params: &[Param], names: &mut Vec<Ident>, types: &mut Vec<TokenStream>) {
    for (i, Param { kind, .. }) in params.iter().enumerate() {
        names.push(c_name(i));
        types.push(match kind {
            Kind::Value(ty) => c_value(ty),
            Kind::OptionValue(ty) => quote!(*const #ty),
            Kind::Reference(reference) => raw(&reference.ty, reference.mutable),
            Kind::Slice(slice) => slice.raw(),
            Kind::Callback(callback) => {
                let function = callback.c_type();
                quote!(::core::option::Option<#function>)
            }
            Kind::Raw(ty) => quote!(#ty),
        });
        match kind {
            Kind::Slice(_) => types.push(quote!(usize)),
            Kind::Callback(_) => types.push(quote!(*mut ::core::ffi::c_void)),
            _ => continue,
        }
        names.push(c_len(i));
    }
}

impl Callback {
    /// The type of the function that C calls.
    fn c_type(&self) -> TokenStream {
        let (_, types, result) = self.c_signature();
        quote!(unsafe extern "C-unwind" fn(*mut ::core::ffi::c_void #(, #types)*) -> #result)
    }

    /// Parameters and result of the C function, without its data.
    pub(super) fn c_signature(&self) -> (Vec<Ident>, Vec<TokenStream>, TokenStream) {
        let (mut names, mut types) = (Vec::new(), Vec::new());
        c_params(&self.params, &mut names, &mut types);
        let result = match &self.output {
            CallbackOutput::Unit => quote!(()),
            CallbackOutput::ControlFlow => quote!(u8),
            CallbackOutput::Option(ty) => {
                names.push(out());
                types.push(quote!(*mut #ty));
                quote!(u8)
            }
        };
        (names, types, result)
    }

    fn declare(&self, parts: &mut Parts, name: &str) {
        parts.push(match self.output {
            CallbackOutput::Unit => "void ",
            _ => "uint8_t ",
        });
        parts.push(&format!("(*{name})(void *{name}_data"));
        let mut list = List { has_any: true };
        for param in &self.params {
            param.declare(parts, &mut list);
        }
        if let CallbackOutput::Option(ty) = &self.output {
            parts.push(&format!(", {}out", pointer(ty, true)));
        }
        parts.push(&format!("), void *{name}_data"));
    }
}

impl Slice {
    fn raw(&self) -> TokenStream {
        match &self.element {
            Some(element) => raw(element, self.mutable),
            None => quote!(*const u8),
        }
    }

    fn pointer(&self) -> String {
        match &self.element {
            Some(element) => pointer(element, self.mutable),
            None => "const char *".into(),
        }
    }
}

impl Param {
    fn declare(&self, parts: &mut Parts, list: &mut List) {
        let name = syn::ext::IdentExt::unraw(&self.name).to_string();
        list.next(parts);
        match &self.kind {
            Kind::Value(ty) | Kind::Raw(ty) => parts.declare(ty, &name),
            Kind::OptionValue(ty) => parts.push(&(pointer(ty, false) + &name)),
            Kind::Reference(reference) => parts.push(&(pointer(&reference.ty, reference.mutable) + &name)),
            Kind::Slice(slice) => parts.push(&format!("{}{name}, size_t {name}_len", slice.pointer())),
            Kind::Callback(callback) => callback.declare(parts, &name),
        }
    }
}

/// The declaration of a variable in C, as expressions of type `&str`.
pub(crate) fn variable(symbol: &str, ty: &Type) -> TokenStream {
    let mut parts = Parts::default();
    parts.push("extern ");
    let (mut element, mut lengths) = (types::bare(ty), Vec::new());
    while let Type::Array(array) = element {
        lengths.push(&array.len);
        element = types::bare(&array.elem);
    }
    parts.push(pointer(element, true).trim_end_matches('*'));
    parts.push(symbol);
    for length in lengths {
        parts.push("[");
        parts.expression(quote!(::ifunc::abi::text::Text::new().number(#length).as_str()));
        parts.push("]");
    }
    parts.push(";");
    parts.finish()
}

/// Separates parameters.
#[derive(Default)]
struct List {
    has_any: bool,
}

impl List {
    fn next(&mut self, parts: &mut Parts) {
        parts.push(if self.has_any { ", " } else { "" });
        self.has_any = true;
    }
}

impl Parts {
    /// A declarator of a value, a raw pointer or a function pointer.
    fn declare(&mut self, ty: &Type, name: &str) {
        let ty = types::bare(ty);
        let ty = match types::arguments_of(ty, "Option").as_deref() {
            Some(&[inner]) => types::bare(inner),
            _ => ty,
        };
        match ty {
            Type::Ptr(inner) => {
                let mutable = matches!(inner.mutability, PointerMutability::Mut(_));
                match types::bare(&inner.elem) {
                    elem @ Type::Ptr(_) => {
                        self.declare(elem, "");
                        self.push(if mutable { "*" } else { "const *" });
                    }
                    elem => self.push(&pointer(elem, mutable)),
                }
                self.push(name);
            }
            Type::FnPtr(function) => {
                match &function.output {
                    ReturnType::Default => self.push("void "),
                    ReturnType::Type(_, ty) => self.result(ty),
                }
                self.push(&format!("(*{name})("));
                let mut list = List::default();
                for input in &function.inputs {
                    list.next(self);
                    self.declare(&input.ty, "");
                }
                self.push(if list.has_any { ")" } else { "void)" });
            }
            ty => {
                self.expression(quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Value>::C_NAME));
                if !name.is_empty() {
                    self.push(" ");
                    self.push(name);
                }
            }
        }
    }

    /// A result type, ready for the name of the function.
    fn result(&mut self, ty: &Type) {
        self.declare(ty, "");
        if !matches!(types::bare(ty), Type::Ptr(_)) {
            self.push(" ");
        }
    }
}

fn c_value(ty: &Type) -> TokenStream {
    quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Value>::C)
}

fn raw(ty: &Type, mutable: bool) -> TokenStream {
    // The text of a signature states no lifetimes, and a pointer has none.
    let ty = types::with_lifetime(ty, "'static");
    if mutable {
        quote!(*mut #ty)
    } else {
        quote!(*const #ty)
    }
}

/// The C pointer type, such as `const uint8_t *`; types of the author become `struct NAME`.
fn pointer(ty: &Type, mutable: bool) -> String {
    if let Some(&[object]) = types::arguments_of(ty, "Owned").as_deref() {
        return pointer(object, true) + "*";
    }
    let name = match types::bare(ty) {
        Type::Array(array) => return pointer(&array.elem, mutable),
        Type::Path(path) => path
            .path
            .segments
            .last()
            .map(|last| last.ident.to_string())
            .unwrap_or_default(),
        _ => String::new(),
    };
    let name = match name.as_str() {
        "u8" | "bool" | "c_uchar" => "uint8_t",
        "u16" | "c_ushort" => "uint16_t",
        "u32" | "char" | "c_uint" => "uint32_t",
        "u64" | "c_ulong" | "c_ulonglong" => "uint64_t",
        "usize" => "size_t",
        "i8" | "c_schar" => "int8_t",
        "i16" | "c_short" => "int16_t",
        "i32" | "c_int" => "int32_t",
        "i64" | "c_long" | "c_longlong" => "int64_t",
        "isize" => "ptrdiff_t",
        "f32" | "c_float" => "float",
        "f64" | "c_double" => "double",
        "c_char" => "char",
        "AtomicU8" | "AtomicBool" => "_Atomic uint8_t",
        "AtomicU16" => "_Atomic uint16_t",
        "AtomicU32" => "_Atomic uint32_t",
        "AtomicU64" => "_Atomic uint64_t",
        "AtomicUsize" => "_Atomic size_t",
        "AtomicI8" => "_Atomic int8_t",
        "AtomicI16" => "_Atomic int16_t",
        "AtomicI32" => "_Atomic int32_t",
        "AtomicI64" => "_Atomic int64_t",
        "AtomicIsize" => "_Atomic ptrdiff_t",
        "" | "c_void" => "void",
        other => &format!("struct {other}"),
    };
    format!("{}{name} *", if mutable { "" } else { "const " })
}
