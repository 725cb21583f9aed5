//! A host variable.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{ItemStatic, StaticMutability};

use super::{Arguments, imported, registered};
use crate::errors::Errors;
use crate::host_fn::{self, static_text};
use crate::signature;

/// Expands the attribute on a `static`.
pub(super) fn expand(args: TokenStream, variable: ItemStatic) -> syn::Result<TokenStream> {
    let mut errors = Errors::default();
    let Arguments { name, import } = Arguments::new(args, &mut errors);
    let ident = &variable.ident;
    let symbol = match &name {
        Some(name) => name.value(),
        None => syn::ext::IdentExt::unraw(ident).to_string(),
    };
    match &name {
        Some(name) => signature::check_name(&symbol, name, &mut errors),
        None => signature::check_name(&symbol, ident, &mut errors),
    }
    signature::check_variable(&variable.ty, &mut errors);
    errors.or(())?;

    let cfgs = variable.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
    let mutable = matches!(variable.mutability, StaticMutability::Mut(_));
    let address = if mutable {
        quote!(&raw mut #ident)
    } else {
        quote!(&raw const #ident)
    };
    let text = || host_fn::variable_text(&symbol, &variable.ty, mutable);
    let types = text().named_types();
    let earlier = text().earlier(&format_ident!("__IFUNC_SIGNATURE"));
    let matches = imported(import.as_ref(), &text().finish());
    let signature = static_text(
        &format_ident!("__IFUNC_SIGNATURE"),
        &format_ident!("__IFUNC_SIGNATURE_TEXT"),
        &text().finish(),
    );
    let declaration = static_text(
        &format_ident!("__IFUNC_DECLARATION"),
        &format_ident!("__IFUNC_DECLARATION_TEXT"),
        &host_fn::variable_declaration(&symbol, &variable.ty),
    );
    let register = registered(
        "EXPORTS",
        &quote!(::ifunc::host::Export),
        &quote! {
            unsafe {
                ::ifunc::host::Export::data(
                    #symbol,
                    ::ifunc::__private::text(&__IFUNC_SIGNATURE_TEXT),
                    ::ifunc::__private::text(&__IFUNC_DECLARATION_TEXT),
                    (#address).cast(),
                )
                .with_types(#types)
                .with_earlier(#earlier)
            }
        },
    );
    Ok(quote! {
        #variable

        #(#cfgs)*
        #[allow(unexpected_cfgs, deprecated, unused_unsafe)]
        const _: () = {
            #matches
            #[cfg(not(ifunc_image))]
            const _: () = {
                #signature
                #declaration
                #register
            };
        };
    })
}
