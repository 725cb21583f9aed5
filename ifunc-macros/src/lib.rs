//! The attributes and derives of the `ifunc` SDK. Use them through `ifunc`, where they are documented with examples.
//!
//! Each is read in full before anything is written: parse → model → expand. What is wrong is said all at once, each
//! at its span with what to do instead, and the author's item is given back in any case.

mod errors;
mod ifunc;
mod signature;
mod types;

use proc_macro::TokenStream;

/// Makes a function one that travels.
#[proc_macro_attribute]
pub fn ifunc(args: TokenStream, item: TokenStream) -> TokenStream {
    ifunc::ifunc(args.into(), item.into()).into()
}
