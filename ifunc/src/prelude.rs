//! The names that an ifunc crate imports: `use ifunc::prelude::*;`.

pub use crate::abi::text::Text;
pub use crate::payload::{DecodeError, EncodeError, Ifunc, Payload, TargetArgs};
pub use crate::{Context, Layout, Level, Opaque, Owned, Shape};
pub use crate::{debug, error, info, trace, warn};
// The attribute alone: `crate::ifunc` is this crate, too.
pub use ifunc_macros::ifunc;
