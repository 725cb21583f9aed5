//! An interface of a host type.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{GenericParam, ItemImpl};

use super::registered;
use crate::errors::{Errors, span_of};
use crate::types;

/// Expands the attribute on an `impl`.
pub(super) fn expand(args: &TokenStream, implementation: ItemImpl) -> syn::Result<TokenStream> {
    let mut errors = Errors::default();
    if !args.is_empty() {
        errors.at(
            args,
            "`#[ifunc::export]` takes no arguments on an `impl`",
            "the interface has the name: `#[ifunc::interface(name = \"..\")]` on the trait",
        );
    }
    let ty = &implementation.self_ty;
    let interface = match &implementation.trait_ {
        Some((path, _)) => Some(path),
        None => {
            errors.at(
                ty,
                "methods of a type are exported through an interface",
                "declare a trait with `#[ifunc::interface]` in a crate that host and ifunc share, and put `#[ifunc::export]` on its \
                 `impl`",
            );
            None
        }
    };
    let spelled = interface.map_or_else(|| "Kv".to_owned(), |path| types::spelled(&quote!(#path)));
    for param in &implementation.generics.params {
        match param {
            GenericParam::Lifetime(lifetime) => errors.at(
                lifetime,
                "a host type that borrows cannot be exported for the whole process",
                "export it for `'static`, or own the data",
            ),
            GenericParam::Type(_) | GenericParam::Const(_) => errors.at(
                param,
                "a generic `impl` has no address of its own: machine code exists for concrete types only",
                format_args!(
                    "remove `#[ifunc::export]`, and let each target choose its type: \
                     `Target::builder().export_interface::<dyn {spelled}, Store<u64>>()`"
                ),
            ),
        }
    }
    errors.or(())?;

    let cfgs = implementation
        .attrs
        .iter()
        .filter(|attr| attr.path().is_ident("cfg"));
    let value = interface.map(|interface| {
        let span = span_of(interface);
        quote_spanned!(span=> ::ifunc::host::InterfaceExport::of::<dyn #interface, #ty>())
    });
    let register = registered(
        "INTERFACES",
        &quote!(::ifunc::host::InterfaceExport),
        &quote!(#value),
    );
    Ok(quote! {
        #implementation

        #(#cfgs)*
        #[allow(unexpected_cfgs, deprecated)]
        const _: () = {
            #register
        };
    })
}
