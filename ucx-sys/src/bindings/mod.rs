//! What bindgen made of the headers of UCX 1.13. The names are UCX's own; so are their meanings, which its manual
//! describes.

#![allow(
    missing_docs,
    non_camel_case_types,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::too_many_arguments,
    clippy::unnecessary_operation,
    clippy::identity_op
)]

#[rustfmt::skip]
mod functions;
#[rustfmt::skip]
mod types;

pub use functions::Ucx;
pub(crate) use functions::resolve;
pub use types::*;
