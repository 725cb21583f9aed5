//! Bounds that derives add to a type's own parameters.

use proc_macro2::TokenStream;
use syn::{GenericParam, Generics, parse_quote};

/// `generics` with `bound` on every type parameter.
pub(crate) fn with_bound(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    for param in &mut generics.params {
        if let GenericParam::Type(param) = param {
            param.bounds.push(parse_quote!(#bound));
        }
    }
    generics
}
