//! The attributes and derives of the `ifunc` SDK. Use them through `ifunc`, where they are documented with examples.
//!
//! Each macro parses its whole input into a model before it expands it. It reports all errors together, each
//! at its span with a help text, and always emits the author's item.

mod errors;
mod export;
mod generics;
mod host_fn;
mod ifunc;
mod import;
mod interface;
mod layout;
mod opaque;
mod place;
mod shape;
mod signature;
#[cfg(test)]
mod snapshots;
mod types;

use proc_macro::TokenStream;

/// Makes a function an ifunc.
#[proc_macro_attribute]
pub fn ifunc(args: TokenStream, item: TokenStream) -> TokenStream {
    ifunc::ifunc(args.into(), item.into()).into()
}

/// Makes a trait an interface: a host type exports it, and ifuncs take it as their target.
#[proc_macro_attribute]
pub fn interface(args: TokenStream, item: TokenStream) -> TokenStream {
    interface::interface(args.into(), item.into()).into()
}

/// Makes a host function, a variable or an interface usable from ifuncs.
#[proc_macro_attribute]
pub fn export(args: TokenStream, item: TokenStream) -> TokenStream {
    export::export(args.into(), item.into()).into()
}

/// Declares host functions and variables that an ifunc uses.
#[proc_macro_attribute]
pub fn import(args: TokenStream, item: TokenStream) -> TokenStream {
    import::import(args.into(), item.into()).into()
}

/// Makes a type one that can travel by its bytes.
#[proc_macro_attribute]
pub fn layout(args: TokenStream, item: TokenStream) -> TokenStream {
    layout::attribute(args.into(), item.into()).into()
}

/// Describes a fixed layout.
#[proc_macro_derive(Layout, attributes(layout))]
pub fn derive_layout(input: TokenStream) -> TokenStream {
    layout::derive(input.into()).into()
}

/// Names a type whose contents only the host can access.
#[proc_macro_derive(Opaque, attributes(opaque))]
pub fn derive_opaque(input: TokenStream) -> TokenStream {
    opaque::derive(input.into()).into()
}

/// Describes what serde writes for a type.
#[proc_macro_derive(Shape, attributes(serde, shape))]
pub fn derive_shape(input: TokenStream) -> TokenStream {
    shape::derive(input.into()).into()
}
