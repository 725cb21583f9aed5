//! The attributes and derives of the `ifunc` SDK. Use them through `ifunc`, where they are documented with examples.
//!
//! Each is read in full before anything is written: parse → model → expand. What is wrong is said all at once, each
//! at its span with what to do instead, and the author's item is given back in any case.

mod errors;
mod export;
mod generics;
mod host_fn;
mod ifunc;
mod import;
mod layout;
mod opaque;
mod shape;
mod signature;
#[cfg(test)]
mod snapshots;
mod types;

use proc_macro::TokenStream;

/// Makes a function one that travels.
#[proc_macro_attribute]
pub fn ifunc(args: TokenStream, item: TokenStream) -> TokenStream {
    ifunc::ifunc(args.into(), item.into()).into()
}

/// Lets ifuncs call a function of the host.
#[proc_macro_attribute]
pub fn export(args: TokenStream, item: TokenStream) -> TokenStream {
    export::export(args.into(), item.into()).into()
}

/// Declares functions of the host that an ifunc calls.
#[proc_macro_attribute]
pub fn import(args: TokenStream, item: TokenStream) -> TokenStream {
    import::import(args.into(), item.into()).into()
}

/// Gives a type a fixed layout and all it takes to travel.
#[proc_macro_attribute]
pub fn layout(args: TokenStream, item: TokenStream) -> TokenStream {
    layout::attribute(args.into(), item.into()).into()
}

/// Describes a fixed layout.
#[proc_macro_derive(Layout)]
pub fn derive_layout(input: TokenStream) -> TokenStream {
    layout::derive(input.into()).into()
}

/// Names a type that an ifunc never sees.
#[proc_macro_derive(Opaque, attributes(opaque))]
pub fn derive_opaque(input: TokenStream) -> TokenStream {
    opaque::derive(input.into()).into()
}

/// Describes what a serde type writes.
#[proc_macro_derive(Shape, attributes(serde))]
pub fn derive_shape(input: TokenStream) -> TokenStream {
    shape::derive(input.into()).into()
}
