//! A host function that an ifunc calls.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Attribute, FnArg, ForeignItemFn, Safety, Signature, Visibility};

use super::{described, symbol};
use crate::errors::Errors;
use crate::host_fn::{HostFn, record, static_text};
use crate::signature;

pub(super) struct Function {
    /// The attributes without `link_name`.
    attrs: Vec<Attribute>,
    vis: Visibility,
    sig: Signature,
    host_fn: HostFn,
}

impl Function {
    pub(super) fn new(item: ForeignItemFn, block: &[Attribute], errors: &mut Errors) -> Self {
        let ForeignItemFn { attrs, vis, sig, .. } = item;
        signature::refuse_common(&sig, "an imported function", errors);
        signature::refuse_receiver(&sig, "an imported function", errors);
        let (symbol, attrs) = symbol(&sig.ident, attrs, block, errors);
        // A function of an `unsafe extern` block is unsafe unless it says `safe`.
        let is_unsafe = !matches!(sig.safety, Safety::Safe(_));
        if !is_unsafe && let Some(variadic) = &sig.variadic {
            errors.at(
                variadic,
                "a variadic function is `unsafe`: nothing checks the arguments",
                "remove `safe`, or take a slice",
            );
        }
        let host_fn = HostFn::new(&sig, symbol, is_unsafe, errors);
        if host_fn.is_variadic && !host_fn.is_plain() {
            errors.at(
                &sig.inputs,
                "the parameters of a variadic function cross as they are",
                "take integers, floats and raw pointers: `fn printf(format: *const c_char, ...) -> i32`",
            );
        }
        Self {
            attrs,
            vis,
            sig,
            host_fn,
        }
    }

    pub(super) fn symbol(&self) -> &str {
        &self.host_fn.symbol
    }

    pub(super) fn ident(&self) -> &Ident {
        &self.sig.ident
    }

    pub(super) fn expand(self) -> TokenStream {
        let cfgs: Vec<&Attribute> = self
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .collect();
        let checks = self.host_fn.checks();
        let signature = static_text(
            &format_ident!("__IFUNC_SIGNATURE"),
            &format_ident!("__IFUNC_TEXT"),
            &self.host_fn.text(),
        );
        let record = record(
            &self.host_fn.symbol,
            &quote!(::ifunc::__private::text(&__IFUNC_TEXT)),
        );
        let item = if self.host_fn.is_variadic {
            self.variadic()
        } else {
            self.function()
        };
        let described = described(&self.vis, &self.sig.ident, &cfgs, &self.host_fn.text());
        quote! {
            #item
            #described

            #(#cfgs)*
            #[allow(unexpected_cfgs)]
            const _: () = {
                #checks
                #[cfg(ifunc_image)]
                const _: () = {
                    #signature
                    #record
                };
            };
        }
    }

    /// A function that converts its arguments and calls the host's.
    fn function(&self) -> TokenStream {
        let Self {
            attrs,
            vis,
            sig,
            host_fn,
        } = self;
        let mut sig = sig.clone();
        sig.safety = if host_fn.is_unsafe {
            Safety::Unsafe(Default::default())
        } else {
            Safety::Default
        };
        name_params(&mut sig, host_fn);
        let symbol = &host_fn.symbol;
        let (names, types, result) = host_fn.c_signature(&quote!(()));
        let host = Ident::new("__ifunc_host", Span::mixed_site());
        let body = host_fn.stub(&quote!(#host), None);
        let resolve = self.resolve();
        quote! {
            #(#attrs)*
            #[allow(unexpected_cfgs, unused_unsafe, improper_ctypes)]
            #[inline]
            #vis #sig {
                #[cfg(ifunc_image)]
                unsafe extern "C" {
                    #[link_name = #symbol]
                    fn #host(#(#names: #types),*) -> #result;
                }
                #[cfg(not(ifunc_image))]
                let #host = {
                    let address = #resolve;
                    // SAFETY: the shim of an export with the same signature has this type.
                    unsafe {
                        ::core::mem::transmute::<*const (), unsafe extern "C-unwind" fn(#(#types),*) -> #result>(address)
                    }
                };
                #body
            }
        }
    }

    /// The declaration itself: Rust cannot pass on variable arguments.
    fn variadic(&self) -> TokenStream {
        let Self {
            attrs,
            vis,
            sig,
            host_fn,
        } = self;
        let (symbol, ident) = (&host_fn.symbol, &sig.ident);
        let (names, types, result) = host_fn.c_signature(&quote!(()));
        let resolve = self.resolve();
        quote! {
            ::ifunc::__private::in_image! {
                {
                    #[allow(improper_ctypes)]
                    unsafe extern "C" {
                        #(#attrs)*
                        #[link_name = #symbol]
                        #vis unsafe fn #ident(#(#names: #types,)* ...) -> #result;
                    }
                }
                {
                    #(#attrs)*
                    #[allow(non_upper_case_globals)]
                    #vis const #ident: ::ifunc::ffi::Variadic<unsafe extern "C" fn(#(#types,)* ...) -> #result> = {
                        static FUNCTION: ::ifunc::ffi::Resolved<unsafe extern "C" fn(#(#types,)* ...) -> #result> =
                            ::ifunc::ffi::Resolved::new();
                        // SAFETY: the author of the block vouches for the signature.
                        unsafe { ::ifunc::ffi::Variadic::new(&FUNCTION, || #resolve) }
                    };
                }
            }
        }
    }

    /// The address of the host's function, outside an image.
    fn resolve(&self) -> TokenStream {
        let symbol = &self.host_fn.symbol;
        let signature = static_text(
            &format_ident!("__IFUNC_SIGNATURE"),
            &format_ident!("__IFUNC_TEXT"),
            &self.host_fn.text(),
        );
        let types = self.host_fn.named_types();
        let resolve = if self.host_fn.is_unsafe {
            quote!(resolve_unsafe)
        } else {
            quote!(resolve)
        };
        quote! {
            {
                #signature
                ::ifunc::__private::#resolve(#symbol, ::ifunc::__private::text(&__IFUNC_TEXT), #types)
            }
        }
    }
}

/// Names a parameter `_: T`, so that the body can pass it on.
pub(crate) fn name_params(sig: &mut Signature, host_fn: &HostFn) {
    let typed = sig.inputs.iter_mut().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    for (typed, param) in typed.zip(&host_fn.params) {
        if !matches!(*typed.pat, syn::Pat::Ident(_)) {
            let name = &param.name;
            *typed.pat = syn::parse_quote!(#name);
        }
    }
}
