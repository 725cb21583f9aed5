//! A host function.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{ItemFn, Path};

use super::{Arguments, imported, registered};
use crate::errors::Errors;
use crate::host_fn::{self, HostFn, static_text};
use crate::signature;

struct Model {
    function: ItemFn,
    host_fn: HostFn,
    /// The import that it provides.
    import: Option<Path>,
}

impl Model {
    fn new(args: TokenStream, function: ItemFn) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let sig = &function.sig;
        let Arguments { name, import } = Arguments::new(args, &mut errors);
        let symbol = match &name {
            Some(name) => name.value(),
            None => syn::ext::IdentExt::unraw(&sig.ident).to_string(),
        };
        match &name {
            Some(name) => signature::check_name(&symbol, name, &mut errors),
            None => signature::check_name(&symbol, &sig.ident, &mut errors),
        }
        signature::refuse_common(sig, "an exported function", &mut errors);
        signature::refuse_variadic(sig, "an exported function", &mut errors);
        signature::refuse_receiver(sig, "an exported function", &mut errors);
        let why = "the attribute adds items beside it";
        signature::refuse_associated(sig, "an exported function", "export", why, &mut errors);
        signature::refuse_abi(sig, "an exported function", &mut errors);
        let host_fn = HostFn::new(sig, symbol, host_fn::is_unsafe(sig), &mut errors);
        errors.or(Self {
            function,
            host_fn,
            import,
        })
    }

    fn expand(self) -> TokenStream {
        let Self {
            function,
            host_fn,
            import,
        } = self;
        let cfgs = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
        let symbol = &host_fn.symbol;
        let ident = &function.sig.ident;
        let (names, types, result) = host_fn.c_signature(&quote!(()));
        let call = host_fn.shim(&quote!(#ident));
        let signature = static_text(
            &format_ident!("__IFUNC_SIGNATURE"),
            &format_ident!("__IFUNC_SIGNATURE_TEXT"),
            &host_fn.text(),
        );
        let prototype = static_text(
            &format_ident!("__IFUNC_PROTOTYPE"),
            &format_ident!("__IFUNC_PROTOTYPE_TEXT"),
            &host_fn.prototype(),
        );
        let checks = host_fn.checks();
        let named = host_fn.named_types();
        let earlier = host_fn.earlier(&format_ident!("__IFUNC_SIGNATURE"));
        let matches = imported(import.as_ref(), &host_fn.text());
        let register = registered(
            "EXPORTS",
            &quote!(::ifunc::host::Export),
            &quote! {
                unsafe {
                    ::ifunc::host::Export::function(
                        #symbol,
                        ::ifunc::__private::text(&__IFUNC_SIGNATURE_TEXT),
                        ::ifunc::__private::text(&__IFUNC_PROTOTYPE_TEXT),
                        __ifunc_shim as *const (),
                    )
                    .with_types(#named)
                    .with_earlier(#earlier)
                }
            },
        );
        quote! {
            #function

            #(#cfgs)*
            #[allow(unexpected_cfgs, deprecated)]
            const _: () = {
                let _ = #ident;
                #checks
                #matches

                #[cfg(not(ifunc_image))]
                const _: () = {
                    // Unwinds only without a runtime: in a unit test.
                    unsafe extern "C-unwind" fn __ifunc_shim(#(#names: #types),*) -> #result {
                        ::ifunc::host::through_gate(move || { #call })
                    }
                    #signature
                    #prototype
                    #register
                };
            };
        }
    }
}

/// Expands the attribute on a function.
pub(super) fn expand(args: TokenStream, function: ItemFn) -> syn::Result<TokenStream> {
    Model::new(args, function).map(Model::expand)
}
