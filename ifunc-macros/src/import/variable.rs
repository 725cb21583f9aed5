//! A host variable that an ifunc reads and writes.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{Attribute, ForeignItemStatic, Safety, StaticMutability, Type, Visibility};

use super::{described, symbol};
use crate::errors::Errors;
use crate::host_fn::{record, static_text, variable_text};
use crate::signature;

pub(super) struct Variable {
    /// The attributes without `link_name`.
    attrs: Vec<Attribute>,
    vis: Visibility,
    ident: Ident,
    ty: Type,
    mutable: bool,
    is_safe: bool,
    symbol: String,
}

impl Variable {
    pub(super) fn new(item: ForeignItemStatic, block: &[Attribute], errors: &mut Errors) -> Self {
        let ForeignItemStatic {
            attrs,
            vis,
            mutability,
            ident,
            ty,
            safety,
            ..
        } = item;
        let (symbol, attrs) = symbol(&ident, attrs, block, errors);
        signature::check_variable(&ty, errors);
        let mutable = matches!(mutability, StaticMutability::Mut(_));
        let is_safe = matches!(safety, Safety::Safe(_));
        if mutable && is_safe {
            errors.at(
                &ident,
                "a `static mut` cannot be `safe`: other threads of the target may use it",
                "remove `safe`, or use an atomic type on both sides: `safe static NAME: AtomicU64;`",
            );
        }
        Self {
            attrs,
            vis,
            ident,
            ty: *ty,
            mutable,
            is_safe,
            symbol,
        }
    }

    pub(super) fn symbol(&self) -> &str {
        &self.symbol
    }

    pub(super) fn ident(&self) -> &Ident {
        &self.ident
    }

    pub(super) fn expand(self) -> TokenStream {
        let Self {
            attrs,
            vis,
            ident,
            ty,
            mutable,
            is_safe,
            symbol,
        } = self;
        let cfgs: Vec<&Attribute> = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
        let signature = static_text(
            &format_ident!("__IFUNC_SIGNATURE"),
            &format_ident!("__IFUNC_TEXT"),
            &variable_text(&symbol, &ty, mutable).finish(),
        );
        let types = variable_text(&symbol, &ty, mutable).named_types();
        let record = record(&symbol, &quote!(::ifunc::__private::text(&__IFUNC_TEXT)));
        let handle = if is_safe {
            quote!(HostStatic)
        } else {
            quote!(HostVariable)
        };
        let described = described(
            &vis,
            &ident,
            &cfgs,
            &variable_text(&symbol, &ty, mutable).finish(),
        );
        quote! {
            #described
            #(#attrs)*
            #[allow(unexpected_cfgs, improper_ctypes, non_upper_case_globals)]
            #[allow(clippy::declare_interior_mutable_const)]
            #vis const #ident: ::ifunc::ffi::#handle<#ty> = {
                #[cfg(ifunc_image)]
                fn address() -> *mut #ty {
                    unsafe extern "C" {
                        #[link_name = #symbol]
                        static mut __IFUNC_HOST: #ty;
                    }
                    &raw mut __IFUNC_HOST
                }
                #[cfg(not(ifunc_image))]
                fn address() -> *mut #ty {
                    #signature
                    ::ifunc::__private::resolve(#symbol, ::ifunc::__private::text(&__IFUNC_TEXT), #types)
                        .cast_mut()
                        .cast()
                }
                // SAFETY: the target compares the text's fingerprint with that of the variable it provides.
                unsafe { ::ifunc::ffi::#handle::new(address) }
            };

            #(#cfgs)*
            #[allow(unexpected_cfgs)]
            const _: () = {
                #[cfg(ifunc_image)]
                const _: () = {
                    #signature
                    #record
                };
            };
        }
    }
}
