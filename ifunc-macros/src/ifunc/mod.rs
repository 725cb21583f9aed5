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
            if syn::parse2::<syn::Item>(item.clone()).is_ok() {
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
