//! Write functions that travel. An *ifunc* (injected function) is sent by a source process, code and payload, to a
//! target process, which runs it on its own data. This crate is what its author writes against.
#![no_std]

extern crate self as ifunc;

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod codec;
mod context;
pub mod cross;
#[cfg(not(ifunc_image))]
pub mod host;
#[cfg(ifunc_image)]
mod image;
mod layout;
mod opaque;
pub mod payload;
pub mod prelude;
mod shape;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use context::{Context, Level};
pub use ifunc_abi as abi;
pub use ifunc_macros::{Layout, Opaque, Shape, export, ifunc, import, layout};
pub use layout::{Layout, Portable};
pub use opaque::Foreign;
pub use payload::{Answer, DecodeError, EncodeError, Ifunc, Payload, TargetArgs};
pub use shape::Shape;
pub use {serde, zerocopy};
