//! `#[ifunc::export]`: functions, variables and interfaces of the host that ifuncs may import.

mod function;
mod interface;
mod variable;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::Parser;
use syn::{Item, LitStr, Path};

use crate::errors::{Errors, report, span_of};

/// The arguments of the attribute on a function or a variable.
#[derive(Default)]
struct Arguments {
    /// `name = ".."`.
    name: Option<LitStr>,
    /// `import = path`: the import that it provides.
    import: Option<Path>,
}

impl Arguments {
    fn new(args: TokenStream, errors: &mut Errors) -> Self {
        let mut arguments = Self::default();
        let parser = syn::meta::parser(|meta| {
            if meta.path.is_ident("name") {
                arguments.name = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("import") {
                arguments.import = Some(meta.value()?.call(Path::parse_mod_style)?);
            } else {
                return Err(meta.error("unknown argument"));
            }
            Ok(())
        });
        if let Err(error) = parser.parse2(args) {
            errors.span(
                error.span(),
                &error,
                "the arguments are the symbol's name, `name = \"..\"`, and the ifuncs' import of it, which the compiler compares: \
                 `import = my_ifuncs::lookup`",
            );
        }
        arguments
    }
}

/// Lets the compiler compare the texts of an export and of its import.
fn imported(import: Option<&Path>, export: &TokenStream) -> Option<TokenStream> {
    let path = import?;
    Some(quote_spanned! {span_of(path)=>
        const _: () = ::ifunc::__private::same_signature(#export, <#path as ::ifunc::ffi::Import>::SIGNATURE);
    })
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
