//! Conversions between Rust values and their C form, for parameters.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

use super::{Kind, Param, Slice, c_len, c_name};
use crate::errors::span_of;
use crate::types;

/// The Rust value of parameter `i`, of its C form. Borrows from the local variable `scope`; not for callbacks.
pub(super) fn from_c(i: usize, param: &Param, scope: &Ident) -> TokenStream {
    let (value, len) = (c_name(i), c_len(i));
    let name = param.name.to_string();
    match &param.kind {
        Kind::Value(ty) => quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Value>::from_c(#value)),
        Kind::OptionValue(_) => quote!(unsafe { ::ifunc::__private::optional_value(#value) }),
        Kind::Reference(reference) => {
            let (function, name) = match (reference.optional, reference.mutable) {
                (true, false) => (quote!(optional), None),
                (true, true) => (quote!(optional_mut), None),
                (false, false) => (quote!(reference), Some(quote!(, #name))),
                (false, true) => (quote!(reference_mut), Some(quote!(, #name))),
            };
            quote!(unsafe { ::ifunc::__private::#function(&#scope, #value #name) })
        }
        Kind::Slice(slice) => {
            let convert = |value: TokenStream| match slice {
                Slice { element: None, .. } => {
                    quote!(unsafe { ::ifunc::__private::string(&#scope, #value, #len, #name) })
                }
                Slice { mutable: false, .. } => {
                    quote!(unsafe { ::ifunc::__private::slice(&#scope, #value, #len) })
                }
                Slice { mutable: true, .. } => {
                    quote!(unsafe { ::ifunc::__private::slice_mut(&#scope, #value, #len) })
                }
            };
            let converted = convert(quote!(#value));
            if slice.optional {
                quote! {
                    if #value.is_null() {
                        ::core::option::Option::None
                    } else {
                        ::core::option::Option::Some(#converted)
                    }
                }
            } else {
                converted
            }
        }
        Kind::Raw(_) => quote!(#value),
        // The shim converts it: only the host is given callbacks.
        Kind::Callback(_) => TokenStream::new(),
    }
}

/// The C arguments of parameter `i`, whose Rust value is in the variable `value`, and what has to stand before the call. Not
/// for callbacks.
pub(super) fn to_c(i: usize, kind: &Kind, value: &Ident) -> (TokenStream, Vec<TokenStream>) {
    let pointer = c_name(i);
    let len = c_len(i);
    let none = TokenStream::new();
    match kind {
        // A host that gives an object to a callback hands it over on its own side of the call gate.
        Kind::Value(ty) if types::is_named(ty, "Owned") => (
            quote_spanned!(span_of(ty)=> let #pointer = <#ty as ::ifunc::ffi::Value>::into_c(#value);),
            vec![quote!(#pointer)],
        ),
        Kind::Value(ty) => (
            none,
            vec![quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Value>::into_c(#value))],
        ),
        Kind::OptionValue(_) => (
            quote!(let #pointer = ::core::mem::ManuallyDrop::new(#value);),
            vec![quote!(#pointer.as_ref().map_or(::core::ptr::null(), ::core::ptr::from_ref))],
        ),
        Kind::Reference(reference) => {
            let (from, null) = if reference.mutable {
                (quote!(::core::ptr::from_mut), quote!(::core::ptr::null_mut()))
            } else {
                (quote!(::core::ptr::from_ref), quote!(::core::ptr::null()))
            };
            let inner = Ident::new("value", Span::mixed_site());
            let argument = if reference.optional {
                quote!(#value.map_or(#null, |#inner| #from(#inner).cast()))
            } else {
                quote!(#from(#value).cast())
            };
            (none, vec![argument])
        }
        Kind::Slice(slice) => {
            let (method, null) = if slice.mutable {
                (quote!(as_mut_ptr), quote!(::core::ptr::null_mut()))
            } else {
                (quote!(as_ptr), quote!(::core::ptr::null()))
            };
            let before = if slice.optional {
                let inner = Ident::new("value", Span::mixed_site());
                quote! {
                    let (#pointer, #len) = #value.map_or((#null, 0), |#inner| (#inner.#method(), #inner.len()));
                }
            } else {
                quote!(let (#pointer, #len) = (#value.#method(), #value.len());)
            };
            (before, vec![quote!(#pointer), quote!(#len)])
        }
        Kind::Raw(_) => (none, vec![quote!(#value)]),
        // The stub converts it: only an ifunc has callbacks.
        Kind::Callback(_) => (none, Vec::new()),
    }
}
