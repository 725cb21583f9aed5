//! `#[ifunc]`: parse → model → expand.

mod args;
mod expand;
mod model;

use proc_macro2::TokenStream;

use self::model::Model;

/// Expands the attribute.
pub(crate) fn ifunc(args: TokenStream, item: TokenStream) -> TokenStream {
    let function: syn::ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let mut errors = crate::errors::Errors::default();
            errors.push(error);
            if let Ok(declared) = syn::parse2::<syn::TraitItemFn>(item.clone()) {
                errors = crate::errors::Errors::default();
                errors.at(
                    &declared.sig.ident,
                    "an ifunc has a body: of a declaration there is no code that could travel",
                    "move it out of the `trait`, to the module around it, and write its body",
                );
            } else if syn::parse2::<syn::Item>(item.clone()).is_ok() {
                errors = crate::errors::Errors::default();
                errors.at(
                    &item,
                    "`#[ifunc]` goes on a function",
                    "`#[ifunc] pub fn name(payload: P, target: &mut T) { .. }`",
                );
            }
            return match errors.or(()) {
                Err(error) => crate::errors::report(&error, item),
                Ok(()) => item,
            };
        }
    };
    match Model::new(args, function) {
        Ok(model) => model.expand(),
        Err(error) => crate::errors::report(&error, item),
    }
}
