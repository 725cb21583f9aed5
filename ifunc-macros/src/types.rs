//! Recognising types by their spelling, and replacing their lifetimes.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{GenericArgument, Lifetime, PathArguments, Type, TypeReference};

use crate::errors::Errors;

/// The type without the groups and parentheses around it.
pub(crate) fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// Whether the last segment of a path type is `name`.
pub(crate) fn is_named(ty: &Type, name: &str) -> bool {
    matches!(bare(ty), Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

/// The type arguments of a path type whose last segment is `name`.
pub(crate) fn arguments_of<'t>(ty: &'t Type, name: &str) -> Option<Vec<&'t Type>> {
    let Type::Path(path) = bare(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments
        .args
        .iter()
        .map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })
        .collect()
}

/// Whether the type is `[u8]`.
pub(crate) fn is_bytes(ty: &Type) -> bool {
    matches!(bare(ty), Type::Slice(slice) if is_named(&slice.elem, "u8"))
}

/// Whether the type is `()`.
pub(crate) fn is_unit(ty: &Type) -> bool {
    matches!(bare(ty), Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// `ty` with every lifetime, written or elided in a reference, replaced by `lifetime`.
pub(crate) fn with_lifetime(ty: &Type, lifetime: &str) -> Type {
    struct Replace(Lifetime);
    impl VisitMut for Replace {
        fn visit_lifetime_mut(&mut self, at: &mut Lifetime) {
            let span = at.span();
            *at = self.0.clone();
            at.set_span(span);
        }
        fn visit_type_reference_mut(&mut self, at: &mut TypeReference) {
            at.lifetime.get_or_insert_with(|| self.0.clone());
            visit_mut::visit_type_reference_mut(self, at);
        }
        // The lifetimes of a function pointer or a trait object are its own.
        fn visit_type_fn_ptr_mut(&mut self, _: &mut syn::TypeFnPtr) {}
        fn visit_type_trait_object_mut(&mut self, _: &mut syn::TypeTraitObject) {}
    }
    let mut ty = ty.clone();
    Replace(Lifetime::new(lifetime, Span::call_site())).visit_type_mut(&mut ty);
    ty
}

/// The first reference or lifetime in a type.
pub(crate) fn borrows(ty: &Type) -> Option<TokenStream> {
    struct Find(Option<TokenStream>);
    impl VisitMut for Find {
        fn visit_lifetime_mut(&mut self, at: &mut Lifetime) {
            self.0.get_or_insert_with(|| at.to_token_stream());
        }
        fn visit_type_reference_mut(&mut self, at: &mut TypeReference) {
            self.0.get_or_insert_with(|| at.to_token_stream());
        }
    }
    let mut find = Find(None);
    find.visit_type_mut(&mut ty.clone());
    find.0
}

/// Refuses `'static` anywhere in a type.
pub(crate) fn refuse_static(ty: &Type, errors: &mut Errors) {
    struct Refuse<'e>(&'e mut Errors);
    impl VisitMut for Refuse<'_> {
        fn visit_lifetime_mut(&mut self, at: &mut Lifetime) {
            if at.ident == "static" {
                self.0.at(
                    at,
                    "nothing that crosses is `'static`: a payload ends with its frame, an ifunc's memory when its image is \
                     evicted, the host's memory with the host",
                    "borrow for the call: omit the lifetime, or write `'_`",
                );
            }
        }
        // Neither crosses.
        fn visit_type_fn_ptr_mut(&mut self, _: &mut syn::TypeFnPtr) {}
        fn visit_type_trait_object_mut(&mut self, _: &mut syn::TypeTraitObject) {}
    }
    Refuse(errors).visit_type_mut(&mut ty.clone());
}

/// Refuses types that cannot cross a process with any codec.
pub(crate) fn refuse_unportable(ty: &Type, what: &str, errors: &mut Errors) {
    struct Refuse<'e>(&'e mut Errors, &'e str);
    impl VisitMut for Refuse<'_> {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            let Self(errors, what) = self;
            match ty {
                Type::ImplTrait(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot be `impl Trait`: both processes must name the same type"),
                    "name the type",
                ),
                Type::TraitObject(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot be a trait object: its vtable exists in one process only"),
                    "name the type, or an enum of the possible types",
                ),
                Type::FnPtr(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot hold a function pointer: it is valid in one process only"),
                    "send another ifunc, or a number that selects a function at the target",
                ),
                Type::Ptr(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot hold a raw pointer: it is valid in one process only"),
                    "send the data itself",
                ),
                Type::Never(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot be `!`: an ifunc must return"),
                    "return nothing, or a value",
                ),
                Type::Infer(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot be inferred: both processes must name the same type"),
                    "name the type",
                ),
                Type::Macro(ty) => errors.at(
                    ty,
                    format_args!("{what} cannot be a macro call: the attribute cannot expand it"),
                    "name the type",
                ),
                _ => visit_mut::visit_type_mut(self, ty),
            }
        }
    }
    Refuse(errors, what).visit_type_mut(&mut ty.clone());
}

/// Tokens as authors write types: without the blanks that `to_string` inserts.
pub(crate) fn spelled(tokens: &TokenStream) -> String {
    let mut out = String::new();
    for part in tokens.to_string().split(' ') {
        let glue = out.is_empty()
            || out.ends_with(|c: char| "&<([:".contains(c))
            || part.starts_with(|c: char| "<>)]:,;".contains(c));
        if !glue {
            out.push(' ');
        }
        out.push_str(part);
    }
    out
}
