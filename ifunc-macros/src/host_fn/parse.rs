//! Reads a signature: how each type crosses, or why it does not and what to write instead.

use quote::{ToTokens, format_ident};
use syn::spanned::Spanned;
use syn::{
    FnArg, GenericArgument, Ident, Pat, PathArguments, ReturnType, Signature, Type, TypeFnPtr,
    TypeParamBound, TypeReference, TypeTraitObject,
};

use super::{Callback, CallbackOutput, HostFn, Kind, Output, Param, Reference, Returned, Slice};
use crate::errors::Errors;
use crate::types;

const CROSSES: &str = "integers, floats, `bool`, enums and structs of fixed layout, `&T` and `&mut T` of those and of opaque types, \
                       `&[T]`, `&mut [T]`, `&str`, `&mut dyn FnMut(..)`, and `Option` of those cross, and are returned in \
                       `Result` or `Option` too";

const CALLBACK_RETURNS: &str = "return `ControlFlow<()>`, where `Break` ends the iteration, `Option<T>`, or nothing; or give the \
                                callback a `&mut T` to fill";

impl HostFn {
    /// Reads a signature; reports types that cannot cross to `errors`.
    pub(crate) fn new(sig: &Signature, symbol: String, is_unsafe: bool, errors: &mut Errors) -> Self {
        let mut reader = Reader { is_unsafe, errors };
        let mut params = Vec::new();
        for (i, input) in sig.inputs.iter().enumerate() {
            // The caller has refused a receiver, or reads it itself.
            let FnArg::Typed(typed) = input else { continue };
            let name = match &*typed.pat {
                Pat::Ident(pat) => pat.ident.clone(),
                other => format_ident!("arg{i}", span = other.span()),
            };
            if let Some(kind) = reader.kind(&typed.ty) {
                params.push(Param { name, kind });
            }
        }
        Self {
            symbol,
            is_unsafe,
            receiver: None,
            params,
            is_variadic: sig.variadic.is_some(),
            output: reader.output(&sig.output),
        }
    }

    /// Whether every value crosses as it is, so that the C function can be called without a conversion.
    pub(crate) fn is_plain(&self) -> bool {
        let is_plain = |kind: &Kind| matches!(kind, Kind::Value(_) | Kind::Raw(_));
        self.params.iter().all(|param| is_plain(&param.kind))
            && matches!(
                self.output,
                Output::Unit | Output::Plain(Returned::Value(_) | Returned::Raw(_))
            )
    }
}

/// Reads the types of one signature.
struct Reader<'e> {
    is_unsafe: bool,
    errors: &'e mut Errors,
}

