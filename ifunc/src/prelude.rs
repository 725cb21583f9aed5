//! The names that an ifunc crate imports: `use ifunc::prelude::*;`.

pub use crate::abi::text::Text;
pub use crate::payload::{DecodeError, EncodeError, Ifunc, Payload, TargetArgs};
pub use crate::{Context, Layout, Level, Opaque, Shape, ifunc};
pub use crate::{debug, error, info, trace, warn};
