//! `#[ifunc::export]`: functions, variables and interfaces of the host that ifuncs may import.

mod function;
mod interface;
mod variable;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::{Item, LitStr};

use crate::errors::{Errors, report};

/// The `name = ".."` of the attribute.
fn name(args: TokenStream, errors: &mut Errors) -> Option<LitStr> {
    let mut name = None;
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("name") {
            name = Some(meta.value()?.parse()?);
            return Ok(());
        }
        Err(meta.error("unknown argument"))
    });
    if let Err(error) = parser.parse2(args) {
        errors.span(error.span(), &error, "the only argument is `name = \"..\"`");
    }
    name
}

/// A `static` in the slice `ifunc::host::SLICE`.
fn registered(slice: &str, ty: &TokenStream, value: &TokenStream) -> TokenStream {
    let slice = proc_macro2::Ident::new(slice, proc_macro2::Span::call_site());
    quote! {
        #[cfg(not(ifunc_image))]
        #[::ifunc::__private::linkme::distributed_slice(::ifunc::host::#slice)]
        #[linkme(crate = ::ifunc::__private::linkme)]
        // SAFETY: the macro derived address, text and prototype from one item.
        static __IFUNC_EXPORT: #ty = #value;
    }
}

/// Expands the attribute.
pub(crate) fn export(args: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(function)) => function::expand(args, function),
        Ok(Item::Static(variable)) => variable::expand(args, variable),
        Ok(Item::Impl(implementation)) => interface::expand(&args, implementation),
        Ok(_) => {
            let mut errors = Errors::default();
            errors.at(
                &item,
                "`#[ifunc::export]` goes on a function, a `static`, or the `impl` of an interface",
                "move it to what ifuncs may use",
            );
            errors.or(TokenStream::new())
        }
        Err(error) => Err(error),
    };
    expanded.unwrap_or_else(|error| report(&error, item))
}