impl Reader<'_> {
    fn kind(&mut self, ty: &Type) -> Option<Kind> {
        match types::bare(ty) {
            Type::Reference(inner) => self.reference(ty, inner, false),
            whole @ Type::Path(path) => {
                if let Some(arguments) = types::arguments_of(whole, "Option") {
                    return self.option(ty, &arguments);
                }
                if let Some(help) = owned(path) {
                    self.errors.at(ty, "a value that owns memory cannot cross", help);
                    return None;
                }
                Some(Kind::Value(whole.clone()))
            }
            Type::Array(_) => {
                self.errors.at(
                    ty,
                    "an array cannot cross by value: C has no such parameter",
                    "take a reference: `&[T; N]`",
                );
                None
            }
            whole @ (Type::Ptr(_) | Type::FnPtr(_)) => self.raw(whole).then(|| Kind::Raw(whole.clone())),
            other => {
                self.refuse(ty, other);
                None
            }
        }
    }

    fn option(&mut self, ty: &Type, arguments: &[&Type]) -> Option<Kind> {
        let [inner] = arguments[..] else {
            self.errors
                .at(ty, "the type of the `Option` must be named", "write `Option<T>`");
            return None;
        };
        match types::bare(inner) {
            Type::Reference(reference) => self.reference(ty, reference, true),
            Type::FnPtr(_) => self.raw(inner).then(|| Kind::Raw(types::bare(ty).clone())),
            inner @ Type::Array(_) => Some(Kind::OptionValue(inner.clone())),
            inner @ Type::Path(path) => {
                if types::is_named(inner, "Option") || types::is_named(inner, "Result") {
                    self.errors.at(
                        inner,
                        "an `Option` of this does not cross: C has one null pointer",
                        "take an enum of fixed layout, or two parameters",
                    );
                    return None;
                }
                if let Some(help) = owned(path) {
                    self.errors.at(ty, "a value that owns memory cannot cross", help);
                    return None;
                }
                Some(Kind::OptionValue(inner.clone()))
            }
            other => {
                self.refuse(ty, other);
                None
            }
        }
    }

    fn reference(&mut self, ty: &Type, inner: &TypeReference, optional: bool) -> Option<Kind> {
        let mutable = inner.mutability.is_some();
        match types::bare(&inner.elem) {
            Type::Slice(slice) => Some(Kind::Slice(Slice {
                element: Some(types::bare(&slice.elem).clone()),
                mutable,
                optional,
            })),
            elem if types::is_named(elem, "str") => {
                if let Some(token) = &inner.mutability {
                    self.errors
                        .at(token, "`&mut str` does not cross", "take `&mut [u8]`");
                }
                Some(Kind::Slice(Slice {
                    element: None,
                    mutable: false,
                    optional,
                }))
            }
            Type::TraitObject(object) if optional => {
                self.errors.at(
                    object,
                    "a callback cannot be optional",
                    "take a `bool` that says whether to call it, or export a second function",
                );
                None
            }
            Type::TraitObject(object) => self.callback(ty, inner, object),
            Type::Path(path) => {
                if let Some(help) = owned(path) {
                    self.errors
                        .at(ty, "the layout of this type differs between builds", help);
                    return None;
                }
                Some(Kind::Reference(reference(inner, optional)))
            }
            Type::Array(_) => Some(Kind::Reference(reference(inner, optional))),
            Type::ImplTrait(inner) => {
                self.errors.at(
                    inner,
                    "`impl Trait` cannot cross: both sides must name the same type",
                    "a function of the ifunc's crosses as `&mut dyn FnMut(..)`",
                );
                None
            }
            other => {
                self.refuse(ty, other);
                None
            }
        }
    }

    /// `&mut dyn FnMut(..)`.
    fn callback(&mut self, ty: &Type, reference: &TypeReference, object: &TypeTraitObject) -> Option<Kind> {
        const WRITE: &str = "write `&mut dyn FnMut(&[u8]) -> ControlFlow<()>`";
        let mut bounds = object.bounds.iter();
        let (Some(TypeParamBound::Trait(bound)), None) = (bounds.next(), bounds.next()) else {
            self.errors.at(
                object,
                "a callback has no bounds beside its signature: it is called on the thread of the invocation, and ends with the call",
                WRITE,
            );
            return None;
        };
        let last = bound.path.segments.last()?;
        let PathArguments::Parenthesized(signature) = &last.arguments else {
            self.errors.at(
                object,
                "a trait object cannot cross: its vtable exists on one side only",
                "export the trait as an interface (`#[ifunc::interface]`) and take it as the ifunc's target, or take a callback: \
                 `&mut dyn FnMut(..)`",
            );
            return None;
        };
        let mutable = match last.ident.to_string().as_str() {
            "FnMut" => true,
            "Fn" => false,
            _ => {
                self.errors.at(
                    &last.ident,
                    "a callback is lent for the call, and `FnOnce` would consume it",
                    WRITE,
                );
                return None;
            }
        };
        if mutable && reference.mutability.is_none() {
            self.errors.at(ty, "an `FnMut` is called through `&mut`", WRITE);
        }
        if let Some(lifetime) = bound
            .lifetimes
            .as_ref()
            .map(ToTokens::to_token_stream)
            .or_else(|| signature.inputs.iter().find_map(|ty| named_lifetime(&ty.ty)))
        {
            self.errors.at(
                lifetime,
                "what a callback is lent ends with its call",
                "omit the lifetime",
            );
        }
        let mut params = Vec::new();
        let mut param_types = Vec::new();
        for (i, input) in signature.inputs.iter().enumerate() {
            // A pointer would outlive the call: callbacks are safe functions.
            let mut reader = Reader {
                is_unsafe: false,
                errors: self.errors,
            };
            match reader.kind(&input.ty)? {
                Kind::Callback(_) => {
                    self.errors.at(
                        &input.ty,
                        "a callback cannot be given a callback",
                        "let the ifunc call a function of the host instead",
                    );
                    return None;
                }
                kind => params.push(Param {
                    name: input
                        .name
                        .as_ref()
                        .map_or_else(|| format_ident!("arg{i}"), |(name, _)| name.clone()),
                    kind,
                }),
            }
            param_types.push(types::bare(&input.ty).clone());
        }
        Some(Kind::Callback(Box::new(Callback {
            ty: types::bare(ty).clone(),
            mutable,
            params,
            types: param_types,
            output: self.callback_output(&signature.output)?,
        })))
    }

    fn callback_output(&mut self, output: &ReturnType) -> Option<CallbackOutput> {
        let ReturnType::Type(_, ty) = output else {
            return Some(CallbackOutput::Unit);
        };
        let ty = types::bare(ty);
        if types::is_unit(ty) {
            return Some(CallbackOutput::Unit);
        }
        if let Some(arguments) = types::arguments_of(ty, "ControlFlow") {
            return match arguments[..] {
                [unit] if types::is_unit(unit) => Some(CallbackOutput::ControlFlow),
                _ => {
                    self.errors.at(
                        ty,
                        "a `ControlFlow` crosses without values",
                        "write `ControlFlow<()>`, and keep the value in a variable that the callback captures",
                    );
                    None
                }
            };
        }
        if let Some(&[inner]) = types::arguments_of(ty, "Option").as_deref() {
            return match self.value(inner)? {
                Returned::Value(ty) => Some(CallbackOutput::Option(Box::new(ty))),
                _ => {
                    self.errors
                        .at(ty, "a callback cannot return a borrow", CALLBACK_RETURNS);
                    None
                }
            };
        }
        self.errors.at(
            ty,
            "a callback that panics returns to the host, and this type has no value that says so",
            CALLBACK_RETURNS,
        );
        None
    }

    /// Whether a raw or function pointer crosses.
    fn raw(&mut self, ty: &Type) -> bool {
        if !self.is_unsafe {
            let (what, help) = match ty {
                Type::FnPtr(_) => (
                    "a function pointer crosses to `unsafe` functions only: a panic in it would leave the host's frames",
                    "take `&mut dyn FnMut(..)`, or make the function `unsafe` (in an import: without `safe`)",
                ),
                _ => (
                    "a raw pointer crosses to `unsafe` functions only: its type states neither its length nor how long it is valid",
                    "take `&T` or `&[T]`, or make the function `unsafe` (in an import: without `safe`)",
                ),
            };
            self.errors.at(ty, what, help);
            return false;
        }
        self.raw_inner(ty)
    }

    fn raw_inner(&mut self, ty: &Type) -> bool {
        match types::bare(ty) {
            Type::Ptr(pointer) => match types::bare(&pointer.elem) {
                Type::Path(path) => match owned(path) {
                    Some(help) => {
                        self.errors
                            .at(ty, "the layout of this type differs between builds", help);
                        false
                    }
                    None => true,
                },
                Type::Array(_) => true,
                elem => self.raw_inner(elem),
            },
            Type::FnPtr(function) => self.function(function),
            ty @ Type::Path(_) => match types::arguments_of(ty, "Option").as_deref() {
                Some(&[inner]) if matches!(types::bare(inner), Type::FnPtr(_)) => self.raw_inner(inner),
                Some(_) => {
                    self.errors.at(
                        ty,
                        "C has no such type",
                        "the only option inside a pointer is `Option<extern \"C\" fn(..)>`",
                    );
                    false
                }
                None => true,
            },
            other => {
                self.errors.at(
                    other,
                    "C has no such type",
                    "inside a pointer use integers, floats, raw pointers, fixed layouts and `c_void`",
                );
                false
            }
        }
    }

    fn function(&mut self, function: &TypeFnPtr) -> bool {
        let is_c = function
            .abi
            .as_ref()
            .is_some_and(|abi| abi.name.as_ref().is_none_or(|name| name.value() == "C"));
        if !is_c {
            self.errors.at(
                function,
                "a Rust function pointer has no calling convention that both sides know",
                "write `unsafe extern \"C\" fn(..)`",
            );
            return false;
        }
        if let Some(variadic) = &function.variadic {
            self.errors.at(
                variadic,
                "a variadic function pointer does not cross",
                "name its parameters",
            );
            return false;
        }
        let inputs = function.inputs.iter().all(|input| self.raw_inner(&input.ty));
        let output = match &function.output {
            ReturnType::Default => true,
            ReturnType::Type(_, ty) => self.raw_inner(ty),
        };
        inputs && output
    }

    fn output(&mut self, output: &ReturnType) -> Output {
        let ReturnType::Type(_, ty) = output else {
            return Output::Unit;
        };
        types::refuse_static(ty, self.errors);
        let ty = types::bare(ty);
        if types::is_unit(ty) {
            return Output::Unit;
        }
        if let Some(arguments) = types::arguments_of(ty, "Result") {
            let [ok, error] = arguments[..] else {
                self.errors.at(
                    ty,
                    "both types of the `Result` must be named",
                    "write `Result<T, E>` with `E`: `i32` or a C-like enum",
                );
                return Output::Unit;
            };
            let value = (!types::is_unit(ok)).then(|| self.value(ok)).flatten();
            return Output::Result(value, Box::new(types::bare(error).clone()));
        }
        if let Some(arguments) = types::arguments_of(ty, "Option") {
            let [inner] = arguments[..] else {
                return Output::Unit;
            };
            if let Type::FnPtr(_) = types::bare(inner) {
                return match self.raw(inner) {
                    true => Output::Plain(Returned::Raw(ty.clone())),
                    false => Output::Unit,
                };
            }
            return self.value(inner).map_or(Output::Unit, Output::Option);
        }
        match ty {
            Type::Ptr(_) | Type::FnPtr(_) => match self.raw(ty) {
                true => Output::Plain(Returned::Raw(ty.clone())),
                false => Output::Unit,
            },
            Type::Array(_) => {
                self.errors.at(
                    ty,
                    "an array cannot be returned by value: C has no such result",
                    "return `Option<[T; N]>`, or fill a `&mut [T; N]`",
                );
                Output::Unit
            }
            _ => self.value(ty).map_or(Output::Unit, Output::Plain),
        }
    }

    /// What is returned inside an `Option` or a `Result`.
    fn value(&mut self, ty: &Type) -> Option<Returned> {
        let bare = types::bare(ty);
        if let Type::Array(_) = bare {
            return Some(Returned::Value(bare.clone()));
        }
        if types::is_named(bare, "Option") || types::is_named(bare, "Result") {
            self.errors.at(
                ty,
                "an `Option` or a `Result` does not cross inside another",
                "add a variant to the error's enum",
            );
            return None;
        }
        match self.kind(bare)? {
            Kind::Value(ty) => Some(Returned::Value(ty)),
            Kind::Reference(reference) => Some(Returned::Reference(reference)),
            Kind::Slice(slice) => Some(Returned::Slice(slice)),
            Kind::Raw(_) => {
                self.errors.at(
                    ty,
                    "a pointer does not cross inside this type",
                    "return the pointer alone: null is its `None`",
                );
                None
            }
            Kind::Callback(_) | Kind::OptionValue(_) => {
                self.errors.at(
                    ty,
                    "a function cannot be returned: the ifunc's ends with its image, the host's needs the call gate",
                    "export the function itself",
                );
                None
            }
        }
    }

    fn refuse(&mut self, at: &Type, ty: &Type) {
        let (what, help) = match ty {
            Type::Tuple(_) => (
                "a tuple has no fixed layout",
                "name it: `#[derive(Layout)] #[repr(C)] struct Pair { .. }`",
            ),
            Type::Slice(_) => ("a slice has no size of its own", "take `&[T]`"),
            Type::ImplTrait(_) => (
                "`impl Trait` cannot cross: both sides must name the same type",
                "a function of the ifunc's crosses as `&mut dyn FnMut(..)`",
            ),
            Type::TraitObject(_) => (
                "a trait object cannot cross: its vtable exists on one side only",
                "a function of the ifunc's crosses as `&mut dyn FnMut(..)`",
            ),
            Type::Never(_) => ("a host function must return to the ifunc", "return nothing"),
            Type::Reference(_) => (
                "a reference to a reference does not cross",
                "take one reference: `&T`",
            ),
            _ => ("this type does not cross", CROSSES),
        };
        self.errors.at(at, what, help);
    }
}

fn reference(reference: &TypeReference, optional: bool) -> Reference {
    Reference {
        ty: types::bare(&reference.elem).clone(),
        mutable: reference.mutability.is_some(),
        optional,
    }
}

/// The first named lifetime in a type.
fn named_lifetime(ty: &Type) -> Option<proc_macro2::TokenStream> {
    match types::bare(ty) {
        Type::Reference(reference) => match &reference.lifetime {
            Some(lifetime) if lifetime.ident != "_" => Some(lifetime.to_token_stream()),
            _ => named_lifetime(&reference.elem),
        },
        Type::Path(path) => {
            let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else {
                return None;
            };
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Lifetime(lifetime) if lifetime.ident != "_" => {
                    Some(lifetime.to_token_stream())
                }
                GenericArgument::Type(ty) => named_lifetime(ty),
                _ => None,
            })
        }
        _ => None,
    }
}

/// Help for a type that owns memory or needs to be dropped.
fn owned(path: &syn::TypePath) -> Option<&'static str> {
    let last: &Ident = &path.path.segments.last()?.ident;
    Some(match last.to_string().as_str() {
        "String" => {
            "take `&str`; to return text, return a `&str` of the host's, or take a `&mut [u8]` to fill and return its length"
        }
        "Vec" | "VecDeque" => {
            "take `&[T]`; to return several values, return a `&[T]` of the host's, take a `&mut [T]` to fill, or a callback: \
             `&mut dyn FnMut(&T)`"
        }
        "Box" | "Rc" | "Arc" => "take `&T`; the host keeps owned values inside an opaque type",
        "HashMap" | "BTreeMap" | "HashSet" | "BTreeSet" => {
            "keep it in the host inside an opaque type, and export functions that use it"
        }
        "MutexGuard" | "RwLockReadGuard" | "RwLockWriteGuard" | "Ref" | "RefMut" => {
            "take the lock inside the host function: an ifunc that ends early would never unlock it"
        }
        _ => return None,
    })
}
